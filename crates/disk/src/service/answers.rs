//! Passes operations through the gate, and answers them when they are due.

use super::Service;
use crate::backing::{Attribute, Backing};
use crate::operations::Operation;
use fuser::{
    FileAttr, FileType, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel may cache names and attributes, with `cached`.
const CACHED_FOR: Duration = Duration::from_secs(1);
/// The same without `cached`: the duration of one call, which may request the same data several times.
const ONE_CALL: Duration = Duration::from_millis(10);

/// A reply that can carry an error.
pub(super) trait Refuse: Send + 'static {
    fn refuse(self, error: fuser::Errno);
}

macro_rules! refuse {
    ($($reply:ident)*) => {
        $(impl Refuse for $reply {
            fn refuse(self, error: fuser::Errno) {
                self.error(error);
            }
        })*
    };
}

refuse! {
    ReplyAttr ReplyCreate ReplyData ReplyDirectory ReplyDirectoryPlus ReplyEmpty ReplyEntry ReplyLseek ReplyOpen
    ReplyStatfs ReplyWrite ReplyXattr
}

/// Answers with the result of an operation.
fn conclude<R: Refuse, T>(reply: R, done: Result<T, Errno>, answer: impl FnOnce(R, T)) {
    match done {
        Ok(result) => answer(reply, result),
        Err(error) => reply.refuse(by_fuse(error)),
    }
}

fn by_fuse(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// How long the kernel may cache a reply.
#[derive(Clone, Copy)]
pub(super) struct CacheTimes(Duration);

impl CacheTimes {
    /// Zero for files with set-user-ID or set-group-ID: a write clears these bits without the kernel's knowledge, so it
    /// must always request them.
    pub(super) fn of(self, attributes: &FileAttr) -> Duration {
        let has_setid = attributes.kind == FileType::RegularFile && attributes.perm & 0o6000 != 0;
        if has_setid { Duration::ZERO } else { self.0 }
    }
}

/// Open flag of an `execve`, as passed by the kernel (`__FMODE_EXEC`).
const TO_BE_RUN: i32 = 0x20;

impl Service {
    pub(super) fn serve<R: Refuse, T: Send + 'static>(
        &self,
        operation: Operation,
        reply: R,
        work: impl FnOnce(&Backing) -> Result<T, Errno>,
        answer: impl FnOnce(R, T) + Send + 'static,
    ) {
        let turn = self.gate.arrive(operation);
        let done = match turn.error {
            Some(error) => Err(error),
            None => work(&self.backing),
        };
        let failed = done.is_err() && turn.error.is_none();
        self.gate.finish(&turn, 0, failed, move || conclude(reply, done, answer));
    }

    /// Performs an operation whose reply takes up to `most` bytes of memory. `work` returns the number of bytes read,
    /// and may fill the reply in steps.
    ///
    /// While waiting replies take too much memory, an operation is performed when its reply is due instead of at its
    /// arrival. `prepare` then returns the expected number of bytes in advance.
    pub(super) fn serve_held<R: Refuse, T: Send + 'static>(
        &self,
        operation: Operation,
        mut reply: R,
        most: usize,
        prepare: impl FnOnce(&Backing) -> u64,
        work: impl FnOnce(&Backing, &mut R) -> Result<(T, u64), Errno> + Send + 'static,
        answer: impl FnOnce(R, T) + Send + 'static,
    ) {
        let turn = self.gate.arrive(operation);
        if let Some(error) = turn.error {
            return self.gate.finish(&turn, 0, false, move || reply.refuse(by_fuse(error)));
        }
        let Some(room) = self.gate.room(&turn, most) else {
            let backing = Arc::clone(&self.backing);
            let bytes = prepare(&backing);
            return self.gate.finish_late(&turn, bytes, move |cut_short| {
                // There may be thousands of these, and the end does not wait for them. They get the kernel's error for
                // a disconnected file system.
                let done = if cut_short { Err(Errno::CONNABORTED) } else { work(&backing, &mut reply) };
                let bytes = done.as_ref().map_or(0, |(_, bytes)| *bytes);
                let failed = done.is_err() && !cut_short;
                (bytes, failed, move || conclude(reply, done.map(|(result, _)| result), answer))
            });
        };
        let done = work(&self.backing, &mut reply);
        let bytes = done.as_ref().map_or(0, |(_, bytes)| *bytes);
        let failed = done.is_err();
        self.gate.finish(&turn, bytes, failed, move || {
            conclude(reply, done.map(|(result, _)| result), answer);
            drop(room);
        });
    }

    /// Writes, followed by a `sync` if requested with the write. The sync is a separate operation that starts when the
    /// write is due.
    pub(super) fn serve_write(
        &self,
        reply: ReplyWrite,
        write: impl FnOnce(&Backing) -> Result<usize, Errno>,
        sync: Option<impl FnOnce(&Backing) -> Result<(), Errno>>,
    ) {
        let turn = self.gate.arrive(Operation::Write);
        let done = match turn.error {
            Some(error) => Err(error),
            None => write(&self.backing),
        };
        let failed = done.is_err() && turn.error.is_none();
        let answer = |reply: ReplyWrite, written: usize| reply.written(u32::try_from(written).unwrap_or(u32::MAX));
        let bytes = done.map_or(0, |written| written as u64);
        let (Ok(written), Some(sync)) = (done, sync) else {
            return self.gate.finish(&turn, bytes, failed, move || conclude(reply, done, answer));
        };
        let due = self.gate.finish_part(&turn, bytes);
        let turn = self.gate.arrive_at(Operation::Fsync, due);
        let done = match turn.error {
            Some(error) => Err(error),
            None => sync(&self.backing),
        };
        let failed = done.is_err() && turn.error.is_none();
        let done = done.map(|()| written);
        self.gate.finish(&turn, 0, failed, move || conclude(reply, done, answer));
    }

    pub(super) fn serve_empty(
        &self,
        operation: Operation,
        reply: ReplyEmpty,
        work: impl FnOnce(&Backing) -> Result<(), Errno>,
    ) {
        self.serve(operation, reply, work, |reply, ()| reply.ok());
    }

    pub(super) fn serve_entry(
        &self,
        operation: Operation,
        reply: ReplyEntry,
        work: impl FnOnce(&Backing) -> Result<FileAttr, Errno>,
    ) {
        let believed = self.believed();
        self.serve(operation, reply, work, move |reply, attributes| {
            reply.entry(&believed.of(&attributes), &attributes, Generation(0));
        });
    }

    pub(super) fn serve_attributes(
        &self,
        operation: Operation,
        reply: ReplyAttr,
        work: impl FnOnce(&Backing) -> Result<FileAttr, Errno>,
    ) {
        let believed = self.believed();
        self.serve(operation, reply, work, move |reply, attributes| {
            reply.attr(&believed.of(&attributes), &attributes);
        });
    }

    pub(super) fn serve_extended(
        &self,
        operation: Operation,
        reply: ReplyXattr,
        room: u32,
        work: impl FnOnce(&Backing, usize) -> Result<Attribute, Errno> + Send + 'static,
    ) {
        let room = room as usize;
        self.serve_held(
            operation,
            reply,
            room,
            |_| 0,
            move |backing, _| Ok((work(backing, room)?, 0)),
            |reply, attribute| match attribute {
                Attribute::Length(length) => reply.size(u32::try_from(length).unwrap_or(u32::MAX)),
                Attribute::Value(value) => reply.data(&value),
            },
        );
    }

    pub(super) fn believed(&self) -> CacheTimes {
        CacheTimes(if self.cached {
            CACHED_FOR
        } else if self.gate.concerns(Operation::Lookup) || self.gate.concerns(Operation::Getattr) {
            Duration::ZERO
        } else {
            ONE_CALL
        })
    }

    /// How the kernel handles an opened file.
    ///
    /// A program to be run is read through the page cache, into which it is mapped in any case. Only then does the
    /// kernel request the mode again when no other program can write to the file any more. The mode that it saw earlier
    /// may still have set-user-ID, although a program has since written to the file, which cleared the bit.
    pub(super) fn opened(&self, flags: i32) -> FopenFlags {
        if self.cached {
            FopenFlags::FOPEN_KEEP_CACHE
        } else if flags & TO_BE_RUN != 0 {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
    }
}

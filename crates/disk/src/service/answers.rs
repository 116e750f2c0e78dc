//! How operations go through the gate, and are answered when it is time.

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

/// How long the kernel may believe names and attributes without asking, with `cached`.
const CACHED_FOR: Duration = Duration::from_secs(1);
/// And without: for as long as one call takes, which may ask for the same several times.
const ONE_CALL: Duration = Duration::from_millis(10);

/// A reply that can say what went wrong.
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

/// Answers with what came of an operation.
fn conclude<R: Refuse, T>(reply: R, done: Result<T, Errno>, answer: impl FnOnce(R, T)) {
    match done {
        Ok(result) => answer(reply, result),
        Err(error) => reply.refuse(by_fuse(error)),
    }
}

fn by_fuse(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

/// How long the kernel may believe what it is told.
#[derive(Clone, Copy)]
pub(super) struct Believed(Duration);

impl Believed {
    /// The kernel always asks for set-user-ID and set-group-ID anew: a write takes them away, of which the kernel does
    /// not learn by itself.
    pub(super) fn of(self, attributes: &FileAttr) -> Duration {
        let has_setid = attributes.kind == FileType::RegularFile && attributes.perm & 0o6000 != 0;
        if has_setid { Duration::ZERO } else { self.0 }
    }
}

/// `O_…` flag of an open by `execve`, as the kernel passes it on (`__FMODE_EXEC`).
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

    /// Does an operation whose reply takes up to `most` bytes of memory. It says how many bytes it read, and may fill
    /// its reply by and by.
    ///
    /// While replies that wait take too much memory, an operation is done when its reply is due, not when it comes.
    /// `prepare` then says beforehand how many bytes it will read.
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
                // There may be thousands, and the end does not wait for them: they get what the kernel says of a disk
                // that is gone.
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

    /// Writes, and where a `sync` is asked with it, does that too: as an operation of its own, which begins when the
    /// write's time is over.
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

    pub(super) fn believed(&self) -> Believed {
        Believed(if self.cached {
            CACHED_FOR
        } else if self.gate.concerns(Operation::Lookup) || self.gate.concerns(Operation::Getattr) {
            Duration::ZERO
        } else {
            ONE_CALL
        })
    }

    /// How a file is opened.
    ///
    /// A program that is to be run is read by way of the page cache, into which it is mapped in any case. Only so does
    /// the kernel ask for its mode after the point from which nothing can write to it. The mode that it saw before may
    /// have set-user-ID, while another program has written to the file since, and has taken it away.
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

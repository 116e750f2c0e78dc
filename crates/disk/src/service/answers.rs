//! How operations go through the gate, and are answered when it is time.

use super::Service;
use crate::backing::{Attribute, Backing};
use crate::operations::Operation;
use fuser::{
    FileAttr, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use rustix::io::Errno;
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

fn by_fuse(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

impl Service {
    /// Does an operation, which says how many bytes it moved and may fill its reply by and by, and answers when it is
    /// time.
    pub(super) fn serve_bytes<R: Refuse, T: Send + 'static>(
        &self,
        operation: Operation,
        mut reply: R,
        work: impl FnOnce(&Backing, &mut R) -> Result<(T, u64), Errno>,
        answer: impl FnOnce(R, T) + Send + 'static,
    ) {
        let turn = self.gate.arrive(operation);
        let done = match turn.error {
            Some(error) => Err(error),
            None => work(&self.backing, &mut reply),
        };
        let bytes = done.as_ref().map_or(0, |(_, bytes)| *bytes);
        let failed = done.is_err() && turn.error.is_none();
        self.gate.finish(&turn, bytes, failed, move || match done {
            Ok((result, _)) => answer(reply, result),
            Err(error) => reply.refuse(by_fuse(error)),
        });
    }

    pub(super) fn serve<R: Refuse, T: Send + 'static>(
        &self,
        operation: Operation,
        reply: R,
        work: impl FnOnce(&Backing) -> Result<T, Errno>,
        answer: impl FnOnce(R, T) + Send + 'static,
    ) {
        self.serve_bytes(operation, reply, |backing, _| work(backing).map(|result| (result, 0)), answer);
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
        let ttl = self.believed();
        self.serve(operation, reply, work, move |reply, attributes| {
            reply.entry(&ttl, &attributes, Generation(0));
        });
    }

    pub(super) fn serve_attributes(
        &self,
        operation: Operation,
        reply: ReplyAttr,
        work: impl FnOnce(&Backing) -> Result<FileAttr, Errno>,
    ) {
        let ttl = self.believed();
        self.serve(operation, reply, work, move |reply, attributes| reply.attr(&ttl, &attributes));
    }

    pub(super) fn serve_extended(
        &self,
        operation: Operation,
        reply: ReplyXattr,
        room: u32,
        work: impl FnOnce(&Backing, usize) -> Result<Attribute, Errno>,
    ) {
        self.serve(
            operation,
            reply,
            |backing| work(backing, room as usize),
            |reply, attribute| match attribute {
                Attribute::Length(length) => reply.size(u32::try_from(length).unwrap_or(u32::MAX)),
                Attribute::Value(value) => reply.data(&value),
            },
        );
    }

    /// How long the kernel may believe what it is told.
    pub(super) fn believed(&self) -> Duration {
        if self.cached {
            CACHED_FOR
        } else if self.gate.concerns(Operation::Lookup) || self.gate.concerns(Operation::Getattr) {
            Duration::ZERO
        } else {
            ONE_CALL
        }
    }

    pub(super) fn opened(&self) -> FopenFlags {
        if self.cached {
            FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
    }
}

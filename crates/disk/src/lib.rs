//! A directory whose operations are delayed or made to fail.
//!
//! [`mount`] shows a *backing* directory at a *mount point*, through FUSE. Operations of programs are performed in the
//! backing directory and answered when the asked delay has passed; a share of them can be made to fail. Without the
//! page cache (the default), every read and write of a program is an operation; with it, reads of cached data are not.
//!
//! ```text
//! program ──▶ kernel ──▶ gate (how long? fail?) ──▶ backing directory
//!                ▲                                        │
//!                └───── later (timer threads) ◀───────────┘
//! ```
//!
//! Guarantees: no operation is answered before its delay is over; no operation waits for the delay of another; an
//! answered operation is in the backing directory, even if this process is killed; the same seed gives the same delays
//! and errors, in order of operations.

mod backing;
mod callers;
mod delay;
mod error;
mod fault;
mod gate;
mod limits;
mod mount;
mod mounts;
mod nodes;
mod operations;
mod reading;
mod report;
mod scheduler;
mod service;

pub use delay::Delay;
pub use error::Error;
pub use fault::Fault;
pub use limits::Limits;
pub use mount::{Ended, Mounted, mount, permitted, unmount};
pub use operations::{Operation, Operations};
pub use report::{Tallies, Tally, Times};

use std::path::PathBuf;
use units::BitRate;

/// Configuration of a disk.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The backing directory.
    pub backing: PathBuf,
    /// The mount point.
    pub mount: PathBuf,
    /// Delays. Each applies to the operations that it names, else to [`DiskConfig::operations`].
    pub delays: Vec<Delay>,
    /// Rate of bytes read and written in total.
    pub rate: Option<BitRate>,
    /// Injected errors. Each applies to the operations that it names, else to [`DiskConfig::operations`].
    pub errors: Vec<Fault>,
    /// The operations for delays and errors that name none.
    pub operations: Operations,
    /// Uses the page cache.
    pub cached: bool,
    /// Lets set-user-ID files and file capabilities work at the mount point even if the mount of the backing directory
    /// is `nosuid`. Needs root.
    pub allow_suid: bool,
    /// Seed of delays and errors.
    pub seed: u64,
}

impl DiskConfig {
    /// A disk without delays or errors.
    #[must_use]
    pub fn new(backing: PathBuf, mount: PathBuf) -> Self {
        let operations = Operations::default();
        DiskConfig {
            backing,
            mount,
            delays: Vec::new(),
            rate: None,
            errors: Vec::new(),
            operations,
            cached: false,
            allow_suid: false,
            seed: 1,
        }
    }
}

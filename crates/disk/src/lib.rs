//! A directory whose operations take time.
//!
//! [`mount`] shows a *backing* directory at a *mount point*, through FUSE. What programs do there is
//! done in the backing directory, and answered when it has taken as long as asked; a share of it can
//! be made to fail. Without the page cache between (the default) every read and write of a program is
//! an operation; with it, reads of what is cached are none.
//!
//! ```text
//! program ──▶ kernel ──▶ gate (how long? fail?) ──▶ backing directory
//!                ▲                                        │
//!                └───── later (timer threads) ◀───────────┘
//! ```
//!
//! Guarantees: no operation is answered before its delay is over; none waits for another's delay;
//! what was answered is in the backing directory, also if this process is killed; the same seed gives
//! the same delays and errors in the order in which operations come.

mod backing;
mod callers;
mod delay;
mod error;
mod fault;
mod gate;
mod later;
mod limits;
mod mount;
mod mounts;
mod nodes;
mod operations;
mod reading;
mod report;
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

/// What is asked of a disk.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The directory that is shown.
    pub backing: PathBuf,
    /// Where it is shown.
    pub mount: PathBuf,
    /// How long operations take: those that a delay names, or each of [`Ask::operations`].
    pub delays: Vec<Delay>,
    /// How fast bytes are read and written, all together.
    pub rate: Option<BitRate>,
    /// What fails, and how often: of the operations that an error names, or each of [`Ask::operations`].
    pub errors: Vec<Fault>,
    /// The operations that are delayed and made to fail where delays and errors name none.
    pub operations: Operations,
    /// The page cache is used.
    pub cached: bool,
    /// Set-user-ID files and file capabilities work at the mount point even where the mount of the backing directory
    /// is `nosuid`. Needs root.
    pub allow_suid: bool,
    /// Seed of delays and errors.
    pub seed: u64,
}

impl Ask {
    /// A directory that is shown as it is.
    #[must_use]
    pub fn new(backing: PathBuf, mount: PathBuf) -> Self {
        let operations = Operations::default();
        Ask {
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

//! Probes for programs: NetSlice's five operations in user space.
//!
//! A program *configures* a ring in a file. For each packet (or request, or other unit of work) it *inits* a [`Block`],
//! *starts* and *stops* sections by number, and *exits*. The block then goes into the ring, where `netlathe slice
//! attach` finds it. A start and a stop together cost about two readings of the time-stamp counter. While the ring is
//! not enabled, each operation costs one branch.
//!
//! ```no_run
//! use probe::{Direction, Ring};
//! let ring = Ring::configure("/dev/shm/server.probes", 16 << 20)?;
//! ring.name(1, "parse");
//! let mut block = ring.init(6, Direction::Receive);
//! block.start(1);
//! // … the measured code …
//! block.stop(1);
//! ring.exit(block);
//! # Ok::<(), std::io::Error>(())
//! ```
//! `include/netlathe_probe.h` is a single-header equivalent for C. Both write the same ring, laid out in [`layout`].

pub mod layout;
mod map;
mod reader;
mod ring;

pub use map::ticks;
pub use reader::{Costs, Data, Reader, Section};
pub use ring::{Block, Direction, Ring};

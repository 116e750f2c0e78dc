//! Probes for programs: NetSlice's five operations in user space.
//!
//! A program *configures* a ring in a file, and for each packet (or request, or whatever it handles) *inits* a
//! [`Block`], *starts* and *stops* sections by their numbers, and *exits*: the block goes into the ring, where
//! `netlathe slice attach` finds it. A start and a stop together cost about two readings of the time-stamp counter; a
//! ring that nobody enabled costs one branch per operation.
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
//! `include/netlathe_probe.h` is the same for C, in one header; both write the same ring, laid out in [`layout`].

pub mod layout;
mod map;
mod reader;
mod ring;

pub use map::ticks;
pub use reader::{Costs, Data, Reader, Section};
pub use ring::{Block, Direction, Ring};

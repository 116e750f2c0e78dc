//! Measures where a packet spends its time, in slices of its path. The cost of measuring is known and subtracted.
//!
//! Kernel slices ([`Kernel`]) come from programs at the kernel's own tracepoints. Each [`Record`] is one frame with the
//! stamps of its path. A slice is the time from one stamp to the next ([`Slice`]), so the slices of a frame do not
//! overlap and their sum is its whole time. [`SliceBook`] collects them; [`Costs`] holds the cost of a probe on this
//! machine.
//!
//! The corrections are those of NetSlice (*formulas (1) to (5)* of the paper): see [`formulas`].

mod calibrate;
mod costs;
mod error;
mod events;
pub mod formulas;
mod journal;
mod journey;
mod kernel;
mod program;
mod record;
mod settings;
mod slice_book;
mod slices;
mod table;
mod windows;

pub use calibrate::calibrate;
pub use costs::{Costs, EventCost, ProbeCost};
pub use error::Error;
pub use events::{Event, EventCounters, EventTotal, MOST_EVENTS, Unsupported};
pub use journal::{Entry, Header, Journal, JournalWriter};
pub use journey::{Ends, ForwardedPacket, Journey, Key};
pub use kernel::{Counters, Kernel, Points};
pub use program::{ProgramBook, ProgramReport, SectionReport};
pub use record::{Ended, Flow, Point, Probe, Record, Stamp};
pub use settings::{Direction, Filter};
pub use slice_book::{Counted, Loop, Packets, SliceBook, SliceReport};
pub use slices::Slice;
pub use table::{counter_table, line, packet_table, path_parts, program_text, waterfall};
pub use windows::{Turn, Turns, Windows};

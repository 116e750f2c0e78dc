//! Sources that make frames from a description.

mod mix;
mod stream;

pub use mix::{Mix, SizeSpec, Sizes};
pub use stream::{Field, Stream, StreamSpec};

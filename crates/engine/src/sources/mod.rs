//! Sources that generate frames from a description.

mod host;
mod mix;
mod spec;
mod stream;
mod values;

pub use host::{Destinations, Host};
pub use mix::{Mix, SizeSpec, Sizes};
pub use spec::{Payload, Stack, StreamSpec, Tunnel};
pub use stream::Streams;
pub use values::Values;

//! Frames as bytes.

mod frame;

pub use frame::{Frame, HeapFrame};

//! Exact time, rates, lengths and shares.
//!
//! Everything is an integer with its unit in its type: [`Time`] and [`Span`] count picoseconds, [`BitRate`] bits per
//! second, [`FrameLen`] and [`WireLen`] bytes. Parsing is exact (`1234.567ns` is 1 234 567 ps) or fails; it never
//! rounds.
//!
//! A bare number is always an error. Tools of this field disagree on the meaning of `delay 100` (`tc` itself changed
//! from microseconds to nanoseconds), so a unit is required.

mod length;
mod measured;
mod nearest;
mod number;
mod quoted;
mod rate;
mod share;
mod time;

pub use length::{FrameLen, WireLen, parse_size};
pub use measured::measured;
pub use nearest::nearest;
pub use number::ParseError;
pub use quoted::quoted;
pub use rate::{BitRate, FrameRate, Layer, Rate};
pub use share::Share;
pub use time::{PS_PER_NS, PS_PER_S, Span, Time};

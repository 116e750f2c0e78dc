//! Exact time, rates, lengths and shares.
//!
//! Everything here is an integer with its unit in its type: [`Time`] and [`Span`] count picoseconds,
//! [`BitRate`] bits per second, [`FrameLen`] and [`WireLen`] bytes. Text is read exactly
//! (`1234.567ns` is 1 234 567 ps) or refused; nothing is rounded on the way in.
//!
//! A bare number is always an error: tools of this field disagree on what `delay 100` means
//! (`tc` itself changed from microseconds to nanoseconds), so a unit must be written.

mod length;
mod number;
mod rate;
mod share;
mod time;

pub use length::{FrameLen, WireLen, parse_size};
pub use number::ParseError;
pub use rate::{BitRate, FrameRate, Layer, Rate};
pub use share::Share;
pub use time::{PS_PER_NS, PS_PER_S, Span, Time};

//! Schedules say *when* a frame departs, never how.
//!
//! All of them are absolute: the next due instant follows from the one before it, not from when the
//! frame really left, so that a late departure shifts none of the others. A schedule that finds no
//! frame ready when one is due is *starved*: it starts anew at the next arrival.
//!
//! Adding a schedule is a file here, a variant of [`Ask`] and its line in [`Ask::schedule`].

mod fixed_gap;
mod rate;

pub use fixed_gap::FixedGap;
pub use rate::ConstantRate;

use crate::Line;
use units::{BitRate, FrameLen, FrameRate, Layer, Rate, Share, Span, Time};

/// The lengths of a frame that schedules count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The frame with FCS.
    pub frame: FrameLen,
    /// Bytes of the IP packet inside; the frame's payload where there is no IP packet.
    pub packet: u32,
}

/// When a frame is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The instant asked for; never before the frame was ready.
    pub at: Time,
    /// A frame was due earlier, but none was ready.
    pub starved: bool,
}

/// Gives each frame, in order, the instant at which it should depart.
pub trait Schedule: Send {
    /// When a frame that became ready at `ready` should depart.
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due;

    /// True if the schedule reads [`Lengths::packet`], so that others need not look into frames.
    fn counts_packets(&self) -> bool {
        false
    }
}

/// What may be asked of departures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ask {
    /// Nothing: frames leave as soon as they can.
    #[default]
    Nothing,
    /// A fixed inter-departure time.
    Gap(Span),
    /// A constant rate.
    Rate(Rate),
}

/// Why an ask cannot be had at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// A share of line rate was asked where there is no line rate.
    NoLine,
    /// More than the line carries was asked.
    AboveLine(BitRate),
}

impl Ask {
    /// The schedule that keeps this ask; `line` is that of the output, if it has a line rate.
    ///
    /// # Errors
    /// When the ask is above the line rate, or a share of a line rate that is not there.
    pub fn schedule(self, line: Option<Line>) -> Result<Box<dyn Schedule>, Impossible> {
        let line_rate = line.map(|line| line.rate());
        Ok(match self {
            Ask::Nothing => Box::new(AsReady),
            Ask::Gap(gap) => Box::new(FixedGap::new(gap)),
            Ask::Rate(Rate::Bits(rate, layer)) => {
                if let Some(line) = line_rate.filter(|line| rate > *line) {
                    return Err(Impossible::AboveLine(line));
                }
                Box::new(ConstantRate::bits(rate, layer))
            }
            Ask::Rate(Rate::Frames(rate)) => {
                if let Some(line) = line_rate.filter(|line| Self::floods(rate, *line)) {
                    return Err(Impossible::AboveLine(line));
                }
                Box::new(ConstantRate::frames(rate))
            }
            Ask::Rate(Rate::Line(share)) => Box::new(ConstantRate::share(share, line_rate.ok_or(Impossible::NoLine)?)),
        })
    }

    /// Even the smallest frames at this rate are more than the line carries.
    fn floods(rate: FrameRate, line: BitRate) -> bool {
        let bits = u128::from(units::WireLen::MIN.bytes()) * 8;
        u128::from(rate.millis()) * bits > u128::from(line.bps()) * 1_000
    }

    /// The fixed gap asked for, if one is.
    #[must_use]
    pub fn fixed_gap(self) -> Option<Span> {
        match self {
            Ask::Gap(gap) => Some(gap),
            Ask::Nothing | Ask::Rate(_) => None,
        }
    }
}

/// The schedule of those who ask nothing.
pub(crate) struct AsReady;

impl Schedule for AsReady {
    fn depart(&mut self, ready: Time, _: &Lengths) -> Due {
        Due { at: ready, starved: false }
    }
}

/// A share of line rate leaves the wire busy for that share of the time.
fn wire_share(share: Share, line: BitRate) -> (u128, u128) {
    let units = u128::from(Share::ONE.ppb());
    (units, u128::from(line.bps()) * u128::from(share.ppb()))
}

/// What a layer counts of a frame, in bytes.
fn counted(layer: Layer, lengths: &Lengths) -> u32 {
    match layer {
        Layer::Frame => lengths.frame.bytes(),
        Layer::Wire => lengths.frame.on_wire().bytes(),
        Layer::Ip => lengths.packet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_above_the_line_are_refused() {
        let line = Some(Line::new(BitRate::from_gbps(10)));
        let ask = |text: &str| Ask::Rate(text.parse().expect("a rate"));
        assert!(ask("10Gbps").schedule(line).is_ok());
        assert_eq!(ask("10.1Gbps").schedule(line).err(), Some(Impossible::AboveLine(BitRate::from_gbps(10))));
        assert!(ask("14.88Mpps").schedule(line).is_ok());
        assert!(ask("14.89Mpps").schedule(line).is_err());
        assert!(ask("100Gbps").schedule(None).is_ok(), "a port without line rate has no line to exceed");
        assert_eq!(ask("50%").schedule(None).err(), Some(Impossible::NoLine));
        assert!(ask("50%").schedule(line).is_ok());
    }
}

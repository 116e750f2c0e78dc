//! Schedules say *when* a frame departs, never how.
//!
//! All of them are absolute: the next due instant follows from the one before it, not from when the
//! frame really left, so that a late departure shifts none of the others. A schedule that finds no
//! frame ready when one is due is *starved*: it starts anew at the next arrival.
//!
//! Laws of gaps are in [`laws`], waveforms in [`waves`].

mod fixed_gap;
mod follow_depth;
pub mod laws;
mod rate;
pub mod waves;

pub use fixed_gap::FixedGap;
pub use follow_depth::{DepthSchedule, FollowDepth};
use laws::{GapLaw, LawSchedule};
pub use rate::ConstantRate;
use waves::{Wave, WaveSchedule};

use crate::Line;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use units::{BitRate, FrameLen, FrameRate, Layer, ParseError, Rate, Share, Span, Time};

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

    /// As [`depart`](Schedule::depart), for frames of these lengths that follow each other and are all ready
    /// at `ready`; only for schedules that do not count packets. Appends when each is due.
    // Given here, it is compiled for each schedule: one call by table for many frames.
    fn depart_all(&mut self, ready: Time, frames: &[FrameLen], dues: &mut Vec<Due>) {
        dues.extend(frames.iter().map(|frame| self.depart(ready, &Lengths { frame: *frame, packet: 0 })));
    }

    /// What comes from now on comes `late` later: a late departure is not to be made good.
    fn forgive(&mut self, late: Span);

    /// True if the schedule reads [`Lengths::packet`], so that others need not look into frames.
    fn counts_packets(&self) -> bool {
        false
    }

    /// True once a frame was told that it will never depart ([`Time::MAX`]), since nothing is asked any
    /// more.
    fn ended(&self) -> bool {
        false
    }

    /// The share of a waveform's integral so far that no frame was there to use.
    fn forfeited(&self) -> Option<f64> {
        None
    }

    /// How much later the first departure should have been for none to be starved, by what was asked so
    /// far; `None` where that cannot be told.
    fn short(&self) -> Option<Span> {
        None
    }

    /// True if frames depart as soon as they are ready.
    fn asks_nothing(&self) -> bool {
        false
    }

    /// True if the rate depends on how many frames wait.
    fn watches_depth(&self) -> bool {
        false
    }

    /// So many frames wait behind the one that departs now; told to those who watch the depth.
    fn waiting(&mut self, _frames: u64) {}

    /// The law that gaps are drawn from, to judge them by.
    fn law(&self) -> Option<Arc<dyn measure::Reference>> {
        None
    }
}

/// What may be asked of departures.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Ask {
    /// Nothing: frames leave as soon as they can.
    #[default]
    Nothing,
    /// A fixed inter-departure time.
    Gap(Span),
    /// A fixed time from the end of a frame to the start of the next.
    IdleGap(Span),
    /// Gaps of a law.
    Law(Arc<GapLaw>),
    /// A constant rate.
    Rate(Rate),
    /// A rate that changes with time.
    Wave(Arc<Wave>),
    /// A rate that follows the number of frames waiting.
    Depth(FollowDepth),
}

/// Where asks read the files that they name: the engine itself opens nothing.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn text(&self, path: &Path) -> Result<String, ParseError>;

    /// Looks whether frames can be read from a capture when the time comes.
    ///
    /// # Errors
    /// The file cannot be read, or is no capture of packets.
    fn capture(&self, _path: &Path) -> Result<(), ParseError> {
        Ok(())
    }

    /// The times between the records of a capture, in ps.
    ///
    /// # Errors
    /// The file cannot be read, or is no capture.
    fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError>;

    /// The bytes of a frame of a capture, without FCS; the first one is number 1.
    ///
    /// # Errors
    /// The file cannot be read, is no capture, or has fewer frames.
    fn frame(&self, path: &Path, number: u64) -> Result<Vec<u8>, ParseError>;

    /// What is to be told of memory that will be large and read at random, before it is used: a machine may have
    /// larger pages for it. Nothing, unless there is something to tell.
    fn memory(&self) -> Option<Advise> {
        None
    }
}

/// The same text in every file.
#[cfg(test)]
pub(crate) struct Text(pub(crate) &'static str);

#[cfg(test)]
impl Files for Text {
    fn text(&self, _: &Path) -> Result<String, ParseError> {
        Ok(self.0.to_owned())
    }

    fn capture_gaps(&self, _: &Path) -> Result<Vec<u64>, ParseError> {
        Ok(Vec::new())
    }

    fn frame(&self, _: &Path, _: u64) -> Result<Vec<u8>, ParseError> {
        Ok(Vec::new())
    }
}

/// The lines of a trace of Mahimahi (Netravali et al. 2015): each is a millisecond at which 1500 bytes may go, and
/// after the last one the trace starts again.
///
/// # Errors
/// A file that cannot be read or has no opportunities, or the line that is none.
pub(crate) fn delivery_opportunities(files: &dyn Files, path: &Path) -> Result<Vec<u64>, ParseError> {
    const HOW: &str = "write a whole number of milliseconds on each line, in order, the last one above 0";
    const LONGEST: u64 = 86_400_000;
    let name = path.display();
    let mut times: Vec<u64> = Vec::new();
    for (number, line) in (1..).zip(files.text(path)?.lines()) {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |what: &str| ParseError::new(format!("{name}:{number}: '{line}' {what}"), HOW);
        let time: u64 = line.parse().ok().filter(|ms| *ms <= LONGEST).ok_or_else(|| wrong("is no time in ms"))?;
        if times.last().is_some_and(|before| *before > time) {
            return Err(wrong("is before the line ahead of it"));
        }
        times.push(time);
    }
    if times.last().is_none_or(|last| *last == 0) {
        return Err(ParseError::new(format!("{name} has no delivery opportunities"), HOW));
    }
    Ok(times)
}

/// Is told where large memory begins and ends; changes nothing that is in it.
pub type Advise = fn(std::ops::Range<*const u8>);

/// What draws are keyed by and how many there will be.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// Seed of the run.
    pub seed: u64,
    /// Path of the pipeline within it.
    pub path: &'a str,
    /// Frames that will come, if that is known.
    pub frames: Option<u64>,
}

/// Why an ask cannot be had at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// A share of line rate was asked where there is no line rate.
    NoLine,
    /// More than the line carries was asked.
    AboveLine(BitRate),
    /// A law that cannot be had.
    Law(ParseError),
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Impossible::NoLine => f.write_str(
                "this is a share of line rate, which only wire: and physical NICs have: write a rate such as 5Gbps",
            ),
            Impossible::AboveLine(line) => write!(f, "this is above the line rate of {line}: write less"),
            Impossible::Law(error) => error.fmt(f),
        }
    }
}

impl Ask {
    /// The schedule that keeps this ask; `line` is that of the output, if it has a line rate.
    ///
    /// # Errors
    /// As [`Ask::check`], or a law that cannot be had.
    pub fn schedule(&self, line: Option<Line>, draw: Draw<'_>) -> Result<Box<dyn Schedule>, Impossible> {
        self.check(line)?;
        Ok(match self {
            Ask::Nothing => Box::new(AsReady),
            Ask::Gap(gap) => Box::new(FixedGap::new(*gap)),
            Ask::IdleGap(gap) => Box::new(FixedGap::idle(*gap, line)),
            Ask::Law(law) => Box::new(LawSchedule::new(law, line, draw).map_err(Impossible::Law)?),
            Ask::Wave(wave) => Box::new(WaveSchedule::new(wave, line)?),
            Ask::Depth(follow) => Box::new(DepthSchedule::new(*follow, line)),
            Ask::Rate(Rate::Bits(rate, layer)) => Box::new(ConstantRate::bits(*rate, *layer)),
            Ask::Rate(Rate::Frames(rate)) => Box::new(ConstantRate::frames(*rate)),
            Ask::Rate(Rate::Line(share)) => {
                Box::new(ConstantRate::share(*share, line.ok_or(Impossible::NoLine)?.rate()))
            }
        })
    }

    /// Whether the ask can be had on `line`.
    ///
    /// # Errors
    /// When the ask is above the line rate, or a share of a line rate that is not there.
    pub fn check(&self, line: Option<Line>) -> Result<(), Impossible> {
        match self {
            Ask::Rate(rate) => fits(*rate, line),
            Ask::Wave(wave) => wave.check(line),
            Ask::Depth(follow) => follow.check(line),
            Ask::Nothing | Ask::Gap(_) | Ask::IdleGap(_) | Ask::Law(_) => Ok(()),
        }
    }

    /// Reads the files that the ask names.
    ///
    /// # Errors
    /// A file that cannot be read, or does not hold what it should, with its line.
    pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        match self {
            Ask::Law(law) => Arc::make_mut(law).load(files),
            Ask::Wave(wave) => Arc::make_mut(wave).load(files),
            Ask::Nothing | Ask::Gap(_) | Ask::IdleGap(_) | Ask::Rate(_) | Ask::Depth(_) => Ok(()),
        }
    }

    /// The fixed gap asked for from start to start, if one is.
    #[must_use]
    pub fn fixed_gap(&self) -> Option<Span> {
        match self {
            Ask::Gap(gap) => Some(*gap),
            _ => None,
        }
    }
}

/// Whether a rate can be had on `line`.
fn fits(rate: Rate, line: Option<Line>) -> Result<(), Impossible> {
    match (rate, line.map(|line| line.rate())) {
        (Rate::Line(_), None) => Err(Impossible::NoLine),
        (Rate::Bits(rate, _), Some(line)) if rate > line => Err(Impossible::AboveLine(line)),
        (Rate::Frames(rate), Some(line)) if floods(rate, line) => Err(Impossible::AboveLine(line)),
        _ => Ok(()),
    }
}

/// Even the smallest frames at this rate are more than the line carries.
fn floods(rate: FrameRate, line: BitRate) -> bool {
    let bits = u128::from(units::WireLen::MIN.bytes()) * 8;
    u128::from(rate.millis()) * bits > u128::from(line.bps()) * 1_000
}

/// When a frame that starts at `at` ends on a line: with its FCS, before the gap that Ethernet keeps.
/// Where there is no line a frame takes no time.
fn wire_end(at: Time, line: Option<Line>, lengths: &Lengths) -> Time {
    line.map_or(at, |line| at + line.span(lengths.frame.with_preamble().into()))
}

/// The schedule of those who ask nothing.
pub(crate) struct AsReady;

impl Schedule for AsReady {
    fn depart(&mut self, ready: Time, _: &Lengths) -> Due {
        Due { at: ready, starved: false }
    }

    fn asks_nothing(&self) -> bool {
        true
    }

    fn forgive(&mut self, _: Span) {}
}

/// A share of line rate leaves the wire busy for that share of the time.
fn wire_share(share: Share, line: BitRate) -> (u128, u128) {
    let units = u128::from(Share::ONE.ppb());
    (units, u128::from(line.bps()) * u128::from(share.ppb()))
}

/// The greatest common divisor.
fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
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
        let draw = Draw { seed: 1, path: "test", frames: None };
        assert!(ask("10Gbps").schedule(line, draw).is_ok());
        assert_eq!(ask("10.1Gbps").schedule(line, draw).err(), Some(Impossible::AboveLine(BitRate::from_gbps(10))));
        assert!(ask("14.88Mpps").schedule(line, draw).is_ok());
        assert!(ask("14.89Mpps").schedule(line, draw).is_err());
        assert!(ask("100Gbps").schedule(None, draw).is_ok(), "a port without line rate has no line to exceed");
        assert_eq!(ask("50%").schedule(None, draw).err(), Some(Impossible::NoLine));
        assert!(ask("50%").schedule(line, draw).is_ok());
    }
}

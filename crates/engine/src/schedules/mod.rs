//! Schedules decide *when* a frame departs, not how.
//!
//! All schedules are absolute. Each due time follows from the preceding due time, not from the actual departure, so a
//! late departure does not delay later ones. A schedule with a due departure but no ready frame is *starved*: it
//! restarts at the next arrival.
//!
//! Laws of gaps are in [`laws`], waveforms in [`waves`].

mod columns;
mod every_nth;
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
use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use units::{BitRate, FrameLen, FrameRate, Layer, ParseError, Rate, Share, Span, Time};

/// The lengths of a frame, as input for schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Length of the frame with FCS.
    pub frame: FrameLen,
    /// Length of the IP packet in bytes, or of the frame's payload if there is no IP packet.
    pub packet: u32,
}

/// When a frame is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The target instant; never before the frame was ready.
    pub at: Time,
    /// True if an earlier departure was due while no frame was ready.
    pub starved: bool,
}

/// Assigns a departure time to each frame, in order.
pub trait Schedule: Send {
    /// The departure of a frame that became ready at `ready`.
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due;

    /// Like [`depart`](Schedule::depart), for consecutive frames of these lengths that are all ready at `ready`.
    /// Appends the departures to `dues`. Only for schedules that do not count packets.
    // A provided method is compiled for each schedule: one virtual call for many frames.
    fn depart_all(&mut self, ready: Time, frames: &[FrameLen], dues: &mut Vec<Due>) {
        dues.extend(frames.iter().map(|frame| self.depart(ready, &Lengths { frame: *frame, packet: 0 })));
    }

    /// Delays all future departures by `late`, because a late departure is forgiven.
    fn forgive(&mut self, late: Span);

    /// When the next departure is due, if that is known without its frame.
    fn next(&self) -> Option<Time> {
        None
    }

    /// Takes over at `at` from another schedule, whose last frame departed at `last` with these `lengths`. The next
    /// departure keeps the distance of this schedule to `last`, but is not before `at`: the schedule does not make up
    /// for earlier time.
    fn follow(&mut self, at: Time, last: Time, lengths: &Lengths) {
        self.depart(last, lengths);
        if let Some(next) = self.next().filter(|next| *next < at) {
            self.forgive(at.since(next));
        }
    }

    /// True if the schedule reads [`Lengths::packet`]. If not, callers need not parse frames.
    fn counts_packets(&self) -> bool {
        false
    }

    /// True once the schedule has ended and a frame got a departure that never comes ([`Time::MAX`]).
    fn ended(&self) -> bool {
        false
    }

    /// The share of a waveform's integral so far that was unused because no frame was ready.
    fn forfeited(&self) -> Option<f64> {
        None
    }

    /// The delay of the first departure with which no departure so far would have been starved; `None` if unknown.
    fn short(&self) -> Option<Span> {
        None
    }

    /// True if the length of a frame changes later departures.
    fn counts_lengths(&self) -> bool {
        true
    }

    /// The departures of queue number `queue`, from 0, of `queues` that send at the same time and together follow this
    /// schedule, from its beginning. `None` if they depend on what happens to frames.
    fn share(&self, _queue: u64, _queues: u64) -> Option<Box<dyn Schedule>> {
        None
    }

    /// True if frames depart as soon as they are ready.
    fn asks_nothing(&self) -> bool {
        false
    }

    /// True if the rate depends on the queue depth.
    fn watches_depth(&self) -> bool {
        false
    }

    /// Receives the number of frames that wait after the one that departs now. Called only if
    /// [`watches_depth`](Schedule::watches_depth) is true.
    fn waiting(&mut self, _frames: u64) {}

    /// The steps of a waveform that are measured separately.
    fn steps(&self) -> Option<measure::StepPlan> {
        None
    }

    /// The law of the gaps, as a reference for measurements.
    fn law(&self) -> Option<Arc<dyn measure::Reference>> {
        None
    }
}

/// A target for departures.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Target {
    /// No target: frames leave as soon as possible.
    #[default]
    Nothing,
    /// A fixed inter-departure time.
    Gap(Span),
    /// A fixed time from the end of a frame to the start of the next.
    IdleGap(Span),
    /// Gaps drawn from a law.
    Law(Arc<GapLaw>),
    /// A constant rate.
    Rate(Rate),
    /// A rate that varies over time.
    Wave(Arc<Wave>),
    /// A rate that follows the queue depth.
    Depth(FollowDepth),
}

/// Reads the files that targets name. The engine itself opens no files.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn text(&self, path: &Path) -> Result<String, ParseError>;

    /// Checks that frames can be read from a capture later.
    ///
    /// # Errors
    /// The file cannot be read or is not a capture of packets.
    fn capture(&self, _path: &Path) -> Result<(), ParseError> {
        Ok(())
    }

    /// The gaps between the records of a capture, in ps.
    ///
    /// # Errors
    /// The file cannot be read or is not a capture.
    fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError>;

    /// The bytes of a frame of a capture, without FCS. Numbers start at 1.
    ///
    /// # Errors
    /// The file cannot be read, is not a capture, or has fewer frames.
    fn frame(&self, path: &Path, number: u64) -> Result<Vec<u8>, ParseError>;

    /// A function to call with the address range of large, randomly accessed memory before its first use, for example
    /// to request huge pages. `None` if there is nothing to do.
    fn memory(&self) -> Option<Advise> {
        None
    }
}

/// Returns the same text for every file.
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

/// Parses a Mahimahi trace (Netravali et al. 2015). Each line is a time in ms at which 1500 bytes may be sent. After
/// the last one the trace restarts. Mahimahi's own traces have whole milliseconds; other times are rounded to 1 ps.
///
/// # Errors
/// A file that cannot be read or has no opportunities; else the first invalid line.
pub(crate) fn delivery_opportunities(files: &dyn Files, path: &Path) -> Result<Vec<Span>, ParseError> {
    const HOW: &str = "write a number of milliseconds on each line, in order, the last one above 0";
    const LONGEST: Span = Span::from_ms(86_400_000);
    let before = Cell::new(Span::ZERO);
    let read = |word: &str| {
        let wrong = |what: &str| Err((what.to_owned(), HOW.to_owned()));
        let bare = word.ends_with(|c: char| c.is_ascii_digit() || c == '.');
        let time = bare.then(|| units::measured::<Span>(&format!("{word}ms")).ok()).flatten();
        match time.filter(|time| *time <= LONGEST) {
            None => wrong("is not a time in ms"),
            Some(time) if time < before.get() => wrong("is earlier than the preceding line"),
            Some(time) => {
                before.set(time);
                Ok(time)
            }
        }
    };
    let times = columns::read(&files.text(path)?, path, read)?;
    if times.last().is_none_or(|last| *last == Span::ZERO) {
        return Err(ParseError::new(format!("{} has no delivery opportunities", path.display()), HOW));
    }
    Ok(times)
}

/// Receives the address range of large memory. Must not change its contents.
pub type Advise = fn(std::ops::Range<*const u8>);

/// The parameters of random draws: seed, path, and number of frames.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// Seed of the run.
    pub seed: u64,
    /// Path of the pipeline in the run.
    pub path: &'a str,
    /// Number of frames, if known.
    pub frames: Option<u64>,
}

/// Why a target is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// A share of line rate, but the line rate is unknown.
    NoLine,
    /// More than the line can carry.
    AboveLine(BitRate),
    /// An impossible law.
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

impl Target {
    /// The schedule for this target. `line` is the line of the output, if its rate is known.
    ///
    /// # Errors
    /// As [`Target::check`], or an impossible law.
    pub fn schedule(&self, line: Option<Line>, draw: Draw<'_>) -> Result<Box<dyn Schedule>, Impossible> {
        self.check(line)?;
        Ok(match self {
            Target::Nothing => Box::new(AsReady),
            Target::Gap(gap) => Box::new(FixedGap::new(*gap)),
            Target::IdleGap(gap) => Box::new(FixedGap::idle(*gap, line)),
            Target::Law(law) => Box::new(LawSchedule::new(law, line, draw).map_err(Impossible::Law)?),
            Target::Wave(wave) => Box::new(WaveSchedule::new(wave, line)?),
            Target::Depth(follow) => Box::new(DepthSchedule::new(*follow, line)),
            Target::Rate(Rate::Bits(rate, layer)) => Box::new(ConstantRate::bits(*rate, *layer)),
            Target::Rate(Rate::Frames(rate)) => Box::new(ConstantRate::frames(*rate)),
            Target::Rate(Rate::Line(share)) => {
                Box::new(ConstantRate::share(*share, line.ok_or(Impossible::NoLine)?.rate()))
            }
        })
    }

    /// The configured rates in `windows` consecutive windows from the first departure on, in bit/s of frames with FCS.
    /// `length` is the mean length of frames in bytes. `None` if the target is not a rate.
    #[must_use]
    pub fn typed(&self, line: Option<Line>, length: f64, window: Span, windows: usize) -> Option<Vec<f64>> {
        match self {
            Target::Wave(wave) => wave.typed(line, length, window, windows),
            Target::Rate(rate) => Some(vec![waves::frame_bits(*rate, line, length); windows]),
            Target::Gap(gap) => Some(vec![length * 8.0 / gap.as_ns_f64() * 1e9; windows]),
            Target::Nothing | Target::IdleGap(_) | Target::Law(_) | Target::Depth(_) => None,
        }
    }

    /// Checks that `line` allows the target.
    ///
    /// # Errors
    /// A target above the line rate, or a share of an unknown line rate.
    pub fn check(&self, line: Option<Line>) -> Result<(), Impossible> {
        match self {
            Target::Rate(rate) => fits(*rate, line),
            Target::Wave(wave) => wave.check(line),
            Target::Depth(follow) => follow.check(line),
            Target::Nothing | Target::Gap(_) | Target::IdleGap(_) | Target::Law(_) => Ok(()),
        }
    }

    /// Reads the files that the target names.
    ///
    /// # Errors
    /// A file that cannot be read or has invalid content, with its line.
    pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        match self {
            Target::Law(law) => Arc::make_mut(law).load(files),
            Target::Wave(wave) => Arc::make_mut(wave).load(files),
            Target::Nothing | Target::Gap(_) | Target::IdleGap(_) | Target::Rate(_) | Target::Depth(_) => Ok(()),
        }
    }

    /// The fixed gap from start to start, if that is the target.
    #[must_use]
    pub fn fixed_gap(&self) -> Option<Span> {
        match self {
            Target::Gap(gap) => Some(*gap),
            _ => None,
        }
    }
}

/// Checks that `line` can carry a rate.
fn fits(rate: Rate, line: Option<Line>) -> Result<(), Impossible> {
    match (rate, line.map(|line| line.rate())) {
        (Rate::Line(_), None) => Err(Impossible::NoLine),
        (Rate::Bits(rate, _), Some(line)) if rate > line => Err(Impossible::AboveLine(line)),
        (Rate::Frames(rate), Some(line)) if floods(rate, line) => Err(Impossible::AboveLine(line)),
        _ => Ok(()),
    }
}

/// True if even the smallest frames exceed the line at this rate.
fn floods(rate: FrameRate, line: BitRate) -> bool {
    let bits = u128::from(units::WireLen::MIN.bytes()) * 8;
    u128::from(rate.millis()) * bits > u128::from(line.bps()) * 1_000
}

/// The end of a frame that starts at `at`: after its FCS, before the inter-frame gap. Without a line, a frame takes no
/// time.
fn wire_end(at: Time, line: Option<Line>, lengths: &Lengths) -> Time {
    line.map_or(at, |line| at + line.span(lengths.frame.with_preamble().into()))
}

/// The schedule without a target.
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

/// The time per wire bit in seconds, as a fraction. The line is then busy for `share` of the time.
fn wire_share(share: Share, line: BitRate) -> (u128, u128) {
    let units = u128::from(Share::ONE.ppb());
    (units, u128::from(line.bps()) * u128::from(share.ppb()))
}

/// The greatest common divisor.
fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Bytes of a frame that a layer counts.
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
    fn refuses_targets_above_the_line_rate() {
        let line = Some(Line::new(BitRate::from_gbps(10)));
        let ask = |text: &str| Target::Rate(text.parse().expect("a rate"));
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

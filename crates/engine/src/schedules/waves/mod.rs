//! Waveforms: rates that vary over time.
//!
//! Each waveform has a file with its documentation and grammar, and a line in the list below. It becomes a [`Profile`]:
//! pieces with a constant or linearly changing rate. All computation uses integers.

mod profile;
mod schedule;

pub use profile::{Piece, Profile};
pub use schedule::WaveSchedule;

use super::laws::Words;
use super::{Files, Impossible};
use crate::{Kind, Line};
use std::fmt;
use units::{Layer, ParseError, Rate, Share};

/// The grammar and shape of a waveform. Each waveform implements it.
trait Waveform: Sized + Clone + fmt::Display {
    const KIND: Kind;

    /// Parses the whole text, including the name.
    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError>;

    /// Reads the file of the waveform, if it has one.
    fn load(&mut self, _files: &dyn Files) -> Result<(), ParseError> {
        Ok(())
    }

    /// The rates over time; `None` before the file is read.
    fn shape(&self) -> Option<Shape>;
}

/// Rates over time, before shares of line rate are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    pieces: Vec<Stretch>,
    /// If true, restarts at the end; else the last rate continues.
    repeats: bool,
}

/// A period in which the rate changes linearly.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stretch {
    /// From one rate to another; `None` is silence.
    Rates(units::Span, Option<Rate>, Option<Rate>),
    /// A number of bits of IP packets that may be sent at this instant.
    Opportunity(u64),
}

/// Expands the list of waveforms to the enum, its grammar and the kinds.
macro_rules! waves {
    ($($module:ident :: $wave:ident,)*) => {
        $(mod $module;)*
        $(pub use $module::$wave;)*

        /// A waveform with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Wave {
            $(#[expect(missing_docs, reason = "each waveform documents itself")] $wave($wave),)*
        }

        impl Wave {
            /// Every kind of waveform.
            pub const KINDS: &'static [Kind] = &[$($wave::KIND),*];

            /// Parses a waveform. `None` if the first word is not the name of a waveform.
            ///
            /// # Errors
            /// Words outside the grammar.
            pub fn parse(text: &str) -> Option<Result<Self, ParseError>> {
                let mut words = Words::of(text);
                let read = match words.peek()? {
                    $(name if name == $wave::KIND.name => $wave::parse(&mut words).map(Wave::$wave),)*
                    _ => return None,
                };
                Some(read.and_then(|wave| match words.next() {
                    Some(word) => Err(ParseError::new(
                        format!("'{word}' is unexpected after '{wave}'"),
                        format!("write {}", wave.kind().grammar),
                    )),
                    None => wave.checked(),
                }))
            }

            /// The name and syntax.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self {
                    $(Wave::$wave(_) => $wave::KIND,)*
                }
            }

            /// Reads the file that the waveform names, if any.
            ///
            /// # Errors
            /// A file that cannot be read or has invalid content, with its line.
            pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
                match self {
                    $(Wave::$wave(wave) => wave.load(files)?,)*
                }
                self.clone().checked().map(|_| ())
            }

            fn shape(&self) -> Option<Shape> {
                match self {
                    $(Wave::$wave(wave) => wave.shape(),)*
                }
            }
        }

        impl fmt::Display for Wave {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Wave::$wave(wave) => wave.fmt(f),)*
                }
            }
        }
    };
}

waves! {
    burst::Burst,
    ramp::Ramp,
    sine::Sine,
    steps::Steps,
    trace::Trace,
}

/// Maximum number of steps that a report lists.
const MOST_STEPS: usize = 1_000;

/// The unit that all rates of a waveform count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    Bits(Layer),
    Frames,
    Line,
}

fn counts(rate: Rate) -> Counts {
    match rate {
        Rate::Bits(_, layer) => Counts::Bits(layer),
        Rate::Frames(_) => Counts::Frames,
        Rate::Line(_) => Counts::Line,
    }
}

/// Reads a rate, and its layer if one follows.
fn rate(words: &mut Words<'_>, example: &str) -> Result<Rate, ParseError> {
    let word = words.next().ok_or_else(|| ParseError::new("a rate is missing", format!("write it like {example}")))?;
    of_layer(word, layer(words))
}

/// Reads `RATE..RATE`, and the layer of both if one follows.
fn range(words: &mut Words<'_>, wrong: impl Fn() -> ParseError) -> Result<(Rate, Rate), ParseError> {
    let (from, to) = words.next().and_then(|word| word.split_once("..")).ok_or_else(wrong)?;
    let layer = layer(words);
    Ok((of_layer(from, layer)?, of_layer(to, layer)?))
}

/// Consumes the name of a layer if it comes next.
fn layer(words: &mut Words<'_>) -> Option<&'static str> {
    ["wire", "ip"].into_iter().find(|layer| words.take(layer))
}

fn of_layer(rate: &str, layer: Option<&str>) -> Result<Rate, ParseError> {
    match layer {
        Some(layer) => format!("{rate} {layer}").parse(),
        None => rate.parse(),
    }
}

/// Writes the form that [`range`] reads: the layer once, after both rates.
fn write_range(f: &mut fmt::Formatter<'_>, (from, to): (Rate, Rate)) -> fmt::Result {
    let from = from.to_string();
    write!(f, "{}..{to}", from.split_whitespace().next().unwrap_or_default())
}

impl Wave {
    /// Checks that all rates count the same unit and that at least one is above zero.
    fn checked(self) -> Result<Self, ParseError> {
        let Some(shape) = self.shape() else { return Ok(self) };
        let rates = || {
            shape.pieces.iter().flat_map(|piece| match piece {
                Stretch::Rates(_, from, to) => [*from, *to],
                Stretch::Opportunity(_) => [None, None],
            })
        };
        let mut kinds = rates().flatten().map(counts);
        let first = kinds.next();
        if kinds.any(|kind| Some(kind) != first) {
            return Err(ParseError::new(
                format!("the rates of '{self}' do not count the same"),
                "write all of them in bits of one layer, in frames, or as shares of the line",
            ));
        }
        let sends = |piece: &Stretch| match piece {
            Stretch::Rates(span, from, to) => *span > units::Span::ZERO && (from.is_some() || to.is_some()),
            Stretch::Opportunity(bits) => *bits > 0,
        };
        if !shape.pieces.iter().any(sends) {
            return Err(ParseError::new(format!("'{self}' never sends"), "write a rate above zero"));
        }
        Ok(self)
    }

    /// True if departures end at some instant, for example after counted bursts.
    #[must_use]
    pub fn ends(&self) -> bool {
        let silent = |piece: Option<&Stretch>| matches!(piece, Some(Stretch::Rates(_, _, None)));
        self.shape().is_some_and(|shape| !shape.repeats && silent(shape.pieces.last()))
    }

    /// Checks that `line` allows the waveform.
    ///
    /// # Errors
    /// A rate above the line rate, or shares of an unknown line rate.
    pub fn check(&self, line: Option<Line>) -> Result<(), Impossible> {
        let Some(shape) = self.shape() else { return Ok(()) };
        for piece in &shape.pieces {
            if let Stretch::Rates(_, from, to) = piece {
                for rate in [from, to].into_iter().flatten() {
                    super::fits(*rate, line)?;
                }
            }
        }
        Ok(())
    }

    /// The configured rates in `windows` consecutive windows from the first departure on, in bit/s of frames with FCS.
    /// `length` is the mean length of frames with FCS; it converts rates of frames and of other layers. `None` before
    /// the file is read.
    #[must_use]
    pub fn typed(&self, line: Option<Line>, length: f64, window: units::Span, windows: usize) -> Option<Vec<f64>> {
        let (mut profile, counts) = self.profile(line)?;
        let first = profile.time()?;
        let bits = bits_of_frames(counts, length) / profile::amount(1_000) as f64;
        let mut until = first;
        let mut rate = || {
            until = until.saturating_add(window.as_ps());
            profile.skip_to(until) as f64 * bits / window.as_ps() as f64 * units::PS_PER_S as f64
        };
        Some((0..windows).map(|_| rate()).collect())
    }

    /// Steps or bursts whose rates are measured separately. `None` for other waveforms, and for more than
    /// [`MOST_STEPS`] steps.
    #[must_use]
    pub fn steps(&self) -> Option<measure::StepPlan> {
        let shape = self.shape()?;
        let mut plan = measure::StepPlan { repeats: shape.repeats, ..measure::StepPlan::default() };
        // All bursts of a term count as one step.
        let begins: Vec<bool> = match self {
            Wave::Burst(burst) => {
                burst.terms.iter().flat_map(|term| (0..term.count.unwrap_or(1)).map(|nth| nth == 0)).collect()
            }
            Wave::Steps(_) => vec![true; shape.pieces.len()],
            _ => return None,
        };
        let mut begins = begins.into_iter();
        for piece in &shape.pieces {
            let Stretch::Rates(span, from, _) = piece else { return None };
            if let Some(rate) = from
                && begins.next() == Some(true)
            {
                plan.steps.push((*rate, *span));
            }
            plan.stretches.push((*span, from.map(|_| plan.steps.len() - 1)));
        }
        (plan.steps.len() <= MOST_STEPS).then_some(plan)
    }

    /// The waveform in integers, on `line`; `None` before the file is read.
    pub(super) fn profile(&self, line: Option<Line>) -> Option<(Profile, Counts)> {
        let shape = self.shape()?;
        let mut kind = Counts::Bits(Layer::Ip);
        let mut pieces = Vec::new();
        for piece in &shape.pieces {
            pieces.push(match piece {
                Stretch::Rates(span, from, to) => {
                    kind = from.or(*to).map_or(kind, counts);
                    Piece::Rates { ps: span.as_ps(), from: millis(*from, line), to: millis(*to, line) }
                }
                Stretch::Opportunity(bits) => Piece::Amount(profile::amount(u128::from(*bits) * 1_000)),
            });
        }
        Some((Profile::new(pieces, shape.repeats), kind))
    }
}

/// A rate in bit/s of frames with FCS, if frames have a mean length of `length` bytes.
pub(super) fn frame_bits(rate: Rate, line: Option<Line>, length: f64) -> f64 {
    millis(Some(rate), line) as f64 / 1_000.0 * bits_of_frames(counts(rate), length)
}

/// Bits of frames with FCS per unit that a rate counts, if frames have a mean length of `length` bytes.
fn bits_of_frames(counts: Counts, length: f64) -> f64 {
    const OVERHEAD: f64 = 20.0;
    const ETHERNET: f64 = 18.0;
    match counts {
        Counts::Bits(Layer::Frame) => 1.0,
        Counts::Bits(Layer::Wire) | Counts::Line => length / (length + OVERHEAD),
        Counts::Bits(Layer::Ip) => length / (length - ETHERNET).max(1.0),
        Counts::Frames => length * 8.0,
    }
}

/// A rate in thousandths of its unit per second.
fn millis(rate: Option<Rate>, line: Option<Line>) -> u64 {
    match rate {
        None => 0,
        Some(Rate::Bits(rate, _)) => rate.bps().saturating_mul(1_000),
        Some(Rate::Frames(rate)) => rate.millis(),
        // Exact for line rates of whole Mbit/s.
        Some(Rate::Line(share)) => {
            let bps = line.map_or(0, |line| line.rate().bps());
            (u128::from(bps) * u128::from(share.ppb()) / u128::from(Share::ONE.ppb() / 1_000)) as u64
        }
    }
}

#[cfg(test)]
mod tests;

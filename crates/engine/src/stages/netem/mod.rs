//! The impairments of tc-netem with its own grammar, and more.
//!
//! The order of operations is that of the kernel's `sch_netem`: duplicate, lose, mark, corrupt, queue limit, reorder or
//! delay, rate, slots. Each impairment draws from its own random stream, so changing one does not affect the decisions
//! of another. Where netem deviates from its documentation by a defect, this stage follows the documentation;
//! `docs/reference/emulate.md` has the table.

mod aqm;
mod chance;
mod change;
mod delayed;
mod grammar;
mod hints;
mod kernel;
mod loss;
mod profiles;
mod queue;
mod stage;
mod units_of_tc;

use super::{Configuration, Kind, Stage};
use crate::random::Random;
use crate::schedules::Files;
use crate::schedules::laws::{Correlation, Distribution};
pub use aqm::Aqm;
pub use chance::Chance;
pub use change::Mode;
pub use delayed::{DelayStep, Delayed};
pub use loss::{LossModel, Pattern};
use packet::Frame;
pub use profiles::{PROFILES, Profile};
pub use queue::{Bottleneck, Opportunities, QueueLimit, Slot, SlotTimes};
use std::fmt;
use units::{BitRate, ParseError, Share, Span};

/// A parsed SPEC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Netem {
    /// Limit of the queue in frames, bytes or time; `None` for no limit.
    pub limit: Option<QueueLimit>,
    /// Delay and its variation.
    pub delay: Option<Delayed>,
    /// If true, no frame leaves before one that arrived earlier.
    pub keep_order: bool,
    /// Which frames are lost.
    pub loss: LossModel,
    /// Marks frames that can carry the mark instead of dropping them, for loss and for early drops.
    pub ecn: bool,
    /// Which frames are corrupted.
    pub corrupt: Option<Chance>,
    /// How frames are corrupted.
    pub mode: Mode,
    /// Which frames are sent twice.
    pub duplicate: Option<Chance>,
    /// Which frames are sent at once instead of delayed.
    pub reorder: Option<Chance>,
    /// Only every `gap`-th frame may be reordered.
    pub gap: u32,
    /// The bottleneck.
    pub rate: Option<Bottleneck>,
    /// The queue before the bottleneck, if it does more than drop at its tail.
    pub aqm: Option<Aqm>,
    /// The slots in which frames leave, if any.
    pub slot: Option<Slot>,
    /// Duration of an outage and its period; the outage is at the end of each period.
    pub down: Option<(Span, Span)>,
    /// Maximum packet length; longer packets are dropped silently, unless `icmp` is set.
    pub mtu: Option<u32>,
    /// Sends ICMP errors to the senders of packets dropped by `mtu`.
    pub icmp: bool,
    /// Overrides the run's seed.
    pub seed: Option<u64>,
    /// A rate written in bytes per second (`mbps`), as in tc.
    pub bytes_rate: Option<String>,
}

impl Netem {
    /// Parses a SPEC without a leading keyword.
    ///
    /// # Errors
    /// The problem and its character position, what is expected there, and the closest valid word.
    pub fn parse_spec(text: &str) -> Result<Self, ParseError> {
        grammar::parse(text)
    }

    /// The correlation of delays, if any.
    pub(super) fn delay_correlation(&self) -> Option<Correlation> {
        let correlation = self.delay.as_ref().map(|delay| delay.correlation);
        correlation.filter(|share| *share != Share::default()).map(Correlation::of_share)
    }

    /// The longest delay before the queue of the rate: the mean plus four standard deviations.
    fn longest_delay(&self) -> Span {
        let delay = |delay: &Delayed| delay.most() + delay.jitter * 4;
        self.delay.as_ref().map_or(Span::ZERO, delay)
    }

    /// A note if the queue may outlast the timeouts of programs.
    fn long_queue(&self) -> Option<String> {
        const FULL_BITS: u64 = 1_514 * 8;
        const PATIENCE_S: u64 = 30;
        let (Some(Bottleneck::Rate { rate, .. }), Some(QueueLimit::Frames(frames)), None) =
            (&self.rate, self.limit, &self.aqm)
        else {
            return None;
        };
        let seconds = frames.saturating_mul(FULL_BITS) / rate.bps().max(1);
        (seconds > PATIENCE_S).then(|| {
            let sooner = if frames > 20 { "20, or of 2s," } else { "2s" };
            format!(
                "limit {frames}: this many full frames wait for {seconds} s at {rate}: a limit of {sooner} drops sooner"
            )
        })
    }

    /// A note if the jitter exceeds the delay, which would require negative delays.
    fn clipped(&self) -> Option<String> {
        let delay = self.delay.as_ref().filter(|delay| delay.jitter > delay.most())?;
        let (mean, jitter) = (delay.most().as_ns_f64(), delay.jitter.as_ns_f64());
        let figures = if delay.distribution == Distribution::Uniform {
            let share = (jitter - mean) / (2.0 * jitter) * 100.0;
            let mean = (mean + jitter) * (mean + jitter) / (4.0 * jitter) / 1e6;
            format!("{share:.1} % of the frames are not delayed, and the mean is {mean:.3} ms")
        } else {
            "frames whose delay would be negative are not delayed, and the mean is longer".to_owned()
        };
        Some(format!("delay {} {}: the jitter exceeds the delay: {figures}", delay.most(), delay.jitter))
    }

    /// A note if keeping the order distorts the distribution of the jitter.
    fn ordered(&self) -> Option<String> {
        let delay = self.delay.as_ref().filter(|delay| self.keep_order && delay.jitter > Span::ZERO)?;
        let mut note =
            "keep-order: a frame waits for those ahead, so delays are longer than asked: the closer the frames, \
                        the nearer all are to "
                .to_owned();
        let mean = delay.most();
        let at = |p: f64| {
            let steps = delay.distribution.quantile(p)?;
            Some((mean.as_ns_f64() + steps * delay.jitter.as_ns_f64()).max(0.0) / 1e6)
        };
        let Some(longest) = at(1.0) else { return Some(note + "the longest of the table") };
        note += &format!("{longest:.3} ms, and not to {mean}");
        // The last of N frames that arrive together leaves after the longest of N independent delays.
        if delay.correlation == Share::default()
            && let (Some(ten), Some(hundred)) = (at(libm::pow(0.5, 0.1)), at(libm::pow(0.5, 0.01)))
        {
            note += &format!(
                "; if 10 arrive together, the last is delayed by {ten:.3} ms at the median, of 100 by {hundred:.3} ms"
            );
        }
        Some(note)
    }

    /// A note if `reorder` leaves no frames to delay.
    fn undelayed(&self) -> Option<String> {
        let all = self.reorder.is_some_and(|chance| chance.share == Share::ONE) && self.gap <= 1;
        all.then(|| {
            "reorder 100% sends every frame at once: nothing is delayed, and the order stays, as in netem; \
             reorder 100% gap 5 delays four of five"
                .to_owned()
        })
    }

    /// The number of 64 B frames that arrive at `rate` during the longest delay, at least 1000.
    fn default_limit(&self, rate: BitRate) -> QueueLimit {
        let bits = u128::from(rate.bps()) * u128::from(self.longest_delay().as_ps()) / u128::from(units::PS_PER_S);
        QueueLimit::Frames(bits.div_ceil(64 * 8).clamp(1_000, u128::from(u32::MAX)) as u64)
    }
}

impl Configuration for Netem {
    const KIND: Kind = Kind {
        name: "netem",
        grammar: "netem SPEC",
        summary: "the grammar of tc-netem: delay, loss, corrupt, duplicate, reorder, rate, slot, …",
        example: "netem delay 10ms 2ms 25% distribution normal loss 1% 25% corrupt 1% duplicate 2% reorder 25% 50% gap 5",
    };

    fn parse(words: &[&str]) -> Result<Self, ParseError> {
        grammar::parse(&words.join(" "))
    }

    fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        if let Some(delay) = &mut self.delay {
            delay.distribution.load(files)?;
        }
        if let Some(Slot { times: SlotTimes::Drawn(distribution, ..), .. }) = &mut self.slot {
            distribution.load(files)?;
        }
        if let LossModel::Pattern(pattern) = &mut self.loss {
            pattern.load(files)?;
        }
        if let Some(Bottleneck::Trace(trace)) = &mut self.rate {
            trace.load(files)?;
        }
        grammar::check_delay(self)
    }

    fn settle(&mut self, line: Option<BitRate>) {
        if self.limit.is_none() {
            self.limit = match &self.rate {
                Some(Bottleneck::Rate { rate, .. }) => Some(self.default_limit(*rate)),
                Some(Bottleneck::Trace(_)) => Some(QueueLimit::Frames(1_000)),
                None => line.map(|line| self.default_limit(line)),
            };
        }
    }

    fn room(&self) -> u64 {
        let queue = match (&self.rate, self.limit) {
            (None, _) => 0,
            (Some(_), Some(QueueLimit::Frames(frames))) => frames,
            (Some(_), Some(QueueLimit::Bytes(bytes))) => bytes / 64,
            (Some(_), _) => 1_000,
        };
        crate::stages::frames_of_10g(self.longest_delay()) + queue
    }

    fn notes(&self) -> Vec<String> {
        let note = |word: &String| {
            format!(
                "'{word}' is bytes a second, as tc reads it: write {} for bits",
                word.to_lowercase().replace("bps", "bit")
            )
        };
        self.bytes_rate
            .iter()
            .map(note)
            .chain(self.long_queue())
            .chain(self.undelayed())
            .chain(self.clipped())
            .chain(self.ordered())
            .collect()
    }

    fn answers(&self) -> bool {
        self.icmp
    }

    fn elsewhere(&self) -> Vec<String> {
        kernel::what_netem_would_do(self)
    }

    fn build<F: Frame + Send + 'static>(&self, random: Random) -> Box<dyn Stage<F>> {
        let random = self.seed.map_or(random, |seed| Random::stream(seed, "netem"));
        let mut settled = self.clone();
        settled.settle(None);
        Box::new(stage::Emulation::new(&settled, &random))
    }
}

impl fmt::Display for Netem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("netem")?;
        if let Some(limit) = &self.limit {
            write!(f, " limit {limit}")?;
        }
        if let Some(delay) = &self.delay {
            write!(f, " delay {delay}")?;
        }
        f.write_str(if self.keep_order { " keep-order" } else { "" })?;
        write!(f, "{}", self.loss)?;
        f.write_str(if self.ecn { " ecn" } else { "" })?;
        if let Some(corrupt) = &self.corrupt {
            write!(f, " corrupt {corrupt} mode {}", self.mode.name())?;
        }
        if let Some(duplicate) = &self.duplicate {
            write!(f, " duplicate {duplicate}")?;
        }
        if let Some(reorder) = &self.reorder {
            write!(f, " reorder {reorder}")?;
        }
        // A SPEC has at least one word, even if it configures nothing.
        if self.reorder.is_some() || self.gap != 0 || *self == Netem::default() {
            write!(f, " gap {}", self.gap)?;
        }
        if let Some(rate) = &self.rate {
            write!(f, " rate {rate}")?;
        }
        if let Some(aqm) = &self.aqm {
            write!(f, " queue {aqm}")?;
        }
        if let Some(slot) = &self.slot {
            write!(f, " slot {slot}")?;
        }
        if let Some((down, every)) = self.down {
            write!(f, " down {down} every {every}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}{}", if self.icmp { " icmp" } else { "" })?;
        }
        self.seed.map_or(Ok(()), |seed| write!(f, " seed {seed}"))
    }
}

#[cfg(test)]
mod tests;

use super::{Configuration, Item, Kind, Outlet, Stage, frames_of_10g};
use crate::random::Random;
use measure::Effect;
use packet::Frame;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use units::{ParseError, Share, Span, Time};

/// Makes a share of each flow's frames leave after later frames of the same flow: reordering as defined by RFC 4737.
///
/// A selected frame either waits for a fixed time, or until `extent` later, unselected frames of its flow have left. It
/// then leaves right after the last of them. A selected frame that no other frame of its flow overtakes in time counts
/// as missed. Flows are identified by addresses and ports, through a 32-bit hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// The probability of being selected.
    pub share: Share,
    /// How long selected frames wait.
    pub until: Until,
}

/// How long a selected frame waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// For this many later frames of its flow, but at most for this time.
    Extent(u32, Span),
    /// For this time.
    Held(Span),
}

const HOW: &str = "write reorder 25%, reorder 25% extent 3 timeout 50ms, or reorder 25% hold 2ms";
/// Default of the maximum wait for later frames.
const TIMEOUT: Span = Span::from_ms(100);

impl Configuration for Reorder {
    const KIND: Kind = Kind {
        name: "reorder",
        grammar: "reorder SHARE [extent N] [timeout TIME] | reorder SHARE hold TIME",
        summary: "reorders SHARE of each flow's frames: each leaves after N later ones (RFC 4737)",
        example: "reorder 25% extent 3",
    };

    fn parse(words: &[&str]) -> Result<Self, ParseError> {
        let Some((share, mut rest)) = words.split_first() else {
            return Err(ParseError::new("reorder has no share", HOW));
        };
        let share: Share = share.parse()?;
        if share == Share::ONE {
            return Err(ParseError::new(
                "reorder 100% keeps the order: where every frame of a flow waits, none is left to overtake it",
                "write less, as reorder 50%; a delay with jitter, as delay 20ms 5ms, mixes all of them",
            ));
        }
        let (mut extent, mut timeout, mut hold) = (None, None, None);
        while let [key, value, after @ ..] = rest {
            let time = || value.parse::<Span>();
            match *key {
                "extent" if extent.is_none() => {
                    let number = value.parse().ok().filter(|n| (1..=10_000).contains(n));
                    let wrong = || ParseError::new(format!("'{value}' is not an extent"), "write 1 to 10000");
                    extent = Some(number.ok_or_else(wrong)?);
                }
                "timeout" if timeout.is_none() => timeout = Some(time()?),
                "hold" if hold.is_none() => hold = Some(time()?),
                other => return Err(ParseError::new(format!("'{other}' is unexpected here"), HOW)),
            }
            rest = after;
        }
        if let [word] = rest {
            return Err(ParseError::new(format!("'{word}' has no value"), HOW));
        }
        let until = match (extent, timeout, hold) {
            (None, None, Some(hold)) => Until::Held(hold),
            (_, _, Some(_)) => return Err(ParseError::new("hold already sets how long a frame waits", HOW)),
            (extent, timeout, None) => Until::Extent(extent.unwrap_or(1), timeout.unwrap_or(TIMEOUT)),
        };
        Ok(Reorder { share, until })
    }

    fn room(&self) -> u64 {
        match self.until {
            Until::Extent(_, time) | Until::Held(time) => frames_of_10g(time),
        }
    }

    fn build<F: Frame + Send + 'static>(&self, random: Random) -> Box<dyn Stage<F>> {
        let (extent, wait) = match self.until {
            Until::Extent(extent, timeout) => (u64::from(extent), timeout),
            Until::Held(time) => (u64::MAX, time),
        };
        Box::new(Reordering {
            share: self.share,
            extent,
            wait,
            random,
            flows: HashMap::new(),
            ends: VecDeque::new(),
            held: 0,
        })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.until {
            Until::Extent(extent, timeout) => write!(f, "reorder {} extent {extent} timeout {timeout}", self.share),
            Until::Held(time) => write!(f, "reorder {} hold {time}", self.share),
        }
    }
}

/// The waiting frames of a flow. Also counts the frames that have left since the first of them arrived: those that did
/// not wait, and all.
struct Flow<F> {
    passed: u64,
    left: u64,
    waiting: VecDeque<Waiting<F>>,
}

struct Waiting<F> {
    frame: F,
    /// When the frame stops waiting.
    end: Time,
    /// Number of frames that had passed when the frame arrived.
    before: u64,
    /// Number of frames that had left before the first one that overtook it.
    overtaken: Option<u64>,
}

impl<F> Flow<F> {
    /// Records that a frame passes the waiting ones.
    fn pass(&mut self) {
        // Frames further ahead have already been overtaken.
        for waiting in self.waiting.iter_mut().rev().take_while(|waiting| waiting.overtaken.is_none()) {
            waiting.overtaken = Some(self.left);
        }
        self.passed += 1;
        self.left += 1;
    }

    /// Releases the first waiting frame. Returns it with its extent: the number of frames that left since the first one
    /// that overtook it, including that one.
    fn leave(&mut self) -> Option<(F, u64)> {
        let first = self.waiting.pop_front()?;
        let extent = first.overtaken.map_or(0, |overtaken| self.left - overtaken);
        self.left += 1;
        Some((first.frame, extent))
    }
}

struct Reordering<F> {
    share: Share,
    extent: u64,
    wait: Span,
    random: Random,
    /// Flows with a waiting frame.
    flows: HashMap<u32, Flow<F>>,
    /// Deadlines of waiting frames, with their flows. Entries of frames that have left are skipped.
    ends: VecDeque<(Time, u32)>,
    held: usize,
}

impl<F: Frame> Reordering<F> {
    /// Releases frames that have waited long enough by `now`.
    fn expire(&mut self, now: Time, out: &mut Outlet<F>) {
        while let Some((end, key)) = self.ends.front().copied().filter(|(end, _)| *end <= now) {
            self.ends.pop_front();
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            while flow.waiting.front().is_some_and(|first| first.end <= end) {
                let Some((frame, extent)) = flow.leave() else { break };
                self.held -= 1;
                if extent == 0 {
                    out.effects.count(Effect::Missed);
                }
                out.effects.leaves_behind(extent);
                out.release(Item { frame, at: end });
            }
            if flow.waiting.is_empty() {
                self.flows.remove(&key);
            }
        }
        self.skip();
    }

    /// Removes the entries of frames that have left.
    fn skip(&mut self) {
        let waits = |(end, key): &(Time, u32)| {
            let flow = self.flows.get(key);
            flow.and_then(|flow| flow.waiting.front()).is_some_and(|first| first.end <= *end)
        };
        while self.ends.front().is_some_and(|first| !waits(first)) {
            self.ends.pop_front();
        }
    }
}

impl<F: Frame + Send> Stage<F> for Reordering<F> {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        for Item { mut frame, at } in batch.drain(..) {
            self.expire(at, out);
            let key = packet::flow_hash(frame.bytes());
            if self.random.chance(self.share) {
                out.effects.count(Effect::Chosen);
                let flow =
                    self.flows.entry(key).or_insert_with(|| Flow { passed: 0, left: 0, waiting: VecDeque::new() });
                // Counts from the poll, not from the arrival. Frames that arrived right after it are processed one by
                // one after it. They could not overtake a frame that is already due at a late poll.
                let end = at + self.wait;
                frame.forget_wait();
                flow.waiting.push_back(Waiting { frame, end, before: flow.passed, overtaken: None });
                self.ends.push_back((end, key));
                self.held += 1;
                continue;
            }
            out.effects.leaves_behind(0);
            out.release(Item { frame, at });
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            flow.pass();
            while flow.waiting.front().is_some_and(|first| flow.passed - first.before >= self.extent) {
                let Some((frame, extent)) = flow.leave() else { break };
                self.held -= 1;
                out.effects.leaves_behind(extent);
                out.release(Item { frame, at });
            }
            if flow.waiting.is_empty() {
                self.flows.remove(&key);
            }
            self.skip();
        }
        self.expire(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<F>) {
        self.expire(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        self.ends.front().map(|(end, _)| *end)
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::HeapFrame;

    /// A frame whose MAC addresses encode its flow, with its number in the flow.
    fn frame(flow: u8, number: u32) -> HeapFrame {
        let mut bytes = vec![flow; 60];
        bytes[20..24].copy_from_slice(&number.to_be_bytes());
        HeapFrame::new(bytes)
    }

    fn number(frame: &HeapFrame) -> u32 {
        u32::from_be_bytes(frame.bytes()[20..24].try_into().expect("four bytes"))
    }

    fn stage(text: &str) -> Box<dyn Stage<HeapFrame>> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Reorder::parse(&words).expect(text).build(Random::stream(3, "test"))
    }

    /// Share of reordered frames per flow, and the largest extent (RFC 4737, 4.2.2), counted independently of the
    /// stage.
    fn reordered(text: &str, flows: u8, each: u32) -> (Vec<f64>, u64, Outlet<HeapFrame>) {
        let mut stage = stage(text);
        let mut out = Outlet::default();
        for i in 0..each {
            for flow in 0..flows {
                let at = Time::from_ps(u64::from(i) * 10_000_000);
                stage.push(at, &mut vec![Item { frame: frame(flow, i), at }], &mut out);
            }
        }
        while let Some(deadline) = stage.deadline() {
            stage.wake(deadline, &mut out);
        }
        assert_eq!((stage.held(), out.released.len()), (0, usize::from(flows) * each as usize));
        let mut largest = 0;
        let mut ratio = |flow: u8| {
            let (mut reordered, mut ahead) = (0, Vec::<(usize, u32)>::new());
            for (position, item) in out.released.iter().filter(|item| item.frame.bytes()[0] == flow).enumerate() {
                let number = number(&item.frame);
                let first = ahead.partition_point(|(_, ahead)| *ahead < number);
                match ahead.get(first) {
                    Some((overtook, _)) => (reordered, largest) = (reordered + 1, largest.max(position - overtook)),
                    None => ahead.push((position, number)),
                }
            }
            f64::from(reordered) / f64::from(each)
        };
        ((0..flows).map(&mut ratio).collect(), largest as u64, out)
    }

    #[test]
    fn effect_matches_rfc_4737_per_flow() {
        for text in ["25%", "25% extent 3", "25% hold 55us"] {
            let (ratios, extent, out) = reordered(text, 3, 20_000);
            // Four standard deviations of a binomial with n = 20 000, p = 0.25: 0.0123.
            assert!(ratios.iter().all(|ratio| (ratio - 0.25).abs() < 0.0123), "{text}: {ratios:?}");
            let report = out.effects.reorder().expect("an order");
            assert!((report.ratio - ratios.iter().sum::<f64>() / 3.0).abs() < 1e-9, "{text}: {report:?}");
            assert_eq!(report.max_extent, extent, "{text}: chosen frames that leave together are places apart");
        }
    }

    #[test]
    fn frame_of_a_silent_flow_counts_as_missed() {
        // Every frame is selected. The grammar rejects this, because it would reorder nothing.
        let all = Reorder { share: Share::ONE, until: Until::Extent(1, Span::from_us(5)) };
        let mut stage = all.build(Random::stream(3, "test"));
        let mut out = Outlet::default();
        stage.push(Time::ZERO, &mut vec![Item { frame: frame(1, 0), at: Time::ZERO }], &mut out);
        stage.wake(Time::from_ps(4_999_999), &mut out);
        assert_eq!((out.released.len(), stage.deadline()), (0, Some(Time::from_ps(5_000_000))));
        stage.wake(Time::from_ps(5_000_000), &mut out);
        assert_eq!((out.released.len(), out.effects.counted(Effect::Missed)), (1, 1));
        assert_eq!(out.effects.reorder().map(|report| report.reordered), Some(0));
    }

    #[test]
    fn errors_of_bad_reorders_name_the_spelling_to_use() {
        for text in
            ["", "25", "25% extent", "25% extent 0", "25% hold 1ms extent 2", "25% often 2", "100%", "100% hold 1ms"]
        {
            let words: Vec<&str> = text.split_whitespace().collect();
            let error = Reorder::parse(&words).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}

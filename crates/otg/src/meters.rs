//! Counters of flows and ports. Senders and receivers update them; requests read them.

use crate::frame::read_bits;
use crate::pattern::Tag;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the UNIX epoch.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Transmission state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transmission {
    Stopped,
    Started,
    Paused,
}

/// Figures of a flow or of a part of it. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) tx_frames: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_frames: u64,
    pub(crate) rx_bytes: u64,
    /// First and last arrival.
    pub(crate) first_ns: Option<u64>,
    pub(crate) last_ns: Option<u64>,
    /// Minimum, maximum and mean latency of stamped frames.
    pub(crate) latency_ns: Option<(u64, u64, f64)>,
}

impl Figures {
    /// Adds the figures of other frames of the flow.
    pub(crate) fn add(&mut self, other: &Figures) {
        let weights = (self.rx_frames as f64, other.rx_frames as f64);
        self.latency_ns = match (self.latency_ns, other.latency_ns) {
            (Some((least, most, mean)), Some((other_least, other_most, other_mean))) => {
                let mean = (mean * weights.0 + other_mean * weights.1) / (weights.0 + weights.1);
                Some((least.min(other_least), most.max(other_most), mean))
            }
            (one, other) => one.or(other),
        };
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.first_ns = self.first_ns.into_iter().chain(other.first_ns).min();
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

/// Counters of one flow, or of one combination of tag values.
#[derive(Debug)]
pub(crate) struct Counts {
    tx_frames: AtomicU64,
    tx_bytes: AtomicU64,
    rx_frames: AtomicU64,
    rx_bytes: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    stamped: AtomicU64,
    latency_sum: AtomicU64,
    latency_least: AtomicU64,
    latency_most: AtomicU64,
}

impl Default for Counts {
    fn default() -> Counts {
        let zero = || AtomicU64::new(0);
        let most = || AtomicU64::new(u64::MAX);
        Counts {
            tx_frames: zero(),
            tx_bytes: zero(),
            rx_frames: zero(),
            rx_bytes: zero(),
            first_ns: most(),
            last_ns: zero(),
            stamped: zero(),
            latency_sum: zero(),
            latency_least: most(),
            latency_most: zero(),
        }
    }
}

impl Counts {
    fn clear(&self) {
        for count in [
            &self.tx_frames, &self.tx_bytes, &self.rx_frames, &self.rx_bytes, &self.last_ns, &self.stamped,
            &self.latency_sum, &self.latency_most,
        ] {
            count.store(0, Relaxed);
        }
        self.first_ns.store(u64::MAX, Relaxed);
        self.latency_least.store(u64::MAX, Relaxed);
    }

    fn sent(&self, bytes: u64) {
        self.tx_frames.fetch_add(1, Relaxed);
        self.tx_bytes.fetch_add(bytes, Relaxed);
    }

    fn arrived(&self, time_ns: u64, bytes: u64, latency_ns: Option<u64>) {
        self.rx_frames.fetch_add(1, Relaxed);
        self.rx_bytes.fetch_add(bytes, Relaxed);
        self.first_ns.fetch_min(time_ns, Relaxed);
        self.last_ns.fetch_max(time_ns, Relaxed);
        if let Some(latency) = latency_ns {
            self.stamped.fetch_add(1, Relaxed);
            self.latency_sum.fetch_add(latency, Relaxed);
            self.latency_least.fetch_min(latency, Relaxed);
            self.latency_most.fetch_max(latency, Relaxed);
        }
    }

    fn figures(&self) -> Figures {
        let stamped = self.stamped.load(Relaxed);
        let rx_frames = self.rx_frames.load(Relaxed);
        let known = |value: &AtomicU64| Some(value.load(Relaxed)).filter(|_| rx_frames > 0);
        let mean = || self.latency_sum.load(Relaxed) as f64 / stamped as f64;
        Figures {
            tx_frames: self.tx_frames.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
            rx_frames,
            rx_bytes: self.rx_bytes.load(Relaxed),
            first_ns: known(&self.first_ns),
            last_ns: known(&self.last_ns),
            latency_ns: (stamped > 0)
                .then(|| (self.latency_least.load(Relaxed), self.latency_most.load(Relaxed), mean())),
        }
    }
}

/// Maximum number of combinations of tag values that are counted separately. Frames from other senders may have any
/// values.
const MOST_TAGGED: usize = 65_536;

/// Values of the tags of a flow, in order, and the port of arrival if that is a tag.
pub(crate) type TagValues = (Vec<u128>, Option<usize>);

/// Meters of one flow.
#[derive(Debug)]
pub(crate) struct FlowMeters {
    counts: Counts,
    state: AtomicU8,
    /// Frames that departed earlier belong to an earlier run; so do frames without a stamp that arrived earlier.
    since_ns: AtomicU64,
    tags: Vec<Tag>,
    by_rx: bool,
    tagged: Mutex<BTreeMap<TagValues, Counts>>,
}

impl FlowMeters {
    pub(crate) fn new(tags: Vec<Tag>, by_rx: bool) -> FlowMeters {
        let (state, since_ns, tagged) = Default::default();
        FlowMeters { counts: Counts::default(), state, since_ns, tags, by_rx, tagged }
    }

    pub(crate) fn state(&self) -> Transmission {
        match self.state.load(Relaxed) {
            0 => Transmission::Stopped,
            1 => Transmission::Started,
            _ => Transmission::Paused,
        }
    }

    pub(crate) fn set_state(&self, state: Transmission) {
        self.state.store(state as u8, Relaxed);
    }

    /// Clears everything counted so far.
    pub(crate) fn clear(&self) {
        self.since_ns.store(now_ns(), Relaxed);
        self.counts.clear();
        self.tagged.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Counts a departed frame. `bytes` includes the FCS.
    pub(crate) fn sent(&self, frame: &[u8], bytes: u64) {
        self.counts.sent(bytes);
        if !self.tags.is_empty() {
            self.of_tags(frame, None, |counts| counts.sent(bytes));
        }
    }

    /// Counts an arrived frame. `departed_ns` is from its stamp.
    pub(crate) fn arrived(&self, frame: &[u8], port: usize, time_ns: u64, bytes: u64, departed_ns: Option<u64>) {
        if departed_ns.unwrap_or(time_ns) < self.since_ns.load(Relaxed) {
            return;
        }
        let latency = departed_ns.map(|departed| time_ns.saturating_sub(departed));
        self.counts.arrived(time_ns, bytes, latency);
        if self.is_tagged() {
            self.of_tags(frame, Some(port).filter(|_| self.by_rx), |counts| counts.arrived(time_ns, bytes, latency));
        }
    }

    fn of_tags(&self, frame: &[u8], port: Option<usize>, count: impl FnOnce(&Counts)) {
        let values = self.tags.iter().map(|tag| read_bits(frame, tag.at, tag.length).unwrap_or(0)).collect();
        let mut tagged = self.tagged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = tagged.len() >= MOST_TAGGED;
        match tagged.entry((values, port)) {
            Entry::Occupied(counts) => count(counts.get()),
            Entry::Vacant(place) if !is_full => count(place.insert(Counts::default())),
            // The frame is counted only in the figures of the whole flow.
            Entry::Vacant(_) => {}
        }
    }

    pub(crate) fn is_tagged(&self) -> bool {
        self.by_rx || !self.tags.is_empty()
    }

    pub(crate) fn tags(&self) -> &[Tag] {
        &self.tags
    }

    pub(crate) fn figures(&self) -> Figures {
        self.counts.figures()
    }

    /// The figures of each combination of tag values that occurred.
    pub(crate) fn tagged_figures(&self) -> Vec<(TagValues, Figures)> {
        let tagged = self.tagged.lock().unwrap_or_else(PoisonError::into_inner);
        tagged.iter().map(|(values, counts)| (values.clone(), counts.figures())).collect()
    }
}

/// Meters of one port, for all its frames.
#[derive(Debug, Default)]
pub(crate) struct PortMeters {
    pub(crate) tx_frames: AtomicU64,
    pub(crate) tx_bytes: AtomicU64,
    pub(crate) rx_frames: AtomicU64,
    pub(crate) rx_bytes: AtomicU64,
    /// Number of frames that the receiver has lost since its start.
    pub(crate) lost: AtomicU64,
    /// Frames that arrived before this belong to an earlier run.
    since_ns: AtomicU64,
}

impl PortMeters {
    pub(crate) fn clear(&self) {
        for count in [&self.tx_frames, &self.tx_bytes, &self.rx_frames, &self.rx_bytes] {
            count.store(0, Relaxed);
        }
        self.since_ns.store(now_ns(), Relaxed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.tx_frames.fetch_add(1, Relaxed);
        self.tx_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn arrived(&self, time_ns: u64, bytes: u64) {
        if time_ns < self.since_ns.load(Relaxed) {
            return;
        }
        self.rx_frames.fetch_add(1, Relaxed);
        self.rx_bytes.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_of_tags_are_bounded_and_the_flow_has_all_frames() {
        let meters = FlowMeters::new(vec![Tag { name: "t".into(), at: 0, length: 32 }], false);
        let frames = MOST_TAGGED as u32 + 500;
        for n in 0..frames {
            meters.arrived(&n.to_be_bytes(), 0, 1, 64, None);
        }
        meters.arrived(&[0; 4], 0, 1, 64, None);
        assert_eq!(meters.tagged_figures().len(), MOST_TAGGED);
        assert_eq!(meters.figures().rx_frames, u64::from(frames) + 1);
        assert_eq!(meters.tagged_figures()[0].1.rx_frames, 2, "those that are known are counted on");
    }
}

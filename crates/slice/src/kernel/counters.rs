use crate::record::Probe;
use serde::Serialize;
use std::array::from_fn;

/// `PROBES` of `bpf/maps.h`.
const PROBES: usize = Probe::ALL.len();
/// Words of `struct cpu`.
pub(super) const WORDS: usize = 3 * PROBES + 12;

/// Counters of the probes, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Runs of each probe, in the order of [`Probe::ALL`].
    #[serde(skip)]
    pub(crate) hits: [u64; PROBES],
    /// Nanoseconds in the timed runs of each probe. One run in sixteen is timed, at random.
    #[serde(skip)]
    pub(crate) spent: [u64; PROBES],
    /// Number of timed runs.
    #[serde(skip)]
    pub(crate) timed: [u64; PROBES],
    /// Records handed over.
    pub handed: u64,
    /// Records for which the ring had no room.
    pub full: u64,
    /// Frames given up because another frame needed the slot.
    pub evicted: u64,
    /// Frames whose receive call copied more frames than can wait for its return.
    pub crowded: u64,
    /// Frames that matched the filter.
    pub(crate) asked: u64,
    /// Runs that the kernel skipped, because a thread was preempted in the same program on that CPU.
    pub missed: u64,
}

impl Counters {
    /// Sums the words of CPUs, without the runs that the kernel skipped.
    pub(super) fn of<'a>(cpus: impl Iterator<Item = &'a [u64; WORDS]>) -> Counters {
        let sum = cpus.fold([0_u64; WORDS], |sum, words| from_fn(|word| sum[word].wrapping_add(words[word])));
        let probes = |first: usize| from_fn(|probe| sum[first + probe]);
        Counters {
            hits: probes(0),
            spent: probes(PROBES),
            timed: probes(2 * PROBES),
            handed: sum[3 * PROBES],
            full: sum[3 * PROBES + 1],
            evicted: sum[3 * PROBES + 2],
            crowded: sum[3 * PROBES + 3],
            asked: sum[3 * PROBES + 4],
            missed: 0,
        }
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Counters) -> Counters {
        let less = |a: &[u64; PROBES], b: &[u64; PROBES]| from_fn(|probe| a[probe].saturating_sub(b[probe]));
        Counters {
            hits: less(&self.hits, &before.hits),
            spent: less(&self.spent, &before.spent),
            timed: less(&self.timed, &before.timed),
            handed: self.handed - before.handed,
            full: self.full - before.full,
            evicted: self.evicted - before.evicted,
            crowded: self.crowded - before.crowded,
            asked: self.asked - before.asked,
            missed: self.missed.saturating_sub(before.missed),
        }
    }

    /// Runs of a probe.
    #[must_use]
    pub fn hits_of(&self, probe: Probe) -> u64 {
        self.hits[probe as usize]
    }
}

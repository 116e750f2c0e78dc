use dpdk::Mbuf;
use engine::Pipeline;
use measure::{Distributions, DropReason, Drops, FrameCounters, Octaves};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Progress of a run for observers. Each figure is consistent in itself, but figures may be from different instants.
#[derive(Debug, Default)]
pub struct Counters {
    /// True once every loop on the path of the frames has started, so that arriving frames are received and passed on.
    pub running: AtomicBool,
    /// Frames received.
    pub arrived: AtomicU64,
    /// Bytes received, with FCS.
    pub arrived_bytes: AtomicU64,
    /// Copies made of frames.
    pub copies: AtomicU64,
    /// Frames sent.
    pub left: AtomicU64,
    /// Bytes sent, with FCS.
    pub left_bytes: AtomicU64,
    /// Frames waiting now.
    pub depth: AtomicU64,
    /// Number of times that the schedule was starved.
    pub starved: AtomicU64,
    /// Width of the wave so far in ns: the shortest buffer with which nothing would have starved.
    pub width_ns: AtomicU64,
    /// Median lateness so far in ns, with a resolution of one eighth.
    pub late_median_ns: AtomicU64,
    /// Largest lateness so far in ns.
    pub late_max_ns: AtomicU64,
    /// Distributions of departures so far.
    pub octaves: OctaveCounters,
    /// Frames sent or dropped, minus copies made: the difference between what this part of a pipeline was given and
    /// what it still has. Wraps below zero.
    pub gone: AtomicU64,
    /// Frames dropped, by reason and in total.
    drops: [AtomicU64; DropReason::ALL.len()],
    dropped: AtomicU64,
    /// Counters of the return path, if requested. Their `running` is set once the return path runs.
    pub back: Option<Arc<Counters>>,
}

/// The figures of one of several queues that were added to their common [`Counters`].
#[derive(Default)]
pub(crate) struct PublishedShare {
    books: FrameCounters,
    depth: u64,
    starved: u64,
    distributions: Distributions,
}

/// [`Distributions`] for observers.
#[derive(Debug, Default)]
pub struct OctaveCounters {
    lateness: OctaveCounter,
    gap_error: OctaveCounter,
    delay: OctaveCounter,
}

#[derive(Debug)]
struct OctaveCounter {
    counts: [AtomicU64; Octaves::NUMBER],
    total_ns: AtomicU64,
}

impl Default for OctaveCounter {
    fn default() -> Self {
        OctaveCounter { counts: [const { AtomicU64::new(0) }; Octaves::NUMBER], total_ns: AtomicU64::new(0) }
    }
}

impl OctaveCounters {
    fn publish(&self, distributions: &Distributions) {
        self.lateness.publish(&distributions.lateness);
        self.gap_error.publish(&distributions.gap_error);
        self.delay.publish(&distributions.delay);
    }

    fn copy(&self, from: &OctaveCounters) {
        self.lateness.copy(&from.lateness);
        self.gap_error.copy(&from.gap_error);
        self.delay.copy(&from.delay);
    }

    /// Adds the values since `earlier`.
    fn add(&self, now: &Distributions, earlier: &Distributions) {
        self.lateness.add(&now.lateness, &earlier.lateness);
        self.gap_error.add(&now.gap_error, &earlier.gap_error);
        self.delay.add(&now.delay, &earlier.delay);
    }

    /// The distributions as they were published last.
    #[must_use]
    pub fn load(&self) -> Distributions {
        Distributions { lateness: self.lateness.load(), gap_error: self.gap_error.load(), delay: self.delay.load() }
    }
}

impl OctaveCounter {
    fn publish(&self, octaves: &Octaves) {
        for (counter, count) in self.counts.iter().zip(octaves.counts) {
            counter.store(count, Ordering::Relaxed);
        }
        self.total_ns.store(octaves.total_ns(), Ordering::Relaxed);
    }

    fn copy(&self, from: &OctaveCounter) {
        let totals = std::iter::once((&self.total_ns, &from.total_ns));
        for (shown, source) in self.counts.iter().zip(&from.counts).chain(totals) {
            shown.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn add(&self, now: &Octaves, earlier: &Octaves) {
        let counts = self.counts.iter().zip(now.counts.iter().zip(earlier.counts));
        for (counter, (now, earlier)) in counts.filter(|(_, (now, earlier))| **now != *earlier) {
            counter.fetch_add(now - earlier, Ordering::Relaxed);
        }
        self.total_ns.fetch_add(now.total_ns() - earlier.total_ns(), Ordering::Relaxed);
    }

    fn load(&self) -> Octaves {
        let counts = self.counts.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        Octaves::published(counts, self.total_ns.load(Ordering::Relaxed))
    }
}

impl Counters {
    /// Counters for both directions.
    #[must_use]
    pub fn of_both_ways() -> Self {
        Counters { back: Some(Arc::default()), ..Counters::default() }
    }

    /// The reasons of drops, with the number of frames.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let each = DropReason::ALL.iter().zip(&self.drops);
        each.map(|(reason, frames)| (*reason, frames.load(Ordering::Relaxed))).filter(|(_, frames)| *frames > 0)
    }

    /// Publishes copies and drops of this part and of the later `parts`. Drops are rare, so usually only one figure is
    /// compared.
    pub(crate) fn publish_books(&self, books: &FrameCounters, parts: &[Counters]) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let copies = books.copies + parts.iter().map(|part| load(&part.copies)).sum::<u64>();
        self.copies.store(copies, Ordering::Relaxed);
        let drops = books.drops();
        let dropped = drops.total() + parts.iter().map(|part| load(&part.dropped)).sum::<u64>();
        if dropped != load(&self.dropped) {
            for (number, reason) in DropReason::ALL.iter().enumerate() {
                let behind = parts.iter().map(|part| load(&part.drops[number])).sum::<u64>();
                self.drops[number].store(drops.of(*reason) + behind, Ordering::Relaxed);
            }
            self.dropped.store(dropped, Ordering::Relaxed);
        }
    }

    /// Publishes the drops of one of several queues since `earlier`.
    pub(crate) fn add_drops(&self, drops: &Drops, earlier: &Drops) {
        if drops.total() != earlier.total() {
            for (counter, reason) in self.drops.iter().zip(DropReason::ALL) {
                counter.fetch_add(drops.of(*reason) - earlier.of(*reason), Ordering::Relaxed);
            }
        }
    }

    /// Publishes the lateness and the distributions so far. Too slow to call between any two departures.
    pub(crate) fn publish_lateness(&self, pipeline: &Pipeline<Mbuf>) {
        let (median, max) = pipeline.lateness_so_far();
        self.late_median_ns.store(median, Ordering::Relaxed);
        self.late_max_ns.store(max, Ordering::Relaxed);
        self.octaves.publish(&pipeline.distributions());
    }

    /// Publishes the progress of a run. Called between departures; takes some tens of ns.
    pub(crate) fn publish(&self, pipeline: &Pipeline<Mbuf>) {
        self.running.store(true, Ordering::Relaxed);
        let books = pipeline.books();
        self.publish_books(books, &[]);
        for (counter, value) in [
            (&self.arrived, books.arrived.frames),
            (&self.arrived_bytes, books.arrived.bytes),
            (&self.left, books.left.frames),
            (&self.left_bytes, books.left.bytes),
            (&self.depth, pipeline.held()),
            (&self.starved, pipeline.starved()),
            (&self.width_ns, pipeline.width().map_or(0, |width| width.as_ps() / units::PS_PER_NS)),
            (&self.gone, (books.left.frames + books.drops().total()).wrapping_sub(books.copies)),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }

    /// Adds the progress of one of several queues since it was `published` last. The median of the lateness is that of
    /// the queue that published last.
    pub(crate) fn publish_share(&self, pipeline: &Pipeline<Mbuf>, published: &mut PublishedShare, lateness: bool) {
        self.running.store(true, Ordering::Relaxed);
        let (books, depth, starved) = (pipeline.books(), pipeline.held(), pipeline.starved());
        let earlier = &published.books;
        self.add_drops(&books.drops(), &earlier.drops());
        let gone = |books: &FrameCounters| (books.left.frames + books.drops().total()).wrapping_sub(books.copies);
        for (counter, value, earlier) in [
            (&self.arrived, books.arrived.frames, earlier.arrived.frames),
            (&self.arrived_bytes, books.arrived.bytes, earlier.arrived.bytes),
            (&self.left, books.left.frames, earlier.left.frames),
            (&self.left_bytes, books.left.bytes, earlier.left.bytes),
            (&self.depth, depth, published.depth),
            (&self.starved, starved, published.starved),
            (&self.gone, gone(books), gone(earlier)),
        ] {
            counter.fetch_add(value.wrapping_sub(earlier), Ordering::Relaxed);
        }
        let width = pipeline.width().map_or(0, |width| width.as_ps() / units::PS_PER_NS);
        self.width_ns.fetch_max(width, Ordering::Relaxed);
        (published.books, published.depth, published.starved) = (books.clone(), depth, starved);
        if lateness {
            let (median, max) = pipeline.lateness_so_far();
            self.late_median_ns.store(median, Ordering::Relaxed);
            self.late_max_ns.fetch_max(max, Ordering::Relaxed);
            let distributions = pipeline.distributions();
            self.octaves.add(&distributions, &published.distributions);
            published.distributions = distributions;
        }
    }

    /// Publishes the progress of a run that receives here and sends on another thread. That thread publishes to
    /// `departing`; the parts after this one hold `elsewhere` frames.
    pub(crate) fn publish_split(&self, receiving: &Pipeline<Mbuf>, elsewhere: u64, departing: &Counters) {
        let arrived = receiving.books().arrived;
        self.arrived.store(arrived.frames, Ordering::Relaxed);
        self.arrived_bytes.store(arrived.bytes, Ordering::Relaxed);
        self.depth.store(receiving.held() + elsewhere, Ordering::Relaxed);
        for (shown, source) in [
            (&self.left, &departing.left),
            (&self.left_bytes, &departing.left_bytes),
            (&self.starved, &departing.starved),
            (&self.width_ns, &departing.width_ns),
            (&self.late_median_ns, &departing.late_median_ns),
            (&self.late_max_ns, &departing.late_max_ns),
        ] {
            shown.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.octaves.copy(&departing.octaves);
    }
}

use dpdk::Mbuf;
use engine::Pipeline;
use measure::DepartureMeter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a run has done so far, for those who look on. Each figure is whole by itself; they are not of
/// the same instant.
#[derive(Debug, Default)]
pub struct Counters {
    /// Every loop that frames pass has begun: what arrives is taken, and goes on.
    pub running: AtomicBool,
    /// Frames that came in.
    pub came: AtomicU64,
    /// Frames that left.
    pub left: AtomicU64,
    /// Their bytes, FCS included.
    pub left_bytes: AtomicU64,
    /// Frames that wait now.
    pub depth: AtomicU64,
    /// Times that the schedule was starved.
    pub starved: AtomicU64,
    /// The width of the wave so far in ns: the buffer with which nothing would have been starved.
    pub width_ns: AtomicU64,
    /// The median lateness so far in ns, to an eighth.
    pub late_median_ns: AtomicU64,
    /// The largest lateness so far in ns.
    pub late_max_ns: AtomicU64,
    /// Frames that left or were dropped, less copies that were made: the part of a pipeline that counts
    /// here has so many fewer than it was given. Wraps below zero.
    pub gone: AtomicU64,
}

impl Counters {
    /// Tells how late it was so far: takes too long to be done between any two departures.
    pub(crate) fn publish_lateness(&self, meter: &DepartureMeter) {
        let (median, max) = meter.lateness_so_far();
        self.late_median_ns.store(median, Ordering::Relaxed);
        self.late_max_ns.store(max, Ordering::Relaxed);
    }

    /// Tells how far a run is. Called between departures: it takes some tens of ns.
    pub(crate) fn publish(&self, pipeline: &Pipeline<Mbuf>) {
        self.running.store(true, Ordering::Relaxed);
        let books = pipeline.books();
        for (counter, value) in [
            (&self.came, books.came.frames),
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

    /// Tells how far a run is whose frames are received here and depart on another thread, which tells
    /// of itself by `departing` and has `elsewhere` of them.
    pub(crate) fn publish_split(&self, receiving: &Pipeline<Mbuf>, elsewhere: u64, departing: &Counters) {
        self.came.store(receiving.books().came.frames, Ordering::Relaxed);
        self.depth.store(receiving.held() + elsewhere, Ordering::Relaxed);
        for (shown, told) in [
            (&self.left, &departing.left),
            (&self.left_bytes, &departing.left_bytes),
            (&self.starved, &departing.starved),
            (&self.width_ns, &departing.width_ns),
            (&self.late_median_ns, &departing.late_median_ns),
            (&self.late_max_ns, &departing.late_max_ns),
        ] {
            shown.store(told.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

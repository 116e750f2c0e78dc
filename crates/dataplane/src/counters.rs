use dpdk::Mbuf;
use engine::Pipeline;
use measure::{Books, DepartureMeter, DropReason, Drops};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a run has done so far, for those who look on. Each figure is whole by itself; they are not of
/// the same instant.
#[derive(Debug, Default)]
pub struct Counters {
    /// Every loop that frames pass has begun: what arrives is taken, and goes on.
    pub running: AtomicBool,
    /// Frames that came in.
    pub came: AtomicU64,
    /// Their bytes, FCS included.
    pub came_bytes: AtomicU64,
    /// Copies that were made of them.
    pub copies: AtomicU64,
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
    /// Frames that were dropped: by reason, and all together.
    drops: [AtomicU64; DropReason::ALL.len()],
    dropped: AtomicU64,
    /// The same of the way back, if anybody wants to look at that; `running` once there is one.
    pub back: Option<Arc<Counters>>,
}

impl Counters {
    /// Counters that are told of the way back, too.
    #[must_use]
    pub fn of_both_ways() -> Self {
        Counters { back: Some(Arc::default()), ..Counters::default() }
    }

    /// The reasons for which frames were dropped, and how many for each.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let each = DropReason::ALL.iter().zip(&self.drops);
        each.map(|(reason, frames)| (*reason, frames.load(Ordering::Relaxed))).filter(|(_, frames)| *frames > 0)
    }

    /// Tells what was copied and dropped here and in `parts` behind it. Drops are seldom: else one figure is looked at.
    pub(crate) fn publish_books(&self, books: &Books, parts: &[Counters]) {
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

    /// Tells what one of several queues dropped since `earlier`.
    pub(crate) fn add_drops(&self, drops: &Drops, earlier: &Drops) {
        if drops.total() != earlier.total() {
            for (counter, reason) in self.drops.iter().zip(DropReason::ALL) {
                counter.fetch_add(drops.of(*reason) - earlier.of(*reason), Ordering::Relaxed);
            }
        }
    }

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
        self.publish_books(books, &[]);
        for (counter, value) in [
            (&self.came, books.came.frames),
            (&self.came_bytes, books.came.bytes),
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
        let came = receiving.books().came;
        self.came.store(came.frames, Ordering::Relaxed);
        self.came_bytes.store(came.bytes, Ordering::Relaxed);
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

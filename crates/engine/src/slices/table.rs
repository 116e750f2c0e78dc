use super::FrameTrace;
use measure::{Mark, SliceMeter, TOGETHER};
use packet::Identity;

/// The traces in progress. Each has an index, which is the frame's tag − 1.
///
/// Stored contiguously to touch few cache lines: if traces are rare, none of this is cached.
pub(super) struct TraceTable {
    /// Number of marks of a complete trace.
    whole: usize,
    /// The marks, in order of trace index.
    marks: Vec<Mark>,
    /// Number of marks so far, per trace.
    made: Vec<u32>,
    /// Identity and length per trace, if there is a listener.
    named: Vec<(Option<Identity>, u32)>,
    /// Indices of departed frames that are not counted yet.
    done: Vec<u32>,
    free: Vec<u32>,
}

impl TraceTable {
    /// A table for traces of at most `whole` marks.
    pub(super) fn new(whole: usize) -> TraceTable {
        TraceTable { whole, marks: Vec::new(), made: Vec::new(), named: Vec::new(), done: Vec::new(), free: Vec::new() }
    }

    /// Allocates an index for a frame. Returns the index and the frame's tag.
    pub(super) fn begin(&mut self) -> (usize, u32) {
        let place = self.free.pop().map_or(self.made.len(), |place| place as usize);
        if place == self.made.len() {
            self.made.push(0);
            self.marks.resize((place + 1) * self.whole, Mark::default());
        }
        self.made[place] = 0;
        (place, place as u32 + 1)
    }

    /// The index of the frame with this tag, if the frame is traced.
    #[inline]
    pub(super) fn place(&self, tag: u32) -> Option<usize> {
        (tag as usize).checked_sub(1).filter(|place| *place < self.made.len())
    }

    /// The marks of a frame so far.
    #[inline]
    pub(super) fn marks(&mut self, place: usize) -> Marks<'_> {
        Marks { all: &mut self.marks[place * self.whole..][..self.whole], made: &mut self.made[place] }
    }

    /// Sets the identity and length of a frame.
    pub(super) fn name(&mut self, place: usize, identity: Option<Identity>, length: u32) {
        if self.named.len() <= place {
            self.named.resize(place + 1, (None, 0));
        }
        self.named[place] = (identity, length);
    }

    /// Frees the index of a frame that will not depart from here.
    pub(super) fn release(&mut self, place: usize) {
        self.free.push(place as u32);
    }

    /// Records a departure. Returns true if departed frames should now be counted.
    #[inline]
    pub(super) fn depart(&mut self, place: usize) -> bool {
        self.done.push(place as u32);
        self.done.len() == TOGETHER
    }

    /// Counts departed frames in `meter` and frees their indices.
    pub(super) fn count(&mut self, meter: &mut SliceMeter) {
        self.tell(meter);
        self.free.append(&mut self.done);
    }

    /// Passes departed frames that are not counted yet to `meter`, without freeing them.
    pub(super) fn tell(&self, meter: &mut SliceMeter) {
        let mut ways: [&[Mark]; TOGETHER] = [&[]; TOGETHER];
        for (way, place) in ways.iter_mut().zip(&self.done) {
            let place = *place as usize;
            *way = &self.marks[place * self.whole..][..self.made[place] as usize];
        }
        meter.record(&ways[..self.done.len()]);
    }

    /// A copy of one trace.
    pub(super) fn way(&mut self, place: usize) -> FrameTrace {
        let (identity, length) = self.named.get(place).copied().unwrap_or_default();
        FrameTrace { marks: self.marks(place).made().to_vec(), identity, length }
    }
}

/// The marks of one frame.
pub(super) struct Marks<'a> {
    all: &'a mut [Mark],
    made: &'a mut u32,
}

impl Marks<'_> {
    /// The marks made so far.
    #[inline]
    pub(super) fn made(&mut self) -> &mut [Mark] {
        &mut self.all[..*self.made as usize]
    }

    /// The last mark.
    #[inline]
    pub(super) fn last(&mut self) -> Mark {
        self.made().last().copied().unwrap_or_default()
    }

    /// Adds a mark and returns the number of marks.
    ///
    /// # Panics
    /// If the trace is complete.
    #[inline]
    pub(super) fn make(&mut self, mark: Mark) -> usize {
        self.all[*self.made as usize] = mark;
        *self.made += 1;
        *self.made as usize
    }
}

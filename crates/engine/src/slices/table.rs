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
        let index = self.free.pop().map_or(self.made.len(), |index| index as usize);
        if index == self.made.len() {
            self.made.push(0);
            self.marks.resize((index + 1) * self.whole, Mark::default());
        }
        self.made[index] = 0;
        (index, index as u32 + 1)
    }

    /// The index of the frame with this tag, if the frame is traced.
    #[inline]
    pub(super) fn index(&self, tag: u32) -> Option<usize> {
        (tag as usize).checked_sub(1).filter(|index| *index < self.made.len())
    }

    /// The marks of a frame so far.
    #[inline]
    pub(super) fn marks(&mut self, index: usize) -> Marks<'_> {
        Marks { all: &mut self.marks[index * self.whole..][..self.whole], made: &mut self.made[index] }
    }

    /// Sets the identity and length of a frame.
    pub(super) fn name(&mut self, index: usize, identity: Option<Identity>, length: u32) {
        if self.named.len() <= index {
            self.named.resize(index + 1, (None, 0));
        }
        self.named[index] = (identity, length);
    }

    /// Frees the index of a frame that will not depart from here.
    pub(super) fn release(&mut self, index: usize) {
        self.free.push(index as u32);
    }

    /// Records a departure. Returns true if departed frames should now be counted.
    #[inline]
    pub(super) fn depart(&mut self, index: usize) -> bool {
        self.done.push(index as u32);
        self.done.len() == TOGETHER
    }

    /// Counts departed frames in `meter` and frees their indices.
    pub(super) fn count(&mut self, meter: &mut SliceMeter) {
        self.report_to(meter);
        self.free.append(&mut self.done);
    }

    /// Passes departed frames that are not counted yet to `meter`, without freeing them.
    pub(super) fn report_to(&self, meter: &mut SliceMeter) {
        let mut traces: [&[Mark]; TOGETHER] = [&[]; TOGETHER];
        for (trace, index) in traces.iter_mut().zip(&self.done) {
            let index = *index as usize;
            *trace = &self.marks[index * self.whole..][..self.made[index] as usize];
        }
        meter.record(&traces[..self.done.len()]);
    }

    /// A copy of one trace.
    pub(super) fn trace(&mut self, index: usize) -> FrameTrace {
        let (identity, length) = self.named.get(index).copied().unwrap_or_default();
        FrameTrace { marks: self.marks(index).made().to_vec(), identity, length }
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

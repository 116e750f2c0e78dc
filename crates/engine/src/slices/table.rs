use super::Way;
use measure::{Mark, SliceMeter, TOGETHER};
use packet::Identity;

/// The ways of the frames that are under way, each in a place, whose number is its frame's tag less 1.
///
/// What lies in a row comes to the CPU in a row: followed seldom, frames find nothing of this near it.
pub(super) struct Table {
    /// So many marks has a whole way.
    whole: usize,
    /// Those of each place, one place after the other.
    marks: Vec<Mark>,
    /// How many of them are made, by place.
    made: Vec<u32>,
    /// Where somebody hears of frames.
    named: Vec<(Option<Identity>, u32)>,
    /// Places of frames that have departed and are not counted yet.
    done: Vec<u32>,
    free: Vec<u32>,
}

impl Table {
    /// Of ways with so many marks at most.
    pub(super) fn new(whole: usize) -> Table {
        Table { whole, marks: Vec::new(), made: Vec::new(), named: Vec::new(), done: Vec::new(), free: Vec::new() }
    }

    /// A place for a frame, which has its tag from now on.
    pub(super) fn begin(&mut self) -> (usize, u32) {
        let place = self.free.pop().map_or(self.made.len(), |place| place as usize);
        if place == self.made.len() {
            self.made.push(0);
            self.marks.resize((place + 1) * self.whole, Mark::default());
        }
        self.made[place] = 0;
        (place, place as u32 + 1)
    }

    /// Where the frame with this tag is, if it is followed.
    #[inline]
    pub(super) fn place(&self, tag: u32) -> Option<usize> {
        (tag as usize).checked_sub(1).filter(|place| *place < self.made.len())
    }

    /// The marks of a frame so far.
    #[inline]
    pub(super) fn marks(&mut self, place: usize) -> Marks<'_> {
        Marks { all: &mut self.marks[place * self.whole..][..self.whole], made: &mut self.made[place] }
    }

    /// Says which packet the frame is, and how long.
    pub(super) fn name(&mut self, place: usize, identity: Option<Identity>, length: u32) {
        if self.named.len() <= place {
            self.named.resize(place + 1, (None, 0));
        }
        self.named[place] = (identity, length);
    }

    /// The frame will not depart from here: its place is another's.
    pub(super) fn release(&mut self, place: usize) {
        self.free.push(place as u32);
    }

    /// The frame has departed. True if it is time to have those counted that have.
    #[inline]
    pub(super) fn depart(&mut self, place: usize) -> bool {
        self.done.push(place as u32);
        self.done.len() == TOGETHER
    }

    /// Has those counted that have departed, whose places are then others'.
    pub(super) fn count(&mut self, meter: &mut SliceMeter) {
        self.tell(meter);
        self.free.append(&mut self.done);
    }

    /// Tells `meter` of those that have departed and are not counted yet.
    pub(super) fn tell(&self, meter: &mut SliceMeter) {
        let mut ways: [&[Mark]; TOGETHER] = [&[]; TOGETHER];
        for (way, place) in ways.iter_mut().zip(&self.done) {
            let place = *place as usize;
            *way = &self.marks[place * self.whole..][..self.made[place] as usize];
        }
        meter.record(&ways[..self.done.len()]);
    }

    /// A way by itself.
    pub(super) fn way(&mut self, place: usize) -> Way {
        let (identity, length) = self.named.get(place).copied().unwrap_or_default();
        Way { marks: self.marks(place).made().to_vec(), identity, length }
    }
}

/// The marks of one frame.
pub(super) struct Marks<'a> {
    all: &'a mut [Mark],
    made: &'a mut u32,
}

impl Marks<'_> {
    /// Those that are made.
    #[inline]
    pub(super) fn made(&mut self) -> &mut [Mark] {
        &mut self.all[..*self.made as usize]
    }

    /// The last of them.
    #[inline]
    pub(super) fn last(&mut self) -> Mark {
        self.made().last().copied().unwrap_or_default()
    }

    /// Makes another. Gives how many there are.
    ///
    /// # Panics
    /// If the way is whole.
    #[inline]
    pub(super) fn make(&mut self, mark: Mark) -> usize {
        self.all[*self.made as usize] = mark;
        *self.made += 1;
        *self.made as usize
    }
}

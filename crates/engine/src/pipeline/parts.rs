//! A pipeline parted among threads.

use super::Pipeline;
use crate::lane::Lane;
use crate::schedules::AsReady;
use crate::slices::Way;
use packet::Frame;
use units::Time;

impl<F: Frame> Pipeline<F> {
    /// The most parts that [`Pipeline::parts`] makes of it: receiving, which every pipeline has, classes and
    /// stages if there are any, and the schedules.
    ///
    /// Stages that send answers back stay with receiving, where the way back is. Frames are followed from
    /// where their class is found, so that this stays with receiving, too; and they are followed from part
    /// to part by a clock only.
    #[must_use]
    pub fn most_parts(&self) -> usize {
        if self.is_slicing() && self.slice_clock().is_none() {
            return 1;
        }
        if self.lanes.iter().any(|lane| lane.outlet.answers.is_some()) {
            return 2;
        }
        let classes = self.classifier.is_some() && !self.is_slicing();
        2 + usize::from(classes) + usize::from(self.lanes.iter().any(Lane::has_stages))
    }

    /// Parts it in `count`, to be run by as many threads, first to last: every part but the last gives what
    /// is ready at once, and the next takes it by [`Pipeline::hand`]. The last one has the schedules, the one
    /// before it the stages, then the classes; the first has what is left. Each keeps books of its own.
    ///
    /// # Panics
    /// If `count` is zero, or more than [`Pipeline::most_parts`].
    #[must_use]
    pub fn parts(self, count: usize) -> Vec<Self> {
        assert!((1..=self.most_parts()).contains(&count), "there are {} parts at most", self.most_parts());
        let mut parts = vec![self];
        while parts.len() < count {
            let rest = parts.remove(0);
            let (front, back) = match parts.len() {
                0 => rest.without_schedules(),
                _ if rest.lanes.iter().any(Lane::has_stages) => rest.without_stages(),
                _ => (Pipeline::new(Vec::new(), Box::new(AsReady)), rest),
            };
            parts.splice(0..0, [front, back]);
        }
        parts
    }

    /// The way of a frame that goes on to another thread, if it is followed.
    pub fn way_of(&mut self, class: u32, frame: &F) -> Option<Box<Way>> {
        self.lanes[class as usize].slices.take(frame.tag())
    }

    /// A frame came from the part before, which put it in `class`, with its way so far if it is followed; as
    /// [`Pipeline::push`], where that part knew no classes yet.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn hand(&mut self, class: usize, now: Time, at: Time, mut frame: F, way: Option<Box<Way>>) {
        if self.classifier.is_some() {
            return self.push(now, at, frame);
        }
        self.lanes[class].slices.put(&mut frame, way);
        self.push_to(class, now, at, frame);
    }

    fn without_schedules(self) -> (Self, Self) {
        let (stages, lanes) = self.lanes.into_iter().map(Lane::split).unzip();
        let stages = Pipeline::of_lanes(stages, self.classifier, self.classes.clone(), None);
        (stages, Pipeline { lanes, classifier: None, ..self })
    }

    fn without_stages(self) -> (Self, Self) {
        let (front, lanes) = self.lanes.into_iter().map(Lane::split_before_stages).unzip();
        let front = Pipeline::of_lanes(front, self.classifier, self.classes.clone(), None);
        (front, Pipeline { lanes, classifier: None, ..self })
    }
}

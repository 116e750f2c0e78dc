//! Splits a pipeline for several threads.

use super::Pipeline;
use crate::lane::Lane;
use crate::schedules::AsReady;
use crate::slices::FrameTrace;
use packet::Frame;
use units::Time;

impl<F: Frame> Pipeline<F> {
    /// The maximum number of parts for [`Pipeline::parts`]. Every pipeline has a receiving part and a part with the
    /// schedules. Classes and stages, if there are any, can each be a part.
    ///
    /// A pipeline that accepts changes has only one part. Stages that send answers stay in the receiving part, which
    /// has the return path. Traces start where frames are classified, so with tracing the classes stay there as well.
    /// Traces cross parts only if they have a clock.
    #[must_use]
    pub fn most_parts(&self) -> usize {
        // Stages and schedules reach a change at the same instant.
        if self.takes_changes() || self.is_slicing() && self.slice_clock().is_none() {
            return 1;
        }
        if self.lanes.iter().any(|lane| lane.outlet.answers.is_some()) {
            return 2;
        }
        let classes = self.classifier.is_some() && !self.is_slicing();
        2 + usize::from(classes) + usize::from(self.lanes.iter().any(Lane::has_stages))
    }

    /// Splits the pipeline into `count` parts, one per thread, first to last. Every part except the last releases
    /// frames at once, and the next part takes them with [`Pipeline::hand`]. The last part has the schedules, the one
    /// before it the stages, the one before that the classes; the first has the rest. Each part has its own counters.
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

    /// Takes a frame from the previous part, which assigned it to `class`, with its trace so far. If this part has the
    /// classifier, works like [`Pipeline::push`].
    ///
    /// # Panics
    /// If there is no such class.
    pub fn hand(&mut self, class: usize, now: Time, at: Time, mut frame: F, trace: Option<Box<FrameTrace>>) {
        if self.classifier.is_some() {
            return self.push(now, at, frame);
        }
        self.lanes[class].slices.put(&mut frame, trace);
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

//! One slice over many frames.

use super::{Mark, SliceError, SliceTimes};
use crate::histogram::Counts;
use crate::ns;
use units::PS_PER_NS;

/// One slice, in ps.
#[derive(Clone, Default)]
pub(super) struct Column {
    raw: i128,
    pub(super) net: i128,
    /// Of `net`, in ps².
    squares: f64,
    pub(super) intended: i128,
    worst: u64,
    count: u64,
    all: Counts,
    errors: Counts,
}

/// One slice of one frame, in ps.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) raw: i64,
    pub(super) net: i64,
    pub(super) intended: i64,
}

impl Part {
    /// From one mark to the next, of which a reading of the clock took `reading`.
    #[inline]
    pub(super) fn between(from: Mark, to: Mark, reading: i64) -> Part {
        let raw = to.at.signed_ps_since(from.at);
        // What is shorter than a reading is none; what ends before its time stays as it is.
        let net = if raw > 0 { (raw - reading).max(0) } else { raw };
        Part { raw, net, intended: to.intended.signed_ps_since(from.intended) }
    }
}

impl Column {
    /// Finds room for all that may come, so that nothing waits for it later.
    pub(super) fn at_hand(&mut self) {
        self.all.at_hand();
        self.errors.at_hand();
    }

    /// Counts one slice of several frames. Sums are kept apart meanwhile: counting in a table is a store anywhere, behind
    /// which they would have to be read again.
    #[inline]
    pub(super) fn count(&mut self, parts: &[Part]) {
        let Column { mut raw, mut net, mut squares, mut intended, mut worst, .. } = *self;
        for part in parts {
            raw += i128::from(part.raw);
            net += i128::from(part.net);
            intended += i128::from(part.intended);
            squares += part.net as f64 * part.net as f64;
            self.all.count(part.net.max(0).unsigned_abs(), 1);
            let error = (part.net - part.intended).unsigned_abs();
            worst = worst.max(error);
            self.errors.count(error, 1);
        }
        (self.raw, self.net, self.squares, self.intended, self.worst) = (raw, net, squares, intended, worst);
        self.count += parts.len() as u64;
    }

    pub(super) fn mean(&self, sum: i128) -> f64 {
        ns(sum as f64 / self.count.max(1) as f64)
    }

    pub(super) fn total(&self) -> SliceTimes {
        let mean = self.mean(self.net);
        let squares = self.squares / (PS_PER_NS * PS_PER_NS) as f64;
        let variance = (squares / self.count.max(1) as f64 - mean * mean).max(0.0);
        SliceTimes {
            count: self.count,
            mean_ns: mean,
            p50_ns: ns(self.all.at_quantile(0.5) as f64),
            p99_ns: ns(self.all.at_quantile(0.99) as f64),
            cv: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
            raw_mean_ns: self.mean(self.raw),
        }
    }

    pub(super) fn error(&self) -> SliceError {
        SliceError {
            mean_ns: self.mean(self.net - self.intended),
            p50: ns(self.errors.at_quantile(0.5).min(self.worst) as f64),
            p99: ns(self.errors.at_quantile(0.99).min(self.worst) as f64),
            max_ns: ns(self.worst as f64),
        }
    }
}

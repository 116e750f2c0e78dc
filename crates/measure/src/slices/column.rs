//! Statistics of one slice over many frames.

use super::{Mark, SliceError, SliceTimes};
use crate::histogram::Counts;
use crate::ns;
use units::PS_PER_NS;

/// Durations in ps.
#[derive(Clone, Default)]
pub(super) struct Times {
    raw: i128,
    net: i128,
    /// Sum of squares of `net`, in ps².
    squares: f64,
    count: u64,
    all: Counts,
}

/// Statistics of one slice and its deviation from the intended duration, in ps.
#[derive(Clone, Default)]
pub(super) struct Column {
    times: Times,
    intended: i128,
    worst: u64,
    errors: Counts,
}

/// One slice of one frame, in ps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) raw: i64,
    pub(super) net: i64,
    pub(super) intended: i64,
}

impl Part {
    /// The slice between two marks, including one reading of the clock that takes `reading`.
    #[inline]
    pub(super) fn between(from: Mark, to: Mark, reading: i64) -> Part {
        let raw = to.at.signed_ps_since(from.at);
        // Clamps at zero, unless the slice is negative already.
        let net = if raw > 0 { (raw - reading).max(0) } else { raw };
        Part { raw, net, intended: to.intended.signed_ps_since(from.intended) }
    }

    fn error(&self) -> u64 {
        (self.net - self.intended).unsigned_abs()
    }
}

impl Times {
    /// Allocates all memory in advance, so that no frame waits for it.
    pub(super) fn at_hand(&mut self) {
        self.all.at_hand();
    }

    /// Counts several frames. Keeps the sums in local variables, because the table stores could alias them and force
    /// reloads.
    #[inline]
    pub(super) fn count(&mut self, parts: &[Part]) {
        self.count_beside(parts, |_| ());
    }

    /// As [`count`](Times::count), with an extra action per part.
    #[inline(always)]
    fn count_beside(&mut self, parts: &[Part], mut beside: impl FnMut(&Part)) {
        let Times { mut raw, mut net, mut squares, .. } = *self;
        for part in parts {
            raw += i128::from(part.raw);
            net += i128::from(part.net);
            squares += part.net as f64 * part.net as f64;
            self.all.count(part.net.max(0).unsigned_abs(), 1);
            beside(part);
        }
        (self.raw, self.net, self.squares) = (raw, net, squares);
        self.count += parts.len() as u64;
    }

    /// Counts `frames` equal parts.
    fn count_alike(&mut self, Part { raw, net, .. }: Part, frames: usize) {
        self.raw += i128::from(raw) * frames as i128;
        self.net += i128::from(net) * frames as i128;
        self.squares += net as f64 * net as f64 * frames as f64;
        self.all.count(net.max(0).unsigned_abs(), frames as u64);
        self.count += frames as u64;
    }

    fn mean(&self, sum: i128) -> f64 {
        ns(sum as f64 / self.count.max(1) as f64)
    }

    pub(super) fn figures(&self) -> SliceTimes {
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
}

impl Column {
    /// Allocates all memory in advance, so that no frame waits for it.
    pub(super) fn at_hand(&mut self) {
        self.times.at_hand();
        self.errors.at_hand();
    }

    /// Counts one slice of several frames.
    pub(super) fn count(&mut self, parts: &[Part]) {
        // Frames that do not wait all have the same duration: zero.
        if let [first, rest @ ..] = parts
            && rest.iter().all(|part| part == first)
        {
            self.times.count_alike(*first, parts.len());
            self.intended += i128::from(first.intended) * parts.len() as i128;
            self.worst = self.worst.max(first.error());
            return self.errors.count(first.error(), parts.len() as u64);
        }
        let Column { mut intended, mut worst, .. } = *self;
        let errors = &mut self.errors;
        // Alternates between the two tables, because consecutive updates of one bucket would stall.
        self.times.count_beside(parts, |part| {
            intended += i128::from(part.intended);
            worst = worst.max(part.error());
            errors.count(part.error(), 1);
        });
        (self.intended, self.worst) = (intended, worst);
    }

    pub(super) fn times(&self) -> SliceTimes {
        self.times.figures()
    }

    /// Mean intended duration in ns.
    pub(super) fn intended_mean(&self) -> f64 {
        self.times.mean(self.intended)
    }

    pub(super) fn error(&self) -> SliceError {
        SliceError {
            mean_ns: self.times.mean(self.times.net - self.intended),
            p50_ns: ns(self.errors.at_quantile(0.5).min(self.worst) as f64),
            p99_ns: ns(self.errors.at_quantile(0.99).min(self.worst) as f64),
            max_ns: ns(self.worst as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_count_like_single_ones() {
        let part = |net| Part { raw: net + 20, net, intended: 1_000 };
        let (alike, other) = ([part(5_000); 7], part(2_000));
        let (mut together, mut singly) = (Column::default(), Column::default());
        together.count(&alike);
        together.count(&[other]);
        together.count(&[alike[0], other]);
        for part in alike.iter().chain([&other, &alike[0], &other]) {
            singly.count(&[*part]);
        }
        let figures = |column: &Column| {
            let (times, error) = (column.times(), column.error());
            let ns = [times.mean_ns, times.raw_mean_ns, column.intended_mean(), error.mean_ns, error.max_ns];
            let buckets = [times.p50_ns, error.p50_ns].map(|ns| ns.round() as u64);
            (times.count, ns.map(|ns| (ns * 1e3).round() as u64), buckets, (times.cv * 1e6) as u64)
        };
        assert_eq!(figures(&together), figures(&singly));
        // Eight of 5 ns and two of 2 ns, each with 20 ps more in the raw values; 1 ns was intended.
        assert_eq!(figures(&together), (10, [4_400, 4_420, 1_000, 3_400, 4_000], [5, 4], 272_727));
    }
}

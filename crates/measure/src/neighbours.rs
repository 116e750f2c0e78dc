/// Pearson's correlation of neighbouring values; sums relative to the first value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Neighbours {
    pairs: u64,
    origin: i64,
    last: i64,
    sum: [f64; 2],
    squares: [f64; 2],
    products: f64,
    any: bool,
}

impl Neighbours {
    pub(crate) fn add(&mut self, gap: i64) {
        if self.any {
            let shifted = |gap: i64| gap.wrapping_sub(self.origin) as f64;
            let (a, b) = (shifted(self.last), shifted(gap));
            self.pairs += 1;
            self.sum[0] += a;
            self.sum[1] += b;
            self.squares[0] += a * a;
            self.squares[1] += b * b;
            self.products += a * b;
        } else {
            (self.origin, self.any) = (gap, true);
        }
        self.last = gap;
    }

    /// The correlation; 0 if undefined, as for equal values.
    pub(crate) fn correlation(&self) -> f64 {
        let n = self.pairs as f64;
        let covariance = self.products - self.sum[0] * self.sum[1] / n;
        let variance = |i: usize| self.squares[i] - self.sum[i] * self.sum[i] / n;
        let correlation = covariance / (variance(0) * variance(1)).sqrt();
        if correlation.is_finite() { correlation } else { 0.0 }
    }
}

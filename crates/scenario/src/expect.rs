use units::{BitRate, FrameRate, ParseError, Share, Span};

/// What a run is expected to show: a figure of the report, a comparison and a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The text as written.
    pub text: String,
    /// The figure: the pipeline's name, then the names of the report's fields.
    pub path: Vec<String>,
    /// How to compare.
    pub comparison: Comparison,
    /// With what, in the report's unit.
    pub bound: Quantity,
}

/// How a figure is compared with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
}

/// A bound in the unit that reports use: ns, bit/s, frames/s, a fraction, or a plain count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity(pub f64);

impl Expectation {
    /// Reads `down.gap.error.p99 < 10us`.
    ///
    /// # Errors
    /// No comparison, an empty path, or a bound that is neither a quantity with its unit nor a count.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        const HOW: &str = "write PIPELINE.FIELD < VALUE, such as down.gap.error.p99 < 10us";
        let operators = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("==", Comparison::Equal),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ];
        let found =
            operators.iter().find_map(|(sign, comparison)| text.split_once(sign).map(|parts| (parts, *comparison)));
        let ((path, bound), comparison) =
            found.ok_or_else(|| ParseError::new(format!("'{text}' compares nothing"), HOW))?;
        let path: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(ParseError::new(format!("'{}' names no figure of a report", path.join(".")), HOW));
        }
        let bound = quantity(bound.trim())?;
        Ok(Expectation { text: text.to_owned(), path, comparison, bound })
    }

    /// True if `value`, in the report's unit, is as expected.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        let bound = self.bound.0;
        match self.comparison {
            Comparison::Less => value < bound,
            Comparison::AtMost => value <= bound,
            Comparison::More => value > bound,
            Comparison::AtLeast => value >= bound,
            Comparison::Equal => (value - bound).abs() <= f64::EPSILON * bound.abs(),
        }
    }
}

fn quantity(text: &str) -> Result<Quantity, ParseError> {
    if let Some(size) = text.strip_prefix('-') {
        return quantity(size).map(|Quantity(size)| Quantity(-size));
    }
    if let Ok(count) = text.parse::<u64>() {
        return Ok(Quantity(count as f64));
    }
    let time = text.parse::<Span>().map(Span::as_ns_f64);
    let rate = || text.parse::<BitRate>().map(|rate| rate.bps() as f64);
    let frames = || text.parse::<FrameRate>().map(|rate| rate.millis() as f64 / 1_000.0);
    let share = || text.parse::<Share>().map(Share::as_f64);
    let value = time.or_else(|_| rate()).or_else(|_| frames()).or_else(|_| share());
    value
        .map(Quantity)
        .map_err(|_| ParseError::new(format!("'{text}' is no bound"), "write a time, a rate, a share or a count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_in_the_units_of_reports() {
        for (text, bound) in [
            ("a.b < 10us", 10_000.0),
            ("a.b<=5Gbps", 5e9),
            ("a.b > 50%", 0.5),
            ("a.b == 100", 100.0),
            ("a.b >= 1kpps", 1e3),
            ("a.b > -1ns", -1.0),
        ] {
            let expectation = Expectation::parse(text).expect(text);
            assert!((expectation.bound.0 - bound).abs() < 1e-9, "{text}");
        }
    }

    #[test]
    fn both_sides_of_each_comparison() {
        let holds = |text: &str, value| Expectation::parse(text).expect(text).holds(value);
        assert!(holds("a.b < 2", 1.9) && !holds("a.b < 2", 2.0));
        assert!(holds("a.b <= 2", 2.0) && !holds("a.b <= 2", 2.1));
        assert!(holds("a.b == 2", 2.0) && !holds("a.b == 2", 1.0));
        assert!(holds("a.b >= 2", 2.0) && !holds("a.b > 2", 2.0));
    }

    #[test]
    fn bad_expectations_say_how() {
        for text in ["", "a.b", "a < 1", "a.b < fast", "a..b < 1", ".a < 1"] {
            let error = Expectation::parse(text).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}

use crate::plan::PipelinePlan;
use engine::schedules::Target;
use engine::stages::StageConfig;
use measure::{Named, Unit, named, named_program, named_segment};
use units::nearest;
use units::{BitRate, FrameRate, ParseError, Share, Span, parse_size};

/// An expected result: a figure of the report, a comparison and a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The text as written.
    pub text: String,
    /// The figure: the pipeline's name, then field names of the report.
    pub path: Vec<String>,
    /// The comparison.
    pub comparison: Comparison,
    /// The bound, in the unit of the report.
    pub bound: Quantity,
    /// The unit of the figure: from its name if possible, otherwise from its bound.
    pub unit: Unit,
}

/// Comparison of a figure with its bound.
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

/// A bound in the units of reports: ns, bit/s, frames/s, bytes, a fraction, or a plain count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity(pub f64);

impl Expectation {
    /// Parses `down.gap.error.p99 < 10us`.
    ///
    /// # Errors
    /// No comparison or several, an empty path, a bound that is neither a quantity with a unit nor a count, or a bound
    /// whose unit contradicts the figure's name.
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
        // A JSON pointer into the output of a program may contain dots.
        let (path, pointer) = match path.trim().split_once(".json./") {
            Some((path, pointer)) => (path, Some(format!("/{pointer}"))),
            None => (path.trim(), None),
        };
        let mut path: Vec<String> = path.split('.').map(str::to_owned).collect();
        path.extend(pointer.into_iter().flat_map(|pointer| ["json".to_owned(), pointer]));
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(ParseError::new(format!("'{}' names no figure of a report", path.join(".")), HOW));
        }
        if path.iter().any(|name| name.contains(['<', '>', '='])) {
            return Err(ParseError::new(
                format!("'{text}' compares more than once"),
                "write an [[expect]] for each comparison",
            ));
        }
        let (bound, unit) = of_figure(&path, bound.trim())?;
        Ok(Expectation { text: text.to_owned(), path, comparison, bound, unit })
    }

    /// The JSON pointer into the output of a program, if the figure is one.
    #[must_use]
    pub fn pointer(&self) -> Option<&str> {
        match &self.path[..] {
            [_, json, pointer] if json == "json" && pointer.starts_with('/') => Some(pointer),
            _ => None,
        }
    }

    /// Checks that a program can have this figure.
    ///
    /// # Errors
    /// What the path names instead, and how to correct it.
    pub(crate) fn check_program(&self) -> Result<(), ParseError> {
        let (name, fields) = self.path.split_first().expect("a path has two names at least");
        if self.pointer().is_some() {
            return match self.unit {
                Unit::Count | Unit::Number => Ok(()),
                _ => Err(ParseError::new(
                    "a figure of a program's own output has no known unit",
                    "write a plain number in the unit of that output",
                )),
            };
        }
        match named_program(fields) {
            Named::Figure(_) => Ok(()),
            Named::Several(_) => Err(ParseError::new(
                format!("'{name}.json' needs a pointer"),
                format!("write {name}.json./end/seconds"),
            )),
            Named::Nothing(depth, names) => {
                let (what, names) = (&fields[depth], if depth == 0 { names } else { Vec::new() });
                // The unit suffix may be omitted.
                let short: Vec<&str> = names.iter().map(|name| name.trim_end_matches("_ns")).collect();
                let names = match nearest(what, &short) {
                    Some(meant) => vec![format!("{name}.{meant}")],
                    None if names.is_empty() => vec![format!("{name}.{} alone", fields[0])],
                    None => {
                        let all = names.iter().map(|figure| format!("{name}.{figure}"));
                        all.chain([format!("{name}.json./POINTER")]).collect()
                    }
                };
                Err(ParseError::new(format!("'{what}' is no figure of {name}"), format!("write {}", listed(&names))))
            }
        }
    }

    /// The pipelines to which the figure may belong. There may be several, because names may contain dots.
    pub(crate) fn pipelines<'n>(&self, names: &'n [String]) -> Vec<&'n str> {
        let path = self.path.join(".");
        let is_of = |name: &&str| path.strip_prefix(name).is_some_and(|fields| fields.starts_with('.'));
        names.iter().map(String::as_str).filter(is_of).collect()
    }

    /// Joins the name of the pipeline into a single part of the path, even if it contains dots.
    pub(crate) fn has_pipeline(&mut self, names: &[String]) {
        if let Some(name) = self.pipelines(names).first() {
            let fields = self.path.join(".").split_off(name.len() + 1);
            self.path = std::iter::once(*name).chain(fields.split('.')).map(str::to_owned).collect();
        }
    }

    /// Checks that a run of this plan can have the figure. The figure's first name is the plan's pipeline or its return
    /// path.
    ///
    /// # Errors
    /// What the path names instead, and how to correct it.
    pub(crate) fn check(&self, plan: &PipelinePlan) -> Result<(), ParseError> {
        let (pipeline, fields) = self.path.split_first().expect("a path has two names at least");
        let back = plan.back.as_ref().filter(|back| back.name == *pipeline);
        let mut prefix = pipeline.clone();
        let mut fields = fields;
        let mut stages: Vec<&StageConfig> = match back {
            Some(back) => back.stages.iter().collect(),
            None => plan.all_stages().collect(),
        };
        let mut target = back.is_none().then_some(&plan.target).filter(|_| plan.classes.is_empty());
        let mut classes = Vec::new();
        if back.is_none() && !plan.classes.is_empty() {
            classes.extend(plan.classes.iter().map(|class| class.name.as_str()));
            classes.push(&plan.default_class);
            if let Some((class, rest)) = fields.split_first().filter(|(class, _)| classes.contains(&class.as_str())) {
                prefix += &format!(".{class}");
                fields = rest;
                (stages, target) = match plan.classes.iter().find(|of| of.name == *class) {
                    Some(of) => (of.stages.iter().collect(), Some(&of.target)),
                    None => (plan.stages.iter().collect(), Some(&plan.target)),
                };
                classes.clear();
            }
        }
        if fields == ["skipped"] {
            let what = format!("'{prefix}.skipped' has a figure for each reason");
            return Err(ParseError::new(what, format!("write {prefix}.skipped.REASON, such as {prefix}.skipped.cut")));
        }
        let mut look_up: fn(&[String]) -> Named = named;
        if fields.first().is_some_and(|name| name == SEGMENTS) {
            let number = fields.get(1).filter(|number| number.parse::<usize>().is_ok());
            if prefix != *pipeline || number.is_none() || fields.len() < 3 {
                let what = format!("'{}' names no segment", self.path.join("."));
                let how = format!(
                    "write {pipeline}.segments.1.rate.mean_bps for the time after the first change, 0 for that before it"
                );
                return Err(ParseError::new(what, how));
            }
            prefix += &format!(".{SEGMENTS}.{}", fields[1]);
            (fields, look_up) = (&fields[2..], named_segment);
            classes.clear();
        }
        match look_up(fields) {
            Named::Figure(_) => {}
            Named::Several(names) => {
                let of = [prefix].iter().chain(fields).cloned().collect::<Vec<_>>().join(".");
                // Suggests only figures with the unit of the bound, if there are any.
                let fits = |name: &&&str| {
                    let path = [self.path.as_slice(), &[(**name).to_owned()]].concat();
                    unit_of(&path).is_none_or(|unit| unit == self.unit)
                };
                let fitting: Vec<&str> = names.iter().filter(fits).copied().collect();
                let names = if fitting.is_empty() { names } else { fitting };
                let names: Vec<String> = names.iter().map(|name| format!("{of}.{name}")).collect();
                return Err(ParseError::new(
                    format!("'{of}' has several figures"),
                    format!("write {}", listed(&names)),
                ));
            }
            Named::Nothing(depth, mut names) => {
                if depth == 0 {
                    names.extend(classes);
                }
                let of = [prefix].iter().chain(&fields[..depth]).cloned().collect::<Vec<_>>().join(".");
                let what = format!("'{}' is not a figure of {of}", fields[depth]);
                if names.is_empty() {
                    return Err(ParseError::new(what, format!("write {of} alone")));
                }
                let names: Vec<String> = match nearest(&fields[depth], &names) {
                    Some(name) => vec![format!("{of}.{name}")],
                    None => names.iter().map(|name| format!("{of}.{name}")).collect(),
                };
                return Err(ParseError::new(what, format!("write {}", listed(&names))));
            }
        }
        if self.path[1] == SEGMENTS {
            return Ok(());
        }
        let is_virtual = plan.output.is_virtual();
        let lacking = match fields[0].as_str() {
            "return" | "flow" | "answers" if is_virtual => "live ports",
            "fillers" if is_virtual && plan.line.is_none() => "a port with a line rate, such as wire:10G",
            "conformance" if target.is_some_and(|target| matches!(target, Target::Nothing)) => "a gap or a rate",
            "limit" if !stages.iter().any(|stage| matches!(stage, StageConfig::Limit(_))) => "a stage limit",
            "delay" | "reorder" | "choices" | "effects" if stages.is_empty() => "a stage",
            "fit" if target.is_some_and(|target| !matches!(target, Target::Law(_))) => "a gap of a law",
            "gap"
                if fields.get(1).is_some_and(|name| name == "error")
                    && target.is_none_or(|target| target.fixed_gap().is_none()) =>
            {
                "a fixed gap"
            }
            _ => return Ok(()),
        };
        let what = format!("{prefix} has no {}: its run has that figure only with {lacking}", fields.join("."));
        Err(ParseError::new(what, "ask for it, or leave the expectation out"))
    }

    /// Whether the figure requires a run that traces frames.
    #[must_use]
    pub fn needs_slices(&self) -> bool {
        // The pipeline or class in front of it may have any name.
        let names = |fields: &[String]| fields[0] == "slices" && matches!(named(fields), Named::Figure(_));
        (1..self.path.len()).any(|at| names(&self.path[at..]))
    }

    /// True if `value`, in the unit of the report, meets the expectation.
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

/// The report's list of segments, the times between changes. Its entries count from 0.
const SEGMENTS: &str = "segments";

/// Joins names to a list with "or" before the last.
fn listed(names: &[String]) -> String {
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => names.concat(),
    }
}

/// The bound of a figure, and its unit.
fn of_figure(path: &[String], text: &str) -> Result<(Quantity, Unit), ParseError> {
    let (bound, unit) = quantity(text)?;
    let Some(wanted) = unit_of(path) else { return Ok((bound, unit)) };
    // Zero is the same in all units, and bytes may be written as a count.
    if unit == wanted || bound == Quantity(0.0) || matches!((unit, wanted), (Unit::Count, Unit::Bytes | Unit::ByteRate))
    {
        return Ok((bound, wanted));
    }
    if (unit, wanted) == (Unit::BitRate, Unit::ByteRate) {
        return Ok((Quantity(bound.0 / 8.0), wanted));
    }
    let (what, example) = match wanted {
        Unit::Time => ("a time", "a time such as 10us"),
        Unit::BitRate => ("a bit rate", "a rate such as 5Gbps"),
        Unit::FrameRate => ("a frame rate", "a rate such as 1kpps"),
        Unit::Ratio => ("a share", "a share such as 25%"),
        Unit::Bytes => ("a count of bytes", "a whole number, or a size such as 1500B"),
        Unit::ByteRate => ("a rate of bytes", "a rate such as 5MB/s"),
        Unit::Count | Unit::Number => ("a count", "a whole number without a unit"),
    };
    let name = path.last().map_or("", String::as_str);
    Err(ParseError::new(format!("{name} is {what}, and '{text}' is not"), format!("write {example}")))
}

/// The unit of the figure at the end of a path. The path starts with the names of a pipeline and, optionally, a class.
fn unit_of(path: &[String]) -> Option<Unit> {
    let unit = |named| match named {
        Named::Figure(figure) => Some(figure.unit).filter(|unit| *unit != Unit::Number),
        _ => None,
    };
    let of_segment = || {
        let segments = path.iter().position(|name| name == SEGMENTS)?;
        unit(named_segment(path.get(segments + 2..)?))
    };
    let of_pipeline = || (1..path.len()).find_map(|start| unit(named(&path[start..])));
    of_segment().or_else(of_pipeline).or_else(|| unit(named_program(&path[1..])))
}

fn quantity(text: &str) -> Result<(Quantity, Unit), ParseError> {
    if let Some(size) = text.strip_prefix('-') {
        return quantity(size).map(|(Quantity(size), unit)| (Quantity(-size), unit));
    }
    if let Ok(count) = text.parse::<u64>() {
        return Ok((Quantity(count as f64), Unit::Count));
    }
    if let Ok(number) = text.parse::<f64>()
        && number.is_finite()
        && text.starts_with(|c: char| c.is_ascii_digit())
    {
        return Ok((Quantity(number), Unit::Number));
    }
    let time = text.parse::<Span>().map(|time| (time.as_ns_f64(), Unit::Time));
    let rate = || text.parse::<BitRate>().map(|rate| (rate.bps() as f64, Unit::BitRate));
    let frames = || text.parse::<FrameRate>().map(|rate| (rate.millis() as f64 / 1_000.0, Unit::FrameRate));
    let share = || text.parse::<Share>().map(|share| (share.as_f64(), Unit::Ratio));
    let size = || parse_size(text).map(|bytes| (bytes as f64, Unit::Bytes));
    let value = time.or_else(|_| rate()).or_else(|_| frames()).or_else(|_| share()).or_else(|_| size());
    value.map(|(value, unit)| (Quantity(value), unit)).map_err(|_| {
        ParseError::new(format!("'{text}' is not a bound"), "write a time, a rate, a share, a size or a count")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_bounds_to_the_units_of_reports() {
        for (text, bound) in [
            ("a.b < 10us", 10_000.0),
            ("a.b<=5Gbps", 5e9),
            ("a.b > 50%", 0.5),
            ("a.b == 100", 100.0),
            ("a.b >= 1kpps", 1e3),
            ("a.b > -1ns", -1.0),
            ("a.out.bytes == 640B", 640.0),
            ("a.out.bytes < 1.5kB", 1500.0),
            ("a.out.bytes == 640", 640.0),
        ] {
            let expectation = Expectation::parse(text).expect(text);
            assert!((expectation.bound.0 - bound).abs() < 1e-9, "{text}");
        }
    }

    /// The result of reading a scenario with this expectation. Its pipelines are `a` with classes, and `b` and `law`
    /// without.
    fn checked(that: &str) -> Result<(), String> {
        let pipeline = |name: &str, rest: &str| {
            format!("[[pipeline]]\nname = \"{name}\"\nin = \"pcap:in.pcap\"\nout = \"wire:10G\"\n{rest}\n")
        };
        let class = "[[pipeline.class]]\nname = \"web\"\nmatch = \"tcp\"\nstages = [\"delay 5ms\"]\n\
                     [[pipeline.class]]\ngap = \"10us\"";
        let text = [
            "schema = 1\n".to_owned(),
            pipeline("a", class),
            pipeline("b", "stages = [\"limit key dst-ip rate 1Mbps mode police\"]\ngap = \"10us\""),
            pipeline("law", "gap = \"chi2 df 6 in 80us..120us\""),
            pipeline("none", "").replace("wire:10G", "null"),
            format!("[[expect]]\nthat = \"{that}\"\n"),
        ];
        crate::read("a.toml", &text.concat(), None).map(drop).map_err(|problems| problems.to_string())
    }

    #[test]
    fn accepts_figures_that_the_run_will_have() {
        for that in [
            "a.held == 0",
            "a.web.delay.p99 < 6ms",
            "a.default.gap.error.max_ns < 1ns",
            "a.drops.pool == 0",
            "b.limit.error.1s.worst_error < 2%",
            "b.gap.error.p99 < 10us",
            "a.web.delay.asked.p99 < 6ms",
            "a.web.delay.error.p99 < 10us",
            "b.gap.error.max_ns < 1ns",
            "law.fit.ks_p > 0.01%",
            "law.conformance.within_1us >= 0%",
            "b.fillers.frames == 0",
            "b.skipped.cut == 0",
            "b.rate.mean_bps < 10Mbps",
            "a.segments.1.rate.mean_bps > 10Mbps",
            "b.segments.0.delay.max < 6ms",
            "b.segments.2.drops.loss == 0",
            "b.drops.segments == 0",
        ] {
            assert_eq!(checked(that), Ok(()), "{that}");
        }
    }

    #[test]
    fn errors_of_impossible_figures_name_the_intended_ones() {
        for (that, expected) in [
            ("a.gapp.mean_ns < 1us", "'gapp' is not a figure of a: write a.gap"),
            (
                "a.segments.delay.max < 1us",
                "'a.segments.delay.max' names no segment: write a.segments.1.rate.mean_bps for",
            ),
            ("a.segments.1 < 1us", "'a.segments.1' names no segment"),
            ("a.web.segments.1.delay.max < 1us", "'a.web.segments.1.delay.max' names no segment"),
            ("a.segments.1.gapp.mean < 1us", "'gapp' is not a figure of a.segments.1: write a.segments.1.gap"),
            ("a.segments.1.gap.mean < 1Mbps", "mean is a time, and '1Mbps' is not"),
            ("a.wep.held == 0", "'wep' is not a figure of a: write a.web"),
            ("a.web.gapp.p99 < 1us", "'gapp' is not a figure of a.web: write a.web.gap"),
            ("b.gap.error.max_n < 1ns", "'max_n' is not a figure of b.gap.error: write b.gap.error.max_ns"),
            ("b.rate.mean < 10Mbps", "'mean' is not a figure of b.rate: write b.rate.mean_bps"),
            ("b.rate < 10Mbps", "'b.rate' has several figures: write b.rate.mean_bps, b.rate.min_bps, b.rate.max_bps"),
            ("b.drops.los == 0", "'los' is not a figure of b.drops: write b.drops.loss"),
            ("b.held.mean_ns < 1us", "'mean_ns' is not a figure of b.held: write b.held alone"),
            ("law.limit.watched == 1", "only with a stage limit"),
            ("law.delay.p99 < 1ms", "only with a stage"),
            ("law.gap.error.p99 < 1ms", "only with a fixed gap"),
            ("b.fit.kl_nats < 0.01", "only with a gap of a law"),
            ("a.gap.error.p99 < 1ms", "only with a fixed gap"),
            ("b.return.out.frames == 0", "only with live ports"),
            ("b.flow.kernel_drops == 0", "only with live ports"),
            ("none.fillers.frames == 0", "only with a port with a line rate"),
            ("none.conformance.within_1us > 90%", "only with a gap or a rate"),
            ("b.skipped == 0", "write b.skipped.REASON"),
        ] {
            let error = checked(that).expect_err(that);
            assert!(error.contains(expected), "{that}: {error}");
        }
    }

    #[test]
    fn bounds_have_the_unit_of_the_figure() {
        for (text, unit) in [
            ("a.gap.mean_ns < 0", Unit::Time),
            ("a.gap.mean < 3us", Unit::Time),
            ("a.b.delay.error.p99 < 3us", Unit::Time),
            ("a.gap.mean_ns < 3us", Unit::Time),
            ("a.gap.error.p99 <= 3us", Unit::Time),
            ("a.lateness.max < 3us", Unit::Time),
            ("a.depth.max < 3", Unit::Count),
            ("a.drops.loss < 3", Unit::Count),
            ("a.reorder.ratio < 3%", Unit::Ratio),
            ("a.conformance.within_1us == 100%", Unit::Ratio),
            ("a.limit.error.1s.p50 < 80%", Unit::Ratio),
            ("a.rate.mean_bps > 1Gbps", Unit::BitRate),
            ("a.rate.range_Bps < 3MB/s", Unit::ByteRate),
            ("a.out.frames == 3", Unit::Count),
            ("a.b < 3", Unit::Count),
            ("a.b < 3us", Unit::Time),
        ] {
            assert_eq!(Expectation::parse(text).map(|expectation| expectation.unit), Ok(unit), "{text}");
        }
        for text in [
            "a.gap.mean_ns < 30000",
            "a.gap.mean_ns < 3Mbps",
            "a.rate.mean_bps > 600",
            "a.rate.mean_bps > 6kpps",
            "a.out.frames == 3us",
            "a.gap.p99 < 30",
            "a.lateness.max < 30",
            "a.conformance.within_1us > 1",
            "a.starved < 1%",
            "a.depth.max < 3us",
            "a.drops.loss < 1%",
            "a.out.frames == 3kB",
            "a.out.bytes == 3us",
            "a.gap.mean_ns < 3kB",
            "a.gap.mean_ns < 3us and a.out.frames == 3",
        ] {
            let error = Expectation::parse(text).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }

    #[test]
    fn checks_both_sides_of_each_comparison() {
        let holds = |text: &str, value| Expectation::parse(text).expect(text).holds(value);
        assert!(holds("a.b < 2", 1.9) && !holds("a.b < 2", 2.0));
        assert!(holds("a.b <= 2", 2.0) && !holds("a.b <= 2", 2.1));
        assert!(holds("a.b == 2", 2.0) && !holds("a.b == 2", 1.0));
        assert!(holds("a.b >= 2", 2.0) && !holds("a.b > 2", 2.0));
    }

    #[test]
    fn errors_of_bad_expectations_name_the_spelling_to_use() {
        for text in ["", "a.b", "a < 1", "a.b < fast", "a..b < 1", ".a < 1"] {
            let error = Expectation::parse(text).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}

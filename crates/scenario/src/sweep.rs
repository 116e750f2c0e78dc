//! A `[sweep]`: the same scenario with several values.

use crate::document::Scenario;
use crate::overrides;
use crate::print::Quoted;
use crate::reader::Reader;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum number of runs of a sweep.
pub(crate) const MOST_RUNS: usize = 1_000;

/// The values of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Paths as in `--set`, in file order, each with its values as TOML.
    pub axes: Vec<(String, Vec<String>)>,
    /// Combines the first values of all paths, then the second values; otherwise every value with every other.
    pub zip: bool,
}

/// A run of a sweep.
#[derive(Clone, Debug)]
pub struct SweepRun {
    /// Paths and values, in file order.
    pub values: Vec<(String, String)>,
    /// The scenario with these values.
    pub scenario: Scenario,
}

/// A sweep with the positions of its values.
pub(crate) struct SweepText<'i> {
    axes: Vec<Axis<'i>>,
    zip: bool,
}

struct Axis<'i> {
    path: Spanned<String>,
    values: Vec<Spanned<DeValue<'i>>>,
}

impl SweepText<'_> {
    /// The sweep without positions.
    pub(crate) fn plan(&self) -> Sweep {
        let axis = |axis: &Axis<'_>| {
            let values = axis.values.iter().map(|value| as_toml(value.get_ref()));
            (axis.path.get_ref().clone(), values.collect())
        };
        Sweep { axes: self.axes.iter().map(axis).collect(), zip: self.zip }
    }

    /// The number of runs.
    fn count(&self) -> usize {
        let counts = self.axes.iter().map(|axis| axis.values.len());
        if self.zip { counts.min().unwrap_or(0) } else { counts.fold(1, usize::saturating_mul) }
    }

    /// The index of each value in a run. The last key varies fastest.
    fn choice(&self, run: usize) -> Vec<usize> {
        if self.zip {
            return vec![run; self.axes.len()];
        }
        let mut left = run;
        let mut choice: Vec<usize> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let number = left % axis.values.len();
                left /= axis.values.len();
                number
            })
            .collect();
        choice.reverse();
        choice
    }
}

/// The value in TOML, as `--set` accepts it.
fn as_toml(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => Quoted(text).to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Array(array) => {
            let items: Vec<String> = array.iter().map(|item| as_toml(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => String::new(),
    }
}

/// The value in readable form.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        other => as_toml(other),
    }
}

impl<'s> Reader<'s> {
    /// The `[sweep]` of a scenario.
    pub(crate) fn sweep(&mut self, document: &DeTable<'s>) -> Option<SweepText<'s>> {
        let value = document.get("sweep")?;
        let DeValue::Table(table) = value.get_ref() else {
            self.add(value.span(), "sweep is one table: write [sweep]");
            return None;
        };
        let before = self.problems.0.len();
        let mut axes = Vec::new();
        let mut zip = false;
        for (path, value) in table {
            if path.get_ref() == "zip" {
                zip = self.boolean(value);
                continue;
            }
            match value.get_ref() {
                DeValue::Array(values) if !values.is_empty() => {
                    let plain = |value: &&Spanned<DeValue<'_>>| as_toml(value.get_ref()).is_empty();
                    if let Some(odd) = values.iter().find(plain) {
                        self.add(odd.span(), "this is not a value of a sweep: write a text, a number or a list");
                    }
                    axes.push(Axis {
                        path: Spanned::new(path.span(), path.get_ref().to_string()),
                        values: values.to_vec(),
                    });
                }
                DeValue::Table(_) => {
                    let path = path.get_ref();
                    self.add(
                        value.span(),
                        format!("a path with dots is in quotes: write \"{path}.…\" = [\"…\", \"…\"]"),
                    );
                }
                _ => {
                    let path = path.get_ref();
                    self.add(value.span(), format!("this is not a list of values: write \"{path}\" = [\"…\", \"…\"]"));
                }
            }
        }
        axes.sort_by_key(|axis| axis.path.span().start);
        let sweep = SweepText { axes, zip };
        if self.problems.0.len() > before {
            return None;
        }
        if sweep.axes.is_empty() {
            self.add(value.span(), "the sweep has no values: write \"down.delay\" = [\"10ms\", \"50ms\"]");
        }
        if let Some(other) = sweep.axes.iter().find(|axis| zip && axis.values.len() != sweep.axes[0].values.len()) {
            let (count, first) = (other.values.len(), sweep.axes[0].values.len());
            let message =
                format!("with zip all lists must have the same length: this has {count} values, the first {first}");
            self.add(other.path.span(), message);
        }
        let count = sweep.count();
        if count > MOST_RUNS {
            self.add(value.span(), format!("the sweep has {count} runs: {MOST_RUNS} are possible, write fewer values"));
        }
        (self.problems.0.len() == before).then_some(sweep)
    }

    /// The scenario of each run. Stops at the first one with problems.
    pub(crate) fn sweep_runs(&mut self, document: &DeTable<'s>, sweep: &SweepText<'s>) -> Vec<SweepRun> {
        let mut runs = Vec::new();
        for run in 0..sweep.count() {
            let mut document = document.clone();
            document.remove("sweep");
            let mut values = Vec::new();
            for (axis, number) in sweep.axes.iter().zip(sweep.choice(run)) {
                let (path, value) = (&axis.path, &axis.values[number]);
                values.push((path.get_ref().clone(), shown(value.get_ref())));
                if let Err(problem) = overrides::apply(&mut document, path.get_ref(), value.clone(), &path.span()) {
                    self.add(path.span(), problem);
                    return Vec::new();
                }
            }
            match self.scenario(&document).filter(|_| self.problems.0.is_empty()) {
                Some(scenario) => runs.push(SweepRun { values, scenario }),
                None => return Vec::new(),
            }
        }
        runs
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[sweep]")?;
        for (path, values) in &self.axes {
            writeln!(f, "{} = [{}]", Quoted(path), values.join(", "))?;
        }
        if self.zip { writeln!(f, "zip = true") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, read_sweep};

    const FILE: &str = r#"
schema = 1
[sweep]
"down.delay" = ["10ms", "50ms", "90ms"]
"seed" = [1, 2]
"down.loss" = ["1%", "2%"]
[[pipeline]]
name = "down"
in = "pcap:in.pcap"
out = "null"
stages = ["delay 1ms", "loss 1%"]
"#;

    fn values(text: &str) -> Vec<String> {
        let runs = read_sweep("a.toml", text, None, &[]).expect("a sweep").expect("runs");
        let line = |values: &[(String, String)]| {
            values.iter().map(|(path, value)| format!("{path}={value}")).collect::<Vec<_>>().join(" ")
        };
        runs.iter().map(|run| line(&run.values)).collect()
    }

    #[test]
    fn runs_are_each_value_with_each_or_the_lists_side_by_side() {
        let all = values(FILE);
        assert_eq!(all.len(), 12);
        assert_eq!(all[0], "down.delay=10ms seed=1 down.loss=1%");
        assert_eq!(all[1], "down.delay=10ms seed=1 down.loss=2%");
        assert_eq!(all[11], "down.delay=90ms seed=2 down.loss=2%");
        let zipped = FILE.replace("[\"10ms\", \"50ms\", \"90ms\"]", "[\"10ms\", \"50ms\"]\nzip = true");
        assert_eq!(values(&zipped), ["down.delay=10ms seed=1 down.loss=1%", "down.delay=50ms seed=2 down.loss=2%"]);
        let runs = read_sweep("a.toml", FILE, None, &[]).expect("a sweep").expect("runs");
        assert_eq!(runs[3].scenario.seed, Some(2));
        assert_eq!(runs[3].scenario.pipelines[0].stages[1].to_string(), "loss 2%");
    }

    #[test]
    fn sweeps_survive_printing_and_parsing() {
        for text in [FILE.to_owned(), FILE.replace("[\"10ms\", \"50ms\", \"90ms\"]", "[\"1ms\", \"2ms\"]\nzip = true")]
        {
            let scenario = read("a.toml", &text, None).expect("a scenario");
            let printed = scenario.to_string();
            assert_eq!(read("b.toml", &printed, None).as_ref(), Ok(&scenario), "{printed}");
            assert_eq!(values(&printed), values(&text));
        }
    }

    #[test]
    fn errors_of_sweeps_have_their_position() {
        for (good, bad, expected) in [
            (
                "\"down.delay\"",
                "\"down.dely\"",
                "4:1: 'down.dely' is not a value of this scenario: did you mean down.delay?",
            ),
            ("\"down.delay\"", "down.delay", "a path with dots is in quotes"),
            ("\"50ms\"", "\"50\"", "4:25: "),
            ("\"50ms\"", "1979-05-27", "this is not a value of a sweep"),
            ("[1, 2]", "3", "5:10: this is not a list of values"),
            ("[1, 2]", "[]", "5:10: this is not a list of values"),
            (
                "[1, 2]",
                "[1, 2]\nzip = true",
                "with zip all lists must have the same length: this has 2 values, the first 3",
            ),
            ("[1, 2]", &format!("[{}]", vec!["1"; 200].join(", ")), "the sweep has 1200 runs: 1000 are possible"),
        ] {
            assert!(FILE.contains(good), "{good}");
            let error = read("a.toml", &FILE.replacen(good, bad, 1), None).expect_err(bad).to_string();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }
}

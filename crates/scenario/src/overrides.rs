//! Values that replace those of a scenario before it is parsed: `--set PATH=VALUE`.
//!
//! A path is `TABLE.NAME.KEY`, or `NAME.KEY` if it is unambiguous: `pipeline.down.rate`, `down.rate`, `down.api.rate`
//! for a class, `seed`. The name of a stage is also a key: `down.delay` is the stage `delay …`.

use crate::classes::DEFAULT_CLASS;
use crate::keys;
use std::borrow::Cow;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use units::{ParseError, nearest};

type Value<'i> = Spanned<DeValue<'i>>;

/// A value of `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// As typed.
    pub(crate) typed: String,
    /// The length of the path.
    path: usize,
}

impl Override {
    /// Parses `PATH=VALUE`.
    ///
    /// # Errors
    /// The path or the value is missing.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        match text.split_once('=') {
            Some((path, value)) if !path.trim().is_empty() && !value.trim().is_empty() => {
                Ok(Override { typed: text.to_owned(), path: path.len() })
            }
            _ => Err(ParseError::new(format!("'{text}' sets nothing"), "write PATH=VALUE, such as down.rate=5Gbps")),
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.typed[..self.path].trim()
    }

    /// The value as TOML, with its position offset by `start`. Anything but a number, a list or quoted text is plain
    /// text.
    pub(crate) fn value(&self, start: usize) -> Value<'_> {
        let rest = &self.typed[self.path + 1..];
        let start = start + self.path + 1 + (rest.len() - rest.trim_start().len());
        let text = rest.trim();
        match DeValue::parse(text) {
            Ok(value) if !matches!(value.get_ref(), DeValue::Datetime(_)) => moved(value, start),
            _ => Spanned::new(start..start + text.len(), DeValue::String(Cow::Borrowed(text))),
        }
    }
}

/// The value with its positions offset by `start`.
fn moved(value: Value<'_>, start: usize) -> Value<'_> {
    let span = value.span();
    let inner = match value.into_inner() {
        DeValue::Array(array) => {
            let mut items = DeArray::new();
            array.iter().for_each(|item| items.push(moved(item.clone(), start)));
            DeValue::Array(items)
        }
        other => other,
    };
    Spanned::new(span.start + start..span.end + start, inner)
}

/// The location of a value in a scenario.
#[derive(Clone, Debug)]
struct ValuePath {
    /// The path without the name of the list of tables in front of it.
    path: String,
    /// The name of that list, if the value is in one.
    list: &'static str,
    steps: Vec<Step>,
    /// The stage whose name is the last part of the path.
    stage: Option<(usize, String)>,
}

#[derive(Clone, Debug)]
enum Step {
    Key(&'static str),
    Index(usize),
}

/// Replaces the value at `path`. `replaces` is the position of the path.
///
/// # Errors
/// No value has the path, or several have.
pub(crate) fn apply<'i>(
    document: &mut DeTable<'i>,
    path: &str,
    value: Value<'i>,
    replaces: &Range<usize>,
) -> Result<(), String> {
    let found = find(document, path)?;
    let Some((Step::Key(key), parents)) = found.steps.split_last().map(|(last, rest)| (last.clone(), rest)) else {
        return Err(format!("'{path}' is not a value: name a key of it"));
    };
    let Some(table) = table_at(document, parents) else {
        return Err(format!("'{path}' is in no table: write it in the file"));
    };
    match found.stage {
        Some((index, kind)) => {
            if let Some(DeValue::Array(stages)) = table.get_mut(key).map(|value| value.get_mut())
                && let Some(stage) = stages.get_mut(index)
            {
                *stage = of_stage(&kind, &value)?;
            }
        }
        None => {
            table.remove(key);
            table.insert(Spanned::new(replaces.clone(), Cow::Borrowed(key)), value);
        }
    }
    Ok(())
}

/// A stage with new parameters.
fn of_stage<'i>(kind: &str, value: &Value<'i>) -> Result<Value<'i>, String> {
    let parameters = match value.get_ref() {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(number) => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        _ => return Err(format!("'{kind}' is a stage: write what follows its name, as text")),
    };
    let whole = format!("{kind} {parameters}");
    Ok(Spanned::new(value.span(), DeValue::String(Cow::Owned(whole))))
}

/// Whether a path names exactly one value of the document.
///
/// # Errors
/// As [`apply`].
fn find(document: &DeTable<'_>, path: &str) -> Result<ValuePath, String> {
    let values = values(document);
    let full = |value: &ValuePath| {
        if value.list.is_empty() { value.path.clone() } else { format!("{}.{}", value.list, value.path) }
    };
    let meant: Vec<&ValuePath> = values.iter().filter(|value| value.path == path || full(value) == path).collect();
    match meant[..] {
        [only] => Ok(only.clone()),
        [] => {
            let full: Vec<String> = values.iter().map(full).collect();
            let known: Vec<&str> = values.iter().map(|value| value.path.as_str()).collect();
            let all: Vec<&str> = full.iter().map(String::as_str).chain(known.iter().copied()).collect();
            let how = match nearest_path(path, &all) {
                Some(meant) => format!("did you mean {meant}?"),
                None => {
                    let example = values.iter().rev().find(|value| value.list != "expect");
                    let example = example.map_or("seed", |value| value.path.as_str());
                    format!("write the name of a pipeline and a key, such as {example}")
                }
            };
            Err(format!("'{path}' is not a value of this scenario: {how}"))
        }
        [first, second, ..] if full(first) == full(second) => {
            Err(format!("'{path}' may mean two values: set the whole list, such as stages"))
        }
        [first, second, ..] => Err(format!("'{path}' may mean {} or {}: write one of them", full(first), full(second))),
    }
}

/// The path that was probably meant: the nearest one as a whole, else the one with the nearest last part.
fn nearest_path<'a>(path: &str, all: &[&'a str]) -> Option<&'a str> {
    nearest(path, all).or_else(|| {
        let (before, last) = path.rsplit_once('.')?;
        let beside: Vec<&str> = all.iter().filter_map(|other| other.strip_prefix(before)?.strip_prefix('.')).collect();
        let meant = nearest(last, &beside)?;
        all.iter()
            .find(|other| other.strip_prefix(before).and_then(|rest| rest.strip_prefix('.')) == Some(meant))
            .copied()
    })
}

/// The locations of all values.
fn values(document: &DeTable<'_>) -> Vec<ValuePath> {
    let mut values = Vec::new();
    for key in keys::of_table("") {
        if !keys::is_table(key) {
            values.push(ValuePath { path: key.to_owned(), list: "", steps: vec![Step::Key(key)], stage: None });
            continue;
        }
        match document.get(key).map(|value| value.get_ref()) {
            Some(DeValue::Array(tables)) => {
                for (index, table) in tables.iter().enumerate() {
                    let DeValue::Table(table) = table.get_ref() else { continue };
                    let unnamed = || ["pipeline", "expect"].contains(&key).then(|| format!("{key}{}", index + 1));
                    let Some(name) = name_of(table).or_else(unnamed) else { continue };
                    add_table(table, key, key, &name, &[Step::Key(key), Step::Index(index)], &mut values);
                }
            }
            // A sweep contains paths, not keys.
            Some(DeValue::Table(_)) if key == "sweep" => {}
            Some(DeValue::Table(table)) => add_table(table, "", key, key, &[Step::Key(key)], &mut values),
            _ => {}
        }
    }
    values
}

/// Adds the locations of a table, whose keys are those of `kind`.
fn add_table(
    table: &DeTable<'_>,
    list: &'static str,
    kind: &str,
    name: &str,
    steps: &[Step],
    values: &mut Vec<ValuePath>,
) {
    let step = |key| [steps, &[Step::Key(key)]].concat();
    let classes = match table.get("class").map(|value| value.get_ref()) {
        Some(DeValue::Array(classes)) if kind == "pipeline" => &classes[..],
        _ => &[],
    };
    // A key of the default class may be in a table of its own.
    let default = classes.iter().enumerate().find_map(|(index, class)| match class.get_ref() {
        DeValue::Table(class) if !class.contains_key("match") => Some((index, class)),
        _ => None,
    });
    for key in keys::of_table(kind).into_iter().filter(|key| !keys::is_table(&format!("{kind}.{key}"))) {
        let (holder, steps) = match &default {
            Some((index, class)) if key != "name" && class.contains_key(key) && !table.contains_key(key) => {
                (*class, [steps, &[Step::Key("class"), Step::Index(*index), Step::Key(key)]].concat())
            }
            _ => (table, step(key)),
        };
        values.push(ValuePath { path: format!("{name}.{key}"), list, steps: steps.clone(), stage: None });
        let is_list = ["stages", "return"].contains(&key);
        let Some(DeValue::Array(stages)) = holder.get(key).map(|value| value.get_ref()).filter(|_| is_list) else {
            continue;
        };
        for (index, stage) in stages.iter().enumerate() {
            let Some(stage) = stage.get_ref().as_str().and_then(|text| text.split_whitespace().next()) else {
                continue;
            };
            let path = if key == "return" { format!("{name}.return.{stage}") } else { format!("{name}.{stage}") };
            values.push(ValuePath { path, list, steps: steps.clone(), stage: Some((index, stage.to_owned())) });
        }
    }
    for (index, class) in classes.iter().enumerate() {
        let DeValue::Table(class) = class.get_ref() else { continue };
        let unnamed =
            if class.contains_key("match") { format!("class{}", index + 1) } else { DEFAULT_CLASS.to_owned() };
        let name = format!("{name}.{}", name_of(class).unwrap_or(unnamed));
        let steps = [steps, &[Step::Key("class"), Step::Index(index)]].concat();
        add_table(class, list, "pipeline.class", &name, &steps, values);
    }
}

fn name_of(table: &DeTable<'_>) -> Option<String> {
    table.get("name")?.get_ref().as_str().map(str::to_owned)
}

/// The table that these steps lead to.
fn table_at<'t, 'i>(document: &'t mut DeTable<'i>, steps: &[Step]) -> Option<&'t mut DeTable<'i>> {
    let mut table = document;
    let mut steps = steps.iter();
    while let Some(Step::Key(key)) = steps.next() {
        table = match table.get_mut(*key)?.get_mut() {
            DeValue::Table(inner) => inner,
            DeValue::Array(array) => {
                let Some(Step::Index(index)) = steps.next() else { return None };
                match array.get_mut(*index)?.get_mut() {
                    DeValue::Table(inner) => inner,
                    _ => return None,
                }
            }
            _ => return None,
        };
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::Override;
    use crate::{Scenario, read_with};

    const FILE: &str = r#"
schema = 1
[[pipeline]]
name = "down"
in = "pcap:in.pcap"
out = "wire:10G"
stages = ["delay 20ms", "loss 1%"]
rate = "1Gbps"
[[pipeline]]
name = "up"
stream = "udp 10.0.0.2:1 > 10.0.0.1:9"
out = "null"
count = 5
[[pipeline.class]]
name = "web"
match = "tcp"
stages = ["delay 5ms"]
[[pipeline.class]]
gap = "10us"
[[pipeline]]
name = "twice"
in = "pcap:in.pcap"
out = "null"
stages = ["loss 1%", "loss 2%"]
[[expect]]
that = "down.delay.p99 < 25ms"
"#;

    fn with(set: &[&str]) -> Result<Scenario, String> {
        let set: Vec<Override> = set.iter().map(|text| Override::parse(text).expect(text)).collect();
        read_with("a.toml", FILE, None, &set).map_err(|problems| problems.to_string())
    }

    #[test]
    fn replaces_values_of_pipelines_classes_and_stages() {
        for (set, instead) in [
            ("down.rate=5Gbps", ("rate = \"1Gbps\"", "rate = \"5Gbps\"")),
            ("pipeline.down.rate = 5Gbps", ("rate = \"1Gbps\"", "rate = \"5Gbps\"")),
            ("down.delay=80ms 5ms", ("\"delay 20ms\", ", "\"delay 80ms 5ms\", ")),
            ("down.stages=[\"loss 2%\"]", ("stages = [\"delay 20ms\", \"loss 1%\"]", "stages = [\"loss 2%\"]")),
            ("up.count=7", ("count = 5", "count = 7")),
            ("expect1.that=down.delay.p99 <= 30ms", ("down.delay.p99 < 25ms", "down.delay.p99 <= 30ms")),
            ("expect.expect1.that=down.held == 0", ("down.delay.p99 < 25ms", "down.held == 0")),
            ("up.web.delay=1us", ("delay 5ms", "delay 1us")),
            ("up.web.rate=1Mbps", ("match = \"tcp\"", "match = \"tcp\"\nrate = \"1Mbps\"")),
            ("up.gap=20us", ("gap = \"10us\"", "gap = \"20us\"")),
            ("up.default.gap=20us", ("gap = \"10us\"", "gap = \"20us\"")),
            ("down.one-way=true", ("rate = \"1Gbps\"", "rate = \"1Gbps\"\none-way = true")),
            ("seed=9", ("schema = 1", "schema = 1\nseed = 9")),
            ("duration=2s", ("schema = 1", "schema = 1\nduration = \"2s\"")),
        ] {
            assert!(FILE.contains(instead.0), "{set}");
            let expected = crate::read("a.toml", &FILE.replacen(instead.0, instead.1, 1), None).expect(set);
            assert_eq!(with(&[set]), Ok(expected), "{set}");
        }
        assert_eq!(with(&["down.rate=2Gbps", "down.rate=5Gbps"]), with(&["down.rate=5Gbps"]), "the last is used");
    }

    #[test]
    fn errors_name_the_option_the_column_and_the_nearest_path() {
        for (set, expected) in [
            (
                "down.rat=5Gbps",
                "--set 'down.rat=5Gbps', column 1: 'down.rat' is not a value of this scenario: did you mean down.rate?",
            ),
            ("donw.rate=5Gbps", "did you mean down.rate?"),
            ("down.rate=5Gbp", "--set 'down.rate=5Gbp', column 11: "),
            ("down.loss= 1", "--set 'down.loss= 1', column 12: "),
            ("down.stages=[\"loss 1%\", \"lost 2%\"]", "column 25: 'lost' is not a stage"),
            ("up.count=many", "column 10: a number is expected"),
            ("twice.loss=3%", "'twice.loss' may mean two values: set the whole list"),
            ("down.delay=[1]", "'delay' is a stage: write what follows its name"),
            ("hurz=1", "'hurz' is not a value of this scenario: write the name of a pipeline and a key"),
        ] {
            let error = with(&[set]).expect_err(set);
            assert!(error.contains(expected), "{set}: {error}");
        }
        for text in ["", "down.rate", "=5", "down.rate="] {
            assert!(Override::parse(text).expect_err(text).to_string().contains("write PATH=VALUE"), "{text}");
        }
    }
}

//! The list of figures: every number in the report of a pipeline, by path, with its unit and meaning. It is read from the
//! JSON schema, which `schemars` derives from the report's types, so a new field of a type is a new figure everywhere.

use crate::programs::ProgramReport;
use crate::report::{PipelineReport, Report};
use crate::segments::SegmentReport;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// The unit of a figure, from the suffix of its name. A plain noun is a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Bits per second.
    BitRate,
    /// Bytes per second.
    ByteRate,
    /// Frames per second.
    FrameRate,
    /// A fraction of one.
    Ratio,
    /// Bytes.
    Bytes,
    /// A whole number of frames, times, users, …
    Count,
    /// A statistic without a unit.
    Number,
}

impl Unit {
    /// Each unit with the suffix that names it.
    const SUFFIXES: [(&str, Unit); 7] = [
        ("ns", Unit::Time),
        ("bps", Unit::BitRate),
        ("Bps", Unit::ByteRate),
        ("fps", Unit::FrameRate),
        ("ratio", Unit::Ratio),
        ("bytes", Unit::Bytes),
        ("frames", Unit::Count),
    ];

    /// The unit that a name ends in or consists of.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Unit> {
        let last = name.rsplit('_').next()?;
        Unit::SUFFIXES.iter().find(|(suffix, _)| *suffix == last).map(|(_, unit)| *unit)
    }

    /// The unit in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Time => "ns",
            Unit::BitRate => "bit/s",
            Unit::ByteRate => "B/s",
            Unit::FrameRate => "frames/s",
            Unit::Ratio => "of 1",
            Unit::Bytes => "B",
            Unit::Count => "count",
            Unit::Number => "number",
        }
    }
}

/// A figure of a pipeline's report.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Names from the pipeline down. A name that ends in `[]` is a list; `*` matches any name.
    pub path: Vec<String>,
    /// The unit.
    pub unit: Unit,
    /// What it means.
    pub meaning: String,
    /// The figure's own row of the text report, if it has one; `{noun}` stands for the value. Omitted if the value is
    /// 0.
    pub row: Option<String>,
}

/// What a path into a report refers to.
#[derive(Clone, Debug, PartialEq)]
pub enum Named {
    /// A figure.
    Figure(&'static Figure),
    /// A group of figures with these names.
    Several(Vec<&'static str>),
    /// Nothing: the name at this index of the path is not one of these names.
    Nothing(usize, Vec<&'static str>),
}

/// All figures, in the order of the report.
pub fn figures() -> &'static [Figure] {
    static ALL: OnceLock<Vec<Figure>> = OnceLock::new();
    ALL.get_or_init(figures_of::<PipelineReport>)
}

/// The figures of programs.
pub fn program_figures() -> &'static [Figure] {
    static ALL: OnceLock<Vec<Figure>> = OnceLock::new();
    ALL.get_or_init(figures_of::<ProgramReport>)
}

/// The figures of the time between two changes.
fn segment_figures() -> &'static [Figure] {
    static ALL: OnceLock<Vec<Figure>> = OnceLock::new();
    ALL.get_or_init(figures_of::<SegmentReport>)
}

/// The figures of a type.
fn figures_of<T: JsonSchema>() -> Vec<Figure> {
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    let schema = schema.as_value();
    let mut walk = Walk { definitions: &schema["$defs"], path: Vec::new(), within: Vec::new(), found: Vec::new() };
    walk.object(schema);
    walk.found
}

/// The JSON schema of a report. Each figure in it has its unit.
#[must_use]
pub fn report_schema() -> Value {
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Report>();
    let mut value = schema.to_value();
    value["title"] = json!("Report of netlathe");
    add_units("", &mut value);
    value
}

/// Looks up a path in the report of a pipeline or a class. The unit at the end of a name may be left out.
#[must_use]
pub fn named(path: &[String]) -> Named {
    named_in(figures(), path)
}

/// Looks up a path in the report of a segment, the time between two changes.
#[must_use]
pub fn named_segment(path: &[String]) -> Named {
    named_in(segment_figures(), path)
}

/// Looks up a path in the report of a program.
#[must_use]
pub fn named_program(path: &[String]) -> Named {
    named_in(program_figures(), path)
}

fn named_in(figures: &'static [Figure], path: &[String]) -> Named {
    let mut prefix: Vec<&'static str> = Vec::new();
    for (depth, name) in path.iter().enumerate() {
        let below = below(figures, &prefix);
        if below == ["*"] {
            prefix.push("*");
            continue;
        }
        if let Some(exact) = below.iter().find(|known| *known == name) {
            prefix.push(exact);
            continue;
        }
        let fits = |known: &&&str| known.strip_prefix(name.as_str()).is_some_and(is_unit);
        let fitting: Vec<&'static str> = below.iter().filter(fits).copied().collect();
        match fitting[..] {
            [only] => prefix.push(only),
            [] => return Named::Nothing(depth, below),
            _ => return Named::Nothing(depth, fitting),
        }
    }
    match figures.iter().find(|figure| figure.path == prefix) {
        Some(figure) => Named::Figure(figure),
        None => Named::Several(below(figures, &prefix)),
    }
}

/// Whether this is the suffix of a unit in a name.
fn is_unit(end: &str) -> bool {
    end.strip_prefix('_').is_some_and(|end| Unit::SUFFIXES.iter().any(|(suffix, _)| *suffix == end))
}

/// The names that may follow a path. Lists have no path of their own.
fn below(figures: &'static [Figure], path: &[&str]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for figure in figures.iter().filter(|figure| !figure.path.iter().any(|name| name.ends_with("[]"))) {
        let starts = figure.path.len() > path.len() && figure.path.iter().zip(path).all(|(own, name)| own == name);
        if starts && !names.contains(&figure.path[path.len()].as_str()) {
            names.push(&figure.path[path.len()]);
        }
    }
    names
}

/// Collects the figures of a schema.
struct Walk<'a> {
    definitions: &'a Value,
    path: Vec<String>,
    /// Types above this one: a type that contains itself is entered once.
    within: Vec<&'a str>,
    found: Vec<Figure>,
}

impl<'a> Walk<'a> {
    /// Enters the types that a schema refers to, and its fields.
    fn object(&mut self, schema: &'a Value) {
        let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        if let Some(name) = name.filter(|name| !self.within.contains(name)) {
            self.within.push(name);
            self.object(&self.definitions[name]);
            self.within.pop();
        }
        for parts in ["allOf", "anyOf", "oneOf"] {
            schema[parts].as_array().into_iter().flatten().for_each(|part| self.object(part));
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            self.field(name, field);
        }
        if schema["additionalProperties"].is_object() {
            self.field("*", &schema["additionalProperties"]);
        }
    }

    fn field(&mut self, name: &str, field: &'a Value) {
        let is = |kind: &str| match &field["type"] {
            Value::String(only) => only == kind,
            Value::Array(several) => several.iter().any(|one| one == kind),
            _ => false,
        };
        if is("number") || is("integer") {
            let unit = Unit::of_name(name).unwrap_or(if is("integer") { Unit::Count } else { Unit::Number });
            let text = |key: &str| field[key].as_str().map(str::to_owned);
            self.path.push(name.to_owned());
            self.found.push(Figure {
                path: self.path.clone(),
                unit,
                meaning: plain(&text("description").unwrap_or_default()),
                row: text("row"),
            });
        } else if field["items"].is_object() {
            self.path.push(format!("{name}[]"));
            self.object(&field["items"]);
        } else {
            self.path.push(name.to_owned());
            self.object(field);
        }
        self.path.pop();
    }
}

/// A doc comment as a single line.
fn plain(text: &str) -> String {
    text.replace("\\|", "|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds the unit to each figure in a schema.
fn add_units(name: &str, schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let numeric =
                fields.get("type").is_some_and(|kind| kind.to_string().contains("number") || kind == "integer");
            if let Some(unit) = Unit::of_name(name).filter(|_| numeric) {
                fields.insert("unit".into(), json!(unit.name()));
            }
            if let Some(text) = fields.get("description").and_then(Value::as_str).map(plain) {
                fields.insert("description".into(), json!(text));
            }
            for (key, value) in fields.iter_mut() {
                match value {
                    Value::Object(properties) if key == "properties" => each_unit(properties),
                    Value::Object(_) | Value::Array(_) if key != "required" => add_units("", value),
                    _ => {}
                }
            }
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| add_units("", part)),
        _ => {}
    }
}

fn each_unit(properties: &mut Map<String, Value>) {
    for (name, value) in properties.iter_mut() {
        add_units(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(path: &str) -> Named {
        named(&path.split('.').map(str::to_owned).collect::<Vec<_>>())
    }

    fn found(path: &str) -> String {
        match look(path) {
            Named::Figure(figure) => figure.path.join("."),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn distinguishes_figures_groups_and_unknown_names() {
        for figure in [
            "held", "out.frames", "gap.error.max_ns", "drops.loss", "limit.error.1s.p50_ratio", "return.drops.pool",
            "choices.loss.obtained_ratio", "delay.asked.p999_ns", "answers.in.bytes",
        ] {
            assert_eq!(found(figure), figure);
        }
        assert_eq!(found("skipped.cut"), "skipped.*");
        assert!(matches!(look("gap"), Named::Several(names) if names.contains(&"error") && names.contains(&"p99_ns")));
        assert!(matches!(look("limit.error"), Named::Several(names) if names == ["10ms", "100ms", "1s"]));
        assert!(matches!(look("gapp.mean_ns"), Named::Nothing(0, names) if names.contains(&"gap")));
        assert!(matches!(look("drops.los"), Named::Nothing(1, names) if names.contains(&"loss")));
        assert_eq!(look("held.mean_ns"), Named::Nothing(1, Vec::new()));
    }

    #[test]
    fn the_unit_may_be_left_out_where_it_is_clear() {
        assert_eq!(found("gap.error.p99"), "gap.error.p99_ns");
        assert_eq!(found("lateness.max"), "lateness.max_ns");
        assert_eq!(found("shortfall.obtained"), "shortfall.obtained_ratio");
        assert_eq!(found("depth.max"), "depth.max_frames");
        assert_eq!(look("rate.mean"), Named::Nothing(1, vec!["mean_bps", "mean_fps"]));
    }

    #[test]
    fn a_field_with_a_comment_is_a_figure() {
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Made {
            /// Longest wait for a token.
            #[schemars(extend("row" = "{time} for a token at most"))]
            token_wait_ns: Option<f64>,
            /// Not a figure.
            text: String,
        }
        let expected = Figure {
            path: vec!["token_wait_ns".into()],
            unit: Unit::Time,
            meaning: "Longest wait for a token.".into(),
            row: Some("{time} for a token at most".into()),
        };
        assert_eq!(figures_of::<Made>(), [expected]);
    }

    #[test]
    fn every_figure_has_a_meaning_and_a_unit_in_its_name() {
        assert!(figures().len() > 250, "{}", figures().len());
        // Statistics without a unit.
        let bare = [
            "ks_d", "ks_critical_05", "ks_p", "ks2_d", "ks2_critical_05", "chi2", "chi2_p", "mse", "kl_nats", "lag1",
            "cv", "per_packet",
        ];
        for Figure { path, unit, meaning, .. } in figures() {
            assert!(!meaning.is_empty() || path.last().is_some_and(|name| name == "*"), "{path:?} has no doc comment");
            let name = path.last().expect("a name").as_str();
            assert!(*unit != Unit::Number || bare.contains(&name), "{path:?} has no unit in its name");
        }
    }
}

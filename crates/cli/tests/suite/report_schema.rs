//! The JSON schema of reports: the documents contain what the program prints, and reports conform to the schema.
//!
//! `NETLATHE_UPDATE=1 cargo test -p netlathe-cli --test suite report_schema` rewrites both documents.

use crate::common::{Bench, Dialect, Record, words};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

fn reference(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference")).join(name)
}

/// Compares a document with its expected content, or rewrites it.
fn assert_current(name: &str, current: &str) {
    let path = reference(name);
    if std::env::var_os("NETLATHE_UPDATE").is_some() {
        fs::write(&path, current).expect("the document can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == current, "docs/reference/{name} is out of date: set NETLATHE_UPDATE=1 and run this test again");
}

fn schema() -> Value {
    let bench = Bench::new();
    let finished = bench.run(["help", "report-schema"]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("JSON")
}

#[test]
fn the_shipped_schema_is_the_one_that_the_program_prints() {
    let finished = Bench::new().run(["help", "report-schema"]);
    assert_current("report.schema.json", &finished.stdout);
}

const BEGIN: &str =
    "<!-- figures: NETLATHE_UPDATE=1 cargo test -p netlathe-cli --test suite report_schema writes this table -->\n";
const END: &str = "<!-- end of figures -->";

#[test]
fn the_table_of_figures_is_the_list() {
    let text = fs::read_to_string(reference("report.md")).expect("the document is there");
    let (before, rest) = text.split_once(BEGIN).expect("the table begins");
    let (_, after) = rest.split_once(END).expect("the table ends");
    let row = |figure: &measure::Figure| {
        let meaning = if figure.meaning.is_empty() { "number by name" } else { figure.meaning.as_str() };
        format!("| `{}` | {} | {} |\n", figure.path.join("."), figure.unit.name(), meaning.replace('|', "\\|"))
    };
    let rows: String = measure::all_figures().iter().map(row).collect();
    let table = format!("| figure | unit | meaning |\n|---|---|---|\n{rows}");
    assert_current("report.md", &format!("{before}{BEGIN}{table}{END}{after}"));
}

#[test]
fn reports_obey_the_schema_and_have_no_field_beyond_it() {
    let schema = schema();
    let bench = Bench::new();
    bench.generate("594B", 400);
    let cut: Vec<Record> = (0..50).map(|i| Record::new(u64::from(i) * 10_400, 64, i)).collect();
    bench.capture("coarse.pcap", Dialect { nanoseconds: false, ..Dialect::USUAL }, &cut);
    bench.write(
        "two.toml",
        "schema = 1\n[[pipeline]]\nname = \"down\"\nin = \"pcap:in.pcap\"\nout = \"wire:10G\"\n\
         [[pipeline.class]]\nname = \"web\"\nmatch = \"udp\"\nstages = [\"delay 2ms 1ms\", \"loss 10%\"]\n\
         rate = \"burst 5Gbps for 1ms every 2ms\"\n[[pipeline.class]]\ngap = \"chi2 df 6 in 80us..120us\"\n",
    );
    for line in [
        "shape --in pcap:in.pcap --out wire:10G --gap 10us",
        "shape --in pcap:in.pcap --out wire:10G,pcap=o.pcap --gap 10000.9ns --pacer filler --slices 1",
        "shape --in pcap:in.pcap --out wire:10G --buffer 1ms --rate 'ramp 1Gbps..9Gbps over 1ms repeat'",
        "shape --in pcap:in.pcap --out null --sync 'order 10.0.0.1,10.0.0.9 gap 5ms wait 1s'",
        "gen --out wire:10G --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size imix' --count 300 --gap 'normal mean 100us sd 5us'",
        "emulate --in pcap:in.pcap --out pcap:o.pcap --forward 'delay 5ms 2ms loss 5% corrupt 5% duplicate 5% reorder 5%'",
        "limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps --mode police --burst 3036B",
        "measure --pcap in.pcap --expect 10us",
        "measure --pcap in.pcap --sources 10.0.0.1,10.0.0.9 --histograms",
        "measure --pcap coarse.pcap",
        "run two.toml",
    ] {
        let finished = bench.run(words(line).into_iter().chain(["--json".to_owned()]));
        let report: Value = serde_json::from_str(&finished.stdout)
            .unwrap_or_else(|error| panic!("{line}: {error}: {}", finished.stderr));
        let mut faults = Vec::new();
        check(&schema, &schema, &report, "", &mut faults);
        assert!(faults.is_empty(), "{line}: {faults:#?}");
    }
    // Make sure that the check finds faults.
    let mut report = bench.run(words("measure --pcap in.pcap --json")).report();
    report["pipelines"][0]["held"] = "none".into();
    report["pipelines"][0]["surplus"] = 1.into();
    report["caveats"][0]["kind"] = "unknown".into();
    let mut faults = Vec::new();
    check(&schema, &schema, &report, "", &mut faults);
    for part in ["held", "surplus", "caveats"] {
        assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:?}");
    }
}

/// Adds to `faults` where `value` violates `part` of a schema. Validators allow unknown fields unless the schema
/// forbids them. Here they are faults, and so is a keyword that this check does not know.
fn check(schema: &Value, part: &Value, value: &Value, path: &str, faults: &mut Vec<String>) {
    let mut known = Vec::new();
    check_part(schema, part, value, path, faults, &mut known);
    if let Some(fields) = value.as_object() {
        for name in fields.keys().filter(|name| !known.contains(name)) {
            faults.push(format!("{path}/{name}: not in the schema"));
        }
    }
}

fn check_part(
    schema: &Value,
    part: &Value,
    value: &Value,
    path: &str,
    faults: &mut Vec<String>,
    known: &mut Vec<String>,
) {
    for (keyword, by) in part.as_object().expect("a schema is an object") {
        let fits = match keyword.as_str() {
            "$ref" => {
                let pointer = by.as_str().and_then(|by| by.strip_prefix('#')).expect("a path in the schema");
                let there = schema.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"));
                check_part(schema, there, value, path, faults, known);
                true
            }
            "type" => {
                let is = |kind: &Value| match kind.as_str().expect("a type") {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "number" => value.is_number(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                by.as_array().map_or_else(|| is(by), |kinds| kinds.iter().any(is))
            }
            "properties" => {
                for (name, part) in by.as_object().expect("properties") {
                    if let Some(field) = value.get(name) {
                        known.push(name.clone());
                        check(schema, part, field, &format!("{path}/{name}"), faults);
                    }
                }
                true
            }
            "additionalProperties" => {
                for (name, field) in value.as_object().into_iter().flatten().filter(|_| by.is_object()) {
                    known.push(name.clone());
                    check(schema, by, field, &format!("{path}/{name}"), faults);
                }
                true
            }
            "required" => {
                by.as_array().expect("names").iter().all(|name| value.get(name.as_str().expect("a name")).is_some())
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(schema, by, item, &format!("{path}/{i}"), faults);
                }
                true
            }
            "prefixItems" => {
                for (i, (part, item)) in
                    by.as_array().expect("items").iter().zip(value.as_array().expect("a list")).enumerate()
                {
                    check(schema, part, item, &format!("{path}/{i}"), faults);
                }
                true
            }
            "anyOf" | "oneOf" => by.as_array().expect("schemas").iter().any(|part| {
                let (mut inner, mut names) = (Vec::new(), Vec::new());
                check_part(schema, part, value, path, &mut inner, &mut names);
                if inner.is_empty() {
                    known.append(&mut names);
                }
                inner.is_empty()
            }),
            "allOf" => {
                by.as_array()
                    .expect("schemas")
                    .iter()
                    .for_each(|part| check_part(schema, part, value, path, faults, known));
                true
            }
            "const" => value == by,
            "enum" => by.as_array().expect("values").contains(value),
            "minimum" => value.as_f64().is_none_or(|value| value >= by.as_f64().expect("a number")),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= by.as_u64().expect("a count")),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= by.as_u64().expect("a count")),
            "$schema" | "$defs" | "title" | "description" | "unit" | "row" | "format" => true,
            "maximum" => value.as_f64().is_none_or(|value| value <= by.as_f64().expect("a number")),
            other => panic!("this check does not know {other}"),
        };
        if !fits {
            faults.push(format!("{path}: {value} does not fit {keyword} {by}"));
        }
    }
}

//! Merges reports: figures measured on several hosts become those that one meter would have measured.
//!
//! Counters add up. Means and deviations are exact over all values. Quantiles are computed from the summed histograms,
//! never from quantiles. Figures that the reports do not determine exactly are left out, and listed.

use crate::figure_list::Unit;
use crate::histogram::at_quantile;
use crate::ns;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A JSON report, and the host that wrote it.
#[derive(Clone, Debug)]
pub struct HostReportFile {
    /// Name of the host.
    pub host: String,
    /// The report.
    pub report: Value,
    /// The clock of a common reference minus that of this host, in ns, if known.
    pub offset_ns: Option<f64>,
}

/// Why reports cannot be merged: the host and the difference.
#[derive(Debug, PartialEq, Eq)]
pub struct NotMergeable {
    /// The host whose report does not fit.
    pub host: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for NotMergeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.host, self.why)
    }
}

impl std::error::Error for NotMergeable {}

/// Objects that summarise many values, each with the name of its histogram in `histograms`.
const DISTRIBUTIONS: [(&str, &str); 3] = [("gap", "gap_ps"), ("lateness", "lateness_ps"), ("delay", "delay_ps")];
/// The names of quantiles in these objects.
const QUANTILES: [(&str, f64); 4] = [("p1_ns", 0.01), ("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)];
/// Rates add up, because the hosts send at the same time.
const SUMS_OF_RATES: [&str; 2] = ["mean_bps", "mean_fps"];
/// Lists of objects, and the field that identifies corresponding objects.
const KEYS: [&str; 3] = ["name", "stream", "source"];
/// Fields that belong to a single host.
const OF_HOSTS: [&str; 7] = ["start", "expectations", "fit", "plots", "arrivals", "crest_gap", "rate_curve"];

/// Merges the reports of hosts.
///
/// # Errors
/// A report of another schema, another command, or that is not a report.
pub fn merge(reports: &[HostReportFile]) -> Result<Value, NotMergeable> {
    let first = reports.first().ok_or_else(|| NotMergeable { host: "reports".into(), why: "none is given".into() })?;
    let kind = kind_of(first)?;
    for other in reports {
        let is = kind_of(other)?;
        let refuse = |why: String| Err(NotMergeable { host: other.host.clone(), why });
        if is.0 != kind.0 {
            return refuse(format!("its report has schema {}, that of {} has schema {}", is.0, first.host, kind.0));
        }
        if is.1 != kind.1 {
            return refuse(format!(
                "its report is of netlathe {}, that of {} of netlathe {}",
                is.1, first.host, kind.1
            ));
        }
    }
    let mut left_out = BTreeSet::new();
    let mut pipelines: Vec<(Value, Vec<&str>)> = Vec::new();
    let mut indices: BTreeMap<String, usize> = BTreeMap::new();
    for host in reports {
        for pipeline in host.report["pipelines"].as_array().into_iter().flatten() {
            match indices.entry(pipeline["name"].to_string()) {
                Entry::Occupied(entry) => {
                    let (sum, hosts) = &mut pipelines[*entry.get()];
                    let path = pipeline["name"].as_str().unwrap_or_default();
                    *sum = object(path, sum, pipeline, &mut left_out);
                    hosts.push(&host.host);
                }
                Entry::Vacant(entry) => {
                    entry.insert(pipelines.len());
                    pipelines.push((pipeline.clone(), vec![&host.host]));
                }
            }
        }
    }
    let several = reports.len() > 1;
    let pipelines: Vec<Value> = pipelines
        .into_iter()
        .map(|(mut pipeline, hosts)| {
            if let Some(fields) = pipeline.as_object_mut() {
                if several {
                    fields.retain(|name, _| !OF_HOSTS.contains(&name.as_str()));
                }
                fields.insert("hosts".into(), json!(hosts));
            }
            pipeline
        })
        .collect();
    let of_each = |list: &str| -> Vec<Value> {
        let each = reports.iter().flat_map(|host| {
            host.report[list].as_array().into_iter().flatten().map(|entry| match entry {
                Value::Object(fields) => {
                    let mut fields = fields.clone();
                    fields.insert("host".into(), json!(host.host));
                    Value::Object(fields)
                }
                Value::String(text) => json!(format!("{}: {text}", host.host)),
                other => other.clone(),
            })
        });
        each.collect()
    };
    let mut report = json!({ "schema": kind.0, "command": kind.1 });
    let mut add = |name: &str, value: Value| report[name] = value;
    for name in ["warnings", "expectations", "clocks"] {
        let list = of_each(name);
        if !list.is_empty() {
            add(name, json!(list));
        }
    }
    add("merged", merged(reports, &left_out));
    add("pipelines", json!(pipelines));
    add("caveats", json!(of_each("caveats")));
    Ok(report)
}

fn kind_of(host: &HostReportFile) -> Result<(u64, &str), NotMergeable> {
    let kind = host.report["schema"].as_u64().zip(host.report["command"].as_str());
    let refuse = |why: &str| NotMergeable { host: host.host.clone(), why: why.to_owned() };
    let kind = kind.ok_or_else(|| refuse("it is not a report of netlathe: write one with --json"))?;
    if kind.0 != u64::from(crate::Report::SCHEMA) {
        return Err(refuse(&format!(
            "its report has schema {}, and only {} can be merged",
            kind.0,
            crate::Report::SCHEMA
        )));
    }
    if !host.report["pipelines"].is_array() {
        return Err(refuse(&format!("reports of netlathe {} cannot be merged, only those with pipelines", kind.1)));
    }
    Ok(kind)
}

/// The sources of the figures: each host, its start by the reference clock, and the spread of the starts.
fn merged(reports: &[HostReportFile], left_out: &BTreeSet<String>) -> Value {
    let known = |host: &HostReportFile| host.offset_ns.or_else(|| host.report["clocks"][0]["offset_ns"].as_f64());
    let mut starts = Vec::new();
    let hosts: Vec<Value> = reports
        .iter()
        .map(|host| {
            let offset = known(host);
            let mut entry = json!({ "name": host.host });
            if let Some(offset) = offset {
                entry["clock_offset_ns"] = json!(offset);
            }
            let start = host.report["pipelines"].as_array().into_iter().flatten().find_map(|one| one.get("start"));
            if let Some(start) = start {
                entry["start"] = start.clone();
            }
            if let Some(obtained) = start.and_then(|start| start["obtained_unix_ns"].as_i64()) {
                let aligned = obtained.saturating_add(offset.unwrap_or(0.0).round() as i64);
                entry["start_aligned_unix_ns"] = json!(aligned);
                starts.push(aligned);
            }
            entry
        })
        .collect();
    let mut merged = json!({ "hosts": hosts, "left_out": left_out });
    if let (Some(first), Some(last)) = (starts.iter().min(), starts.iter().max())
        && starts.len() > 1
        && let Some(spread) = last.checked_sub(*first)
    {
        merged["start_spread_ns"] = json!(spread);
        merged["clocks_known"] = json!(reports.iter().all(|host| known(host).is_some()));
    }
    merged
}

/// Merges two objects of the same kind. `path` is their position in the report.
fn object(path: &str, one: &Value, other: &Value, left_out: &mut BTreeSet<String>) -> Value {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one.clone() };
    let mut sum = Map::new();
    let histograms = one.get("histograms").zip(other.get("histograms"));
    for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
        let below = format!("{path}.{name}");
        if OF_HOSTS.contains(&name.as_str()) {
            continue;
        }
        let value = match (one.get(name), other.get(name)) {
            (Some(a), Some(b)) => match DISTRIBUTIONS.iter().find(|(known, _)| known == name) {
                Some((_, histogram)) if a.is_object() => {
                    let added = histograms.and_then(|(a, b)| Some((a.get(*histogram)?, b.get(*histogram)?)));
                    let weights = (weight(name, a, one), weight(name, b, other));
                    Some(distribution(&below, (a, b), weights, added, left_out))
                }
                _ => field(&below, name, a, b, left_out),
            },
            // Only one report has the field. If it is a counter, the other counted zero.
            (Some(only), None) | (None, Some(only)) => Some(only.clone()),
            (None, None) => None,
        };
        match value {
            Some(value) => _ = sum.insert(name.clone(), value),
            None => _ = left_out.insert(below),
        }
    }
    ratios(&mut sum);
    Value::Object(sum)
}

/// Merges two values of the same field; `None` if the result is unknown.
fn field(path: &str, name: &str, a: &Value, b: &Value, left_out: &mut BTreeSet<String>) -> Option<Value> {
    match (a, b) {
        // Asked values are kept only if they are equal.
        (Value::Object(_), Value::Object(_)) if name == "asked" => (a == b).then(|| a.clone()),
        (Value::Object(_), Value::Object(_)) => Some(object(path, a, b, left_out)),
        (Value::Array(a), Value::Array(b)) => list(path, a, b, left_out),
        (Value::Number(_), Value::Number(_)) => number(name, a, b),
        _ => (a == b).then(|| a.clone()),
    }
}

fn number(name: &str, a: &Value, b: &Value) -> Option<Value> {
    let (x, y) = (a.as_f64()?, b.as_f64()?);
    let part = |wanted: &str| name.split('_').any(|part| part == wanted);
    if part("asked") || part("above") || ["stream", "window_ns", "slots", "width_ns"].contains(&name) {
        return (x.total_cmp(&y).is_eq()).then(|| a.clone());
    }
    if part("max") || part("longest") || part("worst") || part("behind") {
        return Some(if y > x { b.clone() } else { a.clone() });
    }
    if part("min") || part("least") {
        return Some(if y < x { b.clone() } else { a.clone() });
    }
    if SUMS_OF_RATES.contains(&name) {
        return Some(json!(x + y));
    }
    let counts = matches!(Unit::of_name(name), None | Some(Unit::Bytes | Unit::Count));
    match (a.as_u64(), b.as_u64()) {
        // Beyond 64 bits there is no sum.
        (Some(a), Some(b)) if counts => a.checked_add(b).map(|sum| json!(sum)),
        // Total times, as of idle lines, add up like counts.
        _ if part("total") || name == "idle_ns" => Some(json!(x + y)),
        _ => None,
    }
}

/// Shares are computed again from the counts beside them.
fn ratios(sum: &mut Map<String, Value>) {
    let count = |sum: &Map<String, Value>, name: &str| sum.get(name).and_then(Value::as_u64);
    let share = |part: u64, of: u64| json!(if of == 0 { 0.0 } else { part as f64 / of as f64 });
    if let (Some(received), Some(lost)) = (count(sum, "received"), count(sum, "lost")) {
        sum.insert("loss_ratio".into(), share(lost, received.saturating_add(lost)));
        if let Some(reordered) = count(sum, "reordered") {
            sum.insert("reorder_ratio".into(), share(reordered, received));
        }
    }
}

/// Merges lists of named objects, or of buckets.
fn list(path: &str, a: &[Value], b: &[Value], left_out: &mut BTreeSet<String>) -> Option<Value> {
    let is_bucket = |entry: &Value| entry.as_array().is_some_and(|pair| pair.len() == 2);
    if a.iter().chain(b).all(is_bucket) {
        return buckets(a, b);
    }
    let key = |entry: &Value| KEYS.iter().find_map(|key| entry.get(key).map(|value| (*key, value.to_string())));
    let mut sum = a.to_vec();
    let mut indices: BTreeMap<_, usize> = BTreeMap::new();
    for (index, entry) in sum.iter().enumerate() {
        indices.entry(key(entry)).or_insert(index);
    }
    for entry in b {
        let name = Some(key(entry)?);
        match indices.get(&name) {
            Some(index) => sum[*index] = object(path, &sum[*index], entry, left_out),
            None => {
                indices.insert(name, sum.len());
                sum.push(entry.clone());
            }
        }
    }
    Some(json!(sum))
}

/// Buckets (end or start, count) of two histograms; `None` if a count is beyond 64 bits.
fn buckets(a: &[Value], b: &[Value]) -> Option<Value> {
    let pair = |bucket: &Value| Some((bucket[0].as_f64()?, bucket[0].clone(), bucket[1].as_u64()?));
    let mut all: Vec<_> = a.iter().chain(b).filter_map(pair).collect();
    all.sort_by(|(x, ..), (y, ..)| x.total_cmp(y));
    let mut sum: Vec<(f64, Value, u64)> = Vec::new();
    for (at, written, count) in all {
        match sum.last_mut().filter(|last| last.0.total_cmp(&at).is_eq()) {
            Some(last) => last.2 = last.2.checked_add(count)?,
            None => sum.push((at, written, count)),
        }
    }
    Some(json!(sum.into_iter().map(|(_, at, count)| json!([at, count])).collect::<Vec<_>>()))
}

/// The number of values in a distribution.
fn weight(name: &str, of: &Value, beside: &Map<String, Value>) -> u64 {
    let sum = |list: &Value| {
        let counts = list.as_array().into_iter().flatten().filter_map(|bucket| bucket[1].as_u64());
        counts.fold(0, u64::saturating_add)
    };
    match of["count"].as_u64() {
        Some(count) => count,
        None if of["histogram"].is_array() => sum(&of["histogram"]),
        // The delay of a stream covers its received frames.
        None if name == "delay" => beside.get("received").and_then(Value::as_u64).unwrap_or(0),
        None => 0,
    }
}

/// Merges the figures of two distributions. `added` is the sum of their whole histograms, if both have one.
fn distribution(
    path: &str,
    (a, b): (&Value, &Value),
    (n, m): (u64, u64),
    added: Option<(&Value, &Value)>,
    left_out: &mut BTreeSet<String>,
) -> Value {
    let (Some(one), Some(other)) = (a.as_object(), b.as_object()) else { return a.clone() };
    let (n, m) = (n as f64, m as f64);
    let both = |name: &str| Some((one.get(name)?.as_f64()?, other.get(name)?.as_f64()?));
    let all = added.and_then(|(a, b)| whole(a, b));
    let mut sum = Map::new();
    for (name, value) in one {
        let quantile = QUANTILES.iter().find(|(known, _)| known == name);
        let value = match (name.as_str(), quantile, &all) {
            ("mean_ns", ..) => both(name).filter(|_| n + m > 0.0).map(|(x, y)| json!((n * x + m * y) / (n + m))),
            ("std_ns", ..) => both(name).zip(both("mean_ns")).filter(|_| n + m > 0.0).map(|((s, t), (x, y))| {
                // The variance over all values: that within each part, plus that between the means (Chan et al.).
                let squares = n * s * s + m * t * t + n * m / (n + m) * (x - y) * (x - y);
                json!((squares / (n + m)).sqrt())
            }),
            (_, Some((_, q)), Some(all)) => {
                let most = both("max_ns").map_or(f64::MAX, |(x, y)| x.max(y));
                let least = both("min_ns").map_or(f64::MIN, |(x, y)| x.min(y));
                Some(json!(ns(at_quantile(all, *q) as f64).clamp(least, most.max(least))))
            }
            (_, Some(_), None) => None,
            _ => other.get(name).and_then(|other| field(&format!("{path}.{name}"), name, value, other, left_out)),
        };
        match value {
            Some(value) => _ = sum.insert(name.clone(), value),
            None => _ = left_out.insert(format!("{path}.{name}")),
        }
    }
    Value::Object(sum)
}

/// The sum of two whole histograms, in ps; `None` if they count more values than 64 bits can.
fn whole(a: &Value, b: &Value) -> Option<Histogram<u64>> {
    let lists = [a, b].map(|list| list.as_array().map(Vec::as_slice).unwrap_or_default());
    let buckets = lists.into_iter().flatten().filter_map(|pair| pair[0].as_u64().zip(pair[1].as_u64()));
    buckets.clone().try_fold(0_u64, |all, (_, times)| all.checked_add(times))?;
    Some(crate::histogram::of_buckets(buckets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DepartureMeter, FrameCounters, Histograms, PipelineReport};
    use units::{FrameLen, Span, Time};

    /// Departures with these gaps and latenesses in ns.
    fn meter(departures: &[(u64, u64)]) -> DepartureMeter {
        let mut meter = DepartureMeter::new(None, None, Span::from_ms(1));
        let mut asked = Time::ZERO;
        for (gap, late) in departures {
            asked += Span::from_ns(*gap);
            meter.record(asked, asked + Span::from_ns(*late), FrameLen::MIN);
        }
        meter
    }

    fn report(name: &str, departures: &[(u64, u64)]) -> HostReportFile {
        let mut books = FrameCounters::default();
        departures.iter().for_each(|_| books.left.add(FrameLen::MIN));
        let pipeline = PipelineReport { name: "gen".into(), ..meter(departures).report(&books, 3) };
        assert!(matches!(pipeline.histograms, Some(Histograms { .. })));
        let report = json!({
            "schema": 2, "command": "gen", "pipelines": [pipeline], "caveats": [{ "kind": "clock", "text": "TSC" }],
            "warnings": ["it was slow"],
        });
        HostReportFile { host: name.into(), report, offset_ns: None }
    }

    fn departures(count: u64, seed: u64) -> Vec<(u64, u64)> {
        (0..count).map(|i| (10_000 + (i * seed * 7_919) % 3_001, (i * seed * 104_729) % 50_021)).collect()
    }

    /// The merged figures equal those of one meter that saw all latenesses.
    #[test]
    fn merged_figures_are_those_of_one_meter() {
        let (a, b, c) = (departures(400, 3), departures(1_000, 11), departures(77, 5));
        let merged = merge(&[report("a", &a), report("b", &b), report("c", &c)]).expect("they fit");
        let all = [&a[..], &b, &c].concat();
        let one = serde_json::to_value(meter(&all).report(&FrameCounters::default(), 0)).expect("JSON");
        let pipeline = &merged["pipelines"][0];
        for name in ["p50_ns", "p99_ns", "max_ns", "histogram"] {
            assert_eq!(pipeline["lateness"][name], one["lateness"][name], "{name}");
        }
        assert_eq!((&pipeline["out"]["frames"], &pipeline["held"]), (&json!(1_477), &json!(9)));
        assert_eq!(pipeline["gap"]["count"], json!(399 + 999 + 76));
        // The parts have all gaps of the whole, except the two between parts.
        let gaps = |part: &[(u64, u64)]| -> Vec<f64> {
            let pairs = part.windows(2).map(|two| (two[1].0 + two[1].1) as f64 - two[0].1 as f64);
            pairs.collect()
        };
        let values = [gaps(&a), gaps(&b), gaps(&c)].concat();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64;
        let figure = |name: &str| pipeline["gap"][name].as_f64().expect(name);
        assert!((figure("mean_ns") - mean).abs() < 1e-6, "{} {mean}", figure("mean_ns"));
        assert!((figure("std_ns") - variance.sqrt()).abs() < 1e-6, "{} {}", figure("std_ns"), variance.sqrt());
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        let middle = sorted[sorted.len() / 2];
        assert!((figure("p50_ns") / middle - 1.0).abs() < 0.002, "{} {middle}", figure("p50_ns"));
        let average = [&a, &b, &c].map(|part| {
            let report = serde_json::to_value(meter(part).report(&FrameCounters::default(), 0)).expect("JSON");
            report["lateness"]["p99_ns"].as_f64().expect("a figure")
        });
        let average = average.iter().sum::<f64>() / 3.0;
        assert!((pipeline["lateness"]["p99_ns"].as_f64().expect("a figure") - average).abs() > 1.0, "no average");
    }

    /// A file may say anything: sums that do not fit are left out, and lists of any length take time by their length.
    #[test]
    fn hostile_reports_neither_overflow_nor_take_long() {
        let hostile = |start: i64| {
            let streams: Vec<Value> = (0..30_000).map(|n| json!({ "stream": n, "received": u64::MAX })).collect();
            json!({ "schema": 2, "command": "gen", "pipelines": [{
                "name": "a", "in": { "frames": u64::MAX }, "streams": streams,
                "start": { "obtained_unix_ns": start },
                "gap": { "p50_ns": 1.0, "histogram": [[1, u64::MAX]] },
                "received": u64::MAX - 1, "lost": 1,
                "histograms": { "gap_ps": [[u64::MAX, u64::MAX], [u64::MAX, u64::MAX]] },
            }] })
        };
        let file = |host: &str, start| HostReportFile { host: host.into(), report: hostile(start), offset_ns: None };
        let merged = merge(&[file("a", i64::MIN), file("b", i64::MAX)]).expect("they are of one kind");
        let pipeline = &merged["pipelines"][0];
        assert_eq!(pipeline["in"].get("frames"), None, "{pipeline}");
        assert_eq!(pipeline["streams"].as_array().map(Vec::len), Some(30_000));
        assert_eq!(merged["merged"].get("start_spread_ns"), None);
        let left_out = merged["merged"]["left_out"].to_string();
        assert!(
            ["a.in.frames", "a.gap.p50_ns", "a.gap.histogram"].iter().all(|path| left_out.contains(path)),
            "{left_out}"
        );
    }

    #[test]
    fn the_order_of_reports_does_not_matter() {
        let reports =
            [report("a", &departures(40, 3)), report("b", &departures(90, 7)), report("c", &departures(5, 2))];
        let there = merge(&reports).expect("they fit");
        let [a, b, c] = reports;
        let back = merge(&[c, b, a]).expect("they fit");
        for at in ["/lateness/p99_ns", "/lateness/histogram", "/out/frames", "/gap/p50_ns", "/histograms/gap_ps"] {
            let of = |report: &Value| report["pipelines"][0].pointer(at).cloned();
            assert_eq!(of(&there), of(&back), "{at}");
        }
    }

    #[test]
    fn quantiles_without_histograms_are_left_out_and_named() {
        let mut reports = [report("a", &departures(40, 3)), report("b", &departures(90, 7))];
        for host in &mut reports {
            host.report["pipelines"][0].as_object_mut().expect("an object").remove("histograms");
        }
        let merged = merge(&reports).expect("they fit");
        let gap = &merged["pipelines"][0]["gap"];
        assert!(gap["p50_ns"].is_null() && gap["mean_ns"].is_number() && gap["count"] == json!(128), "{gap}");
        let left_out = merged["merged"]["left_out"].as_array().expect("a list");
        assert!(left_out.contains(&json!("gen.gap.p50_ns")), "{left_out:?}");
    }

    #[test]
    fn words_keep_the_name_of_their_host_and_clocks_align_starts() {
        let mut reports = [report("a", &departures(4, 3)), report("b", &departures(9, 7))];
        for (host, (obtained, offset)) in
            reports.iter_mut().zip([(1_000_000_000_i64, 5_000.0), (1_000_002_000, 2_500.0)])
        {
            host.report["pipelines"][0]["start"] = json!({ "asked_unix_ns": 1, "obtained_unix_ns": obtained });
            host.report["clocks"] = json!([{ "peer": "r", "offset_ns": offset }]);
        }
        let merged = merge(&reports).expect("they fit");
        assert_eq!(merged["merged"]["start_spread_ns"], json!(500));
        assert_eq!(merged["merged"]["hosts"][1]["start_aligned_unix_ns"], json!(1_000_004_500_i64));
        reports[1].offset_ns = Some(3_000.0);
        assert_eq!(merge(&reports).expect("they fit")["merged"]["start_spread_ns"], json!(0), "what is given counts");
        assert_eq!(merged["caveats"][1]["host"], "b");
        assert_eq!(merged["warnings"][0], "a: it was slow");
        assert_eq!(merged["clocks"][1]["host"], "b");
        assert_eq!(merged["pipelines"][0]["hosts"], json!(["a", "b"]));
        assert!(merged["pipelines"][0]["start"].is_null());
    }

    #[test]
    fn refuses_other_schemas_and_kinds_by_name() {
        let good = report("a", &departures(4, 3));
        let with = |name: &str, value: Value| {
            let mut other = report("b", &departures(4, 3));
            other.report[name] = value;
            merge(&[good.clone(), other]).expect_err("it does not fit").to_string()
        };
        assert!(with("schema", json!(1)).contains("b: its report has schema 1"));
        assert!(
            with("command", json!("measure"))
                .contains("b: its report is of netlathe measure, that of a of netlathe gen")
        );
        assert!(with("schema", json!("two")).contains("b: it is not a report"));
        assert!(with("pipelines", Value::Null).contains("cannot be merged"));
        assert!(merge(&[]).is_err());
    }

    #[test]
    fn streams_add_up_by_number() {
        let stream = |number: u64, received: u64, lost: u64, mean: f64| {
            json!({ "stream": number, "sent": received + lost, "received": received, "lost": lost, "loss_ratio": 0.5,
                    "reordered": 1, "reorder_ratio": 0.1, "delay": { "mean_ns": mean, "min_ns": mean, "p50_ns": mean } })
        };
        let of = |name: &str, streams: Value| {
            let report = json!({ "schema": 2, "command": "measure", "caveats": [],
                                 "pipelines": [{ "name": "measure", "in": { "frames": 5, "bytes": 320 }, "streams": streams }] });
            HostReportFile { host: name.into(), report, offset_ns: None }
        };
        let a = of("a", json!([stream(0, 30, 10, 100.0), stream(4, 5, 0, 7.0)]));
        let b = of("b", json!([stream(0, 10, 0, 500.0), stream(9, 1, 1, 9.0)]));
        let merged = merge(&[a, b]).expect("they fit");
        let streams = &merged["pipelines"][0]["streams"];
        assert_eq!(streams.as_array().map(Vec::len), Some(3), "{streams}");
        assert_eq!((&streams[0]["received"], &streams[0]["lost"]), (&json!(40), &json!(10)));
        assert!((streams[0]["loss_ratio"].as_f64().expect("a share") - 0.2).abs() < 1e-12);
        assert!((streams[0]["delay"]["mean_ns"].as_f64().expect("a mean") - 200.0).abs() < 1e-9);
        assert_eq!((&streams[0]["delay"]["min_ns"], &streams[0]["delay"]["p50_ns"]), (&json!(100.0), &Value::Null));
        assert_eq!(merged["pipelines"][0]["in"]["frames"], json!(10));
    }
}

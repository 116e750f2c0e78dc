//! Prints the results as tables.

use serde_json::Value;
use std::fmt::Write;

const INTRODUCTION: &str = "# Limit: the experiment of reference 001

Written by `make bench-limit`. The paper's users: 16384 at 0.5, 4096 at 1.5 and one at 2 Mbit/s, frames of 64 to 1500 B, each held \
to 1 Mbit/s with a bucket of 3036 B that is full at the start; 20 samples of 2 s of the one, the first left out. Virtual time, \
seed 7, 92 million frames in each run.

| scheme | workers | samples 2 to 20, Mbit/s | mean error | worst error | conforming users lost | \
frames per worker, most / mean | drops per worker, most / mean |
|---|---|---|---|---|---|---|---|
";
const COMPARISON: &str = "
The paper's own: its lock-free scheme within 1 %, its light-weight lock low and off by more than 20 % (Fig. 6; it gives neither \
batch nor number of cores). Measured with the same mix scaled to this kind of machine (FIELD.md G): eBPF token buckets, \
20 481 users at 0.1 Mbit/s, 5.8 % (burst 2 000 B) and 3.2 % (16 000 B); 2 049 users at 1 Mbit/s 0.40 %; tc htb with 2 049 classes \
0.31 %, with 20 481 classes 118 kpps at most.

![samples](limit-fig6.svg)

## light-lock by batch, depth and the fate of idle tokens

8 and 64 workers, 161 users, the same rates. Below 1: tokens lie idle in other workers' buckets, or were lost there. Above: \
buckets that were filled before are emptied now.

| scheme | workers | mean ÷ limit | least sample | largest sample |
|---|---|---|---|---|
";
const SPEED: &str = "
## Frames a second on one core

64 B frames, prepared but for the address, from ring to ring in bursts of 32, users drawn at random, half of the frames conform; \
medians of 5 rounds of 4 M frames, by the time that the thread ran (`/proc/thread-self/schedstat`), in huge pages.

| scheme | users | M frames/s | ns per frame |
|---|---|---|---|
";

fn rows<'a>(data: &'a Value, of: &str) -> impl Iterator<Item = &'a Value> {
    data[of].as_array().into_iter().flatten()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().map(number).collect()
}

/// The smallest and the largest sample.
fn range(row: &Value) -> (f64, f64) {
    let samples = numbers(&row["samples_mbps"]);
    (samples.iter().copied().fold(f64::INFINITY, f64::min), samples.iter().copied().fold(0.0, f64::max))
}

/// Load of the busiest worker ÷ mean load.
fn balance(of: &Value) -> f64 {
    let loads = numbers(of);
    let all: f64 = loads.iter().sum();
    if all > 0.0 { loads.iter().copied().fold(0.0, f64::max) * loads.len() as f64 / all } else { 1.0 }
}

fn name(row: &Value) -> &str {
    row["scheme"].as_str().unwrap_or_default()
}

/// The whole page of results.
pub(crate) fn text(data: &Value) -> String {
    let mut text = INTRODUCTION.to_owned();
    // Writing to a string cannot fail.
    for row in rows(data, "experiment") {
        let (least, largest) = range(row);
        let _ = writeln!(
            text,
            "| `{}` | {} | {least:.4} to {largest:.4} | {:+.4} % | {:.3} % | {} frames | {:.3} | {:.3} |",
            name(row),
            row["workers"],
            (number(&row["mean"]) - 1.0) * 100.0,
            number(&row["worst_error"]) * 100.0,
            row["conforming_frames_lost"],
            balance(&row["frames_by_worker"]),
            balance(&row["drops_by_worker"])
        );
    }
    text.push_str(COMPARISON);
    for row in rows(data, "sweep") {
        let (least, largest) = range(row);
        let (scheme, workers, mean) = (name(row), &row["workers"], number(&row["mean"]));
        let _ = writeln!(text, "| `{scheme}` | {workers} | {mean:.4} | {least:.4} | {largest:.4} |");
    }
    text.push_str(SPEED);
    for row in rows(data, "speed") {
        let (scheme, users) = (name(row), &row["users"]);
        let (rate, ns) = (number(&row["mframes_per_s"]), number(&row["ns_per_frame"]));
        let _ = writeln!(text, "| {scheme} | {users} | {rate:.2} | {ns:.1} |");
    }
    text.push_str("\n`static` and `atomic-queue` run the code of `gcra`; what their dispatch costs is not in it.\n");
    text
}

/// The series of the paper's Fig. 6.
pub(crate) fn drawn(data: &Value) -> Vec<(String, Vec<f64>)> {
    let with_many = rows(data, "experiment").filter(|row| row["workers"] == 64);
    let drawn = with_many.filter(|row| name(row) == "gcra" || name(row).starts_with("light-lock"));
    drawn.map(|row| (format!("{}, 64 workers", name(row)), numbers(&row["samples_mbps"]))).collect()
}

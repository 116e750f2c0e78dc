//! The experiment of reference 001: 20 481 users on up to 64 workers, by scheme; then light-lock over batch and
//! depth, and frames a second by scheme and number of users. Writes tables, data and a drawing of its Fig. 6 below
//! `bench/results`. Nothing here passes or fails.

mod experiment;
mod figure;
mod speed;
mod traffic;

use experiment::{Samples, run};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use traffic::Group;

/// The mix of the paper.
const WHOLE: [Group; 3] = [
    Group { first: 0xc0a8_0000, users: 16_384, bps: 500_000 },
    Group { first: 0xc0a8_4000, users: 4_096, bps: 1_500_000 },
    Group { first: 0xc0a8_c00a, users: 1, bps: 2_000_000 },
];
/// The same with a sixteenth of the users, for a machine that is busy: `cargo bench … --bench limit -- part`.
const SIXTEENTH: [Group; 3] = [
    Group { first: 0xc0a8_0000, users: 1_024, bps: 500_000 },
    Group { first: 0xc0a8_4000, users: 256, bps: 1_500_000 },
    Group { first: 0xc0a8_c00a, users: 1, bps: 2_000_000 },
];
/// A part of it for the sweep: users do not meet in any scheme, so that fewer show the same of each.
const PART: [Group; 3] = [
    Group { first: 0xc0a8_0000, users: 128, bps: 500_000 },
    Group { first: 0xc0a8_4000, users: 32, bps: 1_500_000 },
    Group { first: 0xc0a8_c00a, users: 1, bps: 2_000_000 },
];
const LIGHT: &str = "light-lock batch 1500B depth 3000B idle expire 20ms";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
    fs::create_dir_all(&folder)?;
    if std::env::args().any(|argument| argument == "speed") {
        speed::all(&mut String::new())?;
        return Ok(());
    }
    let mut text = String::from("# Limit: the experiment of reference 001\n\nWritten by `make bench-limit`, ");
    let part = std::env::args().any(|argument| argument == "part");
    let mix = if part { &SIXTEENTH } else { &WHOLE };
    text.push_str(if part {
        "with a sixteenth of the paper's users (`-- part`). "
    } else {
        "with the paper's users. "
    });
    writeln!(
        text,
        "{} users at 0.5, {} at 1.5 and one at 2 Mbit/s, frames of 64 to 1500 B, each held to 1 Mbit/s with a bucket of 3036 B that is full at the \
         start; 20 samples of 2 s of the one, the first left out. Virtual time, seed 7.\n",
        mix[0].users, mix[1].users
    )?;
    let mut rows = Vec::new();
    let mut drawn: Vec<(String, Vec<f64>)> = Vec::new();
    text.push_str(
        "| scheme | workers | samples 2 to 20, Mbit/s | mean error | worst error | conforming users lost | \
         frames per worker, most / mean | drops per worker, most / mean |\n|---|---|---|---|---|---|---|---|\n",
    );
    for scheme in ["gcra", "atomic-queue", "static", "mutex", LIGHT] {
        for workers in [1, 8, 64] {
            let samples = run(mix, scheme, workers);
            row(&mut text, scheme, workers, &samples);
            println!("{}", text.lines().last().unwrap_or_default());
            rows.push(data(scheme, workers, &samples));
            if workers == 64 && (scheme == "gcra" || scheme == LIGHT) {
                drawn.push((format!("{scheme}, 64 workers"), samples.mbps()));
            }
        }
    }
    text.push_str(
        "\nThe paper's own: its lock-free scheme within 1 %, its light-weight lock low and off by more than 20 % (Fig. 6; it gives \
         neither batch nor number of cores). Measured with the same mix scaled to this kind of machine (FIELD.md G): \
         eBPF token buckets, 20 481 users at 0.1 Mbit/s, 5.8 % (burst 2 000 B) and 3.2 % (16 000 B); 2 049 users at \
         1 Mbit/s 0.40 %; tc htb with 2 049 classes 0.31 %, with 20 481 classes 118 kpps at most.\n\n\
         ![samples](limit-fig6.svg)\n\n## light-lock by batch, depth and the fate of idle tokens\n\n8 and 64 workers, 161 users, \
         the same rates. Below 1: tokens lie idle in other workers' buckets, or were lost there. Above: buckets that were \
         filled before are emptied now.\n\n| batch | depth | idle tokens | workers | mean ÷ limit | least sample | largest sample |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let mut swept = Vec::new();
    for (batch, depth) in [(1_500, 1_500), (1_500, 3_000), (3_000, 3_000), (3_000, 30_000)] {
        for idle in ["keep", "expire 100ms", "expire 20ms", "expire 5ms"] {
            for workers in [8, 64] {
                let scheme = format!("light-lock batch {batch}B depth {depth}B idle {idle}");
                let samples = run(&PART, &scheme, workers);
                let (least, largest) = samples.range();
                writeln!(
                    text,
                    "| {batch} B | {depth} B | {idle} | {workers} | {:.4} | {least:.4} | {largest:.4} |",
                    samples.mean()
                )?;
                swept.push(data(&scheme, workers, &samples));
            }
        }
    }
    // What was run stays, whatever becomes of the rest.
    fs::write(folder.join("limit-fig6.svg"), figure::svg(&drawn))?;
    fs::write(folder.join("limit.md"), &text)?;
    let speeds = speed::all(&mut text)?;
    fs::write(folder.join("limit.md"), &text)?;
    let data: Value = json!({"experiment": rows, "sweep": swept, "speed": speeds});
    fs::write(folder.join("limit.json"), serde_json::to_string_pretty(&data)? + "\n")?;
    println!("{text}");
    Ok(())
}

fn row(text: &mut String, scheme: &str, workers: usize, samples: &Samples) {
    let (least, largest) = samples.range();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "| `{scheme}` | {workers} | {least:.4} to {largest:.4} | {:+.4} % | {:.3} % | {} frames | {:.3} | {:.3} |",
        (samples.mean() - 1.0) * 100.0,
        samples.worst() * 100.0,
        samples.lost,
        samples.balance(|load| load.frames),
        samples.balance(|load| load.exceeded)
    );
}

fn data(scheme: &str, workers: usize, samples: &Samples) -> Value {
    json!({
        "scheme": scheme,
        "workers": workers,
        "samples_mbps": samples.mbps(),
        "mean": samples.mean(),
        "worst_error": samples.worst(),
        "conforming_frames_lost": samples.lost,
        "frames": samples.frames,
        "frames_by_worker": samples.loads.iter().map(|load| load.frames).collect::<Vec<_>>(),
        "drops_by_worker": samples.loads.iter().map(|load| load.exceeded).collect::<Vec<_>>(),
    })
}

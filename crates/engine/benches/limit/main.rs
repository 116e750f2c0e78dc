//! Repeats the experiment of reference 001: 20 481 users on up to 64 workers, for each scheme. Then sweeps batch and
//! depth of light-lock, and measures frames per second by scheme and number of users. Writes tables, data and a drawing
//! like the paper's Fig. 6 below `bench/results`. Nothing here passes or fails.
//!
//! `-- experiment` runs the first two parts, whose figures do not depend on the machine; `-- speed` runs the last. The
//! earlier results of the other part are kept.

mod experiment;
mod figure;
mod speed;
mod tables;
mod traffic;

use experiment::{Samples, run};
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use traffic::Group;

/// The traffic mix of the paper.
const WHOLE: [Group; 3] = [
    Group { first: 0xc0a8_0000, users: 16_384, bps: 500_000 },
    Group { first: 0xc0a8_4000, users: 4_096, bps: 1_500_000 },
    Group { first: 0xc0a8_c00a, users: 1, bps: 2_000_000 },
];
/// A part of the mix for the sweep. Users do not affect each other in any scheme, so fewer users give the same figures.
const PART: [Group; 3] = [
    Group { first: 0xc0a8_0000, users: 128, bps: 500_000 },
    Group { first: 0xc0a8_4000, users: 32, bps: 1_500_000 },
    Group { first: 0xc0a8_c00a, users: 1, bps: 2_000_000 },
];
const LIGHT: &str = "light-lock batch 1500B depth 3000B idle expire 20ms";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
    fs::create_dir_all(&folder)?;
    let file = folder.join("limit.json");
    let asked = |name: &str| std::env::args().any(|argument| argument == name);
    let mut data: Value =
        fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    if !asked("speed") {
        let whole = ["gcra", "atomic-queue", "static", "mutex", LIGHT];
        let whole: Vec<(String, usize)> =
            whole.iter().flat_map(|scheme| [1, 8, 64].map(|workers| ((*scheme).to_owned(), workers))).collect();
        data["experiment"] = of_all(&WHOLE, &whole);
        data["sweep"] = of_all(&PART, &sweep());
        fs::write(&file, serde_json::to_string_pretty(&data)? + "\n")?;
    }
    if !asked("experiment") {
        data["speed"] = speed::all()?;
        fs::write(&file, serde_json::to_string_pretty(&data)? + "\n")?;
    }
    fs::write(folder.join("limit-fig6.svg"), figure::svg(&tables::drawn(&data)))?;
    let text = tables::text(&data);
    fs::write(folder.join("limit.md"), &text)?;
    println!("{text}");
    Ok(())
}

/// Runs a mix through each scheme and number of workers, in virtual time. Runs as many at once as there are processors.
fn of_all(mix: &[Group; 3], runs: &[(String, usize)]) -> Value {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Value)>> = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((scheme, workers)) = runs.get(number) else { break };
                    let samples = run(mix, scheme, *workers);
                    eprintln!("{scheme}, {workers} workers: mean {:.6}, worst {:.5}", samples.mean(), samples.worst());
                    let row = data(scheme, *workers, &samples);
                    done.lock().expect("no other run failed").push((number, row));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no run failed");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, row)| row).collect()
}

fn sweep() -> Vec<(String, usize)> {
    let mut runs = Vec::new();
    for (batch, depth) in [(1_500, 1_500), (1_500, 3_000), (3_000, 3_000), (3_000, 30_000)] {
        for idle in ["keep", "expire 100ms", "expire 20ms", "expire 5ms"] {
            for workers in [8, 64] {
                runs.push((format!("light-lock batch {batch}B depth {depth}B idle {idle}"), workers));
            }
        }
    }
    runs
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

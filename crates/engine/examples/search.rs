//! Runs a search against a device that another program models: bench/mlrsearch.py.
//!
//! `search MIN MAX WIDTH TRIAL_MS SUM_MS CONFIRM LOSS…`: loads in frames/s, shares as fractions. Prints `trial LOAD
//! SECONDS` for each trial and reads a line `SENT LOST`. Ends with `found LOWER UPPER VERDICT` for each goal, `-` for a
//! bound that was not found.

use engine::search::{Goal, Outcome, Search, Settings};
use std::error::Error;
use std::io::{BufRead, stdin};
use units::{FrameRate, Share, Span};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers = words.iter().map(|word| word.parse()).collect::<Result<Vec<f64>, _>>()?;
    let [min, max, width, trial, sum, confirm, losses @ ..] = &numbers[..] else {
        return Err("usage: search MIN MAX WIDTH TRIAL_MS SUM_MS CONFIRM LOSS…".into());
    };
    let rate = |fps: f64| FrameRate::from_millis((fps * 1_000.0) as u64);
    let share = |share: f64| Share::from_ppb((share * 1e9).round() as u32);
    let goal = |loss: &f64| {
        Goal::mlrsearch(
            share(*loss),
            share(0.5),
            Span::from_ms(*trial as u64),
            Span::from_ms(*sum as u64),
            share(*width),
        )
    };
    let mut search = Search::new(Settings {
        goals: losses.iter().map(goal).collect(),
        least: rate(*min),
        most: rate(*max),
        tolerance: share(0.001),
        late: Span::from_ms(5),
        confirm: *confirm as u32,
    });
    let mut lines = stdin().lock().lines();
    while let Some(trial) = search.next_trial() {
        println!("trial {} {}", trial.load.millis() as f64 / 1_000.0, trial.duration.as_secs_f64());
        let line = lines.next().ok_or("the model of the device ended")??;
        let (sent, lost) = line.split_once(' ').ok_or("a line has two counts")?;
        let (sent, lost) = (sent.parse()?, lost.parse()?);
        search.tell(
            trial,
            Outcome { sent, lost, took: trial.duration, missed: 0, late: Span::ZERO, late_frames: 0, directions: 1 },
        );
    }
    let bound = |rate: Option<FrameRate>| rate.map_or("-".into(), |rate| (rate.millis() as f64 / 1_000.0).to_string());
    for found in search.found() {
        println!("found {} {} {}", bound(found.lower), bound(found.upper), found.verdict.name());
    }
    Ok(())
}

//! Output of a search: a table, one JSON object, and a page.

use crate::options::search::Search;
use crate::output;
use crate::plan::search::{Device, Direction};
use crate::render::report_text;
use crate::render::search_results::{DirectionResult, Measured, Searched};
use engine::search::{Bursts, Curve, Flaw, Goal, GoalResult, Trial, TrialResult, Verdict};
use measure::figures::{digits, frame_rate};
use measure::{Report, StartReport};
use page::{DrawnTrial, FoundGoal, SearchedSize};
use serde_json::{Value, json};
use std::fmt::Write as _;
use units::FrameRate;

fn fps(rate: FrameRate) -> f64 {
    rate.millis() as f64 / 1_000.0
}

pub(crate) fn json(
    search: &Search,
    device: &Device,
    searched: &[Searched],
    goals: &[Goal],
    start: Option<&StartReport>,
) -> Value {
    let of = |one: &Searched| {
        let found = goals.iter().zip(&one.found).enumerate().map(|(number, (goal, found))| {
            let latency = one.latency.get(number).and_then(Option::as_ref);
            json!({
                "loss_ratio": goal.loss.as_f64(),
                "obtained": found.lower.and_then(|lower| obtained(one, lower)).map(|at| json!({
                    "offered_fps": at.offered,
                    "forwarded_fps": at.forwarded,
                    "loss_ratio": at.loss,
                    "trials": at.trials,
                })),
                "lower_fps": found.lower.map(fps),
                "upper_fps": found.upper.map(fps),
                "conditional_throughput_fps": found.throughput,
                "verdict": found.verdict.name(),
                "spread": found.spread.map(|spread| {
                    json!({"from_fps": fps(spread.from), "to_fps": fps(spread.to), "ratio": spread.share()})
                }),
                "delay": found.lower.and_then(|lower| delay_at(one, lower)),
                "latency": latency.map(|(trial, measured)| latency_json(trial, measured)),
            })
        });
        let trials = one.machine.runs().iter().zip(&one.measured).map(|(run, measured)| trial_json(run, measured));
        json!({
            "size": one.size,
            "most_fps": fps(one.most),
            "goals": found.collect::<Vec<_>>(),
            "frame_loss": one.curve.as_ref().map(curve_json),
            "back_to_back": one.bursts.as_ref().map(|bursts| bursts_json(bursts, one)),
            "trials": trials.collect::<Vec<_>>(),
        })
    };
    let mut report = json!({
        "schema": Report::SCHEMA,
        "command": "search",
        "asked": {
            "method": search.method,
            "streams": search.streams,
            "sizes": search.sizes,
            "loss_ratio": goals.iter().map(|goal| goal.loss.as_f64()).collect::<Vec<_>>(),
            "trial_ns": search.trial.as_ns_f64(),
            "width_ratio": search.width.as_f64(),
            "min_fps": fps(search.min),
            "tolerance_ratio": search.tolerance.as_f64(),
            "seed": search.seed,
        },
        "method": search.method,
        "width_ratio": search.width.as_f64(),
        "searches": searched.iter().map(of).collect::<Vec<_>>(),
        "definitions": DEFINITIONS.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect::<serde_json::Map<_, _>>(),
    });
    if let Some(start) = start {
        report["start"] = json!(start);
    }
    if let Device::Ports { directions, .. } = device {
        let each = |direction: &Direction| {
            json!({
                "out": direction.out,
                "in": direction.input,
                "streams": direction.streams,
                "gateways": direction.gateways,
            })
        };
        report["asked"]["directions"] = json!(directions.iter().map(each).collect::<Vec<_>>());
    }
    if let Some(max) = search.max {
        report["asked"]["max_fps"] = json!(fps(max));
    }
    let warnings = output::warnings();
    if !warnings.is_empty() {
        report["warnings"] = json!(warnings);
    }
    report
}

/// Measured over all trials that count at a load: frames sent and frames received, per second of sending and direction.
struct Obtained {
    offered: f64,
    forwarded: f64,
    loss: f64,
    trials: usize,
}

fn obtained(one: &Searched, load: FrameRate) -> Option<Obtained> {
    let runs: Vec<&TrialResult> =
        one.machine.runs().iter().filter(|run| run.trial.load == load && run.flaw.is_none()).collect();
    let seconds: f64 = runs.iter().map(|run| run.outcome.took.as_secs_f64()).sum();
    let sent: u64 = runs.iter().map(|run| run.outcome.sent).sum();
    let lost: u64 = runs.iter().map(|run| run.outcome.lost).sum();
    let directions = f64::from(runs.first()?.outcome.directions.max(1));
    (seconds > 0.0 && sent > 0).then(|| Obtained {
        offered: sent as f64 / seconds / directions,
        forwarded: sent.saturating_sub(lost) as f64 / seconds / directions,
        loss: lost as f64 / sent as f64,
        trials: runs.len(),
    })
}

/// A number of frames per second of sending and direction; absent if nothing was sent.
fn per_second(frames: u64, run: &TrialResult) -> Option<f64> {
    let seconds = run.outcome.took.as_secs_f64();
    (seconds > 0.0).then(|| frames as f64 / seconds / f64::from(run.outcome.directions.max(1)))
}

const DEFINITIONS: &[(&str, &str)] = &[
    ("load", "intended frames/s; a load that was not offered within the tolerance does not affect the bounds"),
    ("offered_fps", "measured: frames sent / time of sending (took_ns); with several directions, the mean of them"),
    ("forwarded_fps", "measured: frames that came back / time of sending; with several directions, the mean of them"),
    ("directions", "what each of several directions sent and lost; sent and lost of the trial are their sums"),
    ("loss_ratio", "of a goal: the most that it allows; of a trial, a load and obtained: measured"),
    ("obtained", "of a goal: offered, forwarded and lost in all trials at lower_fps that count"),
    ("lower_fps", "relevant lower bound: the highest load within the goal, below all loads beyond it"),
    (
        "conditional_throughput_fps",
        "forwarded at the lower bound in all but the share of time that the goal exempts (RFC 9971)",
    ),
    (
        "spread",
        "loads at which full trials disagree: from the lowest with one that misses the goal to the highest with one that meets it; ratio is its width / to_fps. Another run may end anywhere in it, or beyond it",
    ),
    ("delay", "one-way, ns, of the longest trial at that load"),
    ("latency", "one-way, ns, of a separate run at the lower bound (RFC 2544, 26.2)"),
    ("frame_loss", "share of frames lost at each load, from the highest down (RFC 2544, 26.3)"),
    (
        "back_to_back",
        "frames of the longest burst without loss (RFC 2544, 26.4); buffer_ns is the corrected DUT buffer time of RFC 9004: mean length / burst rate * (1 - throughput / burst rate)",
    ),
];

/// Definitions of the terms on the page, which differ from the JSON names.
const MEANINGS: &[(&str, &str)] = &[
    ("load", "intended frames/s; a load that was not offered within the tolerance does not affect the bounds"),
    (
        "found",
        "relevant lower bound: the highest load within the goal, below all loads beyond it (lower_fps in report.json)",
    ),
    ("not at", "the lowest load beyond the goal above that (upper_fps)"),
    ("DUT-limited", "above the found rate the device loses more than the goal"),
    ("tester-limited", "above the found rate the tester did not offer the load, or lost frames itself"),
    ("not-limited", "even the highest load is within the goal"),
    ("unstable", "the device meets the goal in some trials and misses it in others, at the same loads"),
    ("below-least", "even the lowest load loses more than the goal"),
    ("unfinished", "the search ended early: these are the bounds so far"),
    ("delay", "one-way, of the longest trial at the load found, or with --latency of a separate run there"),
];

fn trial_json(run: &TrialResult, measured: &Measured) -> Value {
    let mut trial = json!({
        "load_fps": fps(run.trial.load),
        "offered_fps": per_second(run.outcome.sent, run),
        "forwarded_fps": per_second(run.outcome.sent.saturating_sub(run.outcome.lost), run),
        "duration_ns": run.trial.duration.as_ns_f64(),
        "sent": run.outcome.sent,
        "lost": run.outcome.lost,
        "loss_ratio": run.loss(),
        "took_ns": run.outcome.took.as_ns_f64(),
        "receiver_missed": run.outcome.missed,
        "latest_ns": run.outcome.late.as_ns_f64(),
        "late_frames": run.outcome.late_frames,
        "duplicates": measured.duplicates,
        "earlier": measured.earlier,
        "flaw": run.flaw.map(Flaw::name),
        "delay": measured.delay,
    });
    if !measured.directions.is_empty() {
        trial["directions"] = measured.directions.iter().map(DirectionResult::json).collect();
    }
    trial
}

/// Notes on the trials of a size that the table does not show.
pub(crate) fn remarks(one: &Searched, goals: &[Goal]) -> Vec<String> {
    let mut remarks = flaws(one);
    remarks.extend(of_trials(one));
    for (goal, found) in goals.iter().zip(&one.found) {
        let Some(spread) = found.spread.filter(|_| found.verdict == Verdict::Unstable) else { continue };
        remarks.push(format!(
            "loss {}: unstable: trials disagree at least from {} to {} ({} %): another run may end elsewhere in this range, or \
             beyond it",
            goal.loss,
            spread.from,
            spread.to,
            digits(spread.share() * 100.0, 2)
        ));
    }
    let sum = |of: fn(&Measured) -> u64| one.measured.iter().map(of).sum::<u64>();
    let earlier = sum(|measured| measured.earlier);
    if earlier > 0 {
        remarks.push(format!(
            "{} arrived in a later trial than they were sent in, and count as lost: the device holds frames for longer than \
             --wait, and is not empty when the next trial begins: raise --wait",
            output::counted(earlier, "frame")
        ));
    }
    let duplicates = sum(|measured| measured.duplicates);
    if duplicates > 0 {
        let sent = sum(|measured| measured.outcome.sent);
        let (copies, sent) = (output::counted(duplicates, "frame"), output::thousands(sent));
        remarks.push(format!("of {sent} sent, {copies} arrived more than once; copies do not offset losses"));
    }
    remarks.extend(silent_directions(one));
    let nothing = |measured: &&Measured| measured.outcome.sent > 0 && measured.outcome.lost == measured.outcome.sent;
    let trials = one.measured.len();
    let seen = one.measured.last().and_then(|measured| measured.seen.as_ref());
    let seen = seen.map_or(String::new(), |seen| format!(" ({seen})"));
    match one.measured.iter().rev().take_while(nothing).count() {
        0 => {}
        all if all == trials => remarks.push(format!(
            "nothing came back in any trial{seen}: check that the device forwards frames with these addresses to --in, and \
             name a router by --gateway"
        )),
        last => remarks.push(format!(
            "nothing came back in the last {last} of {trials} trials, although earlier ones worked{seen}: check that the device still \
             works"
        )),
    }
    remarks
}

/// Directions in which nothing came back in any trial, although other directions worked.
fn silent_directions(one: &Searched) -> Vec<String> {
    let Some(last) = one.measured.last() else { return Vec::new() };
    let totals: Vec<(u64, u64)> = (0..last.directions.len())
        .map(|number| {
            let of_trials = one.measured.iter().filter_map(|measured| measured.directions.get(number));
            of_trials.fold((0, 0), |(sent, lost), direction| (sent + direction.sent, lost + direction.lost))
        })
        .collect();
    let is_silent = |(sent, lost): &(u64, u64)| *sent > 0 && lost == sent;
    let silent = last.directions.iter().zip(&totals).filter(|(_, totals)| is_silent(totals));
    let silent: Vec<String> =
        silent.map(|(direction, _)| format!("{} to {}", direction.out, direction.input)).collect();
    if silent.len() == totals.len() {
        return Vec::new();
    }
    let remark = |direction: String| {
        format!(
            "{direction}: nothing came back in any trial: check that the device forwards frames in this direction, and name \
             a router by --gateway PORT=IP"
        )
    };
    silent.into_iter().map(remark).collect()
}

/// The number of trials that do not count, by reason.
fn flaws(one: &Searched) -> Vec<String> {
    let runs = one.machine.runs();
    [Flaw::Shortfall, Flaw::Overrun, Flaw::Receiver, Flaw::Hiccup]
        .into_iter()
        .filter_map(|flaw| {
            let flawed = runs.iter().filter(|run| run.flaw == Some(flaw)).count();
            (flawed > 0).then(|| {
                format!("{flawed} of {} trials{}", runs.len(), flaw_words(Some(flaw)).replace(", does", " do"))
            })
        })
        .collect()
}

/// The warnings in the reports of trials. Their figures differ from trial to trial, so warnings with the same words are
/// merged.
fn of_trials(one: &Searched) -> Vec<String> {
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit() && !"., ".contains(*c)).collect::<String>();
    let mut kinds: Vec<(String, &str, usize)> = Vec::new();
    for measured in &one.measured {
        // Directions may have the same warning.
        let mut of_trial: Vec<String> = Vec::new();
        for warning in &measured.warnings {
            let kind = words(warning);
            if of_trial.contains(&kind) {
                continue;
            }
            match kinds.iter_mut().find(|(known, ..)| *known == kind) {
                Some((.., times)) => *times += 1,
                None => kinds.push((kind.clone(), warning, 1)),
            }
            of_trial.push(kind);
        }
    }
    let trials = one.measured.len();
    kinds.into_iter().map(|(_, warning, times)| format!("{times} of {trials} trials: {warning}")).collect()
}

fn latency_json(trial: &Trial, measured: &Measured) -> Value {
    json!({
        "duration_ns": trial.duration.as_ns_f64(),
        "sent": measured.outcome.sent,
        "lost": measured.outcome.lost,
        "delay": measured.delay,
    })
}

fn curve_json(curve: &Curve) -> Value {
    let load = |run: &TrialResult| {
        json!({
            "load_fps": fps(run.trial.load),
            "offered_fps": per_second(run.outcome.sent, run),
            "forwarded_fps": per_second(run.outcome.sent.saturating_sub(run.outcome.lost), run),
            "load_ratio": curve.share(run.trial.load),
            "sent": run.outcome.sent,
            "lost": run.outcome.lost,
            "loss_ratio": run.loss(),
            "flaw": run.flaw.map(Flaw::name),
        })
    };
    json!({"verdict": curve.verdict().name(), "loads": curve.runs().iter().map(load).collect::<Vec<_>>()})
}

fn bursts_json(bursts: &Bursts, one: &Searched) -> Value {
    let runs = bursts.runs().iter().map(|run| {
        json!({
            "frames": run.frames,
            "lost": run.outcome.lost,
            "took_ns": run.outcome.took.as_ns_f64(),
            "flaw": run.flaw.map(Flaw::name),
        })
    });
    let rate = fps(bursts.rate());
    let summary = summary(bursts);
    let throughput = one.found.first().and_then(|found| found.lower).map(fps);
    json!({
        "rate_fps": rate,
        "repeats": bursts.found().len(),
        "frames": summary.map(|(mean, ..)| mean),
        "frames_std": summary.map(|(_, std, ..)| std),
        "frames_min": summary.map(|(.., min, _)| min),
        "frames_max": summary.map(|(.., max)| max),
        "buffer_ns": summary.zip(throughput).map(|((mean, ..), throughput)| mean / rate * (1.0 - throughput / rate).max(0.0) * 1e9),
        "verdict": bursts.verdict().name(),
        "bursts": runs.collect::<Vec<_>>(),
    })
}

/// Mean, standard deviation, minimum and maximum of the lengths found.
fn summary(bursts: &Bursts) -> Option<(f64, f64, u64, u64)> {
    let found = bursts.found();
    let (min, max) = (*found.iter().min()?, *found.iter().max()?);
    let count = found.len() as f64;
    let mean = found.iter().map(|frames| *frames as f64).sum::<f64>() / count;
    let squares = found.iter().map(|frames| (*frames as f64 - mean).powi(2)).sum::<f64>();
    Some((mean, (squares / (count - 1.0).max(1.0)).sqrt(), min, max))
}

/// The result of a trial.
pub(crate) fn trial_words(run: &TrialResult, measured: &Measured) -> String {
    let flaw = flaw_words(run.flaw);
    let (sent, lost) = (output::thousands(run.outcome.sent), output::thousands(run.outcome.lost));
    let by_direction = measured.directions.iter().filter(|direction| direction.lost > 0);
    let by_direction = by_direction
        .map(|direction| format!("{} to {}: {}", direction.out, direction.input, output::thousands(direction.lost)));
    let by_direction = by_direction.collect::<Vec<_>>().join(", ");
    let by_direction = if by_direction.is_empty() { by_direction } else { format!(" ({by_direction})") };
    format!("{} for {}: {sent} sent, {lost} lost{by_direction}{flaw}", run.trial.load, run.trial.duration)
}

/// Why a trial does not count, if so.
pub(crate) fn flaw_words(flaw: Option<Flaw>) -> String {
    let why = match flaw {
        None => return String::new(),
        Some(Flaw::Shortfall) => "the tester sent less than this load",
        Some(Flaw::Overrun) => "the tester took much longer than the trial",
        Some(Flaw::Receiver) => "the tester's receiver lost frames itself",
        Some(Flaw::Hiccup) => "the tester sent frames late and in a burst",
    };
    format!(", does not count: {why}")
}

/// The current bounds of a goal.
pub(crate) fn known_words(found: &GoalResult) -> String {
    match (found.lower, found.upper) {
        (None, None) => "nothing known yet".to_owned(),
        (Some(lower), None) => format!("passes at {lower}"),
        (None, Some(upper)) => format!("fails at {upper}"),
        (Some(lower), Some(upper)) => format!("passes at {lower}, fails at {upper}"),
    }
}

/// Each load of a curve: its share of the highest load, frames/s, frames sent, and frames lost; or why the trial does
/// not count.
fn losses(curve: &Curve, load: fn(f64) -> String) -> Vec<[String; 5]> {
    let runs = curve.runs();
    // If a load was tried several times, the last trial decides.
    let last = |n: &usize| runs.get(n + 1).is_none_or(|next| next.trial.load != runs[*n].trial.load);
    let row = |run: &TrialResult| {
        [
            format!("{} %", digits(curve.share(run.trial.load) * 100.0, 4)),
            load(fps(run.trial.load)),
            output::thousands(run.outcome.sent),
            output::thousands(run.outcome.lost),
            match run.flaw {
                Some(flaw) => format!("? ({})", flaw.name()),
                None => format!("{} %", digits(run.loss() * 100.0, 4)),
            },
        ]
    };
    (0..runs.len()).filter(last).map(|n| row(&runs[n])).collect()
}

/// The delay of the last of the longest trials at a load.
fn delay_at(one: &Searched, load: FrameRate) -> Option<&Value> {
    let at =
        one.machine.runs().iter().zip(&one.measured).filter(|(run, _)| run.trial.load == load && run.flaw.is_none());
    at.max_by_key(|(run, _)| run.trial.duration.as_ps()).and_then(|(_, measured)| measured.delay.as_ref())
}

/// The delay at the rate found for a goal, from a separate run or from a trial.
fn delay_of(one: &Searched, number: usize) -> Option<&Value> {
    let own = one.latency.get(number).and_then(Option::as_ref).and_then(|(_, measured)| measured.delay.as_ref());
    own.or_else(|| delay_at(one, one.found.get(number)?.lower?))
}

pub(crate) fn table(device: &Device, searched: &[Searched], goals: &[Goal], start: Option<&StartReport>) -> String {
    let mut text = report_text::warnings(&output::warnings());
    if let Some(start) = start {
        text += &format!("start: {}\n", report_text::start(start, "first departure"));
    }
    if let Some(line) = directions_words(device) {
        text += &format!("{line}\n");
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:<14}{:>11}{:>9}{:>14}{:>14}{:>14}{:>14}{:>11}  verdict",
        "size", "loss asked", "got", "frames/s", "offered", "not at", "median delay", "p99"
    );
    for one in searched {
        for (number, (goal, found)) in goals.iter().zip(&one.found).enumerate() {
            let rate = |rate: Option<FrameRate>| rate.map_or("-".to_owned(), |rate| format!("{:.3}", fps(rate)));
            let delay = |quantile: &str| {
                let ns = delay_of(one, number).and_then(|delay| delay.get(quantile)?.as_f64());
                ns.map_or("-".to_owned(), output::brief)
            };
            let at = found.lower.and_then(|lower| obtained(one, lower));
            let _ = writeln!(
                text,
                "{:<14}{:>11}{:>9}{:>14}{:>14}{:>14}{:>14}{:>11}  {} ({} trials)",
                one.size,
                goal.loss.to_string(),
                at.as_ref().map_or("-".to_owned(), |at| format!("{} %", digits(at.loss * 100.0, 4))),
                rate(found.lower),
                at.as_ref().map_or("-".to_owned(), |at| format!("{:.3}", at.offered)),
                rate(found.upper),
                delay("p50_ns"),
                delay("p99_ns"),
                found.verdict.name(),
                one.machine.runs().len()
            );
        }
        for [share, load, sent, lost, loss] in
            one.curve.iter().flat_map(|curve| losses(curve, |load| format!("{load:.3}")))
        {
            let _ = writeln!(text, "{:<14}{:>11}{loss:>9}{load:>14}  lost at {share}: {lost} of {sent}", one.size, "");
        }
        if let Some(curve) = &one.curve {
            let _ = writeln!(text, "{:<14}loss at each load: {}", one.size, curve.verdict().name());
        }
        if let Some(burst) = one.bursts.as_ref().map(burst_words) {
            let _ = writeln!(text, "{:<14}{burst}", one.size);
        }
    }
    text
}

/// The directions, if there are several.
fn directions_words(device: &Device) -> Option<String> {
    let Device::Ports { directions, .. } = device else { return None };
    let names: Vec<String> = directions.iter().map(ToString::to_string).collect();
    (names.len() > 1)
        .then(|| format!("{} directions at the same time, frames/s of each: {}", names.len(), names.join(", ")))
}

/// The results, one line per size and goal; a missing result is empty. With `--frame-loss` or `--back-to-back`
/// there are further lines and columns for these.
pub(crate) fn csv(searched: &[Searched], goals: &[Goal]) -> String {
    let more = searched.iter().any(|one| one.curve.is_some() || one.bursts.is_some());
    let mut lines = vec![(
        FOUND.split(',').map(str::to_owned).collect::<Vec<_>>(),
        MEASURED.split(',').map(str::to_owned).collect(),
    )];
    for one in searched {
        // A mix contains commas.
        let size = format!("\"{}\"", one.size);
        for (number, (goal, found)) in goals.iter().zip(&one.found).enumerate() {
            let rate = |rate: Option<FrameRate>| rate.map_or(String::new(), |rate| fps(rate).to_string());
            let mut line = vec![
                size.clone(),
                goal.loss.as_f64().to_string(),
                rate(found.lower),
                rate(found.upper),
                found.verdict.name().to_owned(),
                one.machine.runs().len().to_string(),
            ];
            line.extend(["min_ns", "p50_ns", "p99_ns", "max_ns"].map(|figure| {
                let ns = delay_of(one, number).and_then(|delay| delay.get(figure)?.as_f64());
                ns.map_or(String::new(), |ns| ns.to_string())
            }));
            lines.push((line, vec!["goal".to_owned()]));
        }
        for run in one.curve.iter().flat_map(Curve::runs) {
            let TrialResult { trial, outcome, flaw } = run;
            let flaw = flaw.map_or("", Flaw::name).to_owned();
            let (sent, lost) = (outcome.sent.to_string(), outcome.lost.to_string());
            let measured = vec!["frame_loss".to_owned(), fps(trial.load).to_string(), sent, lost, flaw];
            lines.push((vec![size.clone(), run.loss().to_string()], measured));
        }
        if let Some(bursts) = &one.bursts {
            let figures = bursts_json(bursts, one);
            let figure = |name: &str| figures[name].as_number().map_or(String::new(), ToString::to_string);
            let empty = String::new;
            let found = vec![size, empty(), empty(), empty(), bursts.verdict().name().to_owned(), figure("repeats")];
            let mut measured = vec!["back_to_back".to_owned(), figure("rate_fps"), empty(), empty(), empty()];
            measured.extend(["frames", "frames_std", "frames_min", "frames_max", "buffer_ns"].map(figure));
            lines.push((found, measured));
        }
    }
    let columns = (FOUND.split(',').count(), MEASURED.split(',').count());
    let mut text = String::new();
    for (mut line, mut measured) in lines {
        line.resize(columns.0, String::new());
        if more {
            measured.resize(columns.1, String::new());
            line.append(&mut measured);
        }
        text += &(line.join(",") + "\n");
    }
    text
}

/// Columns for the results of a goal, and for the measurements at a load or with a burst.
const FOUND: &str = "size,loss,lower_fps,upper_fps,verdict,trials,delay_min_ns,delay_p50_ns,delay_p99_ns,delay_max_ns";
const MEASURED: &str = "of,load_fps,sent,lost,flaw,frames,frames_std,frames_min,frames_max,buffer_ns";

fn burst_words(bursts: &Bursts) -> String {
    let rate = bursts.rate();
    match summary(bursts) {
        Some((mean, std, min, max)) => format!(
            "longest burst without loss at {rate}: mean {mean:.1} frames, sd {std:.1}, {} to {}; {} ({} times)",
            output::thousands(min),
            output::thousands(max),
            bursts.verdict().name(),
            bursts.found().len()
        ),
        None => format!("longest burst without loss at {rate}: not found: {}", bursts.verdict().name()),
    }
}

pub(crate) fn page(
    search: &Search,
    device: &Device,
    searched: &[Searched],
    goals: &[Goal],
    start: Option<&StartReport>,
) -> page::Search {
    const QUANTILES: [(&str, &str); 5] =
        [("least", "min_ns"), ("median", "p50_ns"), ("p99", "p99_ns"), ("p99.9", "p999_ns"), ("most", "max_ns")];
    let size = |one: &Searched| SearchedSize {
        name: one.size.clone(),
        goals: goals
            .iter()
            .zip(&one.found)
            .enumerate()
            .map(|(number, (goal, found))| FoundGoal {
                loss: goal.loss.as_f64(),
                lower: found.lower.map(fps),
                obtained: found.lower.and_then(|lower| obtained(one, lower)).map(|at| (at.offered, at.loss)),
                settled: matches!(found.verdict, Verdict::DutLimited | Verdict::NotLimited),
                upper: found.upper.map(fps),
                verdict: found.verdict.name().to_owned(),
                delay: QUANTILES
                    .iter()
                    .filter_map(|(name, field)| Some((*name, delay_of(one, number)?.get(field)?.as_f64()?)))
                    .collect(),
            })
            .collect(),
        trials: one
            .machine
            .runs()
            .iter()
            .map(|run| DrawnTrial {
                load: fps(run.trial.load),
                duration_ns: run.trial.duration.as_ns_f64(),
                sent: run.outcome.sent,
                lost: run.outcome.lost,
                flaw: run.flaw.map(|flaw| flaw.name().to_owned()),
            })
            .collect(),
        losses: one.curve.as_ref().map(|curve| (curve.verdict().name(), losses(curve, frame_rate))),
        burst: one.bursts.as_ref().map(burst_words),
    };
    page::Search {
        method: search.method.clone(),
        warnings: output::warnings(),
        sizes: searched.iter().map(size).collect(),
        notes: start
            .map(|start| format!("start: {}", report_text::start(start, "first departure")))
            .into_iter()
            .chain(directions_words(device))
            .chain(MEANINGS.iter().map(|(name, text)| format!("{name}: {text}")))
            .collect(),
    }
}

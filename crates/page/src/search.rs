//! The page of a search: for each frame size, the loss of each trial against its load with the bounds that were found,
//! and the delays at the found rates by size.

use crate::chart::{Axis, Chart, Mark};
use crate::text::{details, escape, figures, notes, table};
use crate::{PageHeader, document, warnings};
use measure::figures::{digits, frame_rate, thousands, time};

/// The content of the page of a search.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// How loads were chosen.
    pub method: String,
    /// What the figures cannot show; printed below the verdict.
    pub warnings: Vec<String>,
    /// The results of each size.
    pub sizes: Vec<SearchedSize>,
    /// What the figures mean, and what they cannot show.
    pub notes: Vec<String>,
}

/// One frame size.
#[derive(Clone, Debug, Default)]
pub struct SearchedSize {
    /// The size as it was written.
    pub name: String,
    /// The result for each goal.
    pub goals: Vec<FoundGoal>,
    /// All trials in order.
    pub trials: Vec<DrawnTrial>,
    /// The loss curve, if it was measured: what limits it, and for each load its share of the highest load, frames/s,
    /// frames sent, frames lost, and the share lost.
    pub losses: Option<(&'static str, Vec<[String; 5]>)>,
    /// The longest burst without loss, in words, if it was measured.
    pub burst: Option<String>,
}

/// The result for a goal.
#[derive(Clone, Debug, Default)]
pub struct FoundGoal {
    /// The loss it allows, as a fraction.
    pub loss: f64,
    /// The highest load that meets the goal, in frames/s.
    pub lower: Option<f64>,
    /// Measured in the trials at that load: frames/s offered, and the share of frames lost.
    pub obtained: Option<(f64, f64)>,
    /// True if only the device, or the highest load to try, limits the result.
    pub settled: bool,
    /// The lowest load that did not meet the goal, in frames/s.
    pub upper: Option<f64>,
    /// What limits the result.
    pub verdict: String,
    /// One-way delay at the found rate, in ns: name of a quantile, and its value.
    pub delay: Vec<(&'static str, f64)>,
}

/// A trial.
#[derive(Clone, Debug, Default)]
pub struct DrawnTrial {
    /// Intended load, in frames/s.
    pub load: f64,
    /// Intended duration, in ns.
    pub duration_ns: f64,
    /// Frames sent.
    pub sent: u64,
    /// Frames lost.
    pub lost: u64,
    /// Why the trial does not count; `None` if it does.
    pub flaw: Option<String>,
}

/// Smaller losses are drawn at the bottom of the plot, because a logarithm has no zero.
const LEAST_LOSS: f64 = 1e-7;
/// Loads are drawn on a logarithmic axis if the highest is at least this many times the lowest.
const DECADES: f64 = 100.0;
/// Smaller delays, in ns, are drawn at this value: in virtual time some are zero.
const LEAST_DELAY: f64 = 1.0;

/// The page of a search.
#[must_use]
pub fn search(search: &Search, about: &PageHeader) -> String {
    let mut main = verdict(search) + &warnings(&search.warnings) + &delays(search);
    for (i, size) in search.sizes.iter().enumerate() {
        main.push_str(&format!(
            "<section class=\"stack\"><h2>{}</h2>\n<div class=\"grid\">\n{}</div>\n",
            escape(&size.name),
            losses(size, i)
        ));
        if let Some((verdict, losses)) = &size.losses {
            let rows: Vec<Vec<String>> = losses.iter().map(|row| row.to_vec()).collect();
            let head = ["of the most load", "frames/s", "sent", "lost", "loss"];
            main.push_str(&format!(
                "<div class=\"card\">{}</div>\n",
                table(&format!("Loss at each load: {verdict}"), &head, &rows)
            ));
        }
        if let Some(words) = &size.burst {
            main.push_str(&format!("<p class=\"note\">{}</p>\n", escape(words)));
        }
        main.push_str("</section>\n");
    }
    main.push_str(&notes("What the figures mean", &search.notes));
    let json = "The same report for programs, with all trials, is in report.json beside this page.";
    document("search", about, "", &main, json)
}

fn fps(rate: Option<f64>) -> String {
    rate.map_or("–".to_owned(), frame_rate)
}

/// A loss with four digits. Goals are far below 0.01 %, the resolution of other shares.
fn percent(loss: f64) -> String {
    format!("{} %", digits(loss * 100.0, 4))
}

fn within(size: &SearchedSize, goal: &FoundGoal) -> String {
    format!("{}, loss up to {}", size.name, percent(goal.loss))
}

/// The verdict: the asked and obtained values for each goal, and whether a bound was found.
fn verdict(search: &Search) -> String {
    let goals = || search.sizes.iter().flat_map(|size| size.goals.iter().map(move |goal| (size, goal)));
    let (all, open) = (goals().count(), goals().filter(|(_, goal)| !goal.settled).count());
    let (class, word) = match open {
        0 => ("good", format!("Goals met: all {all}")),
        open => ("bad", format!("Goals not met: {open} of {all}")),
    };
    let rows: Vec<Vec<String>> = goals()
        .map(|(size, goal)| {
            let (offered, lost) = goal.obtained.unzip();
            vec![
                within(size, goal),
                fps(goal.lower),
                fps(offered),
                lost.map_or("–".to_owned(), percent),
                fps(goal.upper),
                format!("{}: {}", if goal.settled { "met" } else { "not met" }, goal.verdict),
            ]
        })
        .collect();
    let head = ["asked", "highest load within it", "offered there", "lost there", "not at", "verdict"];
    format!(
        "<section class=\"stack\"><h2>Asked and obtained</h2>\n<div class=\"card\"><p class=\"verdict {class}\">{word}</p>\n{}</div></section>\n",
        table(&format!("By {}, in frames/s; offered and lost are measured", search.method), &head, &rows)
    )
}

/// The delays for each size.
fn delays(search: &Search) -> String {
    let mut rows = Vec::new();
    for (size, goal) in search.sizes.iter().flat_map(|size| size.goals.iter().map(move |goal| (size, goal))) {
        if !goal.delay.is_empty() {
            let values = goal.delay.iter().map(|(_, ns)| time(*ns));
            rows.push(std::iter::once(within(size, goal)).chain(values).collect::<Vec<_>>());
        }
    }
    let head = search.sizes.iter().flat_map(|size| &size.goals).map(|goal| &goal.delay).find(|delay| !delay.is_empty());
    let Some(head) = head else { return String::new() };
    let names: Vec<&str> = std::iter::once("size and goal").chain(head.iter().map(|(name, _)| *name)).collect();
    format!(
        "<section class=\"stack\"><h2>Delays</h2>\n<div class=\"grid\">{}</div>\n<div class=\"card\" style=\"margin-top:14px\">{}</div></section>\n",
        delay_chart(search),
        table("One-way delay at the found rate", &names, &rows)
    )
}

/// Quantiles of the delay, one curve per size, for the first goal with a rate.
fn delay_chart(search: &Search) -> String {
    let drawn: Vec<(&SearchedSize, &FoundGoal)> = search
        .sizes
        .iter()
        .filter_map(|size| Some((size, size.goals.iter().find(|goal| !goal.delay.is_empty())?)))
        .collect();
    let values = drawn.iter().flat_map(|(_, goal)| &goal.delay).map(|(_, ns)| *ns);
    let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(least, most), ns| (least.min(ns), most.max(ns)));
    let below = least < LEAST_DELAY;
    let mut marks = Vec::new();
    for (n, (size, goal)) in drawn.iter().enumerate() {
        let at = n as f64 + 1.0;
        let spread = goal.delay.iter().map(|(_, ns)| ns.max(LEAST_DELAY));
        let low = spread.clone().fold(f64::INFINITY, f64::min);
        let high = spread.clone().fold(0.0, f64::max);
        marks.push(Mark::Line { class: "asked", points: vec![(at, low), (at, high)] });
        for ns in spread {
            marks.push(Mark::Line { class: "got", points: vec![(at - 0.15, ns), (at + 0.15, ns)] });
        }
        marks.push(Mark::Rule { at, label: size.name.clone(), above: n % 2 == 0 });
    }
    let chart = Chart {
        id: "delays".into(),
        description: format!(
            "Delays at the found rate of {}, from {} to {}; the values are in the table.",
            if drawn.len() == 1 { "one size".to_owned() } else { format!("{} sizes", drawn.len()) },
            time(least),
            time(most)
        ),
        x: Axis::named(0.5, drawn.len() as f64 + 0.5, "size"),
        y: Axis::logarithmic(least.max(LEAST_DELAY) / 2.0, most.max(LEAST_DELAY) * 2.0, "one-way delay", time),
        marks,
    };
    let floor = if below { " Delays below 1 ns are drawn at 1 ns." } else { "" };
    let caption = format!("Each mark is one of the quantiles in the table; a bar spans them.{floor}");
    format!(
        "<figure class=\"card\"><figcaption><h3>Delay at the found rate, by size</h3>\n{caption}</figcaption>\n{}</figure>",
        chart.svg()
    )
}

/// The trials of a size: loss against load.
fn losses(size: &SearchedSize, i: usize) -> String {
    let counting = || size.trials.iter().filter(|trial| trial.flaw.is_none());
    let loads = size.trials.iter().map(|trial| trial.load);
    let (low, high) = loads.fold((f64::INFINITY, 1.0_f64), |(low, high), load| (low.min(load), high.max(load)));
    let low = low.min(high);
    let decades = low > 0.0 && high / low >= DECADES;
    let margin = ((high - low) * 0.05).max(high * 1e-3);
    let (least, most) = if decades { (low / 1.2, high * 1.2) } else { (low - margin, high + margin) };
    // A short stroke for each trial, equally wide at every load. Trials that do not count are broad and pale.
    let around = |load: f64| match decades {
        true => {
            let ratio = (most / least).powf(1.0 / 90.0);
            (load / ratio, load * ratio)
        }
        false => (load - (most - least) / 90.0, load + (most - least) / 90.0),
    };
    let stroke = |class: &'static str| {
        move |trial: &DrawnTrial| {
            let at = loss(trial).max(LEAST_LOSS);
            let (from, to) = around(trial.load);
            Mark::Line { class, points: vec![(from, at), (to, at)] }
        }
    };
    let mut marks: Vec<Mark> = size.trials.iter().filter(|trial| trial.flaw.is_some()).map(stroke("asked")).collect();
    let mut curve: Vec<(f64, f64)> = counting().map(|trial| (trial.load, loss(trial).max(LEAST_LOSS))).collect();
    curve.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    marks.push(Mark::Line { class: "got", points: curve });
    marks.extend(counting().map(stroke("got")));
    let (per_tick, unit) = if high >= 2e6 { (1e6, "million frames/s") } else { (1e3, "thousand frames/s") };
    let mut lowers: Vec<f64> = size.goals.iter().filter_map(|goal| goal.lower).collect();
    lowers.sort_by(f64::total_cmp);
    lowers.dedup();
    for (n, lower) in lowers.into_iter().enumerate() {
        marks.push(Mark::Rule { at: lower, label: digits(lower / per_tick, 6).to_string(), above: n % 2 == 0 });
    }
    let (all, flawed) = (size.trials.len(), size.trials.len() - counting().count());
    let bounds: Vec<String> = size
        .goals
        .iter()
        .map(|goal| format!("loss up to {}: {} frames/s, {}", percent(goal.loss), fps(goal.lower), goal.verdict))
        .collect();
    let flaws = if flawed > 0 { format!(", of which {flawed} do not count") } else { String::new() };
    let caption = format!("{all} trials{flaws}; {}.", bounds.join("; "));
    let legend = match flawed {
        0 => "",
        _ => {
            "<p class=\"legend\" aria-hidden=\"true\"><span class=\"key\"></span>trial that counts<span class=\"key asked\"></span>one that does not</p>\n"
        }
    };
    let name = |loss: f64| if loss <= LEAST_LOSS * 1.01 { "none".to_owned() } else { percent(loss) };
    let chart = Chart {
        id: format!("s{i}-loss"),
        description: format!("Loss of each trial against its load. {caption}"),
        x: if decades {
            Axis::logarithmic(least, most, "load, frames/s", |load| {
                if load >= 1e6 {
                    format!("{}M", load / 1e6)
                } else if load >= 1e3 {
                    format!("{}k", load / 1e3)
                } else {
                    load.to_string()
                }
            })
        } else {
            Axis::linear(least, most, per_tick, format!("load, {unit}"))
        },
        y: Axis::logarithmic(LEAST_LOSS, 1.0, "loss", name),
        marks,
    };
    format!(
        "<figure class=\"card\"><figcaption><h3>Trials</h3>\n{}</figcaption>\n{}{legend}{}</figure>\n",
        figures(&caption),
        chart.svg(),
        details("The data", &trials(size))
    )
}

/// The trials of a size, in order.
fn trials(size: &SearchedSize) -> String {
    let rows: Vec<Vec<String>> = size
        .trials
        .iter()
        .enumerate()
        .map(|(number, trial)| {
            let counts = trial.flaw.as_ref().map_or("counts".to_owned(), |flaw| format!("does not count: {flaw}"));
            vec![
                (number + 1).to_string(),
                frame_rate(trial.load),
                time(trial.duration_ns),
                thousands(trial.sent),
                thousands(trial.lost),
                percent(loss(trial)),
                counts,
            ]
        })
        .collect();
    table("In order", &["trial", "frames/s", "duration", "sent", "lost", "loss", ""], &rows)
}

/// The share of frames that did not come back.
fn loss(trial: &DrawnTrial) -> f64 {
    trial.lost as f64 / trial.sent.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_zero_delays_and_rare_losses_exactly() {
        let delay = vec![("least", 0.0), ("most", 0.0)];
        let goal = FoundGoal {
            loss: 1e-6,
            lower: Some(2_500_000.0),
            verdict: "unstable".into(),
            delay,
            ..FoundGoal::default()
        };
        let trials = vec![DrawnTrial { load: 2.5e6, duration_ns: 1e9, sent: 2_500_000, lost: 2, flaw: None }];
        let size = SearchedSize { name: "64B".into(), goals: vec![goal], trials, ..SearchedSize::default() };
        let about = PageHeader { facts: vec![("netlathe".into(), "1.2.3".into())], ..PageHeader::default() };
        let page = search(&Search { method: "rfc2544".into(), sizes: vec![size], ..Search::default() }, &about)
            .replace('\u{a0}', " ");
        for text in [
            "loss up to 0.0001 %",
            "<td>0.00008 %</td>",
            "<td>2 500 000.000</td>",
            "of one size, from 0 ns to 0 ns",
            "below 1 ns are drawn at 1 ns",
            ">2.5</text>",
            "netlathe 1.2.3",
            "<p class=\"verdict bad\">Goals not met: 1 of 1</p>",
            "<td>not met: unstable</td>",
        ] {
            assert!(page.contains(text), "no {text} in {page}");
        }
        assert!(!page.contains("one that does not</p>") && !page.contains("do not count"), "all of them do");
        assert!(!page.contains(">0.6</text>"), "a place in the order of sizes is not a number");
    }

    #[test]
    fn loads_over_decades_are_drawn_by_decades() {
        let trial = |load| DrawnTrial { load, duration_ns: 1e9, sent: 1, lost: 0, flaw: None };
        let drawn =
            |loads: [f64; 2]| losses(&SearchedSize { trials: loads.map(trial).to_vec(), ..SearchedSize::default() }, 0);
        let wide = drawn([1e3, 1e6]);
        for tick in [">1k<", ">10k<", ">100k<", ">1M<"] {
            assert!(wide.contains(tick), "no {tick} in {wide}");
        }
        assert!(!drawn([5e5, 1e6]).contains(">1M<"));
    }

    #[test]
    fn trials_and_bounds_are_drawn_and_listed() {
        let trial = |load: f64, lost, flaw: Option<&str>| DrawnTrial {
            load,
            duration_ns: 1e9,
            sent: load as u64,
            lost,
            flaw: flaw.map(str::to_owned),
        };
        let delay = vec![("min", 1_000.0), ("median", 2_000.0), ("p99", 4_000_000.0)];
        let size = SearchedSize {
            name: "64B <b>".into(),
            goals: vec![FoundGoal {
                loss: 0.001,
                lower: Some(123_400.0),
                obtained: Some((123_399.5, 0.0005)),
                settled: true,
                upper: Some(124_000.5),
                verdict: "DUT-limited".into(),
                delay,
            }],
            trials: vec![
                trial(200_000.0, 76_544, None),
                trial(123_400.0, 0, None),
                trial(300_000.0, 5, Some("shortfall")),
            ],
            losses: Some((
                "DUT-limited",
                vec![["100 %", "200 000.000", "200 000", "76 544", "38.27 %"].map(str::to_owned)],
            )),
            burst: Some("1 234 frames".into()),
        };
        let sizes = vec![size.clone(), SearchedSize { name: "imix".into(), ..SearchedSize::default() }];
        let warnings = vec!["nothing <came> back".into()];
        let searched = Search { method: "rfc2544".into(), warnings, sizes, notes: vec!["a < b".into()] };
        let page = search(&searched, &PageHeader::default()).replace('\u{a0}', " ");
        for text in [
            "64B &lt;b&gt;",
            "<td>123 400.000</td>",
            "<td>124 000.500</td>",
            "DUT-limited",
            "38.27 %",
            "<td>76 544</td>",
            "does not count: shortfall",
            "1 234 frames",
            "<li class=\"bad\">nothing &lt;came&gt; back</li>",
            "<p class=\"verdict good\">Goals met: all 1</p>",
            "<td>123 399.500</td><td>0.05 %</td>",
            "3 trials, of which 1 do not count; loss up to",
            "one that does not</p>",
            "a &lt; b",
            "<td>2 µs</td>",
            "</figure></div>\n<div class=\"card\" style=\"margin-top:14px\"><div class=\"wide\"><table><caption>One-way delay",
        ] {
            assert!(page.contains(text), "no {text} in {page}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        let position = |text: &str| page.find(text).expect("it is there");
        assert!(position("Goals met") < position("<h2>Warnings") && position("<h2>Warnings") < position("<svg"));
        assert_eq!(page.matches("<svg").count(), 3, "two sizes and their delays");
        // Three trials, two of which count, and the curve through these two; the bound is a rule.
        let losses = losses(&size, 0);
        // Ticks and the name of the bound use the unit of their axis.
        for text in [">0.0001 %<", ">0.001 %<", ">100 %<", ">123.4<", "load, thousand frames/s"] {
            assert!(losses.contains(text), "no {text} in {losses}");
        }
        assert!(page.contains("loss up to 0.1 %") && !page.contains("99999"), "{page}");
        assert_eq!((losses.matches("<polyline").count(), losses.matches("class=\"rule\"").count()), (4, 1));
        assert_eq!(losses.matches("polyline class=\"asked\"").count(), 1);
    }
}

//! The search in virtual time, against a policer of a known rate and against devices that behave badly.

use crate::common::{Bench, Finished, await_handlers, words};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Passes 123 456 frames/s of 64 B, with a bucket of one frame.
const POLICER: &str = "limit key dst-ip rate 63209472bps mode police burst 64B users 16";

fn search(bench: &Bench, options: &str) -> Value {
    let finished = bench.run(words(&format!("search --json {options}")));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("one object on stdout")
}

fn figure(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

#[test]
fn a_policer_is_found_within_the_precision_and_never_above() {
    let bench = Bench::new();
    for method in ["rfc2544", "mlrsearch --sum 3s"] {
        let report =
            search(&bench, &format!("--dut '{POLICER}' --trial 1s --width 0.1% --max 1Mpps --method {method}"));
        let goal = &report["searches"][0]["goals"][0];
        let lower = figure(goal, "/lower_fps");
        // The bucket adds one frame in a second.
        assert!(lower <= 123_457.0, "{method}: {lower}");
        assert!(lower >= 123_456.0 * 0.998, "{method}: {lower}");
        assert_eq!(goal["verdict"], "DUT-limited");
        assert!(figure(goal, "/upper_fps") > lower);
        // Measured at the bound: in virtual time the full load is offered, and the goal allows no loss.
        let (offered, forwarded) = (figure(goal, "/obtained/offered_fps"), figure(goal, "/obtained/forwarded_fps"));
        assert!((offered / lower - 1.0).abs() < 1e-3 && (forwarded - offered).abs() < 1e-9, "{goal}");
        assert!(
            figure(goal, "/obtained/loss_ratio").abs() < 1e-12 && figure(goal, "/obtained/trials") >= 1.0,
            "{goal}"
        );
        assert_eq!((figure(&report, "/asked/max_fps"), figure(&report, "/searches/0/most_fps")), (1e6, 1e6));
        assert!(report.get("warnings").is_none(), "{}", report["warnings"]);
        for trial in report["searches"][0]["trials"].as_array().expect("trials") {
            let (load, lost, sent) = (figure(trial, "/load_fps"), figure(trial, "/lost"), figure(trial, "/sent"));
            let seconds = figure(trial, "/duration_ns") / 1e9;
            // A policer passes at most its rate plus the frame in its bucket.
            let most = 123_456.0 * seconds + 2.0;
            assert!(sent - lost <= most, "{load}: {lost} of {sent} lost");
            assert_eq!(lost > 0.0, load > lower, "{load}: {lost} lost, the bound is {lower}");
            let (offered, forwarded) = (figure(trial, "/offered_fps"), figure(trial, "/forwarded_fps"));
            assert!((offered * seconds - sent).abs() < 1e-3 && forwarded * seconds <= most + 1e-3, "{trial}");
        }
    }
}

#[test]
fn several_goals_and_sizes_in_one_run() {
    let bench = Bench::new();
    // A burst of 100 frames of 64 B adds 500 frames/s to a trial of 200 ms.
    let policer = POLICER.replace("burst 64B", "burst 6400B");
    let options = "--loss 0% --loss 10% --size 64B --size 128B --trial 200ms --max 1Mpps --min 1kpps";
    let report = search(&bench, &format!("--dut '{policer}' {options}"));
    for (size, goal, expected) in
        [(0, 0, 123_956.0), (0, 1, 123_956.0 / 0.9), (1, 0, 123_956.0 / 2.0), (1, 1, 123_956.0 / 1.8)]
    {
        let lower = figure(&report, &format!("/searches/{size}/goals/{goal}/lower_fps"));
        assert!((0.993..=1.0001).contains(&(lower / expected)), "{lower}, {expected} expected");
    }
}

#[test]
fn searches_the_rfc_2544_sizes_and_writes_a_table() {
    let bench = Bench::new();
    let stages = "--dut 'loss 1%' --dut 'delay 5us'";
    let options = "--size rfc2544 --size 64B,1518B:2 --loss 0% --loss 5% --trial 20ms --max 100kpps --min 50kpps";
    let report = search(&bench, &format!("{stages} {options} --csv found.csv"));
    let table = std::fs::read_to_string(bench.path("found.csv")).expect("the table");
    let mut lines = table.lines();
    assert!(
        lines.next().is_some_and(|head| head.starts_with("size,loss,lower_fps,upper_fps,verdict,trials,delay_min"))
    );
    let searches = report["searches"].as_array().expect("searches");
    let sizes: Vec<_> = searches.iter().filter_map(|one| one["size"].as_str()).collect();
    assert_eq!(sizes, ["64B", "128B", "256B", "512B", "1024B", "1280B", "1518B", "64B,1518B:2"]);
    for size in &sizes {
        // No rate is loss-free, and all results are within 5 %.
        let trials = searches.iter().find(|one| one["size"] == **size).and_then(|one| one["trials"].as_array());
        let trials = trials.expect("trials").len();
        assert_eq!(lines.next(), Some(&*format!("\"{size}\",0,,50000,below-least,{trials},,,,")));
        let all = format!("\"{size}\",0.05,100000,,not-limited,{trials},5000,5000,5000,5000");
        assert_eq!(lines.next(), Some(&*all));
    }
    assert_eq!(lines.next(), None);
    std::fs::create_dir(bench.path("pages")).expect("a folder");
    for (twice, told) in [
        ("--trials t.jsonl --csv t.jsonl", "--csv: --trials uses the same file: name another"),
        ("--report pages --csv pages/report.json", "--csv: --report uses the same file: name another"),
        ("--report pages --trials pages/../pages/report.html", "--trials: --report uses the same file: name another"),
    ] {
        let same = bench.run(words(&format!("search {stages} --trial 1ms --max 100kpps {twice}")));
        assert!(same.status == Some(2) && same.stderr.contains(told), "{twice}: {}", same.stderr);
        assert!(std::fs::read_dir(bench.path("pages")).expect("the folder").next().is_none(), "{twice}");
    }
}

#[test]
fn the_table_has_losses_and_bursts_where_they_were_asked_for() {
    let bench = Bench::new();
    // 350 000 frames/s.
    let stage = "--dut 'limit key dst-ip rate 179200000bps burst 64B users 16'";
    let more = "--frame-loss 50% --back-to-back 2 --longest-burst 1ms";
    let report = search(&bench, &format!("{stage} --trial 20ms --max 1Mpps {more} --csv found.csv"));
    let table = std::fs::read_to_string(bench.path("found.csv")).expect("the table");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
    let of = |kind: &'static str, column: &str| {
        let column = lines[0].iter().position(|name| *name == column).expect("a column");
        let kind = lines.iter().filter(move |line| line[10] == kind);
        kind.map(|line| line[column].parse().unwrap_or(f64::NAN)).collect::<Vec<f64>>()
    };
    let one = &report["searches"][0];
    assert_eq!(of("goal", "lower_fps"), [figure(one, "/goals/0/lower_fps")]);
    let loads = one["frame_loss"]["loads"].as_array().expect("loads");
    for (column, field) in [("load_fps", "/load_fps"), ("sent", "/sent"), ("lost", "/lost"), ("loss", "/loss_ratio")] {
        let told: Vec<f64> = loads.iter().map(|load| figure(load, field)).collect();
        assert!(told.len() == 2 && of("frame_loss", column) == told, "{column}: {table}");
    }
    for (column, field) in
        [("load_fps", "rate_fps"), ("frames", "frames"), ("trials", "repeats"), ("buffer_ns", "buffer_ns")]
    {
        assert_eq!(
            of("back_to_back", column),
            [figure(&one["back_to_back"], &format!("/{field}"))],
            "{column}: {table}"
        );
    }
}

#[test]
fn search_reports_lossless_devices_and_delays() {
    let bench = Bench::new();
    let report = search(&bench, "--dut 'delay 5us' --trial 10ms --max 1Mpps");
    let goal = &report["searches"][0]["goals"][0];
    assert_eq!((goal["verdict"].as_str(), figure(goal, "/lower_fps")), (Some("not-limited"), 1e6));
    assert_eq!((figure(goal, "/delay/min_ns"), figure(goal, "/delay/max_ns")), (5_000.0, 5_000.0));
    // One frame in a hundred is lost at any load. The goal of 2 % is met; the goal of 0 % has no bound.
    let report = search(&bench, "--dut 'loss 1%' --loss 0% --loss 2% --trial 1s --max 100kpps --min 10kpps");
    let verdict = |goal: usize| report["searches"][0]["goals"][goal]["verdict"].clone();
    assert_eq!((verdict(0), verdict(1)), ("below-least".into(), "not-limited".into()));
}

/// The maximum load is what the line carries at the mean size. More cannot be offered.
#[test]
fn sizes_that_change_are_searched_up_to_the_line_rate() {
    let report = search(&Bench::new(), "--dut 'delay 5us' --trial 300ms --confirm 0 --size 64B-1518B --size imix");
    for (i, fps) in [10e9_f64 / (8.0 * 811.0), 10e9 / (8.0 * 389.76)].into_iter().enumerate() {
        let goal = &report["searches"][i]["goals"][0];
        assert_eq!((goal["verdict"].as_str(), figure(goal, "/lower_fps").round()), (Some("not-limited"), fps.round()));
    }
}

#[test]
fn search_warns_of_copies_and_of_dead_devices() {
    let bench = Bench::new();
    let options = "--trial 100ms --max 10kpps --confirm 0 --progress never --report page";
    for (stage, told) in [
        ("netem duplicate 50%", Some("64B: of 1 000 sent, ")),
        ("loss 100%", Some("64B: nothing came back in any trial")),
        ("delay 1ms", None),
        (POLICER, None),
    ] {
        let finished = bench.run(words(&format!("search --json --dut '{stage}' {options}")));
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        match told {
            Some(told) => {
                assert!(finished.stderr.contains(told), "{stage}: {}", finished.stderr);
                let page = String::from_utf8(bench.read("page/report.html")).expect("UTF-8");
                assert!(page.contains(&told["64B: ".len()..]), "it is on the page, too: {page}");
            }
            None => assert_eq!(finished.stderr, "", "{stage}"),
        }
        let report: Value = serde_json::from_str(&finished.stdout).expect("one object on stdout");
        // The same warning is at the top of each form of the report.
        let warnings = report["warnings"].as_array().cloned().unwrap_or_default();
        assert_eq!(
            warnings.iter().any(|one| one.as_str().is_some_and(|one| told.is_some_and(|told| one.contains(told)))),
            told.is_some()
        );
        let text = bench.run(words(&format!("search --dut '{stage}' --trial 100ms --max 10kpps --confirm 0"))).stdout;
        let first = text.lines().next().unwrap_or_default();
        assert_eq!(told.is_some_and(|told| first.starts_with(&format!("warning: {told}"))), told.is_some(), "{text}");
        let page = String::from_utf8(bench.read("page/report.html")).expect("UTF-8");
        let place = |text: &str| page.find(text);
        assert!(
            place("<p class=\"verdict")
                .is_some_and(|verdict| place("<h2>Warnings").is_none_or(|below| verdict < below))
        );
        assert_eq!(place("<h2>Warnings").is_some(), told.is_some(), "{page}");
        let duplicates = figure(&report, "/searches/0/trials/0/duplicates");
        assert_eq!(duplicates > 0.0, stage.contains("duplicate"), "{stage}: {duplicates}");
    }
}

#[test]
fn a_search_goes_on_from_its_trials() {
    let bench = Bench::new();
    let options = format!("--dut '{POLICER}' --trial 100ms --max 1Mpps --trials t.jsonl");
    let whole = search(&bench, &options);
    let lines = String::from_utf8(bench.read("t.jsonl")).expect("UTF-8");
    assert!(lines.lines().count() > 8);
    // Simulate an aborted search: half of the lines, the last one truncated.
    let half: Vec<&str> = lines.lines().take(6).collect();
    bench.write("t.jsonl", format!("{}\n{}", half.join("\n"), &lines.lines().nth(6).expect("a line")[..20]));
    assert_eq!(search(&bench, &options), whole);
    assert_eq!(String::from_utf8(bench.read("t.jsonl")).expect("UTF-8"), lines);
    let other = options.replace("64B users", "65B users");
    refused(&bench, &format!("search {other}"), "another search");
}

#[test]
fn a_burst_that_a_policer_takes_is_found() {
    let bench = Bench::new();
    // The bucket holds 500 frames and refills at a fifth of the burst's rate.
    let policer = "limit key dst-ip rate 102400000bps burst 32000B users 16";
    let report = search(&bench, &format!("--dut '{policer}' --trial 100ms --max 1Mpps --back-to-back 3 --width 0.1%"));
    let bursts = &report["searches"][0]["back_to_back"];
    // n frames need n - 0.2 n tokens, the first one at once: n = 500 / 0.8, within one frame.
    for field in ["frames", "frames_min", "frames_max"] {
        let frames = figure(bursts, &format!("/{field}"));
        assert!((623.0..=626.0).contains(&frames), "{field}: {frames}");
    }
    // RFC 9004: the buffer is the burst minus the frames forwarded meanwhile. That is the bucket: 500 frames at 1 Mpps.
    let buffer = figure(bursts, "/buffer_ns");
    let trial_burst = 500.0 / 0.1; // frames/s more that a trial of 100 ms finds
    assert!((buffer / (625.0 * (1.0 - (200_000.0 + trial_burst) / 1e6) * 1_000.0) - 1.0).abs() < 0.01, "{buffer}");
    assert_eq!((bursts["verdict"].as_str(), figure(bursts, "/repeats")), (Some("DUT-limited"), 3.0));
    assert!(bursts["bursts"].as_array().expect("bursts").len() > 6);
    let all = search(&bench, "--dut 'delay 5us' --trial 10ms --max 1Mpps --back-to-back 2 --longest-burst 50ms");
    let bursts = &all["searches"][0]["back_to_back"];
    assert_eq!((bursts["verdict"].as_str(), figure(bursts, "/frames")), (Some("not-limited"), 50_000.0));
}

/// A policer without burst drops half the frames at up to twice its rate, and two of three at up to three times.
#[test]
fn the_loss_curve_descends_from_the_highest_load() {
    let bench = Bench::new();
    let policer = "limit key dst-ip rate 179200000bps burst 64B users 16"; // 350 000 frames/s
    let options = "--trial 20ms --max 1Mpps --frame-loss 20% --trials t.jsonl";
    let line = format!("--dut '{policer}' {options}");
    let report = search(&bench, &format!("{line} --report page"));
    let loads = report["searches"][0]["frame_loss"]["loads"].as_array().expect("loads");
    assert_eq!(report["searches"][0]["frame_loss"]["verdict"], "DUT-limited");
    let got: Vec<[f64; 3]> =
        loads.iter().map(|load| ["/load_ratio", "/load_fps", "/loss_ratio"].map(|field| figure(load, field))).collect();
    for (n, loss) in [2.0 / 3.0, 2.0 / 3.0, 0.5, 0.5, 0.0].into_iter().enumerate() {
        let share = 1.0 - 0.2 * n as f64;
        let [at, fps, got] = got[n];
        assert!((at - share).abs() < 1e-9 && (fps - share * 1e6).abs() < 1e-3, "{n}: {at} {fps}");
        assert!((got - loss).abs() < 0.001, "{share}: {got} instead of {loss}");
    }
    assert_eq!(got.len(), 5, "20 % is the last: nothing is less by 20 %");
    let page = String::from_utf8(bench.read("page/report.html")).expect("UTF-8");
    assert!(page.contains("Loss at each load") && page.contains("<td>200\u{a0}000.000</td>"));
    // A curve with other steps cannot be continued. The error names the trial and the option.
    let other = bench.run(words(&format!("search {}", line.replace("--frame-loss 20%", "--frame-loss 25%"))));
    let said = "of 64B frame loss at 800kpps for 20ms, but this search needs one of 64B frame loss at 750kpps for 20ms: \
                give --frame-loss";
    assert!(other.status == Some(2) && other.stderr.contains(said), "{}", other.stderr);
    // Kept trials are reused.
    let kept = bench.read("t.jsonl");
    assert_eq!(search(&bench, &line)["searches"], report["searches"]);
    assert_eq!(bench.read("t.jsonl"), kept);
    let whole = search(&bench, "--dut 'delay 5us' --trial 10ms --max 1Mpps --frame-loss 10%");
    let curve = &whole["searches"][0]["frame_loss"];
    assert_eq!(curve["loads"].as_array().map(Vec::len), Some(2), "two loads that lose nothing");
    assert_eq!(curve["verdict"], "not-limited");
    assert_eq!(search(&bench, "--dut 'delay 5us' --trial 10ms --max 1Mpps")["searches"][0]["frame_loss"], Value::Null);
}

#[test]
fn a_line_that_cannot_carry_the_load_limits_the_tester() {
    let bench = Bench::new();
    // 1 Gbit/s carries 1 488 095 frames/s of 64 B, for any requested load.
    for line in ["1Gbps", "100Mbps"] {
        let most = if line == "1Gbps" { 1_488_095.2 } else { 148_809.5 };
        let options = format!("--line-rate {line} --max 3Mpps --trial 20ms --tolerance 0.1% --width 0.2%");
        let report = search(&bench, &format!("--dut 'delay 5us' {options}"));
        let goal = &report["searches"][0]["goals"][0];
        assert_eq!(goal["verdict"], "tester-limited");
        let lower = figure(goal, "/lower_fps");
        assert!(lower <= most * 1.0012 && lower >= most * 0.995, "{lower} of {most}");
        assert!(goal["upper_fps"].is_null(), "what was not offered is not a bound of the device");
    }
}

#[test]
fn devices_draw_new_values_in_each_trial() {
    let bench = Bench::new();
    let report = search(&bench, "--dut 'loss 1%' --loss 5% --trial 1s --max 10kpps --min 10kpps --confirm 5");
    let trials = report["searches"][0]["trials"].as_array().expect("trials");
    let lost: Vec<f64> = trials.iter().map(|trial| figure(trial, "/lost")).collect();
    assert!(lost.len() > 3 && lost.windows(2).any(|two| (two[0] - two[1]).abs() > 0.0), "{lost:?}");
}

#[test]
fn distinguishes_a_soft_knee_from_an_unstable_device() {
    let bench = Bench::new();
    // Sixteen users in turn, each with its own rate. Above the slowest rate, loss grows with the load.
    let rates: String = (0..16).map(|n| format!("198.19.0.{n} {}bps\n", 512 * (6_000 + 100 * n))).collect();
    bench.write("rates", rates);
    let streams = "--stream 'udp 198.18.0.1:1024 > 198.19.0.0-198.19.0.15:9'";
    let dut = "--dut 'limit key dst-ip rate 1Mbps burst 640B users 64 rates rates'";
    let options = "--trial 1s --max 400kpps --loss 0% --loss 1%";
    let report = search(&bench, &format!("{dut} {streams} {options}"));
    let goal = |number: usize| report.pointer(&format!("/searches/0/goals/{number}")).cloned().expect("a goal");
    assert_eq!((goal(0)["verdict"].as_str(), goal(1)["verdict"].as_str()), (Some("DUT-limited"), Some("DUT-limited")));
    // The slowest user may pass 6000 frames/s of its sixteenth of the load, and ten frames at once. Loss reaches 1 %
    // when the load exceeds the rates of the four slowest users.
    let lower = [0, 1].map(|number| figure(&goal(number), "/lower_fps"));
    assert!((lower[0] / 96_160.0 - 1.0).abs() < 0.007, "{lower:?}");
    assert!((lower[1] / 102_560.0 - 1.0).abs() < 0.01, "{lower:?}");
    // A channel that passes some trials and loses most frames in others.
    let gate = "--dut 'netem loss gemodel 0.0005% 0.0005% 60% 0%' --trial 1s --max 200kpps --confirm 6";
    let report = search(&bench, &format!("{gate} --loss 1% --seed 3"));
    assert_eq!(report["searches"][0]["goals"][0]["verdict"], "unstable", "{report}");
}

#[test]
fn a_page_shows_trials_bounds_and_delays() {
    let bench = Bench::new();
    let options = "--trial 50ms --max 1Mpps --size 64B --size 128B --latency 200ms --back-to-back 1 --report page";
    let policer = POLICER.replace("burst 64B", "burst 128B");
    let report = search(&bench, &format!("--dut '{policer}' {options}"));
    let page = String::from_utf8(bench.read("page/report.html")).expect("UTF-8");
    // Non-breaking spaces group digits. Remove them.
    let in_one = page.replace('\u{a0}', "");
    let written: Value = serde_json::from_slice(&bench.read("page/report.json")).expect("JSON");
    assert_eq!(written, report, "all trials are beside the page");
    for (size, name) in ["64B", "128B"].iter().enumerate() {
        let goal = &report["searches"][size]["goals"][0];
        let lower = format!("{:.3}", figure(goal, "/lower_fps"));
        assert!(page.contains(&format!("<h2>{name}</h2>")) && in_one.contains(&lower), "{name} {lower}");
        assert!(!page.contains(&lower), "in groups");
        assert!((figure(goal, "/latency/duration_ns") - 2e8).abs() < 0.5);
        assert!(figure(goal, "/latency/delay/p99_ns") >= 0.0);
        assert!(figure(&report, &format!("/searches/{size}/back_to_back/frames")) >= 1.0);
    }
    let trials = report["searches"][0]["trials"].as_array().expect("trials").len();
    for meaning in ["found: relevant lower bound", "not at: the lowest load beyond", "below-least: even"] {
        assert!(page.contains(meaning), "the page's own words are explained: {meaning}");
    }
    assert!(page.contains(&format!("{trials} trials")) && page.matches("<svg").count() == 3, "{page}");
    assert!(!page.contains("http://") && !page.contains("https://"), "it opens without a network");
}

#[test]
fn interrupted_search_reports_at_once() {
    let bench = Bench::new();
    // A trial of many minutes.
    let line = "search --json --dut 'delay 5us' --trial 5000s --max 10Mpps --back-to-back 3";
    let child = bench.command(words(line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    await_handlers(child.id());
    let killed = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
    let finished = Finished::of(child.wait_with_output().expect("it ends"));
    assert_eq!((finished.status, finished.complaints()), (Some(0), vec![]));
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object on stdout");
    let search = &report["searches"][0];
    assert_eq!(
        (&search["goals"][0]["verdict"], &search["goals"][0]["lower_fps"]),
        (&"unfinished".into(), &Value::Null)
    );
    assert_eq!(search["trials"], Value::Array(Vec::new()), "a trial that was broken off counts for nothing");
}

fn refused(bench: &Bench, line: &str, word: &str) -> Finished {
    let finished = bench.run(words(line));
    assert_eq!(finished.status, Some(2), "{line}");
    assert!(finished.complaints().iter().any(|said| said.contains(word)), "{line}: {}", finished.stderr);
    finished
}

#[test]
fn rejects_impossible_searches_first() {
    let bench = Bench::new();
    bench.write("t.jsonl", "");
    for (line, word) in [
        ("search", "--out"),
        ("search --dut 'dely 5us'", "dely"),
        ("search --dut 'delay 5us' --size 64", "no unit"),
        ("search --dut 'delay 5us' --stream 'tcp 10.0.0.1:1 > 10.0.0.2:2'", "stamp"),
        ("search --dut 'delay 5us' --max 1pps", "--min"),
        // Fails before the search of 64 B starts, although the line carries many more frames of 64 B.
        ("search --dut 'delay 5us' --size rfc2544 --line-rate 1Gbps --min 90kpps", "81.274382kpps of 1518B"),
        ("search --dut 'delay 5us' --loss 2", "no unit"),
        ("search --dut 'delay 5us' --sum 3s", "mlrsearch"),
        ("search --dut 'delay 5us' --exceed 10%", "mlrsearch"),
        ("search --dut 'delay 5us' --longest-burst 1s", "--back-to-back"),
        ("search --dut 'delay 5us' --width 0%", "--width"),
        ("search --dut 'delay 5us' --latency 0s", "--latency"),
        ("search --dut 'delay 5us' --frame-loss 0%", "--frame-loss"),
        ("search --dut 'delay 5us' --back-to-back 1 --longest-burst 0s", "--longest-burst"),
        ("search --dut 'limit key dst-ip rate 1Mbps rates nowhere'", "nowhere"),
        ("search --dut 'delay 5us' --gateway 10.0.0.1", "--gateway"),
        ("search --out eth0 --in eth1 --gateway ten", "not an IP address"),
        ("search --dut 'delay 5us' --report t.jsonl/x", "--report"),
        ("search --out pcap:a.pcap --in eth0", "not a live port"),
    ] {
        refused(&bench, line, word);
    }
}

#[test]
fn trials_are_printed_where_they_are_asked_for() {
    let bench = Bench::new();
    let line = "search --dut 'limit key dst-ip rate 63209472bps mode police burst 64B users 16' --trial 100ms --width 1% --max 1Mpps";
    let silent = bench.run(words(line));
    assert_eq!((silent.status, silent.stderr.as_str()), (Some(0), ""));
    let told = bench.run(words(&format!("{line} -v --loss 0% --loss 50% --json")));
    let report: Value = serde_json::from_str(&told.stdout).expect("one object");
    let trials = report["searches"][0]["trials"].as_array().expect("trials").len();
    assert_eq!(told.stderr.lines().count(), trials, "{}", told.stderr);
    assert!(told.stderr.lines().all(|line| line.contains(" sent, ") && !line.contains('?')), "{}", told.stderr);
    let last = told.stderr.lines().last().expect("a trial");
    assert!(last.contains("; loss 0%: passes at ") && last.contains("; loss 50%: passes at "), "{last}");

    // A load above the line rate of a size causes a note for that size only.
    let above = bench.run(words(&format!("{line} --size 64B --size 1518B --line-rate 1Gbps -q")));
    let notes: Vec<&str> = above.stderr.lines().filter(|line| line.contains("--max 1Mpps exceeds")).collect();
    assert_eq!(notes.len(), 1, "{}", above.stderr);
    assert!(notes[0].contains("kpps of 1518B") && notes[0].contains("--line-rate"), "{}", notes[0]);
}

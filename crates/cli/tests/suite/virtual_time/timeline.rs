//! Timelines: changes at stated times of a virtual run.

use crate::common::Bench;
use serde_json::Value;

/// Returns a scenario that replays a capture through stages into another at a gap, with a timeline.
fn scenario(input: &str, output: &str, stages: &str, gap: &str, timeline: &str) -> String {
    format!(
        "schema = 1\ntimeline = [{timeline}]\n[[pipeline]]\nname = \"down\"\nin = \"pcap:{input}\"\n\
         out = \"pcap:{output}\"\nstages = [{stages}]\n{gap}\n"
    )
}

/// The records of a little-endian nanosecond capture: stamp in ns, and bytes.
fn records(bench: &Bench, file: &str) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(bench.path(file)).expect(file);
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
    let mut at = 24;
    let mut records = Vec::new();
    while at < bytes.len() {
        let length = word(at + 8) as usize;
        records.push((word(at) * 1_000_000_000 + word(at + 4), bytes[at + 16..at + 16 + length].to_vec()));
        at += 16 + length;
    }
    records
}

/// Writes the records of `file` to another capture: those from `from` ns on if `later` is set, otherwise those before.
fn cut(bench: &Bench, file: &str, from: u64, later: bool, into: &str) {
    let mut bytes = std::fs::read(bench.path(file)).expect(file)[..24].to_vec();
    for (stamp, frame) in records(bench, file).into_iter().filter(|(stamp, _)| (*stamp >= from) == later) {
        for word in [stamp / 1_000_000_000, stamp % 1_000_000_000, frame.len() as u64, frame.len() as u64] {
            bytes.extend((word as u32).to_le_bytes());
        }
        bytes.extend(frame);
    }
    bench.write(into, bytes);
}

fn run(bench: &Bench, scenario: &str) -> Value {
    bench.write("a.toml", scenario);
    let finished = bench.run(["run", "a.toml", "--json"]);
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{scenario}");
    finished.report()["pipelines"][0].clone()
}

/// Delays, losses and jitter have separate random streams, so the second run starts like the second half of the first.
#[test]
fn timeline_equals_two_runs_glued_together() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 4_000);
    let all = records(&bench, "in.pcap");
    let start = all[0].0;
    let at = (all[2_000].0 - start) + 5;
    let before = all.iter().filter(|(stamp, _)| *stamp < start + at).count() as u64;
    for (stages, change, after) in [
        ("'delay 300us'", "delay = 2ms", "'delay 2ms'"),
        ("'delay 300us', 'loss 10%'", "loss = 40%", ""),
        ("'loss 10%'", "loss = off", ""),
        ("", "netem = delay 500us 100us loss 5%", "'netem delay 500us 100us loss 5%'"),
    ] {
        let timeline = format!("'at {at}ns: down.{change}'");
        let report = run(&bench, &scenario("in.pcap", "whole.pcap", stages, "", &timeline));
        assert_eq!(report["changes"][0]["took_effect_at_ns"].as_f64(), Some(at as f64), "{report}");
        assert_eq!(report["changes"][0]["by"], "timeline");
        assert_eq!(report["segments"].as_array().map(Vec::len), Some(2));
        assert_eq!(report["segments"][0]["in"]["frames"].as_u64(), Some(before));
        let whole = records(&bench, "whole.pcap");
        cut(&bench, "in.pcap", start + at, false, "first.pcap");
        cut(&bench, "in.pcap", start + at, true, "second.pcap");
        run(&bench, &scenario("first.pcap", "one.pcap", stages, "", ""));
        let mut glued = records(&bench, "one.pcap");
        if after.is_empty() && change == "loss = off" || !after.is_empty() {
            run(&bench, &scenario("second.pcap", "two.pcap", after, "", ""));
            glued.extend(records(&bench, "two.pcap"));
            glued.sort_by_key(|(stamp, _)| *stamp);
            assert!(whole == glued, "{stages} to {change}: {} and {}", whole.len(), glued.len());
        } else {
            assert!(whole.len() < glued.len() + 1_400, "{change} has an effect: {}", whole.len());
        }
    }
}

#[test]
fn segments_have_the_rates_that_were_asked() {
    let bench = Bench::new();
    bench.write(
        "rates.toml",
        "schema = 1\nduration = '3s'\ntimeline = ['at 1s: down.rate = 50Mbps', 'at 2s: down.gap = 1ms']\n[[pipeline]]\n\
         name = 'down'\nstream = 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size 1000B'\nout = 'null'\nrate = '5Mbps'\n",
    );
    let finished = bench.run(["run", "rates.toml", "--json"]);
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    let report = finished.report();
    let segments = report["pipelines"][0]["segments"].as_array().expect("segments");
    for (segment, bps) in segments.iter().zip([5e6, 50e6, 8e6]) {
        let mean = segment["rate"]["mean_bps"].as_f64().expect("a rate");
        assert!((mean / bps - 1.0).abs() < 1e-9, "{mean}");
    }
    let frames: u64 = segments.iter().filter_map(|segment| segment["out"]["frames"].as_u64()).sum();
    assert_eq!(Some(frames), report["pipelines"][0]["out"]["frames"].as_u64());
    assert!(report["pipelines"][0]["rate"]["asked"].is_null(), "no single rate was asked");
    let text = bench.run(["run", "rates.toml"]).stdout;
    assert!(text.contains("changed   down.rate = 50Mbps at 1 s by timeline"), "{text}");
    assert!(text.contains("segment   1 s to 2 s: ") && text.contains("rate 50 Mbit/s"), "{text}");
    assert_eq!(bench.run(["run", "rates.toml", "--json"]).stdout, finished.stdout, "repeatable");
}

#[test]
fn expectations_name_segments_and_set_replaces_them() {
    let bench = Bench::new();
    bench.write(
        "a.toml",
        "schema = 1\nduration = '3s'\ntimeline = ['at 1s: down.rate = 50Mbps', 'at 2s: down.loss = 50%']\n[[pipeline]]\n\
         name = 'down'\nstream = 'udp 10.0.0.1:1 > 10.0.0.2:9 size 1000B'\nrate = '10Mbps'\nout = 'null'\n\
         [[expect]]\nthat = 'down.segments.1.rate.mean_bps > 49.9Mbps'\n[[expect]]\nthat = 'down.segments.0.drops.loss == 0'\n",
    );
    let met = bench.run(["run", "a.toml", "-q"]);
    assert_eq!(met.status, Some(0), "{}", met.stderr);
    for (set, told) in [
        (
            "expect1.that=down.segments.0.rate.mean_bps > 49.9Mbps",
            "expected down.segments.0.rate.mean_bps > 49.9Mbps: it is ",
        ),
        ("expect2.that=down.segments.2.drops.loss == 0", "expected down.segments.2.drops.loss == 0: it is "),
        ("expect2.that=down.segments.3.drops.loss == 0", "this run has 3 segments"),
    ] {
        let missed = bench.run(["run", "a.toml", "-q", "--set", set]);
        assert_eq!(missed.status, Some(1), "{set}: {}", missed.stderr);
        assert!(missed.stderr.contains(told), "{set}: {}", missed.stderr);
    }
    let refused = bench.run(["run", "a.toml", "--set", "expect2.that=down.segments.1.gapp.mean < 1ms"]);
    assert!(refused.status == Some(2) && refused.stderr.contains("write down.segments.1.gap"), "{}", refused.stderr);
}

#[test]
fn timeline_is_checked_before_anything_starts() {
    let bench = Bench::new();
    bench.generate("64B", 10);
    for (timeline, told) in [
        (
            "'at 1s: down.delya = 1ms'",
            "a.toml:2:21: 'down.delya' is not a setting of this run: did you mean down.delay?",
        ),
        ("'at 1s: down.gap = 10'", "a.toml:2:32:"),
        ("'at 1s: profile weak'", "write [profile.weak]"),
    ] {
        bench.write("a.toml", scenario("in.pcap", "out.pcap", "'delay 1ms'", "gap = '10us'", timeline));
        let finished = bench.run(["run", "a.toml"]);
        assert_eq!(finished.status, Some(2));
        assert!(finished.stderr.contains(told), "{timeline}: {}", finished.stderr);
        assert!(!bench.files().contains(&"out.pcap".to_owned()));
    }
}

#[test]
fn changes_behind_the_end_are_warned_of() {
    let bench = Bench::new();
    bench.generate("64B", 10);
    bench.write("a.toml", scenario("in.pcap", "out.pcap", "", "gap = '10us'", "'at 100s: down.gap = 20us'"));
    let finished = bench.run(["run", "a.toml", "--json"]);
    assert_eq!(finished.status, Some(0));
    assert!(finished.stderr.contains("the run ended before 1 change"), "{}", finished.stderr);
    let report = finished.report();
    assert!(report["pipelines"][0]["changes"][0]["took_effect_at_ns"].is_null());
    assert!(report["pipelines"][0]["segments"].is_null());
}

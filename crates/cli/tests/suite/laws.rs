//! Gap laws and waveforms from the command line, checked against the files that the model line writes and against
//! independent arithmetic.

use crate::common::{Bench, words};
use serde_json::Value;

const STREAM: &str = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size";

fn generate(bench: &Bench, count: u32, size: &str, how: &str) -> Value {
    bench.report(words(&format!("gen --out wire:10G,frames=out.csv --count {count} --stream '{STREAM} {size}' {how}")))
}

fn gaps(bench: &Bench) -> Vec<f64> {
    bench.listed("out.csv").windows(2).map(|pair| (pair[1].start_ps - pair[0].start_ps) as f64).collect()
}

/// The largest distance between the empirical distribution of the gaps and a distribution function.
fn distance(gaps: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = gaps.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let off = |(i, gap): (usize, &f64)| (cdf(*gap) - i as f64 / n).max((i + 1) as f64 / n - cdf(*gap));
    sorted.iter().enumerate().map(off).fold(0.0, f64::max)
}

/// P(χ² ≤ x) for six degrees of freedom, in closed form.
fn chi2_of_6(x: f64) -> f64 {
    let half = x / 2.0;
    1.0 - (-half).exp() * (1.0 + half + half * half / 2.0)
}

/// The law of `chi2 df 6 in 80us..120us`. Its quantiles at 1e-4 and 1 − 1e-4 are from SciPy.
fn cut_chi2(ps: f64) -> f64 {
    let (low, high) = (0.172_352_110_035_213_4, 27.856_341_236_013_918);
    let x = low + (ps.clamp(80e6, 120e6) - 80e6) / 40e6 * (high - low);
    (chi2_of_6(x) - 1e-4) / (1.0 - 2e-4)
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report}"))
}

#[test]
fn gaps_follow_their_law_and_the_report_agrees() {
    let bench = Bench::new();
    let n: f64 = 99_999.0;
    // The Kolmogorov–Smirnov distance exceeds this once in a million tests.
    let critical = 2.69 / n.sqrt();
    let laws: [(&str, &dyn Fn(f64) -> f64); 4] = [
        ("uniform 80us..120us", &|ps| (ps - 80e6) / 40e6),
        ("chi2 df 6 in 80us..120us", &cut_chi2),
        ("exp mean 100us clip 1us..1s", &|ps| 1.0 - (-(ps - 1e6) / 100e6).exp()),
        ("pareto shape 2.5 scale 100us", &|ps| if ps < 100e6 { 0.0 } else { 1.0 - (100e6 / ps).powf(2.5) }),
    ];
    for (law, cdf) in laws {
        for (sampling, bound) in [("iid", critical), ("stratified", 1e-4)] {
            let report = generate(&bench, 100_000, "64B", &format!("--gap '{law} sampling {sampling}'"));
            let drawn = gaps(&bench);
            assert_eq!(drawn.len(), 99_999);
            let found = distance(&drawn, cdf);
            assert!(found <= bound, "{law} {sampling}: {found:e}");
            let said = number(&report, "/fit/ks_d");
            assert!((said - found).abs() < 1e-6 + bound / 100.0, "{law} {sampling}: {said} for {found}");
            assert!(number(&report, "/fit/ks_p") > 1e-5 && number(&report, "/fit/outside_ratio") < 1e-9);
            if sampling == "stratified" {
                // Most bins of a heavy tail expect less than one gap, so each holds one or none.
                let bound = if law.starts_with("pareto") { 5e-4 } else { 5e-5 };
                assert!(number(&report, "/fit/kl_nats") <= bound, "{law}: {report}");
                assert_eq!(report["fit"]["strata"], 99_999);
            }
        }
    }
}

/// Each of these laws has more gaps within one byte time of its edge than the test can resolve.
#[test]
fn a_law_that_is_steep_at_an_edge_fits_in_captures_and_at_any_byte_time() {
    let bench = Bench::new();
    let steep = "pareto shape 1.5 in 5us..100us";
    for (law, out, other) in [
        (steep, "pcap:out.pcap", "pareto shape 1.6 in 5us..100us"),
        (steep, "wire:10G,pcap=out.pcap", "pareto shape 1.6 in 5us..100us"),
        ("exp in 100us..400us", "wire:10M,pcap=out.pcap", "exp in 100us..420us"),
        ("lognormal mean 200us sd 20us", "wire:10M,pcap=out.pcap", "lognormal mean 201us sd 20us"),
        ("normal mean 200us sd 2us", "wire:10M,pcap=out.pcap", "normal mean 200us sd 2.2us"),
    ] {
        for seed in 1..=3 {
            // This pacer leaves no gap too short for a filler.
            let pacer = if out.starts_with("wire") { "--pacer launch-time" } else { "" };
            let report = bench.report(words(&format!(
                "gen --out {out} --count 50001 --seed {seed} --stream '{STREAM} 64B stamp off' --gap '{law}' {pacer}"
            )));
            if let Some(p) = report.pointer("/fit/ks_p").and_then(Value::as_f64) {
                assert!(p > 1e-3, "{law} on {out}: {report}");
            }
            let measured = |law: &str, status| {
                let measure = format!("measure --pcap out.pcap --json --expect '{law}'");
                let measured = bench.run(words(&measure));
                assert_eq!(measured.status, Some(status), "{law} on {out}: {}", measured.stderr);
                number(&measured.report()["pipelines"][0], "/fit/ks_p")
            };
            assert!(measured(law, 0) > 1e-3, "{law} on {out}");
            assert!(measured(other, 1) < 1e-6, "{law} on {out} as {other}");
        }
    }
}

#[test]
fn values_that_a_table_has_several_times_fit_as_the_others_do() {
    let bench = Bench::new();
    // Times in whole microseconds, as people write them down. After scaling, none is a whole byte time.
    let samples = "unit us\n95 96 97 97 98 98 98 99 99 99 99 100 100 100 100 100 101 102 103 105 105 107 110 120\n";
    std::fs::write(bench.path("noted.txt"), samples).expect("a table");
    for law in ["table noted.txt mean 100.0013us sd 7.7us", "table noted.txt in 80.0002us..120.0005us"] {
        for sampling in ["iid", "stratified"] {
            let report = generate(&bench, 50_000, "64B", &format!("--gap '{law} sampling {sampling}'"));
            let (distance, p) = (number(&report, "/fit/ks_d"), number(&report, "/fit/ks_p"));
            assert!(p > 1e-5, "{law} {sampling}: {report}");
            assert!(sampling == "iid" || distance < 1e-4, "{law}: {distance}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_gaps_and_another_one_others() {
    let bench = Bench::new();
    let run = |seed: u32| {
        generate(&bench, 1_000, "64B", &format!("--gap 'normal mean 10us sd 1us' --seed {seed}"));
        bench.read("out.csv")
    };
    let first = run(1);
    assert!(run(1) == first && run(2) != first);
}

#[test]
fn strata_span_a_whole_capture() {
    let bench = Bench::new();
    bench.generate("64B", 20_001);
    let how = "--gap 'chi2 df 6 in 80us..120us sampling stratified'";
    let report = bench.report(words(&format!("shape --in pcap:in.pcap --out wire:10G,frames=out.csv {how}")));
    assert_eq!(report["fit"]["strata"], 20_000);
    assert!(distance(&gaps(&bench), cut_chi2) <= 2e-4);
    // One stratum per gap, over all repetitions of the capture.
    bench.generate("64B", 101);
    let report = bench.report(words(&format!("gen --pcap in.pcap --loop 30 --out wire:10G,frames=out.csv {how}")));
    assert_eq!(report["fit"]["strata"], 30 * 101 - 1);
    assert!(distance(&gaps(&bench), cut_chi2) <= 1e-3);
}

#[test]
fn idle_gaps_run_from_the_end_of_a_frame() {
    let bench = Bench::new();
    for (gap, exact) in [("fixed 10us idle", true), ("uniform 8us..12us idle", false)] {
        let report = generate(&bench, 2_000, "random 64B-1518B", &format!("--gap '{gap}'"));
        for pair in bench.listed("out.csv").windows(2) {
            // A byte lasts 800 ps. Each frame has 8 bytes of preamble.
            let end = pair[0].start_ps + (pair[0].length + 8) * 800;
            let idle = pair[1].start_ps - end;
            assert!(if exact { idle == 10_000_000 } else { (7_999_200..=12_000_800).contains(&idle) }, "{gap}: {idle}");
        }
        if !exact {
            assert!(number(&report, "/fit/ks_p") > 1e-4, "{report}");
        }
    }
}

#[test]
fn measure_distinguishes_laws() {
    let bench = Bench::new();
    bench.report(words(&format!(
        "gen --out pcap:in.pcap --count 20000 --stream '{STREAM} 64B' --gap 'chi2 df 6 in 80us..120us'"
    )));
    let expect = |law: &str| bench.run(["measure", "--pcap", "in.pcap", "--expect", law, "--json"]);
    let kept = expect("chi2 df 6 in 80us..120us");
    assert_eq!((kept.status, kept.stderr.as_str()), (Some(0), ""));
    for other in ["chi2 df 7 in 80us..120us", "chi2 df 6 in 80us..121us", "uniform 80us..120us", "exp mean 88us"] {
        let missed = expect(other);
        assert_eq!(missed.status, Some(1), "{other}");
        assert!(missed.stderr.contains(&format!("expected {other}: ")), "{}", missed.stderr);
        assert!(number(&missed.report()["pipelines"][0], "/fit/ks_p") < 1e-4);
    }
    for (wrong, said) in
        [("exp mean 10us idle", "idle"), ("burst 1Gbps for 1ms every 2ms", "burst"), ("exp", "law lies")]
    {
        let refused = expect(wrong);
        assert!(refused.status == Some(2) && refused.stderr.contains(said), "{wrong}: {}", refused.stderr);
    }
}

#[test]
fn tables_give_their_law() {
    let bench = Bench::new();
    // Two equally likely intervals: 10 to 20 µs and 20 to 100 µs.
    bench.write("gaps.txt", "# gaps\nunit us\n10\n20\n100\n");
    let cdf = |ps: f64| if ps < 20e6 { (ps - 10e6) / 20e6 } else { 0.5 + (ps - 20e6) / 160e6 };
    generate(&bench, 50_000, "64B", "--gap 'table gaps.txt sampling stratified'");
    assert!(distance(&gaps(&bench), cdf) <= 1e-4);
    // The gaps of a capture can serve as samples too.
    bench.generate("64B", 10);
    let copied = bench.run(words("shape --in pcap:in.pcap --out pcap:slow.pcap --gap 'uniform 1us..9us'"));
    assert_eq!(copied.status, Some(0), "{}", copied.stderr);
    let times: Vec<u64> = bench.records("slow.pcap").iter().map(|record| record.ns * 1_000).collect();
    let mut steps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable();
    generate(&bench, 20_000, "64B", "--gap 'table pcap:slow.pcap sampling stratified'");
    let at = |ps: f64| {
        let upto = steps.partition_point(|step| *step as f64 <= ps);
        let Some(next) = steps.get(upto) else { return 1.0 };
        let Some(before) = upto.checked_sub(1).map(|i| steps[i]) else { return 0.0 };
        ((upto - 1) as f64 + (ps - before as f64) / (next - before) as f64) / 8.0
    };
    assert!(distance(&gaps(&bench), at) <= 2e-3);

    bench.write("bad.txt", "10us\n20\n");
    bench.write("empty.txt", "\n");
    bench.write("t.toml", "schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\ngap = 'table bad.txt'\n");
    for (line, said) in [
        ("shape --in pcap:in.pcap --out null --gap 'table bad.txt'", "bad.txt:2: '20'"),
        ("shape --in pcap:in.pcap --out null --gap 'table empty.txt'", "empty.txt has 0 values"),
        ("shape --in pcap:in.pcap --out null --gap 'table nowhere.txt'", "nowhere.txt"),
        ("shape --in pcap:in.pcap --out null --rate 'steps bad.txt'", "bad.txt:1:"),
        ("check t.toml", "bad.txt:2: '20'"),
    ] {
        let refused = bench.run(words(line));
        assert_eq!((refused.status, refused.stderr.lines().count()), (Some(2), 1), "{line}: {}", refused.stderr);
        assert!(refused.stderr.contains(said), "{line}: {}", refused.stderr);
    }
}

/// Bits asked up to `t` seconds by (length in s, Gbit/s at start, at end).
fn integral(pieces: &[(f64, f64, f64)], repeats: bool, t: f64) -> f64 {
    let period: f64 = pieces.iter().map(|piece| piece.0).sum();
    let all: f64 = pieces.iter().map(|(s, a, b)| s * (a + b) / 2.0).sum();
    let rounds = if repeats { (t / period).floor() } else { 0.0 };
    let (mut rest, mut sum) = (t - rounds * period, rounds * all);
    for (s, a, b) in pieces {
        let part = rest.clamp(0.0, *s);
        sum += part * (a + (a + (b - a) * part / s)) / 2.0;
        rest -= part;
    }
    (sum + if repeats { 0.0 } else { rest.max(0.0) * pieces.last().expect("a piece").2 }) * 1e9
}

#[test]
fn the_integral_of_a_waveform_is_followed_within_a_frame() {
    let bench = Bench::new();
    bench.write("rates.txt", "0s 1Gbps\n20ms 4Gbps\n40ms 0\n50ms 2.5Gbps\n");
    let bursts = [(2e-3, 8.0, 8.0), (8e-3, 0.0, 0.0), (1e-3, 4.0, 4.0), (4e-3, 0.0, 0.0)];
    let steps = [(20e-3, 1.0, 1.0), (20e-3, 4.0, 4.0), (10e-3, 0.0, 0.0), (1e-12, 2.5, 2.5)];
    let again = [(20e-3, 1.0, 1.0), (20e-3, 4.0, 4.0), (10e-3, 0.0, 0.0), (10e-3, 2.5, 2.5)];
    for (wave, pieces, repeats) in [
        ("burst 8Gbps for 2ms every 10ms", &bursts[..2], true),
        ("burst 8Gbps for 2ms every 10ms + burst 4Gbps for 1ms every 5ms", &bursts[..], true),
        ("ramp 1Gbps..9Gbps over 50ms", &[(50e-3, 1.0, 9.0)][..], false),
        ("ramp 9Gbps..1Gbps over 10ms repeat", &[(10e-3, 9.0, 1.0)], true),
        ("steps rates.txt", &steps, false),
        ("steps rates.txt every 60ms", &again, true),
    ] {
        generate(&bench, 60_000, "random 64B-1518B", &format!("--rate '{wave}'"));
        let mut sent = 0.0;
        for frame in bench.listed("out.csv") {
            let asked = integral(pieces, repeats, frame.start_ps as f64 / 1e12);
            // Check just before and just after each departure, which covers every instant.
            let off = (sent - asked).max(asked - sent);
            assert!(off <= 1_518.0 * 8.0, "{wave}: {off} bits off at {} ps", frame.start_ps);
            sent += frame.length as f64 * 8.0;
        }
    }
}

#[test]
fn rates_asked_stand_beside_those_got_in_frames_and_bits() {
    let bench = Bench::new();
    let gen_line = format!("gen --out wire:100G,frames=out.csv --count 20000 --stream '{STREAM} 500B'");
    for (rate, unit, value, said) in [
        ("1Mpps", "fps", 1e6, "asked     1Mpps, got 1.000000 Mpps and 4 Gbit/s"),
        ("4Gbps", "bps", 4e9, "asked     4Gbps, got 4 Gbit/s and 1 Mpps"),
        ("5.2Gbps wire", "bps", 5.2e9, "got 5.2 Gbit/s wire and 1.25 Mpps"),
        ("20%", "line_ratio", 0.2, "got 20.0000 % of the line and 4.807692 Mpps"),
    ] {
        let line = format!("{gen_line} --rate '{rate}'");
        let report = bench.report(words(&line));
        let asked = &report["rate"]["asked"];
        assert!((number(asked, &format!("/{unit}")) - value).abs() < 1e-6 && asked["text"] == rate, "{report}");
        let fps = number(&report, "/rate/mean_fps");
        assert!((fps * 4_000.0 - number(&report, "/rate/mean_bps")).abs() < 1.0, "{report}");
        let text = bench.run(words(&line)).stdout;
        assert!(text.contains(said), "{text}");
    }
    let text = bench.run(words(&format!("{gen_line} --gap 1us --duration 10ms"))).stdout;
    assert!(text.contains("held      1 frame when the run ended: received, and due to leave after the end"), "{text}");
}

#[test]
fn each_step_and_burst_has_its_rate_asked_and_got() {
    let bench = Bench::new();
    bench.write("rates.txt", "0s 1Gbps\n10ms 0\n20ms 2Gbps\n30ms 500Mbps\n");
    let line = format!("gen --out wire:10G --duration 50ms --stream '{STREAM} 1000B'");
    let report = bench.report(words(&format!("{line} --rate 'steps rates.txt'")));
    let steps = report["rate"]["steps"].as_array().expect("steps");
    let asked: Vec<&str> = steps.iter().map(|step| step["asked"].as_str().expect("a rate")).collect();
    assert_eq!(asked, ["1Gbps", "2Gbps", "500Mbps"]);
    for (step, (bps, frames)) in steps.iter().zip([(1e9, 1_250), (2e9, 2_500), (5e8, 1_250)]) {
        assert!((number(step, "/mean_bps") / bps - 1.0).abs() < 2e-3, "{step}");
        assert!((number(step, "/mean_fps") * 8_000.0 / bps - 1.0).abs() < 2e-3, "{step}");
        assert!((number(step, "/frames") - f64::from(frames)).abs() <= 2.0, "{step}");
    }
    let burst = format!("{line} --rate 'burst 2Gbps for 1ms every 10ms'");
    let report = bench.report(words(&burst));
    let step = &report["rate"]["steps"][0];
    assert_eq!((report["rate"]["steps"].as_array().map(Vec::len), &step["times"]), (Some(1), &4.into()), "{report}");
    for figure in ["/mean_bps", "/min_bps", "/max_bps"] {
        assert!((number(step, figure) / 2e9 - 1.0).abs() < 5e-3, "{step}");
    }
    let text = bench.run(words(&burst)).stdout;
    assert!(
        text.contains("step 1    asked 2Gbps for 1 ms, got 2 Gbit/s and 250 kpps, 2 Gbit/s to 2 Gbit/s in 4 times"),
        "{text}"
    );
    // If the source is too slow, every burst shows it.
    bench.report(words(&format!("gen --out pcap:in.pcap --count 5000 --gap 80us --stream '{STREAM} 1000B'")));
    let late = bench.report(words(
        "shape --in pcap:in.pcap --out null --class 'all = udp' --rate 'all=burst 2Gbps for 1ms every 10ms'",
    ));
    let step = &late["classes"][0]["rate"]["steps"][0];
    assert!(step["asked"] == "2Gbps" && number(step, "/max_bps") < 1.6e9, "{late}");
}

#[test]
fn reports_a_waveform_that_ends_or_starves() {
    let bench = Bench::new();
    // Each burst of 1 ms at 1 Gbit/s holds 125 frames of 1 000 B.
    let report = generate(&bench, 1_000, "1000B", "--rate 'burst 1Gbps for 1ms every 10ms count 2'");
    assert_eq!((&report["out"]["frames"], &report["held"]), (&250.into(), &1.into()));
    bench.report(words(&format!("gen --out pcap:in.pcap --count 1000 --stream '{STREAM} 1000B' --gap 16us")));
    let run = bench.run(words("shape --in pcap:in.pcap --out wire:10G --rate 'ramp 1Gbps..1Gbps over 1s' --json"));
    let share = number(&run.report()["pipelines"][0], "/forfeited_ratio");
    // The input carries half of 1 Gbit/s.
    assert!((share - 0.5).abs() < 0.01, "{share}");
    assert!(run.stderr.contains("of the waveform was lost"), "{}", run.stderr);
}

#[test]
fn files_that_numpy_and_r_write_are_tables_as_they_are() {
    let bench = Bench::new();
    // 10, 20 and 100 µs, each off by less than half a picosecond.
    for (name, text) in [
        ("list", "10us 20us 100us\n"),
        ("numpy", "# unit us\n1.000000004000000000e+01\n1.999999960000000000e+01\n1.000000000000000000e+02\n"),
        ("seconds", "unit s\n1e-05\n2.00000004e-5\n0.0001\n"),
        ("r", "unit us\n\"x\"\n\"1\" 10.0000004\n\"2\" 20\n\"3\" 100\n"),
        ("r.csv", "unit us\n\"\",\"x\"\n\"1\",10\n\"2\",20\n\"3\",99.9999996\n"),
        ("pandas.csv", "unit ms\n,gap\n0,0.010000000000000001\n1,0.019999999999999998\n2,0.1\n"),
    ] {
        bench.write(name, text);
        generate(&bench, 1_000, "64B", &format!("--gap 'table {name} sampling stratified'"));
        let all = gaps(&bench);
        bench.write("first", "10us 20us 100us\n");
        generate(&bench, 1_000, "64B", "--gap 'table first sampling stratified'");
        assert_eq!(all, gaps(&bench), "{name}");
    }
    bench.write("two.csv", "unit us\nt,gap\n1,10\n2,20\n");
    let refused = bench.run(words("gen --out null --count 5 --stream eth --gap 'table two.csv'"));
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("two.csv:2: 2 columns, of which one can be used: keep one"), "{}", refused.stderr);
    // A waveform and a trace, measured.
    let out = |how: &str| {
        let stream = "--count 40 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1000B'";
        bench.report(words(&format!("gen --out pcap:out.pcap {stream} {how}")));
        bench.records("out.pcap").iter().map(|record| record.ns).collect::<Vec<_>>()
    };
    bench.write("exact.txt", "0s 1Mbps\n50ms 8Mbps\n");
    bench.write("measured.txt", "0s 1.0000000000000002e0Mbps\n49.9999999999999998ms 7.9999999999999996Mbps\n");
    assert_eq!(out("--rate 'steps exact.txt'"), out("--rate 'steps measured.txt'"));
    bench.write("exact.trace", "1\n3\n10\n");
    bench.write(
        "measured.trace",
        "# ms\n1.000000000000000000e+00\n3.000000000000000000e+00\n1.000000000000000000e+01\n",
    );
    assert_eq!(out("--rate 'trace exact.trace'"), out("--rate 'trace measured.trace'"));
    bench.write("fine.trace", "0.5\n3.25\n10\n");
    assert_ne!(out("--rate 'trace fine.trace'"), out("--rate 'trace exact.trace'"));
}

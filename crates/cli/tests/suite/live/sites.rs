//! Labs of sites: each pair has the round trip, loss and rate of its cell in the table. Prints `SKIP: why` if the
//! machine permits no labs that outlive their command.

use crate::bed::{Turn, lab_name, netlathe};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// Round trips of five sites in milliseconds. Lima to Rome is given for one direction.
const FIVE: &str = "# an example\nrtt ms,Oslo,New York,rome,tokyo,lima\nOslo,,100,30,240.5,200\nNew York,100,,90,160,60\n\
                    rome,30,90,,220,190\ntokyo,240.5,160,220,,0.15s\nlima,200,60,,150,\n";

/// A lab of sites, removed at the end of the test.
struct Sites {
    name: String,
    folder: TempDir,
    /// The output of `lab up`.
    said: String,
    _turn: Turn,
}

impl Sites {
    /// Builds the lab. Returns `None` if labs are not permitted.
    fn up(test: &str, table: &str, options: &[&str]) -> Option<Sites> {
        let turn = Turn::alone();
        if !(rustix::process::geteuid().is_root() && lab::privileged()) {
            println!("SKIP: labs that stay need root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let matrix = folder.path().join("rtt.csv");
        fs::write(&matrix, table).expect("it is ours");
        let mut sites = Sites { name: lab_name(test), folder, said: String::new(), _turn: turn };
        let started =
            sites.netlathe(&[&["lab", "up", &sites.name, "--matrix", &matrix.to_string_lossy()], options].concat());
        // With `--check`, status 1 means that a round trip is off, which happens on a busy machine.
        let is_up = started.status.success() || options.contains(&"--check") && started.status.code() == Some(1);
        assert!(is_up, "{}", String::from_utf8_lossy(&started.stderr));
        sites.said = text(&started);
        Some(sites)
    }

    fn netlathe(&self, line: &[&str]) -> Output {
        Command::new(netlathe()).args(line).current_dir(self.folder.path()).output().expect("it runs")
    }

    fn at(&self, site: &str, line: &[&str]) -> Output {
        self.netlathe(&[&["lab", "exec", &self.name, site, "--"], line].concat())
    }

    fn check(&self, more: &[&str]) -> Value {
        let output = self.netlathe(&[&["lab", "check", &self.name, "--json"], more].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        let _gone = lab::down(&self.name);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The error of each pair's median, in milliseconds.
fn errors(report: &Value) -> Vec<(String, f64)> {
    let pairs = report["pairs"].as_array().expect("pairs");
    let named =
        |pair: &Value| format!("{} {}", pair["from"].as_str().expect("a name"), pair["to"].as_str().expect("a name"));
    pairs.iter().map(|pair| (named(pair), pair["error_ns"].as_f64().expect("answers") / 1e6)).collect()
}

/// The median round trip by the machine's own `ping`, in milliseconds. `None` if it is not installed.
fn ping(sites: &Sites, from: &str, to: &str, more: &[&str]) -> Option<f64> {
    lab::which("ping")?;
    let output = sites.at(from, &[&["ping", "-4", "-c", "7", "-i", "0.2"], more, &[to]].concat());
    let said = text(&output);
    let times = said.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    assert!(times.len() >= 5, "{output:?}");
    Some(times[times.len() / 2])
}

/// Whether a file or folder of this lab is left.
fn is_left(folder: &str, name: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|entry| entry.contains(name))
}

#[test]
fn each_pair_has_the_round_trip_of_its_cell_and_nothing_is_left() {
    let Some(sites) = Sites::up("rtt", FIVE, &[]) else { return };
    assert!(sites.said.contains("10.77.1.2      new-york") && sites.said.contains("is up"), "{}", sites.said);
    let report = sites.check(&["--pings", "7", "--tolerance", "2ms"]);
    let errors = errors(&report);
    assert_eq!((errors.len(), &report["pairs_within"]), (20, &20.into()), "{report}");
    // The hosts add a few microseconds, so no round trip is shorter than asked.
    assert!(errors.iter().all(|(_, error)| (0.0..2.0).contains(error)), "{errors:?}");
    let asked = |from: &str, to: &str| {
        let pairs = report["pairs"].as_array().expect("pairs");
        let pair = pairs.iter().find(|pair| pair["from"] == from && pair["to"] == to).expect("the pair");
        pair["asked_ns"].as_f64().expect("a time") / 1e6
    };
    for (from, to, ms) in
        [("oslo", "tokyo", 240.5), ("lima", "rome", 190.0), ("rome", "lima", 190.0), ("tokyo", "lima", 150.0)]
    {
        assert!((asked(from, to) - ms).abs() < 1e-6, "{from} {to}");
    }
    for (from, to, ms) in [("Oslo", "new-york", 100.0), ("site3", "10.77.1.1", 30.0), ("tokyo", "lima", 150.0)] {
        match ping(&sites, from, to, &[]) {
            Some(got) => assert!((ms..ms + 2.0).contains(&got), "{from} to {to}: {got} ms, not {ms} ms"),
            None => println!("SKIP: there is no ping"),
        }
    }
    let listed = text(&sites.netlathe(&["lab", "list", "--json"]));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let ours =
        listed.as_array().expect("labs").iter().find(|lab| lab["name"] == sites.name.as_str()).expect("it is up");
    assert_eq!((&ours["state"], &ours["forwarder"]["running"]), (&"up".into(), &true.into()));
    assert!(ours["nodes"].as_array().expect("nodes").iter().any(|node| node["site"] == "new-york"), "{ours}");
    let down = sites.netlathe(&["lab", "down", &sites.name]);
    assert!(down.status.success() && down.stderr.is_empty(), "{down:?}");
    for folder in ["/run/netns", "/etc/netns", "/run/netlathe/labs"] {
        assert!(!is_left(folder, &sites.name), "{folder}");
    }
}

#[test]
fn losses_and_rates_are_those_of_the_direction() {
    let one_way = "one-way ms,a,b,c\na,,20,5\nb,10,,5\nc,5,5,\n";
    let loss = "loss,a,b,c\na,,0%,30%\nb,0%,,0%\nc,0%,0%,\n";
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("loss.csv");
    fs::write(&table, loss).expect("it is ours");
    let Some(sites) = Sites::up("loss", one_way, &["--loss", &table.to_string_lossy(), "--rate", "1Mbps"]) else {
        return;
    };
    let report = sites.check(&["--pings", "150", "--tolerance", "2ms"]);
    let pairs = report["pairs"].as_array().expect("pairs");
    let answered = |from: &str, to: &str| {
        let pair = pairs.iter().find(|pair| pair["from"] == from && pair["to"] == to).expect("the pair");
        pair["received"].as_f64().expect("a count") / pair["sent"].as_f64().expect("a count")
    };
    // Four standard deviations of 150 pings are 15 %.
    for (from, to) in [("a", "c"), ("c", "a")] {
        assert!((0.55..0.85).contains(&answered(from, to)), "{from} {to}: {}", answered(from, to));
    }
    for (from, to) in [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")] {
        assert!(answered(from, to) > 0.97, "{from} {to}: {}", answered(from, to));
    }
    // 98 B at 1 Mbit/s take 0.784 ms, each way.
    let asked = pairs[0]["asked_ns"].as_f64().expect("a time");
    assert!((asked - 31_568_000.0).abs() < 1.0, "{asked}");
    assert!(errors(&report).iter().all(|(_, error)| (0.0..2.0).contains(error)), "{report}");
    // 1442 B take 11.536 ms.
    if let Some(got) = ping(&sites, "a", "b", &["-s", "1400"]) {
        assert!((53.0..56.0).contains(&got), "{got} ms");
    }
}

#[test]
fn programs_of_each_site_run_until_the_lab_is_taken_down() {
    let mark = |path: &Path| format!("echo $NETLATHE_SITE $NETLATHE_ADDRESS >> {}; exec sleep 300", path.display());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("marks");
    let Some(sites) = Sites::up("each", FIVE, &["--each", &mark(&file)]) else { return };
    let start = Instant::now();
    let marks = loop {
        let marks = fs::read_to_string(&file).unwrap_or_default();
        if marks.lines().count() == 5 || start.elapsed() > PATIENCE {
            break marks;
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(marks.lines().count(), 5, "{marks}");
    assert!(marks.contains("new-york 10.77.1.2\n") && marks.contains("lima 10.77.1.5\n"), "{marks}");
    assert_eq!(sites.at("rome", &["sh", "-c", "exit 7"]).status.code(), Some(7));
    let wrong = sites.at("paris", &["true"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && said.contains("it has oslo, new-york, rome"), "{said}");
    let down = sites.netlathe(&["lab", "down", &sites.name]);
    let said = String::from_utf8_lossy(&down.stderr).into_owned();
    assert_eq!(said.matches("ended sleep").count(), 5, "{said}");
}

#[test]
fn a_lab_reports_a_killed_forwarder_and_can_be_taken_down() {
    let Some(sites) = Sites::up("killed", "ms,a,b\na,,10\nb,10,\n", &["--check"]) else { return };
    assert!(sites.said.contains("of 2 round trips are within 200 µs"), "{}", sites.said);
    let listed: Value = serde_json::from_str(&text(&sites.netlathe(&["lab", "list", "--json"]))).expect("JSON");
    let ours =
        listed.as_array().expect("labs").iter().find(|lab| lab["name"] == sites.name.as_str()).expect("it is up");
    let forwarder = i32::try_from(ours["forwarder"]["pid"].as_i64().expect("a process")).expect("a process");
    let forwarder = rustix::process::Pid::from_raw(forwarder).expect("a process");
    rustix::process::kill_process(forwarder, rustix::process::Signal::KILL).expect("it runs");
    let forwarder = forwarder.as_raw_nonzero();
    let start = Instant::now();
    let refused = loop {
        let output = sites.netlathe(&["lab", "check", &sites.name]);
        if output.status.code() == Some(2) || start.elapsed() > PATIENCE {
            break output;
        }
    };
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("has no forwarder any more") && said.lines().count() == 1, "{said}");
    let listed = text(&sites.netlathe(&["lab", "list"]));
    assert!(listed.contains(&format!("the forwarder, process {forwarder}, has ended")), "{listed}");
    assert!(sites.netlathe(&["lab", "down", &sites.name]).status.success());
    assert!(!is_left("/run/netlathe/labs", &sites.name) && !is_left("/etc/netns", &sites.name));
}

#[test]
fn tables_with_mistakes_build_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = lab_name("wrong");
    for (table, more, why) in [
        ("ms,a,b\na,,12x\nb,1,\n", &[][..], "rtt.csv: line 2, column 3 (a to b): "),
        (",a,b\na,,12\nb,1ms,\n", &[], "rtt.csv: line 2, column 3 (a to b): '12'"),
        ("ms,a,b\na,,1\n", &[], "rtt.csv: 'b' has no line"),
        ("ms,a,b\na,,1\nb,1,\n", &["--loss", "5"], "--loss: "),
        ("ms,a,b\na,,1\nb,1,\n", &["--rate", "nowhere.csv"], "--rate: "),
        ("ms,a,b\na,,1\nb,1,\n", &["--clients", "2"], "--clients"),
    ] {
        fs::write(folder.path().join("rtt.csv"), table).expect("it is ours");
        let line = [&["lab", "up", &name, "--matrix", "rtt.csv"], more].concat();
        let output = Command::new(netlathe()).args(line).current_dir(folder.path()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{table:?} {more:?}: {said}");
        assert!(!is_left("/run/netns", &name) && !is_left("/run/netlathe/labs", &name));
    }
}

#[test]
fn shipped_tables_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut read = 0;
    for entry in fs::read_dir(folder).expect("there is a folder").flatten() {
        let path = entry.path();
        let named = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if named.starts_with("sites-") {
            let text = fs::read_to_string(&path).expect("a text");
            let sites = scenario::Sites::read(scenario::Named { name: &named, text: &text }, None, None).expect(&named);
            assert!(sites.names.len() >= 10 && text.starts_with('#'), "{named} names its source");
            read += 1;
        }
    }
    assert!(read >= 3);
}

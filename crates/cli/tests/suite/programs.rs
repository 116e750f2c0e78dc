//! Programs of a scenario: when they start, how they end, and what is kept of their output. None of these tests needs
//! privileges.

use crate::common::{Bench, Finished, words};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a scenario that consists of these tables.
fn run(bench: &Bench, tables: &str, options: &str) -> Finished {
    fs::write(bench.path("a.toml"), format!("schema = 1\n{tables}")).expect("a scenario");
    bench.run(words(&format!("run a.toml --json {options}")))
}

fn program(name: &str, command: &str, more: &str) -> String {
    format!("[[program]]\nname = '{name}'\ncommand = '''{command}'''\n{more}\n")
}

/// Whether a process with these arguments runs.
fn runs(arguments: &[&str]) -> bool {
    let wanted: Vec<u8> = arguments.iter().flat_map(|word| word.bytes().chain([0])).collect();
    let listed = fs::read_dir("/proc").expect("it is mounted").flatten();
    listed.into_iter().any(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|words| words == wanted))
}

fn await_that(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn programs_start_in_their_order_and_their_figures_can_be_expected() {
    let bench = Bench::new();
    let tables = [
        "until = 'client'\n".to_owned(),
        program("server", "sleep 0.2; echo now up; touch up; exec sleep 60", "ready = 'line now up'"),
        program(
            "client",
            r#"test -e up && echo '{"end": {"a.b": [1, 2.5e3]}}'"#,
            "after = 'server ready'\nstart = '100ms'",
        ),
        program("late", "touch late", "after = 'client end'\nstart = '60s'"),
        "[[pipeline]]\nname = 'up'\nstream = 'udp 10.0.0.1:1 > 10.0.0.2:9'\ncount = 10\nout = 'null'\n".to_owned(),
        "[[expect]]\nthat = 'client.json./end/a.b/1 > 2499.5'\n".to_owned(),
        "[[expect]]\nthat = 'client.start >= 300ms'\n".to_owned(),
        "[[expect]]\nthat = 'server.ready >= 200ms'\n".to_owned(),
        "[[expect]]\nthat = 'up.out.frames == 10'\n".to_owned(),
    ];
    let finished = run(&bench, &tables.concat(), "");
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report = finished.report();
    let [server, client, late] = [0, 1, 2].map(|number| &report["programs"][number]);
    assert_eq!((&client["end"], &client["status"]), (&json!("by-itself"), &json!(0)));
    assert_eq!((&server["end"], &server["status"]), (&json!("with-the-run"), &Value::Null));
    assert_eq!((&late["end"], bench.path("late").exists()), (&json!("not-started"), false));
    assert_eq!(server["stdout"], "now up\n");
    let that: Vec<&str> = report["expectations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|expectation| expectation["that"].as_str().expect("text"))
        .collect();
    assert_eq!(that.last(), Some(&"client.status == 0"), "a status that is not expected otherwise must be 0: {that:?}");
}

#[test]
fn missed_expectations_of_programs_say_what_was_obtained() {
    let bench = Bench::new();
    for (command, more, that, told) in [
        ("echo it broke >&2; exit 3", "", "", "expected one.status == 0: it is 3: it broke"),
        ("exit 3", "status = 4", "", "expected one.status == 4: it is 3"),
        ("kill -9 $$", "", "", "expected one.status == 0: it is 137"),
        ("exit 3", "status = 'any'", "one.status < 3", "expected one.status < 3: it is 3"),
        ("echo text", "", "one.json./a > 1", "expected one.json./a > 1: its output is not JSON"),
        ("echo '{}'", "", "one.json./a > 1", "expected one.json./a > 1: its output has no /a"),
        ("echo '{\"a\": \"b\"}'", "", "one.json./a > 1", "expected one.json./a > 1: it is \"b\", which is no number"),
        ("sleep 60", "status = 0", "one.duration > 60s", "expected one.status == 0: it was still running"),
        ("true", "start = '60s'\nstatus = 0", "", "expected one.status == 0: it did not start before the run ended"),
    ] {
        let expect = if that.is_empty() { String::new() } else { format!("[[expect]]\nthat = '{that}'\n") };
        let tables = format!("duration = '300ms'\n{}{expect}", program("one", command, more));
        let finished = run(&bench, &tables, "--junit r.xml");
        assert_eq!(finished.status, Some(1), "{command}: {}", finished.stderr);
        assert!(finished.stderr.contains(told), "{command}: {}", finished.stderr);
        assert!(fs::read_to_string(bench.path("r.xml")).expect("results").contains("<failure "), "{command}");
    }
    let tables = program("one", "exit 3", "status = 3") + &program("two", "exit 5", "status = 'any'");
    assert_eq!(run(&bench, &tables, "").status, Some(0));
}

#[test]
fn a_program_that_does_not_become_ready_ends_the_run() {
    let bench = Bench::new();
    for (command, ready, told) in [
        ("sleep 60", "file there", "was not ready within 300ms: there is no there"),
        ("sleep 60", "tcp 1", "was not ready within 300ms: nothing listens on TCP port 1"),
        ("echo half; sleep 60", "line whole", "was not ready within 300ms: it did not print 'whole'"),
        ("echo no device >&2; exit 1", "file there", "ended before it was ready (file there): no device"),
    ] {
        let tables = program("one", command, &format!("ready = '{ready}'\nready-within = '300ms'"))
            + &program("two", "touch started", "after = 'one ready'");
        let finished = run(&bench, &tables, "--junit r.xml");
        assert_eq!(finished.status, Some(2), "{command}: {}", finished.stderr);
        assert!(finished.stderr.contains(told), "{command}: {}", finished.stderr);
        assert!(!bench.path("started").exists(), "{command}");
        assert_eq!(finished.report()["programs"][1]["end"], "not-started");
        assert!(fs::read_to_string(bench.path("r.xml")).expect("results").contains("<error "), "{command}");
    }
    let missing = run(&bench, &program("one", "true", "").replace("'''true'''", "['no-such-program']"), "");
    assert!(
        missing.status == Some(2) && missing.stderr.contains("there is no program 'no-such-program'"),
        "{missing:?}"
    );
}

#[test]
fn programs_end_with_the_run_with_all_that_they_started() {
    let bench = Bench::new();
    let nap = format!("{}7", std::process::id());
    let naps = [format!("{nap}1"), format!("{nap}2")];
    let naps = naps.each_ref().map(|nap| ["sleep", nap.as_str()]);
    // One program ignores SIGTERM, another is in its own session.
    let stubborn = format!("trap '' TERM; sleep {nap}1 & setsid sleep {nap}2 & touch here; wait");
    let tables = "until = 'last'\n".to_owned()
        + &program("stubborn", &stubborn, "ready = 'file here'")
        + &program("last", "sleep 0.1", "after = 'stubborn ready'");
    let start = Instant::now();
    let finished = run(&bench, &tables, "");
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(start.elapsed() < PATIENCE, "it took {:?}", start.elapsed());
    await_that("a grandchild lives on", || !naps.iter().any(|nap| runs(nap)));

    fs::remove_file(bench.path("here")).expect("it was made");
    let mut command = bench.command(words("run a.toml --json --set 'last.command=sleep 60'"));
    let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    await_that("no program was started", || naps.iter().all(|nap| runs(nap)));
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    await_that("a grandchild lives on after a kill", || !naps.iter().any(|nap| runs(nap)));
}

#[test]
fn a_signal_ends_the_programs_and_gives_the_report() {
    let bench = Bench::new();
    let tables = program("one", "echo begun; exec sleep 60", "ready = 'file never'\nready-within = '50s'");
    fs::write(bench.path("a.toml"), format!("schema = 1\n{tables}")).expect("a scenario");
    let mut command = bench.command(words("run a.toml --json --report out"));
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    thread::sleep(Duration::from_millis(500));
    let id = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("it runs").success());
    let finished = Finished::of(running.wait_with_output().expect("it ends"));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert_eq!(finished.report()["programs"][0]["end"], "with-the-run");
    assert_eq!(fs::read_to_string(bench.path("out/one.stdout")).expect("the output is kept"), "begun\n");
}

#[test]
fn long_outputs_are_counted_and_kept_in_part() {
    let bench = Bench::new();
    let finished = run(&bench, &program("one", "head -c 3000000 /dev/zero | tr '\\0' x; echo end", ""), "--report out");
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let one = finished.report()["programs"][0].clone();
    assert_eq!(one["stdout_bytes"], 3_000_004);
    assert_eq!(one["stdout"].as_str().map(str::len), Some(16 << 10));
    assert_eq!(fs::metadata(bench.path("out/one.stdout")).expect("it is kept").len(), 1 << 20);
}

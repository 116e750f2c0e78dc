//! Progress lines: shown on a terminal, silent elsewhere, erased at the end.

use crate::common::{Bench, words};
use std::process::Command;

const STREAM: &str = "--stream \"udp 10.0.0.1:1 > 10.0.0.2:2\"";

/// Returns what a command shows on a terminal, or `None` without `script`, which provides the terminal.
fn on_terminal(bench: &Bench, line: &str) -> Option<String> {
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_netlathe"));
    let output = Command::new("script").args(["-qec", &line, "/dev/null"]).current_dir(bench.path("")).output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(cause) => {
            println!("SKIP: no terminal can be had, script does not run: {cause}");
            None
        }
    }
}

/// What remains on the screen: the part of each line after its last erasure.
fn left(shown: &str) -> Vec<&str> {
    let lines = shown.lines().map(|line| line.rsplit("\x1b[2K").next().unwrap_or_default());
    lines.map(|line| line.trim_matches('\r')).filter(|line| !line.is_empty()).collect()
}

#[test]
fn a_terminal_shows_how_far_a_run_is_and_is_clean_after() {
    let bench = Bench::new();
    let gen_null = format!("gen --out null --count 100000 {STREAM}");
    let Some(shown) = on_terminal(&bench, &gen_null) else { return };
    assert!(shown.contains("gen  ") && shown.contains(" of virtual time"), "{shown:?}");
    assert!(left(&shown)[0] == "gen" && left(&shown)[1].starts_with("  in  "), "{shown:?}");
    let bare = on_terminal(&bench, &format!("{gen_null} -q --progress never")).expect("it ran before");
    assert_eq!(bare, "");
    let scenario = ["one", "two"].map(|name| {
        format!(
            "[[pipeline]]\nname = \"{name}\"\nstream = \"udp 10.0.0.1:1 > 10.0.0.2:2\"\ncount = 50000\nout = \"null\"\n"
        )
    });
    bench.write("s.toml", format!("schema = 1\n{}", scenario.concat()));
    let shown = on_terminal(&bench, "run s.toml").expect("it ran before");
    assert!(shown.contains("one  0 s") && shown.contains("two  0 s"), "{shown:?}");
    let left = left(&shown);
    assert!(left[0] == "one" && !left.iter().any(|line| line.contains("virtual time")), "{shown:?}");
}

#[test]
fn shows_no_progress_without_a_terminal() {
    let bench = Bench::new();
    let finished = bench.run(words(&format!("gen --out null --count 100000 {}", STREAM.replace('"', "'"))));
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    assert!(!finished.stdout.contains('\x1b') && !finished.stdout.contains("of virtual time"));
}

#[cfg(feature = "live")]
#[test]
fn both_directions_show_their_losses() {
    let bench = Bench::new();
    let ports = "--between dpdk:net_null0,no-rx=0 dpdk:net_null1,no-rx=0";
    let line = |progress: &str| {
        format!(
            "emulate {ports} --forward \"loss 50%\" --backward \"loss 100%\" --duration 1s --json --progress {progress}"
        )
    };
    let can = bench.run(words(&line("never").replace('"', "'")));
    if can.status != Some(0) {
        println!("SKIP: no live ports here: {}", can.stderr);
        return;
    }
    let Some(shown) = on_terminal(&bench, &line("auto")) else { return };
    for (direction, lost) in [("forward", "dropped (5"), ("backward", "dropped (100.00 %)")] {
        let told = shown.split(&format!("{direction}  0 s")).skip(1).any(|line| line.contains(lost));
        assert!(told, "{direction}: {shown:?}");
    }
}

#[cfg(feature = "live")]
#[test]
fn a_live_run_shows_rate_depth_starvation_and_lateness() {
    let bench = Bench::new();
    let command = |progress: &str| {
        format!("gen --out dpdk:net_null0 --duration 600ms --gap 100us --json --progress {progress} {STREAM}")
    };
    let can = bench.run(words(&command("never").replace('"', "'")));
    if can.status != Some(0) {
        println!("SKIP: no live ports here: {}", can.stderr);
        return;
    }
    assert_eq!(can.complaints(), Vec::<&str>::new());
    let Some(shown) = on_terminal(&bench, &command("auto")) else { return };
    for figure in ["gen  starting", "bit/s", " waiting", " starved", "late ", ", max "] {
        assert!(shown.contains(figure), "{figure}: {shown:?}");
    }
    // A busy machine causes a note.
    let left: Vec<&str> = left(&shown).into_iter().filter(|line| !line.starts_with("netlathe: note: ")).collect();
    assert!(left.len() == 1 && left[0].starts_with('{'), "only the report is left: {shown:?}");
}

#[test]
fn search_shows_its_load_and_bounds_in_a_line() {
    let bench = Bench::new();
    let search =
        "search --dut \"limit key dst-ip rate 63209472bps mode police burst 64B users 16\" --trial 1s --max 1Mpps";
    let Some(shown) = on_terminal(&bench, search) else { return };
    assert!(shown.contains("64B: trial 1, 1Mpps for 1s; nothing known yet"), "{shown:?}");
    let left = left(&shown);
    assert!(left[0].starts_with("size ") && left.len() == 2, "one line that goes, and no other: {shown:?}");
    let told = on_terminal(&bench, &format!("{search} -v")).expect("it ran before");
    assert!(told.contains("note: 64B: 1Mpps for 1s: 1 000 000 sent, 888 888 lost; fails at 1Mpps"), "{told:?}");
}

/// Reading a ring needs no rights: `slice kernel` and `slice pipeline --kernel` show the same lines.
#[cfg(feature = "slice")]
#[test]
fn slices_say_that_they_start_and_how_far_they_are() {
    let bench = Bench::new();
    let attach = "slice attach ring.probes --buffer 1MiB --duration 700ms";
    let Some(shown) = on_terminal(&bench, attach) else { return };
    let place = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text} in {shown:?}"));
    assert!(place("slice attach  starting") < place("slice attach  0 s  0 blocks read"), "{shown:?}");
    assert!(!left(&shown).iter().any(|line| line.contains("blocks read") || line.contains("starting")), "{shown:?}");
    let quiet = on_terminal(&bench, &format!("{attach} -q")).expect("it ran before");
    assert_eq!(quiet, "");
    let piped = bench.run(words(attach));
    assert_eq!((piped.status, piped.stderr.as_str()), (Some(0), ""));
    assert!(!piped.stdout.contains("starting") && !piped.stdout.contains('\x1b'), "{}", piped.stdout);
}

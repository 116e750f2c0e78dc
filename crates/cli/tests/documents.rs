//! What a reader meets agrees with itself: links lead somewhere, each option of `--help` is in the reference, examples
//! run as they are printed, and the manual keeps them as they are.

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;

use common::{Bench, words};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the clone")
}

/// All documents by their paths, without their blocks of code.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut folders = vec![root().join("docs")];
    let mut files: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    let prose = |text: &str| {
        let mut code = false;
        let lines = text.lines().filter(|line| {
            let fence = line.trim_start().starts_with("```");
            code ^= fence;
            !fence && !code
        });
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    files.into_iter().map(|path| (path.clone(), prose(&fs::read_to_string(path).expect("text")))).collect()
}

/// Names by which the headings of a document are linked to.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let name = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(name).collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    let mut dead = Vec::new();
    for (path, text) in &documents {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let folder = path.parent().expect("a folder");
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            let target = target.canonicalize();
            let there = target.as_ref().is_ok_and(|target| {
                anchor.is_empty() || documents.get(target).is_some_and(|text| anchors(text).iter().any(|a| a == anchor))
            });
            if !there {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// The help of each command, and the pages of reference that tell of it.
const COMMANDS: [(&str, &[&str]); 15] = [
    ("shape", &[]),
    ("gen", &["streams"]),
    ("emulate", &["emulate"]),
    ("limit", &["limit"]),
    ("measure", &[]),
    ("search", &["search"]),
    ("run", &[]),
    ("check", &[]),
    ("disk", &["disk"]),
    ("doctor", &[]),
    ("manual", &[]),
    ("lab up", &[]),
    ("lab down", &[]),
    ("lab run", &[]),
    ("lab list", &[]),
];

/// Those that this binary has.
fn commands() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    COMMANDS.into_iter().filter(|(command, _)| cfg!(feature = "live") || !command.starts_with("lab"))
}

#[test]
fn each_command_has_examples_and_each_option_is_in_the_reference() {
    let bench = Bench::new();
    let page = |name: &str| fs::read_to_string(root().join(format!("docs/reference/{name}.md"))).expect(name);
    for (command, pages) in commands() {
        let help = bench.run(words(&format!("{command} --help")));
        assert_eq!(help.status, Some(0), "{command}: {}", help.stderr);
        assert!(help.stdout.contains(&format!("  netlathe {command}")), "{command} shows no example");
        let known: String = pages.iter().copied().chain(["commands"]).map(page).collect();
        let options = help.stdout.lines().take_while(|line| !line.starts_with("Example"));
        for option in options.filter_map(|line| line.trim_start().split(", ").last()?.split([' ', '.']).next()) {
            let usual = ["--help", "--version", "--verbose", "--quiet"].contains(&option);
            let told =
                || known.split(option).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'));
            assert!(!option.starts_with("--") || usual || told(), "{command} {option} is not in the reference");
        }
    }
}

#[test]
fn reasons_for_drops_are_in_the_reference() {
    let reference = fs::read_to_string(root().join("docs/reference/report.md")).expect("a page");
    for reason in measure::DropReason::ALL {
        assert!(reference.contains(&format!("| `{}` |", reason.name())), "{} is not told", reason.name());
    }
}

#[test]
fn examples_of_virtual_time_run_as_they_are_printed() {
    let mut ran = 0;
    // In this order, since the captures of one are the inputs of others.
    for command in ["gen", "shape", "measure", "emulate", "limit"] {
        let bench = Bench::new();
        let help = bench.run([command, "--help"]).stdout.replace("\\\n", " ");
        for line in help.lines().filter_map(|line| line.strip_prefix("  netlathe ")) {
            if ["eth0", "users.txt"].iter().any(|word| line.contains(word)) {
                continue;
            }
            bench.generate("random 64B-1518B", 20_000);
            // What is measured is what the example of shape writes.
            let law = if line.contains("--expect 'chi2") { "chi2 df 6 in 80us..120us" } else { "fixed 10us" };
            bench.report(words(&format!("shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap --gap '{law}'")));
            let finished = bench.run(words(line));
            assert!(finished.status == Some(0) && finished.complaints().is_empty(), "{line}: {}", finished.stderr);
            ran += 1;
        }
    }
    assert!(ran >= 9, "{ran} examples");
}

#[test]
fn the_manual_keeps_examples_as_they_are() {
    let bench = Bench::new();
    assert_eq!(bench.run(["manual", "--to", "man"]).status, Some(0));
    for (command, _) in commands() {
        let page =
            String::from_utf8(bench.read(&format!("man/netlathe-{}.1", command.replace(' ', "-")))).expect("text");
        let examples = page.split(".SH EXAMPLES\n.nf\n").nth(1).and_then(|rest| rest.split("\n.fi").next());
        let examples = examples.unwrap_or_else(|| panic!("{command} has no examples"));
        let typed = examples.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\");
        let help = bench.run(words(&format!("{command} --help"))).stdout;
        assert!(help.contains(&typed) && !examples.contains("\\-\\-\n"), "{command}: {typed}");
    }
    let emulate = String::from_utf8(bench.read("man/netlathe-emulate.1")).expect("text");
    assert!(emulate.contains("netlathe emulate \\-\\-on <INTERFACE> [OPTIONS]\n"), "each way to write it is there");
}

#[test]
fn a_command_that_can_be_written_in_several_ways_tells_them() {
    let bench = Bench::new();
    let said = |line: &str| bench.run(words(line)).stderr;
    for (line, ways) in [
        ("emulate", &["--between <A> <B>, or", "--on <INTERFACE>, or", "--in <PORT> --out <PORT>\n"][..]),
        ("measure", &["--in <PORT>, or", "--pcap <FILE>, or"]),
        ("search", &["--out <PORT> --in <PORT>, or", "--dut <STAGE>\n"]),
        ("gen --out null", &["--stream <SPEC>, or", "--pcap <FILE>\n"]),
        ("disk", &["--backing <DIR> --mount <DIR>, or", "--unmount <DIR>\n"]),
        ("shape --in null", &["not provided: --out <PORT>: --help"]),
        ("search --dut 'loss 1%' --longest-burst 1s", &["not provided: --back-to-back <N>: --help"]),
    ] {
        assert!(ways.iter().all(|way| said(line).contains(way)), "{line}: {}", said(line));
    }
    assert!(said("gen --out out.pcap --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'").contains("write pcap:out.pcap"));
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let status = bench.command(["--help"]).stdout(full).status().expect("the binary runs");
    assert_eq!(status.code(), Some(2));
}

//! What a reader meets agrees with itself: links lead somewhere, each option of `--help` is in the reference, examples
//! run as they are printed and print what documents show, and the manual keeps them as they are.

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
const COMMANDS: [(&str, &[&str]); 16] = [
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
    ("help", &[]),
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

/// The blocks of commands of a document: each command as it is typed, with what is said to come of it.
fn sessions(text: &str) -> Vec<Vec<(String, String)>> {
    let mut sessions = Vec::new();
    let mut lines = text.lines();
    while let Some(fence) = lines.find(|line| line.trim_start().starts_with("```console")) {
        let indent = fence.len() - fence.trim_start().len();
        let block = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
        let mut session: Vec<(String, String)> = Vec::new();
        for line in block.map(|line| line.get(indent..).unwrap_or_default()) {
            let open = |typed: &String| typed.ends_with('\\') || typed.matches('\'').count() % 2 == 1;
            match (line.strip_prefix("$ "), session.last_mut()) {
                (Some(typed), _) => session.push((typed.to_owned(), String::new())),
                (None, Some((typed, printed))) if printed.is_empty() && open(typed) => *typed += &format!("\n{line}"),
                (None, Some((_, printed))) => *printed += &format!("{line}\n"),
                // What root types, or a prompt of another kind.
                (None, None) => session.push((line.to_owned(), String::new())),
            }
        }
        sessions.push(session);
    }
    sessions
}

/// Whether a command needs nothing of the machine and takes no time of its clock.
fn is_virtual(typed: &str) -> bool {
    const COMMANDS: [&str; 9] = ["gen", "shape", "emulate", "limit", "measure", "search", "run", "check", "help"];
    let words: Vec<&str> = typed.split_whitespace().collect();
    let known = words[0] != "netlathe" || COMMANDS.contains(&words[1]);
    let port = |pair: &[&str]| {
        !["--in", "--out"].contains(&pair[0]) || ["pcap:", "wire:", "null"].iter().any(|kind| pair[1].starts_with(kind))
    };
    // No command writes the cut captures.
    let strange = ["--on", "--between", "--slices", "--host", "pcap:cut.pcap"];
    ["netlathe", "cat", "head", "echo", "awk"].contains(&words[0])
        && known
        && words.windows(2).all(port)
        && !words.iter().any(|word| strange.contains(word))
}

#[test]
fn what_documents_show_of_virtual_time_is_what_comes() {
    let binary = Path::new(env!("CARGO_BIN_EXE_netlathe")).parent().expect("a folder");
    let search = format!("{}:{}", binary.display(), std::env::var("PATH").expect("a search path"));
    let mut ran = 0;
    for document in documents().into_keys() {
        let text = fs::read_to_string(&document).expect("text");
        let sessions = sessions(&text);
        let bench = Bench::new();
        std::os::unix::fs::symlink(root().join("scenarios"), bench.path("scenarios")).expect("a link");
        // The input of pages that do not make their own, as the page of emulate says it is made.
        let stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B";
        let input = ["gen", "--out", "pcap:in.pcap", "--count", "200000", "--seed", "7", "--gap", "10us", "-q"];
        if text.contains("pcap:in.pcap") {
            bench.run(input.into_iter().chain(["--stream", stream]));
        }
        for session in sessions.iter().filter(|session| session.iter().all(|(typed, _)| is_virtual(typed))) {
            let mut status = None;
            for (typed, printed) in session {
                if let Some(name) = typed.strip_prefix("cat ").filter(|name| name.ends_with(".toml")) {
                    bench.write(name, printed);
                    continue;
                }
                let typed = typed.replace("$?", &format!("{}", status.unwrap_or_default()));
                let shell = ["-c", &format!("({typed}\n) 2>&1")];
                let mut sh = std::process::Command::new("sh");
                sh.args(shell).env("PATH", &search).current_dir(bench.path(""));
                let output = sh.output().expect("a shell");
                status = output.status.code();
                let got = String::from_utf8(output.stdout).expect("text");
                // Where nothing is shown, the text around it says what to look at.
                assert!(printed.is_empty() || got == *printed, "{}: {typed}\n{got}", document.display());
                ran += 1;
            }
        }
    }
    assert!(ran >= 40, "{ran} commands");
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
    for command in ["shape", "gen"] {
        let help = bench.run([command, "--help"]).stdout;
        assert!(["--rate <[CLASS=]WAVE>", "--class <NAME = RULE>"].iter().all(|way| help.contains(way)), "{command}");
    }
    assert!(!bench.run(["measure", "--help"]).stdout.contains("--cores"), "measure refuses it");
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let status = bench.command(["--help"]).stdout(full).status().expect("the binary runs");
    assert_eq!(status.code(), Some(2));
}

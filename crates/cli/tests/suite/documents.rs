//! The documentation is consistent: links resolve, every option in `--help` is in the reference, examples run as
//! printed and print what the documents show, and the manual contains them unchanged.

use crate::common::{Bench, words};
use crate::typed::root;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// All documents by path, without their code blocks.
fn documents() -> BTreeMap<PathBuf, String> {
    let files = crate::typed::documents().into_iter().chain([root().join("CHANGELOG.md")]);
    let prose = |text: &str| {
        let mut code = false;
        let lines = text.lines().filter(|line| {
            let fence = line.trim_start().starts_with("```");
            code ^= fence;
            !fence && !code
        });
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    files.map(|path| (path.clone(), prose(&fs::read_to_string(path).expect("text")))).collect()
}

/// The anchors of a document's headings.
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

/// Runs `scripts/tables.py --check` of a clone.
fn check_tables(clone: &std::path::Path) -> (bool, String) {
    let output = std::process::Command::new("python3")
        .arg(clone.join("scripts/tables.py"))
        .arg("--check")
        .output()
        .expect("scripts/setup.sh installs python3");
    (output.status.success(), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn tables_match_the_measurements_and_the_decisions() {
    let (agree, said) = check_tables(&root());
    assert!(agree, "{said}");
}

#[test]
fn finds_a_changed_figure_and_a_decision_that_is_not_in_the_index() {
    let bench = Bench::new();
    let clone = bench.path("");
    for folder in ["scripts", "bench/results", "bench/results/tables", "docs/adr"] {
        fs::create_dir_all(clone.join(folder)).expect("a folder");
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let from = entry.expect("an entry").path();
            if from.is_file() {
                fs::copy(&from, clone.join(folder).join(from.file_name().expect("a name"))).expect("copied");
            }
        }
    }
    fs::copy(root().join("docs/measurements.md"), clone.join("docs/measurements.md")).expect("copied");
    assert_eq!(check_tables(&clone), (true, String::new()));

    let data = clone.join("bench/results/tables/huge-pages.json");
    let text = fs::read_to_string(&data).expect("text");
    assert!(text.contains("0.9, 0.2"));
    fs::write(&data, text.replace("0.9, 0.2", "0.8, 0.2")).expect("written");
    let (agree, said) = check_tables(&clone);
    assert!(!agree && said.starts_with("docs/measurements.md differs"), "{said}");
    fs::write(&data, text).expect("written");

    fs::write(clone.join("docs/adr/9999-new.md"), "# 9999 New\n\n*2026-11-25, accepted*\n").expect("written");
    let (agree, said) = check_tables(&clone);
    assert!(!agree && said.starts_with("docs/adr/README.md differs"), "{said}");
}

/// Every command, and the reference pages that describe it.
const COMMANDS: [(&str, &[&str]); 24] = [
    ("shape", &[]),
    ("gen", &["streams"]),
    ("emulate", &["emulate"]),
    ("limit", &["limit"]),
    ("measure", &[]),
    ("merge", &[]),
    ("search", &["search"]),
    ("run", &[]),
    ("check", &[]),
    ("clock", &["clock"]),
    ("disk", &["disk"]),
    ("serve", &[]),
    ("ctl", &[]),
    ("top", &[]),
    ("doctor", &[]),
    ("manual", &[]),
    ("help", &[]),
    ("otg", &[]),
    ("lab up", &[]),
    ("lab exec", &[]),
    ("lab check", &[]),
    ("lab down", &[]),
    ("lab run", &[]),
    ("lab list", &[]),
];

/// The commands that this binary has.
fn commands() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    COMMANDS.into_iter().filter(|(command, _)| match *command {
        "serve" | "ctl" | "top" => cfg!(feature = "service"),
        command => cfg!(feature = "live") || !command.starts_with("lab") && !["clock", "otg"].contains(&command),
    })
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
        for option in options.filter_map(|line| {
            // The description in the second column may name other options.
            let written = line.trim_start().split("  ").next()?;
            written.split(", ").last()?.split([' ', '.']).next()
        }) {
            let usual = ["--help", "--version", "--verbose", "--quiet"].contains(&option);
            let told =
                || known.split(option).skip(1).any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'));
            assert!(!option.starts_with("--") || usual || told(), "{command} {option} is not in the reference");
        }
    }
}

/// The inline code of a text, such as `gen --pcap`, even if it continues on the next line.
fn inline_code(text: &str) -> impl Iterator<Item = String> {
    let paragraphs = text.split("\n\n");
    paragraphs.flat_map(|text| text.split('`').skip(1).step_by(2)).map(|code| {
        let words: Vec<&str> = code.split_whitespace().collect();
        words.join(" ")
    })
}

/// The options of netlathe in a command line. Options after `--` belong to another program.
fn options_of(line: &str) -> impl Iterator<Item = String> {
    let words = line.split(' ').take_while(|word| *word != "--");
    let names = words.filter_map(|word| word.trim_start_matches(['[', '(', '\'']).strip_prefix("--"));
    names.map(|name| name.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect())
}

#[test]
fn inline_code_names_options_that_exist() {
    let helps: BTreeMap<String, String> =
        crate::typed::commands().into_iter().map(|command| (command.clone(), crate::typed::help(&command))).collect();
    let mut checked = 0;
    let mut wrong = Vec::new();
    // Decision records name the options that existed when they were written.
    for (path, text) in documents().into_iter().filter(|(path, _)| !path.to_string_lossy().contains("/adr/")) {
        for code in inline_code(&text) {
            let line = if code.starts_with("netlathe ") { code.clone() } else { format!("netlathe {code}") };
            let of = |command: &&String| line.strip_prefix(command.as_str()).is_some_and(|rest| rest.starts_with(' '));
            let Some(command) = helps.keys().filter(of).max_by_key(|command| command.len()) else { continue };
            if command == "netlathe" {
                continue;
            }
            for option in options_of(&line) {
                checked += 1;
                if !helps[command].contains(&format!("--{option}")) {
                    wrong.push(format!("{}: `{code}`: {command} has no --{option}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "{checked} options: is the code in the text found?");
}

#[test]
fn reasons_for_drops_are_in_the_reference() {
    let reference = fs::read_to_string(root().join("docs/reference/report.md")).expect("a page");
    for reason in measure::DropReason::ALL {
        assert!(reference.contains(&format!("| `{}` |", reason.name())), "{} is not documented", reason.name());
    }
}

/// The lines of a text without trailing spaces, which documents do not keep.
fn trimmed(text: &str) -> Vec<&str> {
    text.lines().map(str::trim_end).collect()
}

#[test]
fn help_and_documents_match_the_output_in_virtual_time() {
    let blocks: Vec<_> = crate::typed::all().into_iter().filter(crate::typed::Block::is_virtual).collect();
    let sources: BTreeSet<&str> = blocks.iter().map(|block| block.source.as_str()).collect();
    let (mut wrong, mut ran) = (Vec::new(), 0);
    for source in sources {
        let bench = Bench::new();
        let folder = bench.path("");
        crate::typed::prepare(&folder);
        for block in blocks.iter().filter(|block| block.source == source) {
            let mut status = 0;
            for (step, next) in block.steps.iter().zip(block.steps.iter().skip(1).map(Some).chain([None])) {
                if let Some(file) = step.file(&folder) {
                    fs::write(file, &step.printed).expect("a file");
                    continue;
                }
                if crate::typed::missing_program(&step.typed) {
                    continue;
                }
                if step.typed.contains("--pcap out.pcap") {
                    // Recreate the output of the `shape` example, with the law that this step expects.
                    let law = if step.typed.contains("'chi2") { "chi2 df 6 in 80us..120us" } else { "fixed 10us" };
                    bench.report(words(&format!("shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap --gap '{law}'")));
                }
                let line = crate::typed::in_folder(&step.typed.replace("$?", &status.to_string()), &folder);
                let output =
                    crate::typed::bash(&folder).arg(format!("set -o pipefail; {line}")).output().expect("bash");
                let got = String::from_utf8(output.stdout).expect("text");
                // tshark warns on stderr when root runs it.
                let told = String::from_utf8(output.stderr)
                    .expect("text")
                    .replace("Running as user \"root\" and group \"root\". This could be dangerous.\n", "");
                status = output.status.code().unwrap_or(-1);
                let as_shown = match step.refusal() {
                    Some(refusal) => status != 0 && crate::typed::unwrapped(&format!("{told}{got}")) == refusal,
                    // If the document shows no output, only the status is checked.
                    None => {
                        (status == 0 || next.is_some_and(|next| next.typed == "echo $?"))
                            && (step.printed.is_empty() || trimmed(&format!("{told}{got}")) == trimmed(&step.printed))
                    }
                };
                if !as_shown {
                    wrong.push(format!("{source}: {}\nstatus {status}\n{told}{got}", step.typed));
                }
                ran += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran >= 70, "{ran} commands");
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
fn usage_errors_list_every_form_of_a_command() {
    let bench = Bench::new();
    let said = |line: &str| bench.run(words(line)).stderr;
    for (line, ways) in [
        ("emulate", &["--between <A> <B>, or", "--on <INTERFACE>, or", "--in <PORT> --out <PORT>\n"][..]),
        ("measure", &["--in <PORT>, or", "--pcap <FILE>, or"]),
        ("search", &["--out <PORT> --in <PORT>, or", "--dut <STAGE>\n"]),
        ("gen --out null", &["--stream <SPEC>, or", "--pcap <FILE>\n"]),
        ("disk", &["--backing <DIR> --mount <DIR>, or", "--unmount <DIR>\n"]),
        ("shape --in null", &["not provided: --out <PORT>: see --help"]),
        ("search --dut 'loss 1%' --longest-burst 1s", &["not provided: --back-to-back <N>: see --help"]),
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

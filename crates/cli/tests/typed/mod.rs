//! Every command line that a reader finds: the examples of each `--help`, and the blocks of code in README.md and docs.
//! Each has a rule that says how a test runs it. `documents.rs` runs those of virtual time, `examples_live.rs` the others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commands that are typed in one place, in this order.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// A document, or the command whose help it is.
    pub(crate) source: String,
    pub(crate) steps: Vec<Step>,
}

/// A command, with its continuation lines, and the output that is shown for it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) typed: String,
    pub(crate) printed: String,
    pub(crate) rule: Option<Rule>,
}

/// How a test runs a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// To its end; what it prints is what is shown.
    Virtual,
    /// In the box of a lab, until it is ready.
    Ports,
    /// In the box of a lab in which programs exchange packets, with a duration of 1 s.
    Slice,
    /// Until the next disk, with a /run and mounts of its own.
    Disk,
    /// To its end, with a /run of its own, in which no other labs are.
    Lab,
    /// Until it is refused, since the machine has no such NIC and for no other reason.
    Nic,
    /// Not at all: it stands for many. Its options must exist.
    Pattern,
    /// Not at all: it builds or benches the clone. What it names must exist.
    Clone,
    /// Not here: `ELSEWHERE` says why.
    Elsewhere,
}

/// Command lines that the machine of a test cannot run, and why.
pub(crate) const ELSEWHERE: [(&str, &str); 9] = [
    ("cmp l.csv w.csv && echo the same to the picosecond", "holds on a quiet machine: line.rs"),
    ("id -u", "an ordinary user: ordinary_user.rs"),
    ("netlathe lab run --on server -- id", "an ordinary user: ordinary_user.rs"),
    ("netlathe lab run -- true", "a machine without user namespaces: ordinary_user.rs"),
    ("ethtool -A eth1 autoneg off rx off tx off", "needs a NIC"),
    ("ethtool -k eth1 | grep -E 'segmentation|receive-offload|checksum'", "a NIC's offloads, to read"),
    (
        "ip link set eth1 down && modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci 0000:03:00.0",
        "takes a NIC from the machine",
    ),
    ("tcpdump -nr seen.pcap -c 1 'ether src 02:6e:6c:00:00:f1'", "reads what came through a real switch"),
    ("iperf3 -c SERVER -R -C bbr -t 9", "needs a server of the reader's"),
];

/// Tools that documents use on the files of runs.
const TOOLS: [&str; 9] = ["cat", "head", "echo", "awk", "tcpdump", "tshark", "cut", "cp", "source"];

/// Paths of whole machines; tests put their own folder before them.
pub(crate) const MACHINE: [&str; 7] =
    ["/data", "/media/", "/mnt/", "/tmp/", "/usr/local/", "/etc/bash_completion.d", "/dev/shm/"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the clone")
}

/// Where the programs of a test's command lines are: netlathe first.
pub(crate) fn search_path() -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_netlathe")).parent().expect("a folder");
    format!("{}:{}", binary.display(), std::env::var("PATH").expect("a search path"))
}

pub(crate) fn help(command: &str) -> String {
    let words = command.split(' ').skip(1).chain(["--help"]);
    let help = Command::new(env!("CARGO_BIN_EXE_netlathe")).args(words).output().expect("the binary runs");
    assert!(help.status.success(), "{command}: {help:?}");
    String::from_utf8(help.stdout).expect("text")
}

/// `netlathe` and every command below it.
pub(crate) fn commands() -> Vec<String> {
    let mut commands = vec!["netlathe".to_owned()];
    let mut next = 0;
    while let Some(command) = commands.get(next).cloned() {
        let help = help(&command);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names = listed.map_while(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
        let names = names
            .filter_map(|line| line.split_whitespace().next())
            // The groups' own are the parser's, and have no examples.
            .filter(|name| *name != "help" || command == "netlathe");
        commands.extend(names.map(|name| format!("{command} {name}")));
        next += 1;
    }
    commands
}

/// All documents but the decisions, which show no commands to type.
fn documents() -> Vec<PathBuf> {
    let mut folders = vec![root().join("docs")];
    let mut files = ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)).to_vec();
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
    files.sort();
    files
}

/// Every command line there is.
pub(crate) fn all() -> Vec<Block> {
    let mut blocks = Vec::new();
    for command in commands() {
        let help = help(&command);
        let examples = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        for step in steps(examples.map_while(|line| line.strip_prefix("  ")), false) {
            // One can be in the help of a command and of the group of commands that it belongs to. Labs stay until the
            // end of such a group, so those run again.
            let known = |block: &Block| block.steps[0].typed == step.typed && step.rule != Some(Rule::Lab);
            if !blocks.iter().any(known) {
                blocks.push(Block { source: format!("{command} --help"), steps: vec![step] });
            }
        }
    }
    for path in documents() {
        let text = fs::read_to_string(&path).expect("text");
        let source = path.strip_prefix(root()).expect("in the clone").display().to_string();
        let mut lines = text.lines();
        while let Some(fence) = lines.find(|line| line.trim_start().starts_with("```")) {
            let indent = fence.len() - fence.trim_start().len();
            let block: Vec<&str> = lines
                .by_ref()
                .take_while(|line| !line.trim_start().starts_with("```"))
                .map(|line| line.get(indent..).unwrap_or_default())
                .collect();
            let console = fence.trim() == "```console";
            // A block without prompts is a script if it has a command of netlathe; else it is output, or a file.
            if console || (!fence.contains("toml") && block.iter().any(|line| line.starts_with("netlathe "))) {
                blocks.push(Block { source: source.clone(), steps: steps(block.into_iter(), console) });
            }
        }
    }
    blocks
}

/// The commands in `lines`. In a console a prompt begins each, and what follows is what it prints.
fn steps<'a>(lines: impl Iterator<Item = &'a str>, console: bool) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let open = |typed: &str| typed.ends_with(['\\', '|']) || typed.matches('\'').count() % 2 == 1;
    for line in lines {
        let prompted =
            line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ").filter(|l| l.starts_with("netlathe ")));
        let typed = if console { prompted } else { Some(line).filter(|line| !line.trim().is_empty()) };
        match steps.last_mut() {
            // A usage is indented where it goes on.
            Some(step) if step.printed.is_empty() && (open(&step.typed) || (!console && line.starts_with("    "))) => {
                step.typed += &format!("\n{line}");
            }
            Some(step) if typed.is_none() => step.printed += &format!("{line}\n"),
            _ => steps.extend(typed.map(|typed| Step { typed: typed.into(), printed: String::new(), rule: None })),
        }
    }
    for step in &mut steps {
        step.rule = rule(&step.typed);
    }
    steps
}

/// The rule for a command line; none if it is of a kind that no test runs.
fn rule(typed: &str) -> Option<Rule> {
    const VIRTUAL: [&str; 10] =
        ["gen", "shape", "emulate", "limit", "measure", "search", "run", "check", "manual", "help"];
    let typed = typed.split(" #").next().unwrap_or(typed).trim();
    let words: Vec<&str> = typed.split_whitespace().map(|word| word.trim_matches(['\'', ';'])).collect();
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| typed.starts_with(prefix));
    let netlathe = words.first() == Some(&"netlathe");
    let command = words.get(1).copied().unwrap_or_default();
    let tool = words.first().is_some_and(|first| TOOLS.contains(first));
    let live =
        ["A", "B", "c0", "s0", "va0", "--on", "--host", "eth0", "eth1", "eth2", "if:eth0", "eth0,eth1", "eth1,eth2"];
    Some(match () {
        () if ELSEWHERE.iter().any(|(line, _)| *line == typed) => Rule::Elsewhere,
        () if netlathe && (typed.contains('…') || has(&["DIR"])) => Rule::Pattern,
        () if begins(&["make ", "cargo ", "scripts/", "python3 bench/", "NETLATHE=target/release/netlathe "]) => {
            Rule::Clone
        }
        () if typed.contains("pci:") => Rule::Nic,
        () if netlathe && command == "disk" || begins(&["mkdir ", "dd ", "ls "]) => Rule::Disk,
        () if netlathe && command == "lab" || begins(&["ip netns exec nl-lab-"]) => Rule::Lab,
        () if netlathe && command == "slice" => Rule::Slice,
        () if netlathe && (has(&live) || command == "doctor" || typed.contains(" line:"))
            || begins(&["tcpdump -i"]) =>
        {
            Rule::Ports
        }
        () if netlathe && VIRTUAL.contains(&command) || tool => Rule::Virtual,
        // What a program prints, read by a pager or a counter.
        () if begins(&["man -l"]) => Rule::Virtual,
        () => return None,
    })
}

impl Block {
    /// Whether it needs nothing of the machine and takes no time of its clock.
    pub(crate) fn is_virtual(&self) -> bool {
        self.steps.iter().all(|step| step.rule == Some(Rule::Virtual))
    }
}

impl Step {
    /// The file that a `cat` of a document shows, if it is one to write: the run has not written it.
    pub(crate) fn file(&self, folder: &Path) -> Option<PathBuf> {
        let name = self.typed.strip_prefix("cat ").filter(|_| !self.printed.is_empty())?;
        Some(folder.join(name)).filter(|path| name.ends_with(".toml") || name.ends_with(".sh") || !path.exists())
    }

    /// What it is refused with, where the document shows that.
    pub(crate) fn refusal(&self) -> Option<String> {
        let program = self.typed.split_whitespace().next()?;
        let reports = ["netlathe: note: ", "netlathe: data is at "];
        let refused =
            self.printed.starts_with(&format!("{program}: ")) && !reports.iter().any(|r| self.printed.starts_with(r));
        refused.then(|| unwrapped(&self.printed))
    }
}

/// Text whose lines may have been wrapped.
pub(crate) fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The command line as bash runs it in `folder`, where its paths of the machine are.
pub(crate) fn in_folder(typed: &str, folder: &Path) -> String {
    let own = |word: &str| {
        let of_machine = MACHINE.iter().any(|path| word.starts_with(path));
        if of_machine { format!("{}/machine{word}", folder.display()) } else { word.to_owned() }
    };
    let typed: String = typed.split_inclusive(' ').map(own).collect();
    format!("cd {}\n{typed}", folder.display())
}

/// A bash that has netlathe, and a home in `folder`.
pub(crate) fn bash(folder: &Path) -> Command {
    let mut command = Command::new("bash");
    command.env("PATH", search_path()).env("HOME", folder).env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
    command.stdin(Stdio::null()).arg("-c");
    command
}

/// Whether a program that a command line needs is not on this machine; then that is printed.
pub(crate) fn missing_program(typed: &str) -> bool {
    let needed = ["tcpdump", "tshark", "jq", "iperf3", "man", "ping", "bridge", "python3", "taskset"];
    let words: Vec<&str> = typed.split_whitespace().collect();
    let there = |program: &str| std::env::split_paths(&search_path()).any(|folder| folder.join(program).is_file());
    let missing: Vec<&&str> = needed.iter().filter(|program| words.contains(*program) && !there(program)).collect();
    if !missing.is_empty() {
        println!("SKIP: {typed}: this machine has no {missing:?}");
    }
    !missing.is_empty()
}

/// Puts into `folder` what documents and examples expect to find, and the folders of a machine.
pub(crate) fn prepare(folder: &Path) {
    for name in ["scenarios", "docs", "bench", "README.md"] {
        std::os::unix::fs::symlink(root().join(name), folder.join(name)).expect("a link");
    }
    for path in
        ["data", "media/stick", "mnt/slow", "tmp", "usr/local/share/man/man1", "etc/bash_completion.d", "dev/shm"]
    {
        fs::create_dir_all(folder.join("machine").join(path)).expect("a folder");
    }
    // As the page of emulate says it is made.
    let stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B";
    let made = Command::new(env!("CARGO_BIN_EXE_netlathe"))
        .args([
            "gen", "--out", "pcap:in.pcap", "--count", "200000", "--seed", "7", "--gap", "10us", "-q", "--stream",
            stream,
        ])
        .current_dir(folder)
        .status();
    assert!(made.expect("the binary runs").success(), "no input");
    let input = fs::read(folder.join("in.pcap")).expect("it was made");
    fs::write(folder.join("cut.pcap"), &input[..2300]).expect("a file");
    // No more frames than can be sent again in a moment.
    fs::write(folder.join("day.pcap"), whole_records(&input, 5000)).expect("a file");
    let packed = Command::new(env!("CARGO_BIN_EXE_netlathe"))
        .args(["gen", "--pcap", "day.pcap", "--out", "pcap:in.pcap.zst", "-q"])
        .current_dir(folder)
        .status();
    assert!(packed.expect("the binary runs").success(), "no packed input");
    fs::write(folder.join("experiment.sh"), "ip -br address > /dev/null\n").expect("a file");
}

/// The first `count` records of a classic capture.
fn whole_records(capture: &[u8], count: usize) -> &[u8] {
    let mut end = 24;
    for _ in 0..count {
        end += 16 + u32::from_le_bytes(capture[end + 8..end + 12].try_into().expect("four bytes")) as usize;
    }
    &capture[..end]
}

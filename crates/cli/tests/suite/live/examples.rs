//! Every command line in `--help`, README.md and docs has a rule that says how a test runs it. This file asserts that,
//! and runs the lines that need more than virtual time: ports, labs, disks, slices. Tests print `SKIP: why` where the
//! machine cannot run them. A run without a duration is stopped once it is ready, which tests that the line parses and
//! starts.

use crate::bed::{Bed, Finished, Program};
use crate::typed::{Block, Rule, Step};
use lab::Node;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Examples that need a NIC, which no test machine has. Add new ones here, so the list shows which examples do not run.
const OF_NICS: [&str; 4] = [
    "ethtool -A eth1 autoneg off rx off tx off",
    "netlathe limit --in pci:0000:03:00.0 --out pci:0000:03:00.1 --key dst-ip",
    "netlathe gen --out pci:03:00.0 --in pci:03:00.1 --in-cores 2,3",
    "netlathe gen --out pci:0000:03:00.0 --line-rate 10G --pacer filler",
];

/// Time limit for a command line; after that it hangs. No machine hiccups for this long.
const PATIENCE: Duration = Duration::from_secs(45);
/// A run that does not report ready is stopped after this time.
const UNSAID: Duration = Duration::from_secs(2);

/// Exchanges packets at the ports that the slice examples name.
const TALKER: &str = "\
import socket, threading, time
def echo(s):
    while True:
        data, peer = s.recvfrom(64)
        s.sendto(data, peer)
ports = [53, 443, 7777, 8080]
for port in ports:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('127.0.0.1', port))
    threading.Thread(target=echo, args=(s,), daemon=True).start()
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
c.settimeout(1)
print('talks', flush=True)
while True:
    for port in ports:
        c.sendto(b'ping', ('127.0.0.1', port))
        c.recvfrom(64)
    time.sleep(0.005)
";

/// Where a document's command lines run: a folder, its own mounts and /run, and a lab with the ports that documents
/// name.
struct ExampleBed {
    // Drop order: programs end before their folder and their lab are removed.
    disk: Option<Program>,
    talker: Option<Child>,
    keeper: Child,
    folder: TempDir,
    bed: Bed,
}

impl ExampleBed {
    /// Prints the reason and returns `None` if labs are unavailable.
    fn new(name: &str) -> Option<ExampleBed> {
        let bed = Bed::shared(name, |_| {})?;
        let folder = tempfile::tempdir().expect("a folder");
        crate::typed::prepare(folder.path());
        let ping_pong = "#!/bin/sh\nexec python3 ping-pong.py 4 200\n";
        fs::write(folder.path().join("ping-pong"), ping_pong).expect("a file");
        fs::write(folder.path().join("talker.py"), TALKER).expect("a file");
        fs::write(folder.path().join("ping-pong.py"), program_of_the_guide()).expect("a file");
        Command::new("chmod").args(["+x", "ping-pong"]).current_dir(folder.path()).status().expect("chmod is there");
        let mut keeper = Command::new("unshare")
            .args(["--mount", "sh", "-ec", "mount -t tmpfs none /run; echo mounted; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is there");
        said(&mut keeper, "mounted");
        Some(ExampleBed { disk: None, talker: None, keeper, folder, bed })
    }

    /// Creates the ports: `eth0` leads to a host with the address 10.0.0.254, `eth1` and `eth2` lead to a router
    /// between them.
    fn add_ports(&self) {
        let there = self.bed.lab.topology().namespace(Node::Server);
        for (near, far) in [("eth0", "h0"), ("eth1", "r1"), ("eth2", "r2"), ("A", "ra"), ("B", "rb"), ("va0", "va1")] {
            self.bed.stdout(Node::Box, &format!("ip link add {near} type veth peer name {far} netns {there}"));
            for (node, end) in [(Node::Box, near), (Node::Server, far)] {
                self.bed.stdout(node, &format!("ethtool -K {end} tx off tso off gso off gro off"));
                self.bed.stdout(node, &format!("ip link set {end} up"));
            }
        }
        for line in [
            "ip addr add 10.0.0.254/24 dev h0",
            "ip addr add 198.18.0.254/24 dev r1",
            "ip addr add 198.19.0.254/24 dev r2",
            "ip addr add 10.1.0.254/24 dev r1",
            "ip addr add 10.2.0.254/24 dev r2",
            "sysctl -qw net.ipv4.ip_forward=1",
        ] {
            self.bed.stdout(Node::Server, line);
        }
        self.bed.stdout(Node::Box, "ip link set lo up");
    }

    /// Starts the programs that slices trace.
    fn add_talker(&mut self) {
        let mut command = self.bed.command(Node::Box, "python3", &["talker.py"]);
        let mut talker = command.current_dir(self.folder.path()).stdout(Stdio::piped()).spawn().expect("python3");
        said(&mut talker, "talks");
        self.talker = Some(talker);
    }

    /// A bash command for a line and its rule, not started yet.
    fn command(&self, rule: Rule, typed: &str) -> Command {
        let folder = self.folder.path();
        // If the line is one command, signals must reach netlathe itself.
        let one = typed.starts_with("netlathe ") && !typed.contains([';', '|', '&']);
        // Long output would fill a pipe that is read only at the end.
        let script = format!("exec > printed.txt\n{}{typed}", if one { "exec " } else { "" });
        let line = crate::typed::in_folder(&script, folder);
        let bash = crate::typed::bash(folder);
        let mut command = match rule {
            Rule::Ports | Rule::Slice | Rule::Nic => self.bed.command(Node::Box, "bash", &["-c", &line]),
            _ => {
                let mut command = Command::new("nsenter");
                command.args([&format!("--mount=/proc/{}/ns/mnt", self.keeper.id()), "bash", "-c", &line]);
                command.stdin(Stdio::null());
                command
            }
        };
        command.envs(bash.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.process_group(0);
        command
    }

    /// Runs a line until it ends, or stops it once it is ready.
    fn run(&self, rule: Rule, typed: &str) -> Finished {
        let path = self.folder.path().join("notify");
        let _earlier = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("it can be asked");
        let mut command = self.command(rule, typed);
        if matches!(rule, Rule::Ports) {
            command.env("NOTIFY_SOCKET", &path);
        }
        let ends_itself = rule != Rule::Ports;
        let says_so = rule == Rule::Ports && typed.starts_with("netlathe ") && !typed.contains("--pcap -");
        let started = Instant::now();
        let program = Program::start(command);
        while !program.has_ended() && crate::bed::notified(&socket).is_none() {
            if !says_so && !ends_itself && started.elapsed() > UNSAID {
                break;
            }
            if started.elapsed() > PATIENCE {
                signal(&program, "KILL");
                panic!("does not end, or is never ready: {typed}: {:?}", program.wait());
            }
            thread::sleep(Duration::from_millis(10));
        }
        if typed.contains(" va0 ") {
            self.bed.stdout(Node::Box, "ip link del va0");
            return program.wait();
        }
        thread::sleep(Duration::from_millis(100));
        if !program.has_ended() {
            signal(&program, "INT");
        }
        program.wait()
    }

    /// Starts a disk and waits until it is mounted. Ends the previous disk first.
    fn start_disk(&mut self, typed: &str) -> Option<Finished> {
        self.end_disk("INT");
        let path = self.folder.path().join("notify");
        let _earlier = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("it can be asked");
        let mut command = self.command(Rule::Disk, typed);
        let program = Program::start({
            command.env("NOTIFY_SOCKET", &path);
            command
        });
        let started = Instant::now();
        while crate::bed::notified(&socket).is_none() {
            if program.has_ended() {
                return Some(program.wait());
            }
            assert!(started.elapsed() < PATIENCE, "not mounted: {typed}");
            thread::sleep(Duration::from_millis(5));
        }
        self.disk = Some(program);
        None
    }

    fn end_disk(&mut self, signal: &str) {
        if let Some(disk) = self.disk.take() {
            disk.signal(signal);
            let ended = disk.wait();
            assert!(signal == "KILL" || ended.status.success(), "{ended:?}");
        }
    }
}

impl Drop for ExampleBed {
    fn drop(&mut self) {
        for child in self.talker.iter_mut().chain([&mut self.keeper]) {
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}

/// The program that the slices guide shows.
fn program_of_the_guide() -> String {
    let guide = fs::read_to_string(crate::typed::root().join("docs/guide/slices.md")).expect("text");
    let program = guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    program.expect("the guide shows a program").to_owned()
}

/// Waits until a program prints a line.
fn said(child: &mut Child, line: &str) {
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut first).expect("text");
    assert_eq!(first.trim(), line);
}

/// Signals the programs of a line that write a report when a signal ends them.
fn signal(program: &Program, signal: &str) {
    let names = if signal == "KILL" { "." } else { "^(netlathe|tcpdump)$" };
    let group = program.pid().to_string();
    // pkill returns 1 if all of them have already ended.
    let asked =
        Command::new("pkill").args([&format!("-{signal}"), "-g", &group, names]).status().expect("pkill is there");
    assert!(matches!(asked.code(), Some(0 | 1)), "{asked:?}");
}

/// Adapts a line to the test: durations are cut to `seconds`, ping sends one echo, and the reader's own program is
/// replaced by the test's.
fn shortened(typed: &str, seconds: u64, talker: Option<u32>) -> String {
    let mut shortened = String::new();
    let mut before = "";
    for part in typed.split_inclusive([' ', '\n']) {
        let word = part.trim_end();
        let long = |value: &str| {
            let unit = value.trim_start_matches(|c: char| c.is_ascii_digit());
            let number: u64 = value[..value.len() - unit.len()].parse().unwrap_or(0);
            unit.starts_with('h') || (unit.starts_with('s') && number > seconds)
        };
        let wanted = match before {
            "--duration" if long(word) => {
                format!("{seconds}s{}", word.trim_start_matches(|c: char| c.is_ascii_alphanumeric()))
            }
            "-c" if typed.contains("ping -c") && word.parse::<u64>().is_ok() => "1 -W 1".to_owned(),
            "--pid" => talker.map_or_else(|| word.to_owned(), |pid| pid.to_string()),
            "dmac" if word.starts_with("RECEIVER") => word.replace("RECEIVER", "02:00:00:00:00:01"),
            _ => word.to_owned(),
        };
        shortened += &format!("{wanted}{}", &part[word.len()..]);
        before = word;
    }
    // The example's workers and CPUs are for a large machine.
    shortened.replace("--workers 4 --cores 1,2,3,4,5", "--workers 1 --cores 0,1")
}

/// The slice command with a duration, unless it starts a program that ends it.
fn with_an_end(typed: &str) -> String {
    match typed.split_once(" -- ") {
        Some((_, program)) if program.contains("--between") => format!("{typed} --duration 1s"),
        Some(_) => typed.to_owned(),
        None => typed
            .replacen("slice kernel ", "slice kernel --duration 1s ", 1)
            .replacen("slice attach ", "slice attach --duration 1s ", 1),
    }
}

/// Whether the error says that this machine does not permit the command. Prints the reason if so.
fn not_permitted(typed: &str, ended: &Finished) -> bool {
    let reasons =
        ["does not let this user", "/sys/kernel/btf", "the kernel refuses the probe", "/dev/fuse", "fewer CPUs"];
    let permitted = ended.status.success() || !reasons.iter().any(|reason| ended.stderr.contains(reason));
    if !permitted {
        println!("SKIP: {typed}: {}", ended.stderr.trim());
    }
    !permitted
}

/// Checks that the names in a pattern or a line about the clone exist.
fn check_names(step: &Step) -> Result<(), String> {
    let words: Vec<&str> = step.typed.split_whitespace().map(|word| word.trim_matches(['[', ']', '\''])).collect();
    let options = words.iter().filter_map(|word| word.strip_prefix("--")).filter(|option| !option.is_empty());
    let known = if words[0] == "netlathe" {
        crate::typed::help(&format!("netlathe {}", words[1]))
    } else if words[0] == "make" {
        let made = Command::new("make")
            .args(["-n", words[1]])
            .current_dir(crate::typed::root())
            .output()
            .expect("make is there");
        return made.status.success().then_some(()).ok_or(format!("{made:?}"));
    } else if step.typed.starts_with("python3 -m venv ") {
        return Ok(());
    } else {
        let path = words
            .iter()
            .map(|word| crate::typed::root().join(word))
            .find(|path| path.exists() && *path != crate::typed::root());
        let path = path.ok_or_else(|| format!("{}: no such file", step.typed))?;
        // Options of other programs are not checked.
        if ["cargo", "venv/bin/pip"].contains(&words[0]) {
            return Ok(());
        }
        let text = |path: PathBuf| fs::read_to_string(path).expect("text");
        if path.is_dir() { text(path.join("__main__.py")) } else { text(path) }
    };
    match options.into_iter().find(|option| !known.contains(&format!("--{option}"))) {
        Some(option) => Err(format!("{}: there is no --{option}", step.typed)),
        None => Ok(()),
    }
}

/// Runs a command line by its rule. The error describes what is wrong with it.
fn runs(place: &mut ExampleBed, step: &Step) -> Result<(), String> {
    let rule = step.rule.expect("each has one");
    let folder = place.folder.path().to_owned();
    if let Some(file) = step.file(&folder) {
        // Lab sessions in documents wait for each other. Keep their waits, but shorten them.
        fs::write(file, shortened(&step.printed, 6, None)).expect("a file");
        return Ok(());
    }
    if crate::typed::missing_program(&step.typed) {
        return Ok(());
    }
    let mut typed = shortened(&step.typed, 1, place.talker.as_ref().map(Child::id));
    if rule == Rule::Slice && !typed.contains("--duration") {
        typed = with_an_end(&typed);
    }
    let ended = match rule {
        // `service.rs` runs the second.
        Rule::Elsewhere | Rule::Service => return Ok(()),
        Rule::Pattern | Rule::Clone => return check_names(step),
        Rule::Disk if typed.contains("netlathe disk --unmount") => {
            place.end_disk("KILL");
            place.run(Rule::Virtual, &typed)
        }
        Rule::Disk if typed.starts_with("netlathe ") => match place.start_disk(&typed) {
            Some(ended) => ended,
            None => return Ok(()),
        },
        Rule::Disk => {
            if step.printed.contains("Transport endpoint is not connected") {
                place.end_disk("KILL");
            }
            place.run(Rule::Virtual, &typed)
        }
        Rule::Lab => {
            let stays = step.printed.contains("already up") || typed.contains("nl-lab-");
            if stays {
                place.run(Rule::Lab, "netlathe lab up");
            }
            let ended = place.run(Rule::Lab, &typed);
            if stays {
                place.run(Rule::Lab, "netlathe lab down");
            }
            ended
        }
        Rule::Ports => {
            // The key in the example determines how users are named.
            let user = if typed.contains("dst-prefix/24") { "10.0.0.0/24" } else { "10.0.0.7" };
            fs::write(folder.join("users.txt"), format!("{user} 2Mbps\n")).expect("a file");
            place.run(rule, &typed)
        }
        Rule::Slice if typed.contains("server.probes") => {
            // Create the ring that a later program attaches to.
            let ring = typed.split_whitespace().find(|word| word.ends_with("server.probes")).expect("it is named");
            place.run(rule, &format!("netlathe slice attach {ring} --buffer 1MiB --duration 10ms"));
            place.run(rule, &typed)
        }
        Rule::Virtual | Rule::Slice | Rule::Nic => place.run(rule, &typed),
    };
    if not_permitted(&typed, &ended) {
        return Ok(());
    }
    let printed = fs::read_to_string(folder.join("printed.txt")).unwrap_or_default();
    let wrong = || Err(format!("{typed}\n{ended:?}\n{printed}"));
    let status = ended.status.code();
    if rule == Rule::Nic {
        let (refused, why) = if typed.starts_with("netlathe ") {
            (status == Some(2), "No such device")
        } else {
            (status != Some(0), "Operation not supported")
        };
        return if refused && ended.stderr.contains(why) { Ok(()) } else { wrong() };
    }
    match step.refusal() {
        Some(refusal) => {
            // netlathe does not control the messages of other programs.
            let same =
                !typed.starts_with("netlathe ") || crate::typed::unwrapped(&ended.complaints().join(" ")) == refusal;
            if status != Some(0) && same { Ok(()) } else { wrong() }
        }
        // Generator frames that do not come back only count as missed. So do unanswered pings where nothing carries
        // them.
        None if status == Some(0) || (status == Some(1) && (rule == Rule::Ports || typed.contains("ping"))) => Ok(()),
        None => wrong(),
    }
}

/// Runs all blocks of these sources that need more than virtual time.
fn all_run(name: &str, wanted: impl Fn(&str) -> bool) {
    let blocks: Vec<Block> =
        crate::typed::all().into_iter().filter(|block| wanted(&block.source) && !block.is_virtual()).collect();
    assert!(!blocks.is_empty(), "{name}: there are none");
    let Some(mut place) = ExampleBed::new(name) else { return };
    place.add_ports();
    place.add_talker();
    let mut wrong = Vec::new();
    for block in &blocks {
        for step in block.steps.iter().filter(|step| step.typed != "echo $?") {
            let started = Instant::now();
            wrong.extend(runs(&mut place, step).err().map(|why| format!("{}: {why}", block.source)));
            println!("{:>6} ms  {:?}  {}", started.elapsed().as_millis(), step.rule, step.typed);
        }
    }
    place.end_disk("INT");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_command_line_has_a_rule() {
    let blocks = crate::typed::all();
    let steps: Vec<&Step> = blocks.iter().flat_map(|block| &block.steps).collect();
    let without: Vec<&&Step> = steps.iter().filter(|step| step.rule.is_none()).collect();
    assert!(without.is_empty(), "no rule of typed.rs runs {without:#?}");
    for rule in [Rule::Virtual, Rule::Ports, Rule::Slice, Rule::Disk, Rule::Lab, Rule::Nic, Rule::Pattern, Rule::Clone]
    {
        assert!(steps.iter().any(|step| step.rule == Some(rule)), "nothing is {rule:?}: is all of it found?");
    }
    let of_nics: Vec<&&Step> = steps.iter().filter(|step| step.rule == Some(Rule::Nic)).collect();
    let listed = |step: &&&Step| OF_NICS.iter().any(|line| step.typed.starts_with(line));
    assert!(of_nics.len() == OF_NICS.len() && of_nics.iter().all(listed), "OF_NICS does not list {of_nics:#?}");
    for (line, why) in crate::typed::ELSEWHERE {
        assert!(
            steps.iter().any(|step| step.typed.split(" #").next().unwrap_or_default().trim() == line),
            "{line} ({why}) is not shown any more"
        );
    }
}

#[test]
fn command_lines_of_traffic_run() {
    all_run("lines-traffic", |source| {
        ["gen", "shape", "emulate"].iter().any(|c| source == format!("netlathe {c} --help"))
    });
}

#[test]
fn command_lines_of_other_commands_run() {
    all_run("lines-others", |source| {
        source.ends_with("--help")
            && !["gen", "shape", "emulate"].iter().any(|c| source == format!("netlathe {c} --help"))
    });
}

#[test]
fn command_lines_of_guides_run() {
    all_run("lines-guides", |source| source.ends_with(".md") && !source.starts_with("docs/reference/"));
}

#[test]
fn command_lines_of_the_reference_run() {
    all_run("lines-reference", |source| source.starts_with("docs/reference/"));
}

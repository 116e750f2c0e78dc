//! A lab with running programs, all removed after the test however it ends. Captures are parsed without netlathe's
//! code.

use crate::common::words;
use lab::{Error, Guard, Node, Topology};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit for a program; after that it hangs. No machine hiccups for this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lock on the machine's cores. Timing tests hold it alone, other tests share it.
static CORES: RwLock<()> = RwLock::new(());

/// A test's hold on the cores.
pub(crate) enum Turn {
    Shared { _turn: RwLockReadGuard<'static, ()> },
    Alone { _turn: RwLockWriteGuard<'static, ()> },
}

impl Turn {
    /// Other tests on live ports run at the same time.
    pub(crate) fn shared() -> Turn {
        Turn::Shared { _turn: CORES.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// No other test on live ports runs.
    pub(crate) fn alone() -> Turn {
        Turn::Alone { _turn: CORES.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// A lab and a folder.
pub(crate) struct Bed {
    // Drop order: the programs in the lab end before the folder is removed.
    pub(crate) lab: Guard,
    folder: TempDir,
    turn: Turn,
}

/// A running program. Dropping it ends the program.
pub(crate) struct Program {
    child: Child,
    line: String,
}

/// Exit status and output of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A record of a capture.
pub(crate) struct Record {
    pub(crate) ns: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Sequence numbers received from one sender.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) arrived: u64,
    pub(crate) missing: u64,
    pub(crate) repeated: u64,
    /// Frames that arrived after a frame sent later.
    pub(crate) late: u64,
}

pub(crate) fn netlathe() -> &'static str {
    env!("CARGO_BIN_EXE_netlathe")
}

/// The name of a test's lab, unique on this machine.
pub(crate) fn lab_name(test: &str) -> String {
    format!("live{}-{test}", std::process::id())
}

impl Bed {
    /// A lab that shares the machine with other tests. Prints the reason and returns `None` if labs are unavailable.
    pub(crate) fn shared(test: &str, change: impl FnOnce(&mut Topology)) -> Option<Bed> {
        Bed::new(test, change, Turn::shared())
    }

    /// A lab that runs while no other test on live ports does. [`Bed::await_quiet`] waits for other programs.
    pub(crate) fn alone(test: &str, change: impl FnOnce(&mut Topology)) -> Option<Bed> {
        Bed::new(test, change, Turn::alone())
    }

    /// Two veth pairs in a box, `a0`–`a1` and `b0`–`b1`. A test puts a command between them.
    pub(crate) fn paired(test: &str) -> Option<Bed> {
        let bed = Bed::alone(test, |_| {})?;
        for (near, far) in [("a0", "a1"), ("b0", "b1")] {
            bed.stdout(Node::Box, &format!("ip link add {near} type veth peer name {far}"));
            for end in [near, far] {
                bed.stdout(Node::Box, &format!("ethtool -K {end} tx off tso off gso off gro off"));
                bed.output(Node::Box, &format!("sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1"));
                bed.stdout(Node::Box, &format!("ip link set {end} up"));
            }
        }
        Some(bed)
    }

    fn new(test: &str, change: impl FnOnce(&mut Topology), turn: Turn) -> Option<Bed> {
        let mut topology = Topology::named(lab_name(test));
        change(&mut topology);
        match Guard::up(&topology) {
            Ok(lab) => Some(Bed { lab, folder: tempfile::tempdir().expect("a temporary folder"), turn }),
            Err(error @ (Error::Unprivileged | Error::MissingTool { .. })) => {
                println!("SKIP: {error}");
                None
            }
            Err(error) => panic!("the lab did not come up: {error}"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Any program in a node, not started yet.
    pub(crate) fn command(&self, node: Node, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.lab.command(node, program).expect("the program exists");
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// netlathe in a node, from a line that may contain single quotes.
    pub(crate) fn netlathe(&self, node: Node, line: &str) -> Command {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.command(node, netlathe(), &words)
    }

    /// Starts netlathe in a node, without waiting.
    pub(crate) fn start(&self, node: Node, line: &str) -> Program {
        Program::start(self.netlathe(node, line))
    }

    /// Runs netlathe in a node to its end.
    pub(crate) fn run(&self, node: Node, line: &str) -> Finished {
        self.start(node, line).wait()
    }

    /// Runs any program in a node to its end.
    pub(crate) fn output(&self, node: Node, line: &str) -> Output {
        let words = words(line);
        let arguments: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        self.command(node, &words[0], &arguments).output().expect("it starts")
    }

    /// The output of a program in a node. The program must succeed.
    pub(crate) fn stdout(&self, node: Node, line: &str) -> String {
        let output = self.output(node, line);
        assert!(output.status.success(), "{line} in {node}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until other programs leave the CPUs idle, if the test runs alone.
    pub(crate) fn await_quiet(&self) {
        if matches!(self.turn, Turn::Alone { .. }) {
            crate::quiet::await_quiet();
        }
    }

    /// Starts `shape` between `c0` and `s0` of the box, and waits until it carries frames.
    pub(crate) fn shape(&self, options: &str) -> Program {
        self.between("--in c0 --out s0", options)
    }

    /// Starts `shape` between ports of the box, and waits until it carries frames both ways between client and server.
    pub(crate) fn between(&self, ports: &str, options: &str) -> Program {
        self.await_quiet();
        let mut shape = self.start(Node::Box, &format!("shape {ports} --json --duration 60s {options}"));
        let start = Instant::now();
        while !self.output(Node::Client(1), "ping -c 1 -W 1 10.77.0.100").status.success() {
            if let Some(status) = shape.child.try_wait().expect("it can be asked") {
                panic!("shape ended at once: {status} {:?}", shape.take());
            }
            assert!(start.elapsed() < PATIENCE, "shape carries nothing");
        }
        shape
    }

    /// Starts `measure --write` at the server, and waits until it listens.
    pub(crate) fn capture(&self, name: &str) -> Program {
        let program = self.start(Node::Server, &format!("measure --in eth0 --json --write {name} --duration 60s"));
        let start = Instant::now();
        while !self.path(name).exists() {
            assert!(start.elapsed() < PATIENCE, "measure does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        program
    }

    /// Sends a stream from client `n` to the server. Returns the sender's report.
    pub(crate) fn send(&self, n: u16, size: u32, rate: &str, count: u64) -> Value {
        self.sender(n, size, rate, count).wait().report()
    }

    pub(crate) fn sender(&self, n: u16, size: u32, rate: &str, count: u64) -> Program {
        let line = format!(
            "gen --out eth0 --json --rate {rate} --count {count} --stream \
             'udp 10.77.0.{n}:1000 > 10.77.0.100:9 size {size}B smac 02:77:00:00:00:{n:02x} dmac 02:77:00:00:00:64'"
        );
        self.start(Node::Client(n), &line)
    }

    /// Whether an interface of the box runs an XDP program.
    pub(crate) fn has_xdp(&self, interface: &str) -> bool {
        self.stdout(Node::Box, &format!("ip link show dev {interface}")).contains("xdp")
    }

    /// The records of streams in a capture, without any bytes after the last whole record.
    pub(crate) fn streams(&self, name: &str) -> Vec<Record> {
        let (mut records, _) = self.records(name);
        records.retain(|record| {
            record.bytes.len() >= 50 && record.bytes[34..38] == [1000_u16.to_be_bytes(), 9_u16.to_be_bytes()].concat()
        });
        records
    }

    /// All whole records of a capture, and the number of bytes after them.
    pub(crate) fn records(&self, name: &str) -> (Vec<Record>, usize) {
        let bytes = fs::read(self.path(name)).expect("the capture is there");
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 1), "{name} is nanosecond pcap of Ethernet");
        let mut records = Vec::new();
        let mut at = 24;
        while at + 16 <= bytes.len() {
            let end = at + 16 + word(at + 8) as usize;
            if end > bytes.len() {
                break;
            }
            let ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
            records.push(Record { ns, bytes: bytes[at + 16..end].to_vec() });
            at = end;
        }
        (records, bytes.len() - at)
    }
}

impl Sequence {
    /// The sequence of the frames from a client that sent `count`.
    pub(crate) fn of(records: &[Record], client: u16, count: u64) -> Sequence {
        let mut seen = vec![false; count as usize];
        let mut sequence = Sequence::default();
        let mut highest = None;
        for record in records.iter().filter(|record| record.bytes[11] == client as u8) {
            let number = sequence_of(record);
            let seen = seen.get_mut(number as usize).expect("a number that was sent");
            sequence.arrived += 1;
            sequence.repeated += u64::from(*seen);
            sequence.late += u64::from(highest > Some(number));
            *seen = true;
            highest = highest.max(Some(number));
        }
        sequence.missing = seen.iter().filter(|seen| !**seen).count() as u64;
        sequence
    }
}

/// Returns the next message of a run at a notify socket like systemd's.
pub(crate) fn notified(socket: &UnixDatagram) -> Option<String> {
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// The sequence number in the stamp at the end of a frame.
pub(crate) fn sequence_of(record: &Record) -> u64 {
    let at = record.bytes.len() - 12;
    u32::from_be_bytes(record.bytes[at..at + 4].try_into().expect("four bytes")).into()
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Program {
        let line = format!("{command:?}");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        Program { child, line }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program has ended, reaped or not.
    pub(crate) fn has_ended(&self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        state.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.pid().to_string()]).status();
        assert!(status.expect("kill is there").success(), "{} has ended before", self.line);
    }

    /// Waits until the program ends.
    pub(crate) fn wait(mut self) -> Finished {
        let start = Instant::now();
        while self.child.try_wait().expect("it can be asked").is_none() {
            assert!(start.elapsed() < PATIENCE, "{} does not end", self.line);
            thread::sleep(Duration::from_millis(5));
        }
        self.take()
    }

    /// Ends the program as Ctrl-C does, and waits.
    pub(crate) fn stop(self) -> Finished {
        self.signal("INT");
        self.wait()
    }

    fn take(&mut self) -> Finished {
        let status = self.child.wait().expect("it can be waited for");
        let mut finished = Finished { status, stdout: String::new(), stderr: String::new() };
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_string(&mut finished.stdout).expect("UTF-8");
        }
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut finished.stderr).expect("UTF-8");
        }
        let runtime = format!("/var/run/dpdk/netlathe-{}", self.child.id());
        assert!(!Path::new(&runtime).exists(), "{} leaves {runtime}", self.line);
        finished
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // `kill` fails if the process has been waited for. Drop cannot report failures.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Finished {
    /// Returns the first pipeline in the report of a run that must have succeeded. Checks that its counters balance.
    pub(crate) fn report(&self) -> Value {
        assert_eq!(self.status.code(), Some(0), "{self:?}");
        self.whole_report()["pipelines"][0].clone()
    }

    /// Lines on stderr without notes, because a busy machine causes a note.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| !line.starts_with("netlathe: note: ")).collect()
    }

    /// The whole report, however the run ended.
    pub(crate) fn whole_report(&self) -> Value {
        let report: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        for pipeline in report["pipelines"].as_array().expect("pipelines") {
            assert_balanced(pipeline, pipeline["copies"].as_u64().expect("copies"));
            if pipeline["return"].is_object() {
                assert_balanced(&pipeline["return"], 0);
            }
        }
        report
    }

    /// Asserts that the run failed with status 2 and one line that contains all of `words`.
    #[track_caller]
    pub(crate) fn assert_refused(&self, words: &[&str]) {
        assert_eq!((self.status.code(), self.stdout.as_str()), (Some(2), ""), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("netlathe: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no '{word}' in {self:?}");
        }
    }
}

fn assert_balanced(books: &Value, copies: u64) {
    let dropped: u64 = books["drops"].as_object().expect("drops").values().map(|n| n.as_u64().expect("a count")).sum();
    let count = |pointer: &str| books.pointer(pointer).and_then(Value::as_u64).expect(pointer);
    let (arrived, left, held) = (count("/in/frames"), count("/out/frames"), count("/held"));
    assert_eq!(arrived + copies, left + dropped + held, "the books do not balance: {books}");
}

/// A figure of a report.
#[track_caller]
pub(crate) fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no count {pointer} in {report}"))
}

//! Runs the binary in a folder of the test, and parses its output independently of netlathe's code.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A folder in which commands run. It is removed after the test.
pub(crate) struct Bench(TempDir);

/// Exit status and output of a command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A line of `frames=FILE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) start_ps: u64,
    pub(crate) length: u64,
    pub(crate) filler: bool,
}

/// A record of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) ns: u64,
    pub(crate) bytes: Vec<u8>,
    /// Length on the line without FCS. The capture may hold fewer bytes.
    pub(crate) original: u32,
}

impl Record {
    /// A whole frame of `length` bytes with FCS that contains `number`.
    pub(crate) fn new(ns: u64, length: u32, number: u32) -> Self {
        let mut bytes = vec![0; length as usize - 4];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        bytes[14..18].copy_from_slice(&number.to_be_bytes());
        Record { ns, original: bytes.len() as u32, bytes }
    }
}

/// The format of a classic capture.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    pub(crate) big_endian: bool,
    pub(crate) nanoseconds: bool,
    pub(crate) link_type: u32,
}

impl Dialect {
    pub(crate) const USUAL: Dialect = Dialect { big_endian: false, nanoseconds: true, link_type: 1 };
}

/// The caveats of a kind in a report.
pub(crate) fn caveats<'a>(report: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = report["caveats"].as_array().expect("caveats");
    all.iter().filter(|caveat| caveat["kind"] == kind).collect()
}

/// The only caveat of a kind; null if there is none.
#[track_caller]
pub(crate) fn caveat(report: &Value, kind: &str) -> Value {
    let found = caveats(report, kind);
    assert!(found.len() < 2, "{kind}: {found:?}");
    found.first().map_or(Value::Null, |caveat| (*caveat).clone())
}

/// The caveat about a port.
#[cfg(feature = "live")]
#[track_caller]
pub(crate) fn port(report: &Value, name: &str) -> Value {
    let found = caveats(report, "port").into_iter().find(|port| port["port"] == name);
    found.unwrap_or_else(|| panic!("no port {name} in {report}")).clone()
}

impl Finished {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Finished { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The lines on stderr, except notes.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| !line.starts_with("netlathe: note: ")).collect()
    }

    /// Returns the report. Checks what must be true of any report.
    pub(crate) fn report(&self) -> Value {
        let report: Value = serde_json::from_str(&self.stdout).expect("one JSON object on stdout");
        assert_eq!(report["schema"], 2);
        for pipeline in report["pipelines"].as_array().expect("pipelines") {
            let drops = pipeline["drops"].as_object().expect("drops");
            let dropped: u64 = drops.values().map(|n| n.as_u64().expect("a count")).sum();
            let count = |pointer: &str| pipeline.pointer(pointer).and_then(Value::as_u64).expect(pointer);
            assert_eq!(
                count("/in/frames") + count("/copies"),
                count("/out/frames") + dropped + count("/held"),
                "the books of {pipeline} do not balance"
            );
        }
        report
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Bench(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns a command that runs in this folder. It is not started yet.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netlathe"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end, with any result.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Finished {
        Finished::of(self.command(arguments).output().expect("the binary runs"))
    }

    /// Runs a command that must succeed and print only its report and notes. Returns the report's first pipeline.
    pub(crate) fn report<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        let mut command = self.command(arguments);
        let finished = Finished::of(command.arg("--json").output().expect("the binary runs"));
        assert!(finished.status == Some(0) && finished.complaints().is_empty(), "{command:?}: {}", finished.stderr);
        finished.report()["pipelines"][0].take()
    }

    /// Writes `in.pcap`: `count` frames of a size, close enough together that no schedule is starved.
    pub(crate) fn generate(&self, size: &str, count: u64) {
        let stream = format!("udp 10.0.0.1:1000 > 10.0.0.2:2000 size {size}");
        let count = count.to_string();
        self.report(["gen", "--out", "pcap:in.pcap", "--stream", &stream, "--count", &count, "--gap", "1ns"]);
    }

    /// Names of the files in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the folder is there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect(name);
    }

    /// Reads a list of frames.
    pub(crate) fn listed(&self, name: &str) -> Vec<Listed> {
        let text = String::from_utf8(self.read(name)).expect("UTF-8");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("start_ps,length,kind"));
        let listed = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            assert!(fields.len() == 3 && ["data", "filler"].contains(&fields[2]), "{line}");
            let number = |text: &str| text.parse().expect("a whole number");
            Listed { start_ps: number(fields[0]), length: number(fields[1]), filler: fields[2] == "filler" }
        };
        lines.map(listed).collect()
    }

    /// Reads a little-endian nanosecond capture.
    pub(crate) fn records(&self, name: &str) -> Vec<Record> {
        let bytes = self.read(name);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 1), "{name} is nanosecond pcap of Ethernet");
        let mut records = Vec::new();
        let mut at = 24;
        while at < bytes.len() {
            let data = at + 16..at + 16 + word(at + 8) as usize;
            assert!(word(at + 4) < 1_000_000_000);
            let ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
            records.push(Record { ns, original: word(at + 12), bytes: bytes[data.clone()].to_vec() });
            at = data.end;
        }
        records
    }

    /// Writes a classic capture.
    pub(crate) fn capture(&self, name: &str, dialect: Dialect, records: &[Record]) {
        let mut bytes = Vec::new();
        let word = |bytes: &mut Vec<u8>, value: u32| {
            let ordered = if dialect.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            bytes.extend_from_slice(&ordered);
        };
        let version = if dialect.big_endian { 0x0002_0004 } else { 0x0004_0002 };
        let magic = if dialect.nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        for value in [magic, version, 0, 0, 65_535, dialect.link_type] {
            word(&mut bytes, value);
        }
        for record in records {
            let fraction = record.ns % 1_000_000_000 / if dialect.nanoseconds { 1 } else { 1_000 };
            let length = record.bytes.len() as u32;
            for value in [(record.ns / 1_000_000_000) as u32, fraction as u32, length, record.original] {
                word(&mut bytes, value);
            }
            bytes.extend_from_slice(&record.bytes);
        }
        self.write(name, bytes);
    }
}

/// Splits a command line like a shell that knows only single quotes.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Waits until the process catches SIGHUP, SIGINT and SIGTERM (bits 1, 2 and 15), according to /proc.
pub(crate) fn await_handlers(process: u32) {
    let caught = |mask: u64| mask & 0x4003 == 0x4003;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs still");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask of signals");
        if caught(u64::from_str_radix(mask.trim(), 16).expect("hexadecimal")) {
            return;
        }
        std::thread::yield_now();
    }
}

//! The parts of a scenario other than its pipelines: a lab and programs.

use crate::classes::is_name;
use crate::print::Quoted;
use crate::problem::Text;
use crate::reader::Reader;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use toml::de::{DeTable, DeValue};
use units::{ParseError, Span, nearest};

/// A lab to build for the run. Omitted settings have the defaults of `netlathe lab`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabPlan {
    /// Its name; unique to the run if omitted.
    pub name: Option<String>,
    /// Number of clients.
    pub clients: Option<u16>,
    /// MTU in bytes of all links.
    pub mtu: Option<u32>,
    /// Queues of each interface.
    pub queues: Option<u16>,
}

/// A program that runs beside the pipelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramPlan {
    /// Its name in the report and in expectations.
    pub name: String,
    /// The program and its arguments.
    pub command: CommandText,
    /// The node of the lab, or a network namespace of `ip netns`. `None` is the namespace of netlathe.
    pub namespace: Option<String>,
    /// Delay from `after`, or from the first frames, to its start.
    pub start: Span,
    /// The event that it waits for.
    pub after: Option<After>,
    /// When it counts as ready; immediately if `None`.
    pub ready: Option<Ready>,
    /// Time limit for becoming ready.
    pub ready_within: Span,
    /// The status that it must end with.
    pub status: ExpectedStatus,
}

/// A command as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandText {
    /// A line for `sh -c`.
    Shell(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

impl CommandText {
    /// The program and its arguments.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        match self {
            CommandText::Shell(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
            CommandText::Words(words) => words.clone(),
        }
    }
}

/// An event of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// The other program.
    pub name: String,
    /// True for its end, false for its becoming ready.
    pub end: bool,
}

impl After {
    fn parse(text: &str) -> Result<Self, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [name, "ready"] => Ok(After { name: name.to_owned(), end: false }),
            [name, "end"] => Ok(After { name: name.to_owned(), end: true }),
            _ => Err(ParseError::new(format!("'{text}' is not an event"), "write NAME ready or NAME end")),
        }
    }
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, if self.end { "end" } else { "ready" })
    }
}

/// The condition for a program to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Its namespace has a TCP socket that listens on this port.
    Tcp(u16),
    /// Its namespace has a UDP socket that is bound to this port.
    Udp(u16),
    /// A line of its output contains this text.
    Line(String),
    /// This file exists.
    File(PathBuf),
}

impl Ready {
    fn parse(text: &str) -> Result<Self, ParseError> {
        const HOW: &str = "write tcp PORT, udp PORT, line TEXT or file PATH";
        let (kind, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let rest = rest.trim();
        let port = || {
            let port = rest.parse::<u16>().ok().filter(|port| *port > 0);
            port.ok_or_else(|| ParseError::new(format!("'{rest}' is not a port"), "write a number from 1 to 65535"))
        };
        match kind {
            "tcp" => port().map(Ready::Tcp),
            "udp" => port().map(Ready::Udp),
            "line" if !rest.is_empty() => Ok(Ready::Line(rest.to_owned())),
            "file" if !rest.is_empty() => Ok(Ready::File(rest.into())),
            _ => Err(ParseError::new(format!("'{text}' does not say when the program is ready"), HOW)),
        }
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Tcp(port) => write!(f, "tcp {port}"),
            Ready::Udp(port) => write!(f, "udp {port}"),
            Ready::Line(text) => write!(f, "line {text}"),
            Ready::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// The status that a program must end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedStatus {
    /// It may run until the run ends. If it ends by itself, the status must be 0.
    ZeroIfEnded,
    /// It must end by itself with this status.
    Exactly(u8),
    /// Any status. It may also run until the run ends.
    Any,
}

/// The default time limit for becoming ready.
const READY_WITHIN: Span = Span::from_ms(10_000);

impl Reader<'_> {
    /// The `[lab]` of a scenario.
    pub(crate) fn lab(&mut self, document: &DeTable<'_>) -> Option<LabPlan> {
        let value = document.get("lab")?;
        let DeValue::Table(table) = value.get_ref() else {
            self.add(value.span(), "lab is one table: write [lab]");
            return None;
        };
        self.check_keys(table, "lab");
        let name = self.text(table, "name");
        let fits = |name: &str| {
            let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
            !name.is_empty()
                && name.len() <= 32
                && name.bytes().all(known)
                && !name.starts_with('-')
                && !name.ends_with('-')
        };
        if let Some(text) = name.as_ref().filter(|name| !fits(&name.value)) {
            let message = format!(
                "'{}' is not a valid lab name: use lower-case letters, digits and inner dashes, at most 32",
                text.value
            );
            self.problems.add(&text.origin, message);
        }
        let mut number = |key: &str, least: u64, most: u64| {
            let value = table.get(key)?;
            let number = self.integer(value)?;
            if !(least..=most).contains(&number) {
                self.add(value.span(), format!("{key} = {number} is out of range: write {least} to {most}"));
            }
            u32::try_from(number).ok()
        };
        let short = |number: Option<u32>| number.and_then(|number| u16::try_from(number).ok());
        let clients = short(number("clients", 1, 99));
        let mtu = number("mtu", 68, 65_535);
        let queues = short(number("queues", 1, 64));
        Some(LabPlan { name: name.map(|name| name.value), clients, mtu, queues })
    }

    /// The `[[program]]` tables; `pipelines` are the names already in use.
    pub(crate) fn programs(
        &mut self,
        document: &DeTable<'_>,
        lab: Option<&LabPlan>,
        pipelines: &[String],
    ) -> Vec<ProgramPlan> {
        let tables = self.tables(document, "program");
        let all: Vec<String> =
            tables.iter().filter_map(|(_, table)| Some(table.get("name")?.get_ref().as_str()?.to_owned())).collect();
        let mut plans: Vec<ProgramPlan> = Vec::new();
        let mut events: Vec<(String, Text, After)> = Vec::new();
        for (span, table) in tables {
            self.check_keys(table, "program");
            let Some(name) = self.program_name(table, &span, pipelines, &plans) else { continue };
            let command = self.command(table, span);
            let namespace = self.text(table, "namespace");
            if let (Some(text), Some(lab)) = (&namespace, lab) {
                self.check_node(text, lab);
            }
            let start = self.text(table, "start").and_then(|text| self.problems.read(&text, str::parse::<Span>));
            let after = self.text(table, "after").and_then(|text| {
                let after = self.problems.read(&text, After::parse)?;
                events.push((name.clone(), text, after.clone()));
                Some(after)
            });
            let ready = self.text(table, "ready").and_then(|text| self.problems.read(&text, Ready::parse));
            let within =
                self.text(table, "ready-within").and_then(|text| self.problems.read(&text, str::parse::<Span>));
            let status = self.status(table);
            let Some(command) = command else { continue };
            plans.push(ProgramPlan {
                name,
                command,
                namespace: namespace.map(|text| text.value),
                start: start.unwrap_or(Span::ZERO),
                after,
                ready,
                ready_within: within.unwrap_or(READY_WITHIN),
                status,
            });
        }
        for (name, text, after) in &events {
            self.check_program(text, &after.name, &all);
            // Follows the chain of programs that wait for each other; a cycle leads back here.
            let mut at = after.name.as_str();
            for _ in 0..events.len() {
                if at == name {
                    let message = format!("'{name}' would wait for itself: start one of these programs without after");
                    self.problems.add(&text.origin, message);
                    break;
                }
                match events.iter().find(|(of, ..)| of == at) {
                    Some((.., next)) => at = &next.name,
                    None => break,
                }
            }
        }
        plans
    }

    fn program_name(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        pipelines: &[String],
        before: &[ProgramPlan],
    ) -> Option<String> {
        let Some(text) = self.text(table, "name") else {
            if !table.contains_key("name") {
                self.add(span.clone(), "the program's name is missing: write name = \"client\"");
            }
            return None;
        };
        let name = text.value;
        let problem = if !is_name(&name) {
            format!("'{name}' is not a valid name of a program: write letters, digits, - and _, with a letter first")
        } else if before.iter().any(|other| other.name == name) {
            format!("program '{name}' already exists: use another name")
        } else if let Some(pipeline) =
            pipelines.iter().find(|other| **other == name || other.starts_with(&format!("{name}.")))
        {
            format!("expectations of program '{name}' could mean pipeline '{pipeline}': use another name")
        } else {
            return Some(name);
        };
        self.problems.add(&text.origin, problem);
        None
    }

    fn command(&mut self, table: &DeTable<'_>, span: Range<usize>) -> Option<CommandText> {
        let Some(value) = table.get("command") else {
            self.add(span, "the command is missing: write command = [\"iperf3\", \"-s\"]");
            return None;
        };
        let before = self.problems.0.len();
        let command = match value.get_ref() {
            DeValue::Array(_) => {
                CommandText::Words(self.texts(table, "command").into_iter().map(|text| text.value).collect())
            }
            _ => CommandText::Shell(self.text(table, "command")?.value),
        };
        let words = command.words();
        if self.problems.0.len() == before && words.first().is_none_or(|word| word.trim().is_empty())
            || words.last().is_some_and(|line| matches!(command, CommandText::Shell(_)) && line.trim().is_empty())
        {
            self.add(value.span(), "the command is empty: write command = [\"iperf3\", \"-s\"]");
            return None;
        }
        Some(command)
    }

    fn status(&mut self, table: &DeTable<'_>) -> ExpectedStatus {
        let Some(value) = table.get("status") else { return ExpectedStatus::ZeroIfEnded };
        if value.get_ref().as_str() == Some("any") {
            return ExpectedStatus::Any;
        }
        if value.get_ref().is_str() {
            self.add(value.span(), "this is not a status: write a number from 0 to 255, or \"any\"");
            return ExpectedStatus::Any;
        }
        match self.integer(value).map(u8::try_from) {
            Some(Ok(status)) => ExpectedStatus::Exactly(status),
            Some(Err(_)) => {
                self.add(value.span(), "this is not a status: write 0 to 255");
                ExpectedStatus::Any
            }
            None => ExpectedStatus::Any,
        }
    }

    fn check_node(&mut self, text: &Text, lab: &LabPlan) {
        let clients = lab.clients.unwrap_or(1);
        let mut nodes = vec!["client".to_owned()];
        nodes.extend((1..=clients).map(|n| format!("client{n}")));
        nodes.extend(["box".to_owned(), "server".to_owned()]);
        if clients > 1 {
            nodes.push("switch".to_owned());
        }
        if !nodes.contains(&text.value) {
            let known: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let how = match nearest(&text.value, &known) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("write one of {}", known.join(", ")),
            };
            self.problems.add(&text.origin, format!("'{}' is not a node of the lab: {how}", text.value));
        }
    }

    /// Adds a problem if there is no program of this name.
    pub(crate) fn check_program(&mut self, text: &Text, name: &str, all: &[String]) {
        if !all.iter().any(|other| other == name) {
            let known: Vec<&str> = all.iter().map(String::as_str).collect();
            let how = match nearest(name, &known) {
                Some(meant) => format!("did you mean {meant}?"),
                None if known.is_empty() => "write [[program]] with this name".to_owned(),
                None => format!("write one of {}", known.join(", ")),
            };
            self.problems.add(&text.origin, format!("'{name}' is not a program: {how}"));
        }
    }
}

impl fmt::Display for LabPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[lab]")?;
        if let Some(name) = &self.name {
            writeln!(f, "name = {}", Quoted(name))?;
        }
        let numbers =
            [("clients", self.clients.map(u32::from)), ("mtu", self.mtu), ("queues", self.queues.map(u32::from))];
        numbers
            .iter()
            .filter_map(|(key, number)| Some((key, (*number)?)))
            .try_for_each(|(key, n)| writeln!(f, "{key} = {n}"))
    }
}

impl fmt::Display for ProgramPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[[program]]\nname = {}", Quoted(&self.name))?;
        match &self.command {
            CommandText::Shell(line) => writeln!(f, "command = {}", Quoted(line))?,
            CommandText::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| Quoted(word).to_string()).collect();
                writeln!(f, "command = [{}]", words.join(", "))?;
            }
        }
        if let Some(namespace) = &self.namespace {
            writeln!(f, "namespace = {}", Quoted(namespace))?;
        }
        if self.start > Span::ZERO {
            writeln!(f, "start = {}", Quoted(self.start))?;
        }
        if let Some(after) = &self.after {
            writeln!(f, "after = {}", Quoted(after))?;
        }
        if let Some(ready) = &self.ready {
            writeln!(f, "ready = {}", Quoted(ready))?;
        }
        if self.ready_within != READY_WITHIN {
            writeln!(f, "ready-within = {}", Quoted(self.ready_within))?;
        }
        match self.status {
            ExpectedStatus::ZeroIfEnded => Ok(()),
            ExpectedStatus::Exactly(status) => writeln!(f, "status = {status}"),
            ExpectedStatus::Any => writeln!(f, "status = \"any\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::read;

    const GOOD: &str = r#"
schema = 1
until = "client"
[lab]
clients = 2
mtu = 9000
[[program]]
name = "server"
command = ["iperf3", "-s", "-1"]
namespace = "server"
ready = "tcp 5201"
[[program]]
name = "client"
command = "iperf3 -c $NETLATHE_SERVER --json"
namespace = "client2"
after = "server ready"
start = "500ms"
ready = "line Connecting to"
ready-within = "2s"
status = 3
[[pipeline]]
name = "down"
in = "c0"
out = "s0"
stages = ["delay 5ms"]
[[expect]]
that = "client.duration < 5s"
[[expect]]
that = "client.json./end/sum_received/bits_per_second > 9e6"
[[expect]]
that = "down.delay.mean >= 5ms"
"#;

    #[test]
    fn labs_and_programs_survive_printing_and_parsing() {
        let scenario = read("a.toml", GOOD, None).expect("a scenario");
        assert_eq!(scenario.programs.len(), 2);
        assert_eq!(scenario.expectations[1].path, ["client", "json", "/end/sum_received/bits_per_second"]);
        let printed = scenario.to_string();
        assert_eq!(read("b.toml", &printed, None).as_ref(), Ok(&scenario), "{printed}");
    }

    #[test]
    fn commands_that_are_not_tables_are_refused_by_name() {
        for name in ["disk", "search", "slice"] {
            let error = read("a.toml", &format!("{GOOD}[[{name}]]\n"), None).expect_err(name).to_string();
            assert!(error.contains(&format!("'{name}' is not a table of a scenario")), "{error}");
            assert!(error.contains(&format!("command = \"netlathe {name} …\"")), "{error}");
        }
    }

    #[test]
    fn errors_of_labs_and_programs_have_their_position() {
        for (good, bad, expected) in [
            ("\"client2\"", "\"client3\"", "15:13: 'client3' is not a node of the lab: did you mean client?"),
            ("\"client2\"", "\"Server\"", "'Server' is not a node of the lab: did you mean server?"),
            ("clients = 2", "clients = 0", "5:11: clients = 0 is out of range: write 1 to 99"),
            ("mtu = 9000", "mtu = 67", "6:7: mtu = 67 is out of range: write 68 to 65535"),
            ("until = \"client\"", "until = \"cleint\"", "3:9: 'cleint' is not a program: did you mean client?"),
            ("\"server ready\"", "\"sever ready\"", "16:9: 'sever' is not a program: did you mean server?"),
            ("\"server ready\"", "\"server up\"", "16:9: 'server up' is not an event: write NAME ready or NAME end"),
            ("\"server ready\"", "\"client end\"", "16:9: 'client' would wait for itself"),
            ("tcp 5201", "tcp 0", "11:9: '0' is not a port"),
            ("tcp 5201", "http", "11:9: 'http' does not say when the program is ready: write tcp PORT"),
            ("status = 3", "status = 300", "20:10: this is not a status"),
            ("[\"iperf3\", \"-s\", \"-1\"]", "[]", "9:11: the command is empty"),
            (
                "name = \"server\"\n",
                "name = \"down\"\n",
                "8:8: expectations of program 'down' could mean pipeline 'down'",
            ),
            ("name = \"server\"\n", "name = \"client\"\n", "program 'client' already exists"),
            ("name = \"server\"\n", "", "7:1: the program's name is missing"),
            ("client.duration < 5s", "client.duration < 5Mbps", "duration is a time"),
            ("client.duration < 5s", "client.status < 5s", "status is a count"),
            (
                "client.duration < 5s",
                "client.durration < 5s",
                "'durration' is no figure of client: write client.duration",
            ),
            ("> 9e6", "> 9s", "a figure of a program's own output has no known unit: write a plain number"),
            (
                "client.duration < 5s",
                "clint.duration < 5s",
                "'clint' is not a pipeline or program: write one of down, server, client",
            ),
        ] {
            assert!(GOOD.contains(good), "{good}");
            let error = read("a.toml", &GOOD.replacen(good, bad, 1), None).expect_err(bad).to_string();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }
}

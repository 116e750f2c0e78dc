//! Output: reports, notes and failures.

pub(crate) mod stderr;

pub(crate) use measure::figures::{bits, brief, counted, digits, share, thousands, time};
use measure::{Report, Unit};
use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Why a command ended with status 2: one line for each problem.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// The exit status of usage, configuration and system errors.
    pub(crate) const STATUS: u8 = 2;
    /// The exit status of a run that missed an expectation.
    pub(crate) const MISSED: u8 = 1;

    pub(crate) fn new(problem: impl fmt::Display) -> Self {
        Failure(problem.to_string())
    }

    #[cfg(not(feature = "live"))]
    pub(crate) fn no_live_ports() -> Self {
        Failure::new("this netlathe was built without live ports: build it with the default features")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Joins all failures into one, with a line for each.
pub(crate) fn all(done: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let problems: Vec<String> = done.into_iter().filter_map(Result::err).map(|failure| failure.0).collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure(problems.join("\n"))) }
}

/// Reserves stdout for a capture: from now on, reports go to stderr.
pub(crate) fn leave_stdout() {
    STDOUT_LEFT.store(true, Ordering::Relaxed);
}

static STDOUT_LEFT: AtomicBool = AtomicBool::new(false);

/// Prints on stdout. A closed stdout is not an error, as usual on UNIX.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    is_read(text).map(drop)
}

/// Prints one of many items on stdout. Returns false if stdout is closed, so that the caller can stop.
pub(crate) fn is_read(text: &str) -> Result<bool, Failure> {
    styled(&shown(text))
}

/// Prints styled text on stdout without changes. Returns false if stdout is closed.
pub(crate) fn styled(text: &str) -> Result<bool, Failure> {
    if STDOUT_LEFT.load(Ordering::Relaxed) {
        stderr::write(text.to_owned());
        return Ok(true);
    }
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Failure::new(format!("cannot write to stdout: {cause}"))),
    }
}

/// Set while the line "starting" is on the terminal. A message printed then replaces the line.
static STARTING: AtomicBool = AtomicBool::new(false);

/// Sets whether the line "starting" is on the terminal.
pub(crate) fn set_starting(is_shown: bool) {
    STARTING.store(is_shown, Ordering::Relaxed);
}

/// Returns the escape sequence that clears the line "starting", or nothing if the line is not shown.
fn clears() -> &'static str {
    if STARTING.load(Ordering::Relaxed) { "\r\u{1b}[2K" } else { "" }
}

/// Writes a message to stderr as one whole line, because DPDK also writes there.
pub(crate) fn say(text: impl fmt::Display) {
    stderr::write(format!("{}netlathe: {}\n", clears(), visible(&text.to_string())));
}

/// Writes a line to stderr during a run, without the prefix `netlathe:`.
pub(crate) fn line(text: impl fmt::Display) {
    stderr::write(format!("{}\n", visible(&text.to_string())));
}

/// Whether a character controls a terminal instead of being printed: control characters, those of bidirectional text,
/// and line separators.
fn moves(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes these characters as JSON does, so that escaped JSON still has the same meaning. Keeps newlines and tabs.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    let hidden = |character: char| moves(character) && !matches!(character, '\n' | '\t');
    if !text.contains(hidden) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match hidden(character) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => out.push(character),
        }
    }
    out.into()
}

/// Escapes the control characters in a line. Names of files, and names in files, must not move the cursor, colour the
/// terminal or start a new line.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(moves) {
        return text.into();
    }
    let mut line = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match moves(character) {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line.into()
}

/// Prints a note on stderr.
pub(crate) fn note(text: impl fmt::Display) {
    say(format_args!("note: {text}"));
}

/// Prints a warning that also appears at the top of the report.
pub(crate) fn warn(text: impl fmt::Display) {
    let text = text.to_string();
    note(&text);
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !printed.contains(&text) {
        printed.push(text);
    }
}

/// Warns that a file lacks records, if it does.
pub(crate) fn warn_of_lacks(path: &Path, missed: u64, what: &str) {
    if missed > 0 {
        // A regular file has no reader that could be too slow.
        let why = if path.is_file() { "the disk was too slow or is full" } else { "its reader was too slow" };
        warn(format!("{} lacks {} because {why}", path.display(), counted(missed, what)));
    }
}

/// The warnings so far.
pub(crate) fn warnings() -> Vec<String> {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The warnings of this process. One list is enough, because a command has one report.
static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Formats a figure with its unit and all digits, because only the last digits may distinguish it from its bound.
pub(crate) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Time => format!("{value} ns"),
        Unit::BitRate => format!("{value} bit/s"),
        Unit::FrameRate => format!("{value} frames/s"),
        Unit::Ratio => format!("{} %", digits(value * 100.0, 15)),
        Unit::Bytes => format!("{value} B"),
        Unit::ByteRate => format!("{value} B/s"),
        Unit::Count | Unit::Number => value.to_string(),
    }
}

/// The report as JSON.
pub(crate) fn json(report: &Report) -> Result<String, Failure> {
    let text =
        serde_json::to_string(report).map_err(|error| Failure::new(format!("cannot write the report: {error}")))?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_text_acts_on_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
        assert_eq!(shown("eth\u{1b}[2J\n\tx\u{9b}\u{2066}\r"), "eth\\u001b[2J\n\tx\\u009b\\u2066\\u000d");
        assert_eq!(shown("größe µs ±\n"), "größe µs ±\n");
        let name = "pa\u{202e}ck\u{7f}";
        let json = format!("{}\n", serde_json::json!({ "name": name }));
        let read: serde_json::Value = serde_json::from_str(&shown(&json)).expect("still JSON");
        assert_eq!(read["name"], name);
    }
}

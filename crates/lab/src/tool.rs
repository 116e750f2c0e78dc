//! Runs `ip` and `ethtool`, and interprets their failures.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::error::{Error, Result};

/// The required programs and their Debian packages.
const TOOLS: [(&str, &str); 3] = [("ip", "iproute2"), ("bridge", "iproute2"), ("ethtool", "ethtool")];

/// Checks before building that every program is installed.
pub(crate) fn check_all() -> Result<()> {
    for (program, package) in TOOLS {
        if which(program).is_none() {
            return Err(Error::MissingTool { program, package });
        }
    }
    Ok(())
}

/// Finds a program: a path if it contains a slash, else in PATH and the administrators' folders, which PATH of ordinary
/// users lacks on Debian.
#[must_use]
pub fn which(program: &str) -> Option<PathBuf> {
    let executable = |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| executable(path));
    }
    std::env::split_paths(&search_path()).map(|folder| folder.join(program)).find(|path| executable(path))
}

/// PATH with the administrators' folders appended.
pub(crate) fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    if path.is_empty() { "/usr/sbin:/usr/bin:/sbin:/bin".to_owned() } else { format!("{path}:/usr/sbin:/sbin") }
}

/// A command with the search path above and English messages, because some are parsed.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path()).env("LC_ALL", "C");
    command
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().map_err(Error::io(format!("cannot run `{}`", line_of(&command))))?;
    if !output.status.success() {
        return Err(failure(line_of(&command), &output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to its end and reads its standard output as JSON.
pub(crate) fn json(command: Command) -> Result<Value> {
    let shown = line_of(&command);
    serde_json::from_str(&output(command)?).map_err(|error| Error::Tool {
        command: shown,
        detail: format!("its output is not JSON: {error}"),
        remedy: "iproute2 4.17 or later is needed",
    })
}

/// Runs lines of `ip` (or `bridge`) commands in one process, in a namespace or, with `None`, in ours. Stops at the
/// first failing line, which the error shows as a command to repeat by hand.
pub(crate) fn batch(program: &str, namespace: Option<&str>, lines: &[String]) -> Result<()> {
    let mut command = command(program);
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = line_of(&command);
    let mut child = command.spawn().map_err(Error::io(format!("cannot run `{shown}`")))?;
    let mut text = lines.join("\n");
    text.push('\n');
    // Ignore a write error here: a tool that fails early closes the pipe, and its own message is more helpful.
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(Error::io(format!("cannot wait for `{shown}`")))?;
    if output.status.success() {
        return match written {
            Some(Err(error)) => Err(Error::io(format!("cannot write to `{shown}`"))(error)),
            _ => Ok(()),
        };
    }
    let culprit = failed_line(&String::from_utf8_lossy(&output.stderr)).and_then(|n| lines.get(n - 1));
    let line = match (culprit, namespace) {
        (Some(line), Some(namespace)) => format!("{program} -n {namespace} {line}"),
        (Some(line), None) => format!("{program} {line}"),
        (None, _) => shown,
    };
    Err(failure(line, &output))
}

/// The line number, from 1, in the tools' `Command failed -:3`.
fn failed_line(stderr: &str) -> Option<usize> {
    let at = stderr.lines().find_map(|line| line.strip_prefix("Command failed "))?;
    at.rsplit_once(':')?.1.trim().parse().ok().filter(|&n| n > 0)
}

fn failure(command: String, output: &Output) -> Error {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> =
        stderr.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("Command failed ")).collect();
    let detail = if lines.is_empty() { output.status.to_string() } else { lines.join("; ") };
    let remedy = remedy(&detail);
    Error::Tool { command, detail, remedy }
}

/// The remedy for an error of the kernel.
fn remedy(detail: &str) -> &'static str {
    let has = |text: &str| detail.contains(text);
    if has("Operation not permitted") || has("Permission denied") {
        "run it as root, or let `netlathe lab run` make a user namespace"
    } else if has("File exists") {
        "something of that name is left over: `netlathe lab list` shows labs, `netlathe lab down NAME` removes one"
    } else if has("Unknown device type") || has("Operation not supported") || has("Not supported") {
        "this kernel lacks a part that labs need (CONFIG_VETH, CONFIG_BRIDGE, CONFIG_NET_NS); `netlathe doctor` says which"
    } else if has("No space left") || has("Too many open files") {
        "a limit on namespaces is reached: see `sysctl user.max_net_namespaces` and `netlathe lab list`"
    } else {
        "repeat it by hand to see more, and take what is left down with `netlathe lab down`"
    }
}

/// A command as typed in a shell.
pub(crate) fn line_of(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        line.push(' ');
        if argument.is_empty() || argument.contains(|c: char| c.is_whitespace() || "'\"$;&|<>()".contains(c)) {
            line.push_str(&format!("'{}'", argument.replace('\'', r"'\''")));
        } else {
            line.push_str(&argument);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_failed_line_of_a_batch() {
        assert_eq!(failed_line("RTNETLINK answers: File exists\nCommand failed -:3\n"), Some(3));
        assert_eq!(failed_line("Command failed -:0\n"), None);
        assert_eq!(failed_line("something else"), None);
    }

    #[test]
    fn shown_commands_can_be_typed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'a b'", ""]);
        assert_eq!(line_of(&command), r"sh -c 'echo '\''a b'\''' ''");
    }

    #[test]
    fn finds_programs_in_administrators_folders() {
        assert!(which("sh").is_some() && which("/bin/sh").is_some());
        assert!(which("no-such-program-here").is_none() && which("/bin").is_none());
        assert!(search_path().split(':').any(|folder| folder == "/usr/sbin"));
    }
}

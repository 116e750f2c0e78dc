//! A lab of source, box and receiver, and the programs that run in it.

use crate::Outcome;
use lab::{Guard, Node, Topology};
use serde_json::Value;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The lab. Dropping this value removes it.
pub(crate) struct Bed {
    lab: Guard,
}

impl Bed {
    /// Builds a lab for a part of the bench. If labs are unavailable, prints the reason and returns `None`.
    pub(crate) fn up(part: &str) -> Result<Option<Bed>, Box<dyn Error>> {
        match Guard::up(&Topology::named(format!("{part}{}", std::process::id()))) {
            Ok(lab) => Ok(Some(Bed { lab })),
            Err(error @ (lab::Error::Unprivileged | lab::Error::MissingTool { .. })) => {
                println!("{part}: SKIP: {error}");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Runs a command line in a node. It must succeed.
    pub(crate) fn sh(&self, node: Node, line: &str) -> Result<String, Box<dyn Error>> {
        let mut words = line.split_whitespace();
        let output = self.command(node, words.next().unwrap_or("true"))?.args(words).output()?;
        if !output.status.success() {
            return Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sends from a node with the bare loop of `programs`, to its end.
    pub(crate) fn send(&self, node: Node, interface: &str, gap: u64, count: u64, batch: u64, sizes: &str) -> Outcome {
        self.sender(node, interface, gap, count, batch, sizes)?.end()
    }

    /// Sends like [`Bed::send`], but returns once everything is sent and leaves the program running until
    /// [`Sender::end`]. Freeing its memory occupies a CPU for milliseconds, which could delay departures of the program
    /// under test.
    pub(crate) fn sender(
        &self,
        node: Node,
        interface: &str,
        gap: u64,
        count: u64,
        batch: u64,
        sizes: &str,
    ) -> Result<Sender, Box<dyn Error>> {
        let mut command = self.command(node, std::env::current_exe()?)?;
        command.args(["send", interface, &gap.to_string(), &count.to_string(), &batch.to_string(), sizes]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let sent = BufReader::new(child.stdout.take().ok_or("piped")?).read_line(&mut String::new())?;
        let sender = Sender(child);
        if sent == 0 { Err(sender.end().err().unwrap_or_else(|| "a sender says nothing".into())) } else { Ok(sender) }
    }

    /// Starts a receiver at the server, and waits until it listens.
    pub(crate) fn receiver(&self, gap: u64, count: u64) -> Result<Receiver, Box<dyn Error>> {
        self.receives(Node::Server, "receive-by-kernel", "eth0", gap, count)
    }

    /// Starts a receiver in the driver of a device of the box. The device need not exist yet.
    pub(crate) fn receiver_in_driver(&self, interface: &str, gap: u64, count: u64) -> Result<Receiver, Box<dyn Error>> {
        self.receives(Node::Box, "receive-in-driver", interface, gap, count)
    }

    fn receives(
        &self,
        node: Node,
        program: &str,
        interface: &str,
        gap: u64,
        count: u64,
    ) -> Result<Receiver, Box<dyn Error>> {
        let mut command = self.command(node, std::env::current_exe()?)?;
        command.args([program, interface, &gap.to_string(), &count.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("piped")?);
        output.read_line(&mut String::new())?;
        Ok(Receiver { child, output })
    }

    /// Returns a command that runs a program in a node.
    pub(crate) fn command(&self, node: Node, program: impl AsRef<std::ffi::OsStr>) -> Result<Command, Box<dyn Error>> {
        Ok(self.lab.command(node, program)?)
    }
}

/// A program that has sent everything and still runs.
pub(crate) struct Sender(Child);

impl Sender {
    /// Ends the program by closing its stdin, and waits for it.
    pub(crate) fn end(mut self) -> Outcome {
        drop(self.0.stdin.take());
        finish(self.0)
    }
}

/// A receiver that stores the frames of a run until its figures are read.
pub(crate) struct Receiver {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Receiver {
    /// Tells the receiver that the run is over, and reads its figures.
    pub(crate) fn figures(mut self) -> Result<Value, Box<dyn Error>> {
        self.child.stdin.take().ok_or("piped")?.write_all(b"drain\n")?;
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        finish(self.child)?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Waits for a program, which must succeed.
pub(crate) fn finish(mut child: Child) -> Outcome {
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("a program of the bench ended with {status}").into()) }
}

/// Ends a program as Ctrl-C does, and waits for it.
pub(crate) fn interrupt(child: Child) -> Outcome {
    Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status()?;
    finish(child)
}

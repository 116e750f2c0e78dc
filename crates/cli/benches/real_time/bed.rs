//! A lab of source, box and receiver, with the programs in it.

use crate::Outcome;
use lab::{Guard, Node, Topology};
use serde_json::Value;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The lab, which is removed when this value is dropped.
pub(crate) struct Bed {
    lab: Guard,
}

impl Bed {
    /// A lab for a part of the bench. If labs are unavailable, prints the reason and returns `None`.
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

    /// Sends from a node with the bare loop, see `programs`.
    pub(crate) fn send(&self, node: Node, interface: &str, gap: u64, count: u64, batch: u64, sizes: &str) -> Outcome {
        self.sender(node, interface, gap, count, batch, sizes)?.end()
    }

    /// The same, until everything is sent. The program then stays alive until a signal ends it: freeing its memory
    /// occupies a CPU for milliseconds, perhaps that of a departure.
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

    /// A receiver at the server, which is listening.
    pub(crate) fn receiver(&self, gap: u64, count: u64) -> Result<Receiver, Box<dyn Error>> {
        self.receives(Node::Server, "receive-by-kernel", "eth0", gap, count)
    }

    /// A receiver in the driver of a device of the box that does not exist yet.
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

    /// A program in a node.
    pub(crate) fn command(&self, node: Node, program: impl AsRef<std::ffi::OsStr>) -> Result<Command, Box<dyn Error>> {
        Ok(self.lab.command(node, program)?)
    }
}

/// A sender that has sent everything.
pub(crate) struct Sender(Child);

impl Sender {
    /// Ends it.
    pub(crate) fn end(mut self) -> Outcome {
        drop(self.0.stdin.take());
        finish(self.0)
    }
}

/// A receiver that stores a run in its ring.
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

//! What can go wrong, and what to do about it: every message ends in a remedy or names the thing to change.

use std::path::PathBuf;

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a lab could not be built, found, used or taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The topology cannot be built as written.
    #[error("{0}")]
    Topology(String),

    /// Text that names no node.
    #[error("`{0}` is no node of a lab: use `client` (or `client1`, `client2`, …), `box`, `server` or `switch`")]
    UnknownNode(String),

    /// The node does not exist in this lab.
    #[error("lab `{lab}` has no `{node}`: it has {has}")]
    NoSuchNode {
        /// The lab's name.
        lab: String,
        /// The node asked for.
        node: String,
        /// The nodes that exist.
        has: String,
    },

    /// A program that labs are built with is not installed.
    #[error("`{program}` is not installed; labs are built with it: apt-get install {package}")]
    MissingTool {
        /// The program's name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },

    /// The command that was to be run in the lab does not exist.
    #[error("cannot run `{0}` in the lab: no such program in PATH, or it is not executable")]
    NoProgram(String),

    /// `run` was given nothing to run.
    #[error("no command was given to run in the lab: netlathe lab run [--on NODE] -- COMMAND [ARGUMENT…]")]
    NoCommand,

    /// A tool ran and failed.
    #[error("`{command}` failed: {detail}; {remedy}")]
    Tool {
        /// The command line, fit to be run by hand.
        command: String,
        /// What it wrote to its standard error.
        detail: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// Offloads that change frames could not be turned off.
    #[error(
        "{namespace}/{interface}: {features} cannot be turned off, so frames there would not be what applications send; \
         this kernel's veth is not fit for a lab"
    )]
    Offloads {
        /// The namespace.
        namespace: String,
        /// The interface.
        interface: String,
        /// The features still on.
        features: String,
    },

    /// A lab of that name is there.
    #[error("lab `{0}` is already up: use it, choose another name, or take it down with `netlathe lab down {0}`")]
    Exists(String),

    /// A lab of that name is there, and the process that it belonged to is gone.
    #[error("lab `{name}` was left behind by process {pid}, which is gone: remove it with `netlathe lab down {name}`")]
    LeftBehind {
        /// The lab's name.
        name: String,
        /// The process that built it.
        pid: u32,
    },

    /// A lab of that name is being built by a live process, or was given up half-way.
    #[error(
        "lab `{0}` is not complete: it is being built right now, or its building was cut off; \
         in the second case remove it with `netlathe lab down {0}`"
    )]
    Incomplete(String),

    /// A lab of that name belongs to another command, with whose end it goes.
    #[error(
        "lab `{name}` belongs to process {pid} and goes down when that ends: choose another name with --name, or put \
         NETLATHE_LAB={name} before the command to run it there all the same"
    )]
    Held {
        /// The lab's name.
        name: String,
        /// The process that built it.
        pid: u32,
    },

    /// A lab of that name is up, and is not what was asked for.
    #[error("lab `{name}` is up with {what} {has}, not {said}: leave --{what} out, or choose another name with --name")]
    Shape {
        /// The lab's name.
        name: String,
        /// What is different, as its option is called.
        what: &'static str,
        /// What was said.
        said: u32,
        /// What the lab has.
        has: u32,
    },

    /// Namespaces of that lab are there, its record is not.
    #[error("lab `{0}` has namespaces but no record of them: remove them with `netlathe lab down {0}`")]
    Unrecorded(String),

    /// There is no such lab.
    #[error("there is no lab `{0}`: bring it up with `netlathe lab up {0}`, or see `netlathe lab list`")]
    NotUp(String),

    /// A record of a lab cannot be understood.
    #[error("the record {path} cannot be read ({detail}): remove the lab with `netlathe lab down {name}`")]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
        /// The lab's name.
        name: String,
    },

    /// The process lacks the rights to build a lab.
    #[error(
        "a lab needs root, or a user namespace: `netlathe lab run -- COMMAND` makes one by itself; \
         `netlathe lab up` outlives its process and so needs root"
    )]
    Unprivileged,

    /// The kernel, or its configuration, permits no user namespaces to ordinary users.
    #[error(
        "a lab without root needs user namespaces, and this machine refuses them ({detail}): run it as root, or allow \
         them: {remedy}"
    )]
    UserNamespaceRefused {
        /// What the attempt said.
        detail: String,
        /// What allows them.
        remedy: String,
    },

    /// A system call on a file or a process failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done to what.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

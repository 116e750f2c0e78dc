//! Errors of labs. Every message ends in a remedy or names the setting to change.

use std::path::PathBuf;

/// This crate's result type.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a lab could not be built, found, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The topology is invalid.
    #[error("{0}")]
    Topology(String),

    /// A text that names no node.
    #[error(
        "`{0}` is not a lab node: use `client` (or `client1`, `client2`, …), `box`, `server`, `switch` or `site1`, `site2`, …"
    )]
    UnknownNode(String),

    /// The lab has no such node.
    #[error("lab `{lab}` has no `{node}`: it has {has}")]
    NoSuchNode {
        /// The lab's name.
        lab: String,
        /// The requested node.
        node: String,
        /// The nodes that exist.
        has: String,
    },

    /// The process that forwards frames between the sites ended while the lab was built.
    #[error("the forwarder of lab `{0}` ended at once: this is a bug in netlathe: please report it")]
    NoForwarder(String),

    /// A required program is not installed.
    #[error("`{program}` is not installed; labs are built with it: apt-get install {package}")]
    MissingTool {
        /// The program's name.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },

    /// The command to run in the lab does not exist.
    #[error("cannot run `{0}` in the lab: no such program in PATH, or it is not executable")]
    NoProgram(String),

    /// `run` was given no command.
    #[error("no command was given to run in the lab: netlathe lab run [--on NODE] -- COMMAND [ARGUMENT…]")]
    NoCommand,

    /// A tool failed.
    #[error("`{command}` failed: {detail}; {remedy}")]
    Tool {
        /// The command line, ready to run by hand.
        command: String,
        /// Its standard error.
        detail: String,
        /// The remedy.
        remedy: &'static str,
    },

    /// Offloads that change frames could not be turned off.
    #[error(
        "{namespace}/{interface}: {features} cannot be turned off, so frames there would differ from those that applications send; \
         this kernel's veth is unsuitable for a lab"
    )]
    Offloads {
        /// The namespace.
        namespace: String,
        /// The interface.
        interface: String,
        /// The features still on.
        features: String,
    },

    /// A lab of that name exists.
    #[error("lab `{0}` is already up: use it, choose another name, or take it down with `netlathe lab down {0}`")]
    Exists(String),

    /// A lab of that name exists, but its process is gone.
    #[error("lab `{name}` was left behind by process {pid}, which is gone: remove it with `netlathe lab down {name}`")]
    LeftBehind {
        /// The lab's name.
        name: String,
        /// The process that built it.
        pid: u32,
    },

    /// A lab of that name is being built, or the build was interrupted.
    #[error(
        "lab `{0}` is incomplete: it is being built right now, or its setup was interrupted; \
         in the second case remove it with `netlathe lab down {0}`"
    )]
    Incomplete(String),

    /// A lab of that name belongs to another command, and ends with it.
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

    /// A lab of that name is up, but with another shape.
    #[error("lab `{name}` is up with {what} {has}, not {said}: leave --{what} out, or choose another name with --name")]
    Shape {
        /// The lab's name.
        name: String,
        /// The option that differs.
        what: &'static str,
        /// The requested value.
        said: u32,
        /// The value of the lab.
        has: u32,
    },

    /// Namespaces of that lab exist without a record.
    #[error("lab `{0}` has namespaces but no record of them: remove them with `netlathe lab down {0}`")]
    Unrecorded(String),

    /// There is no such lab.
    #[error("there is no lab `{0}`: bring it up with `netlathe lab up {0}`, or see `netlathe lab list`")]
    NotUp(String),

    /// A record of a lab cannot be parsed.
    #[error("the record {path} cannot be read ({detail}): remove the lab with `netlathe lab down {name}`")]
    Record {
        /// The record.
        path: PathBuf,
        /// The problem.
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

    /// The kernel or its configuration refuses user namespaces to ordinary users.
    #[error(
        "a lab without root needs user namespaces, and this machine refuses them ({detail}): run it as root, or allow \
         them: {remedy}"
    )]
    UserNamespaceRefused {
        /// The error of the attempt.
        detail: String,
        /// The command that allows them.
        remedy: String,
    },

    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

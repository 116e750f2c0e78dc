use std::io;
use std::path::PathBuf;

/// Why slices cannot be had, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no type information.
    #[error(
        "cannot read /sys/kernel/btf/vmlinux ({0}): kernel slices need a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' kernels are"
    )]
    NoTypes(String),
    /// The rights are not there.
    #[error(
        "the kernel does not let this user load BPF programs ({0}): run it as root, or with CAP_BPF and CAP_PERFMON"
    )]
    NotAllowed(String),
    /// A program that slices cannot do without was refused.
    #[error(
        "the kernel refuses the probe at {tracepoint}: {cause}: kernel slices need Linux 5.8 or later, without lockdown"
    )]
    Refused {
        /// The tracepoint.
        tracepoint: &'static str,
        /// What the kernel said.
        cause: String,
    },
    /// The kernel took the programs but something about its maps failed.
    #[error("the probes' memory cannot be used: {0}")]
    Maps(String),
    /// The cost of the probes cannot be measured.
    #[error("what the probes cost cannot be measured: {what}: {cause}")]
    Calibration {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
    /// A file of records cannot be read or written.
    #[error("{}: {what}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

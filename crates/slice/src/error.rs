use aya::maps::MapError;
use aya::programs::ProgramError;
use std::error::Error as Cause;
use std::io;
use std::path::PathBuf;

/// Why slices are unavailable, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no type information.
    #[error(
        "cannot read /sys/kernel/btf/vmlinux ({0}): kernel slices need a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' kernels are"
    )]
    NoTypes(String),
    /// The user lacks the rights.
    #[error(
        "the kernel does not let this user load BPF programs ({0}): run it as root, or with CAP_BPF and CAP_PERFMON"
    )]
    NotAllowed(String),
    /// A required program was refused.
    #[error(
        "the kernel refuses the probe at {tracepoint}: {cause}: kernel slices need Linux 5.8 or later, without lockdown"
    )]
    Refused {
        /// The tracepoint.
        tracepoint: &'static str,
        /// The kernel's error.
        cause: String,
    },
    /// The limit on open files is too low.
    #[error("{0}: slices take some 60 open files, and one more for each event and CPU: `ulimit -n 1024`, or more")]
    FewFiles(String),
    /// The kernel accepted the programs, but an operation on their maps failed.
    #[error("the probes' memory cannot be used: {0}")]
    Maps(String),
    /// The cost of the probes cannot be measured.
    #[error("what the probes cost cannot be measured: {what}: {cause}")]
    Calibration {
        /// The operation that failed.
        what: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
    /// The user ended the run before the probes were in place.
    #[error("a signal ended the run before its start")]
    Stopped,
    /// A file of records cannot be read or written.
    #[error("{}: {what}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
}

/// The innermost cause in one line: the kernel's error, without the verifier's log.
pub(crate) fn reason(error: &(dyn Cause + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().lines().next().unwrap_or("no reason given").to_owned()
}

/// The error if the limit on open files was reached.
pub(crate) fn few_files(error: &(dyn Cause + 'static)) -> Option<Error> {
    is_of(error, libc::EMFILE).then(|| Error::FewFiles(reason(error)))
}

pub(crate) fn not_allowed(error: &(dyn Cause + 'static)) -> Error {
    if_allowed(error, Error::Maps)
}

pub(crate) fn refused(tracepoint: &'static str, error: &ProgramError) -> Error {
    if_allowed(error, |cause| Error::Refused { tracepoint, cause })
}

/// The error if the user has the rights.
fn if_allowed(error: &(dyn Cause + 'static), otherwise: impl FnOnce(String) -> Error) -> Error {
    // Missing rights give EPERM. EACCES is from the verifier, and no right changes that.
    if is_of(error, libc::EPERM) {
        return Error::NotAllowed(reason(error));
    }
    few_files(error).unwrap_or_else(|| otherwise(reason(error)))
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
pub(crate) fn maps(cause: MapError) -> Error {
    few_files(&cause).unwrap_or_else(|| Error::Maps(reason(&cause)))
}

/// The error of a failed calibration.
pub(crate) fn calibration(what: &'static str, cause: io::Error) -> Error {
    few_files(&cause).unwrap_or(Error::Calibration { what, cause })
}

/// Whether the cause is this system error.
fn is_of(error: &(dyn Cause + 'static), errno: i32) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error() == Some(errno)) {
            return true;
        }
        cause = error.source();
    }
    false
}

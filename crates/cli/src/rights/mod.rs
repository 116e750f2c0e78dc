//! The rights of this process: capabilities that a command needs, and those that it gives up once it is set up.

#[cfg(feature = "live")]
mod files;
// A build without live ports or slices uses only some rows. The list is the same in every build.
#[cfg_attr(
    not(all(feature = "live", feature = "slice")),
    allow(dead_code, reason = "the list is the same in every build")
)]
pub(crate) mod list;

#[cfg(feature = "live")]
use crate::output;
use crate::output::Failure;
use list::{Capability, RequiredRights, SHIPPED, for_setcap, names};
#[cfg(feature = "live")]
use std::path::{Path, PathBuf};

/// The effective capabilities of this thread, one bit each.
pub(crate) fn held() -> u64 {
    // The call fails only in kernels without capabilities, where root may do everything.
    rustix::thread::capabilities(None).map_or(u64::MAX, |sets| sets.effective.bits())
}

/// The capabilities of a row that this process lacks.
pub(crate) fn missing(row: &RequiredRights) -> Vec<Capability> {
    let (held, locks_memory) = (held(), locks_memory());
    let has = |capability: &Capability| {
        let alone = held & capability.bit() != 0;
        // CAP_SYS_ADMIN includes these two, which were split off from it in Linux 5.8.
        let within =
            matches!(capability, Capability::Bpf | Capability::Perfmon) && held & Capability::SysAdmin.bit() != 0;
        alone || within || (*capability == Capability::IpcLock && locks_memory)
    };
    row.needs.iter().copied().filter(|capability| !has(capability)).collect()
}

/// Refuses a row if this process lacks some of its capabilities.
pub(crate) fn require(row: &RequiredRights) -> Result<(), Failure> {
    let missing = missing(row);
    if missing.is_empty() {
        return Ok(());
    }
    let (lack, are) = (names(&missing), if missing.len() == 1 { "is" } else { "are" });
    let what = row.what.replace('`', "");
    Err(Failure::new(format!(
        "{what}: {lack} {are} missing; it takes {} {}: {}",
        names(row.needs),
        row.why,
        remedy(row.needs)
    )))
}

/// Returns how to get these capabilities.
pub(crate) fn remedy(needs: &[Capability]) -> String {
    if rustix::process::geteuid().is_root() {
        let options = needs.iter().map(|capability| capability.name().replacen("CAP_", "--cap-add ", 1));
        let options = options.collect::<Vec<_>>().join(" ");
        return format!("this container lacks what root has elsewhere: start it with {options}");
    }
    let program = std::env::current_exe().map_or_else(|_| "netlathe".to_owned(), |path| path.display().to_string());
    let setcap = format!("sudo setcap {} {}", for_setcap(needs), units::quoted(&program));
    let unit = if needs.iter().all(|need| SHIPPED.contains(need)) { "; netlathe@.service has it, too" } else { "" };
    format!("run it as root, or permit it to all users by {setcap}{unit}")
}

/// Whether locked memory is unlimited.
fn locks_memory() -> bool {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Memlock).current.is_none()
}

/// Returns these capabilities as a set, one bit each.
#[cfg(feature = "live")]
pub(crate) fn set(capabilities: &[Capability]) -> u64 {
    capabilities.iter().fold(0, |set, capability| set | capability.bit())
}

/// The capabilities that threads keep when a run is set up, one bit each.
#[cfg(feature = "live")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunCapabilities {
    /// Kept by the calling thread and inherited by the threads that it starts.
    pub(crate) own: u64,
    /// Kept by the other threads that exist at that moment.
    pub(crate) others: u64,
}

/// Permanently gives up all capabilities except `kept`, on all threads. Files can then be opened for writing only if
/// they are in `writable` or in a folder of it, and can be removed only in the folder `removable`. If this fails, the
/// run continues with a warning.
#[cfg(feature = "live")]
pub(crate) fn drop_rights(kept: RunCapabilities, writable: Option<&[PathBuf]>, removable: Option<&Path>) {
    use std::os::fd::AsFd;
    let rules = writable.and_then(|paths| match files::rules(paths, removable) {
        Ok(rules) => rules,
        Err(cause) => {
            output::warn(format!("the right to open other files for writing is kept: Landlock: {cause}"));
            None
        }
    });
    if let Err(cause) = dpdk::drop_capabilities(kept.own, kept.others, rules.as_ref().map(AsFd::as_fd)) {
        output::warn(format!("rights that the run does not need are kept: {cause}"));
    }
}

/// Keeps only the capabilities that give root access to the files of other users, for a run that only reads and writes
/// files.
#[cfg(feature = "live")]
pub(crate) fn keep_files() {
    let own = set(&[Capability::DacOverride, Capability::DacReadSearch]);
    drop_rights(RunCapabilities { own, others: own }, None, None);
}

/// Whether the kernel has Landlock.
#[cfg(feature = "live")]
pub(crate) fn has_landlock() -> bool {
    files::rules(&[], None).is_ok_and(|rules| rules.is_some())
}

/// Gives up all capabilities of the calling thread except `keep`. The thread may have inherited more.
#[cfg(feature = "live")]
pub(crate) fn narrow(keep: u64) {
    if let Err(cause) = dpdk::drop_thread_capabilities(keep) {
        output::warn(format!("rights that a thread does not need are kept: {cause}"));
    }
}

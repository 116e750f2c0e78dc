//! Whose an interface's XDP program is.
//!
//! DPDK's driver attaches a program as `ip link` does: it stays when its process is killed, and the driver takes
//! off whatever program it finds when it closes, or fails to open. So an interface is claimed before the driver
//! sees it. The claim is a lock on a file, which ends with the process however it ends; the file has the numbers
//! of the programs, which the kernel gives to no other program until the next start. A program with no such record
//! is somebody else's.

use crate::detour::bpf_call;
use crate::interface::Interface;
use crate::netlink::{self, attributes_in};
use crate::xdp_stamps::take_off;
use crate::{Error, Result};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Where claims are. Both they and the numbers of programs begin anew when the machine starts.
const FOLDER: &str = "/run/netlathe/xdp";

/// The XDP program of an interface, by its number and if it is known its name. What it does not pass on reaches no packet
/// socket.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn xdp_program(interface: &str) -> Result<Option<String>> {
    let first = programs(&Interface::named(interface)?)?.first().copied();
    Ok(first.map(|id| format!("id {id}{}", name_behind_comma(id))))
}

/// The right to attach a program to an interface and to take it off: one process has it at a time.
#[derive(Debug)]
pub(crate) struct Claim {
    interface: Interface,
    /// None where nothing can be written: every program there is somebody else's then.
    record: Option<(File, PathBuf)>,
    /// The programs that were there when they were last recorded.
    noted: Vec<u32>,
}

impl Claim {
    /// Claims an interface that has no XDP program, or one that a killed netlathe left.
    ///
    /// # Errors
    /// [`Error::XdpInUse`], [`Error::XdpProgram`], [`Error::System`].
    pub(crate) fn take(interface: &Interface) -> Result<Claim> {
        let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino());
        let path = Path::new(FOLDER).join(format!("{namespace}-{}", interface.index));
        sweep(&path);
        let mut claim = Claim { interface: interface.clone(), record: lock(path, &interface.name)?, noted: Vec::new() };
        let recorded = claim.recorded();
        let there = programs(interface)?;
        if let Some(id) = there.iter().find(|id| !recorded.contains(id)) {
            let name = name_behind_comma(*id);
            return Err(Error::XdpProgram { interface: interface.name.clone(), id: *id, name });
        }
        if !there.is_empty() {
            // The driver would try to go on with what a killed one left.
            let what = || format!("taking the XDP program of an ended netlathe off {}", interface.name);
            take_off(interface).map_err(|source| Error::System { what: what(), source })?;
        }
        claim.record(Vec::new())?;
        Ok(claim)
    }

    /// Records the programs that are there now as ours.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn note(&mut self) -> Result<()> {
        let there = programs(&self.interface)?;
        self.record(there)
    }

    /// Whether somebody has taken them off since, or put others there. Not where the interface has gone.
    pub(crate) fn is_broken(&self) -> bool {
        programs(&self.interface).is_ok_and(|there| there != self.noted)
    }

    /// The programs that whoever had the claim before has recorded.
    fn recorded(&mut self) -> Vec<u32> {
        let text = self.record.as_mut().and_then(|(file, _)| io::read_to_string(file).ok()).unwrap_or_default();
        recorded_in(&text).collect()
    }

    /// This process's number, and those of the programs.
    fn record(&mut self, programs: Vec<u32>) -> Result<()> {
        self.noted = programs;
        let Some((file, path)) = &mut self.record else { return Ok(()) };
        let programs: String = self.noted.iter().map(|id| format!(" {id}")).collect();
        let text = format!("{}{programs}\n", std::process::id());
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|source| Error::System { what: format!("writing {}", path.display()), source })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What is still attached, if the driver never came to take it off, stays on record.
        let gone = programs(&self.interface).map_or(true, |there| there.is_empty());
        if let Some((_, path)) = self.record.as_ref().filter(|_| gone) {
            // An empty record means the same as none.
            let _left = fs::remove_file(path);
        }
    }
}

/// Locks the record of an interface. None where it cannot be written: who may not do that may load no program
/// either, which the driver says better.
fn lock(path: PathBuf, interface: &str) -> Result<Option<(File, PathBuf)>> {
    let mut patience = 5;
    loop {
        let Ok(mut file) = open_record(&path) else { return Ok(None) };
        if !try_lock(&file) {
            // Somebody who only sweeps has it for an instant.
            if patience > 0 {
                patience -= 1;
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let mut text = String::new();
            let _unread = file.read_to_string(&mut text);
            // A lock counts only as long as its owner lives: anybody who could open the file may hold it.
            if text.split_whitespace().next().is_some_and(|process| !lives(process)) && give_up(&path, &text) {
                continue;
            }
            let who = match text.split_whitespace().next() {
                Some(process) if process == std::process::id().to_string() => "this command".to_owned(),
                Some(process) => format!("another netlathe (process {process})"),
                None => "another netlathe".to_owned(),
            };
            return Err(Error::XdpInUse { interface: interface.to_owned(), who });
        }
        // Whoever had it may have removed the file after we opened it: then the lock is on nothing.
        let locked = file.metadata().map(|locked| locked.ino());
        if locked.is_ok_and(|locked| fs::metadata(&path).is_ok_and(|there| there.ino() == locked)) {
            return Ok(Some((file, path)));
        }
    }
}

/// Opens or makes a record. Only its owner may open it, and with that lock it, in a folder of which the same is true;
/// those of earlier releases are made so.
fn open_record(path: &Path) -> io::Result<File> {
    if let Some(parent) = Path::new(FOLDER).parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(FOLDER) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => fs::set_permissions(FOLDER, Permissions::from_mode(0o700))?,
    }
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Whether a process of this number is there.
fn lives(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

/// Replaces a record whose owner is gone although its lock is held by a copy that is not locked: the programs of that
/// owner stay on record. False if that fails. One process at a time does that.
fn give_up(path: &Path, text: &str) -> bool {
    let guard = Path::new(FOLDER).join(".given-up");
    let Ok(guard) = open_record(&guard) else { return false };
    if !try_lock(&guard) {
        return true;
    }
    // Another process may have replaced it by now.
    if fs::read_to_string(path).is_ok_and(|there| there != text) {
        return true;
    }
    let copy = path.with_extension("copy");
    let written = open_record(&copy).and_then(|mut file| {
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    });
    written.and_then(|()| fs::rename(&copy, path)).is_ok()
}

/// Removes the records of others that ended without it, if their programs are no more: a namespace that goes takes
/// its interfaces and their programs along, and the record remains.
fn sweep(but: &Path) {
    let records = fs::read_dir(FOLDER).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in records.filter(|path| path != but) {
        let Ok(file) = File::open(&path) else { continue };
        if try_lock(&file) && io::read_to_string(&file).is_ok_and(|text| recorded_in(&text).all(is_gone)) {
            // The next one tries again.
            let _left = fs::remove_file(&path);
        }
    }
}

fn try_lock(file: &File) -> bool {
    // SAFETY: takes numbers only.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// The programs that a record has behind the process.
fn recorded_in(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace().skip(1).filter_map(|id| id.parse().ok())
}

/// The numbers of the programs that an interface has, for the driver, the kernel and the hardware.
fn programs(interface: &Interface) -> Result<Vec<u32>> {
    const WHAT: &str = "the XDP program";
    let answer = netlink::ask(interface, WHAT)?;
    programs_in(&answer)
        .map_err(|source| Error::System { what: format!("asking for {WHAT} of {}", interface.name), source })
}

/// `enum` at IFLA_XDP_PROG_ID of linux/if_link.h: the program, then those by where they run.
const PROGRAM_IDS: std::ops::RangeInclusive<u16> = 4..=7;

/// Reads them in the answer, by attribute IFLA_XDP.
fn programs_in(answer: &[u8]) -> io::Result<Vec<u32>> {
    let attributes = attributes_in(answer)?;
    let xdp = attributes.into_iter().find(|(kind, _)| *kind == libc::IFLA_XDP);
    let inner = xdp.map(|(_, value)| netlink::attributes(value)).unwrap_or_default();
    let mut ids: Vec<u32> = inner
        .into_iter()
        .filter(|(kind, _)| PROGRAM_IDS.contains(kind))
        .filter_map(|(_, value)| Some(u32::from_ne_bytes(value.try_into().ok()?)))
        .filter(|id| *id != 0)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;

/// The part of `union bpf_attr` that asks for information.
#[repr(C)]
struct Ask {
    descriptor: u32,
    length: u32,
    into: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
struct Information {
    before: [u64; 8],
    name: [u8; 16],
}

/// A program by its number.
pub(crate) fn program(id: u32) -> io::Result<OwnedFd> {
    let mut which = [id, 0, 0];
    // SAFETY: three numbers, which the kernel reads.
    let fd = unsafe { bpf_call(BPF_PROG_GET_FD_BY_ID, &mut which) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether there is no such program any more; not where this user may not know.
fn is_gone(id: u32) -> bool {
    program(id).is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
}

/// The name of a program, where it has one and this user may know.
fn name_of(id: u32) -> Option<String> {
    let program = program(id).ok()?;
    let mut told = Information { before: [0; 8], name: [0; 16] };
    let mut ask = Ask {
        descriptor: program.as_raw_fd() as u32,
        length: size_of::<Information>() as u32,
        into: (&raw mut told) as u64,
    };
    // SAFETY: the kernel writes at most `length` bytes into what is borrowed meanwhile; zeros ask for no lists.
    if unsafe { bpf_call(BPF_OBJ_GET_INFO_BY_FD, &mut ask) } < 0 {
        return None;
    }
    let name: Vec<u8> = told.name.iter().copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

fn name_behind_comma(id: u32) -> String {
    name_of(id).map_or_else(String::new, |name| format!(", {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::HEADERS;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn programs_are_read_from_the_kernels_answer() {
        let xdp = [attribute(2, &[4]), attribute(5, &7_u32.to_ne_bytes()), attribute(6, &9_u32.to_ne_bytes())].concat();
        let mut answer = vec![0; HEADERS];
        answer[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        answer.extend(attribute(3, b"eth0\0"));
        // With the flag of nested attributes.
        answer.extend(attribute(libc::IFLA_XDP | 0x8000, &xdp));
        assert_eq!(programs_in(&answer).expect("an answer"), [7, 9]);
        assert!(programs_in(&answer[..HEADERS + 12]).expect("an answer").is_empty());

        let mut error = vec![0; 36];
        error[4] = libc::NLMSG_ERROR as u8;
        error[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        assert_eq!(programs_in(&error).expect_err("an error").raw_os_error(), Some(libc::ENODEV));
        assert!(programs_in(&[]).is_err());
    }

    #[test]
    fn the_loopback_has_none() {
        let lo = Interface::named("lo").expect("there is one");
        assert!(programs(&lo).expect("an answer").is_empty());
    }
}

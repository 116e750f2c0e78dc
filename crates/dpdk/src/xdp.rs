//! Ownership of an interface's XDP program.
//!
//! DPDK's driver attaches its program as `ip link` does. The program stays attached when the process is killed. The
//! driver removes any program that it finds when it closes or fails to open. So we claim the interface before the
//! driver opens it. The claim is a lock on a file and always ends with the process. The file records the program IDs,
//! which the kernel does not reuse before the next boot. A program without a record belongs to another program.

use crate::detour::bpf_call;
use crate::interface::Interface;
use crate::netlink::{self, attributes_in};
use crate::xdp_stamps::{NAME, take_off};
use crate::{Error, Result};
use std::fs::{self, DirBuilder, DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The folder of claims. The folder and the program IDs start afresh at boot.
const FOLDER: &str = "/run/netlathe/xdp";

/// How long a record without programs stays for the next netlathe on its interface.
const UNRECORDED: Duration = Duration::from_secs(3_600);

/// The XDP program of an interface: its ID and, if known, its name. Packet sockets receive only frames that the program
/// passes on.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn xdp_program(interface: &str) -> Result<Option<String>> {
    let first = programs(&Interface::named(interface)?)?.first().copied();
    Ok(first.map(|id| format!("id {id}{}", name_behind_comma(id))))
}

/// The right to attach a program to an interface and to remove it. One process has it at a time.
#[derive(Debug)]
pub(crate) struct Claim {
    interface: Interface,
    /// `None` if the record cannot be written. Every attached program then belongs to another program.
    record: Option<(File, PathBuf)>,
    /// The programs at the last record.
    noted: Vec<u32>,
}

impl Claim {
    /// Claims an interface without an XDP program, or with one that a killed netlathe left.
    ///
    /// # Errors
    /// [`Error::XdpInUse`], [`Error::XdpProgram`], [`Error::System`].
    pub(crate) fn take(interface: &Interface) -> Result<Claim> {
        let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino());
        let path = Path::new(FOLDER).join(format!("{namespace}-{}", interface.index));
        if make_folder().is_ok() {
            sweep(&path);
        }
        let mut claim = Claim { interface: interface.clone(), record: lock(path, &interface.name)?, noted: Vec::new() };
        let recorded = claim.recorded();
        let there = programs(interface)?;
        // There was no program when the previous owner claimed the interface. It may have been killed between attaching
        // the driver's program and recording it.
        let unrecorded = |id: u32| recorded.as_ref().is_some_and(Vec::is_empty) && name_of(id).as_deref() == Some(NAME);
        let is_ours = |id: &u32| recorded.as_ref().is_some_and(|ids| ids.contains(id)) || unrecorded(*id);
        if let Some(id) = there.iter().find(|id| !is_ours(id)) {
            let name = name_behind_comma(*id);
            return Err(Error::XdpProgram { interface: interface.name.clone(), id: *id, name });
        }
        if !there.is_empty() {
            // Otherwise the driver would try to continue with the leftover program.
            let what = || format!("taking the XDP program of an ended netlathe off {}", interface.name);
            take_off(interface).map_err(|source| Error::System { what: what(), source })?;
        }
        claim.record(Vec::new())?;
        Ok(claim)
    }

    /// Records the attached programs as ours.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn note(&mut self) -> Result<()> {
        let there = programs(&self.interface)?;
        self.record(there)
    }

    /// Whether our programs have been removed or replaced since. False if the interface has disappeared.
    pub(crate) fn is_broken(&self) -> bool {
        programs(&self.interface).is_ok_and(|there| there != self.noted)
    }

    /// The programs that the previous owner recorded. `None` without such an owner.
    fn recorded(&mut self) -> Option<Vec<u32>> {
        let text = self.record.as_mut().and_then(|(file, _)| io::read_to_string(file).ok())?;
        text.split_whitespace().next()?;
        Some(recorded_in(&text).collect())
    }

    /// Writes the record: this process's ID and the program IDs.
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
        // If the driver failed to remove a program, the program stays on record.
        let gone = programs(&self.interface).map_or(true, |there| there.is_empty());
        if let Some((_, path)) = self.record.as_ref().filter(|_| gone) {
            // An empty record is equivalent to no record.
            let _left = fs::remove_file(path);
        }
    }
}

/// Locks the record of an interface. `None` if the record cannot be written: such a user cannot load a program either,
/// and the driver's error is clearer.
fn lock(path: PathBuf, interface: &str) -> Result<Option<(File, PathBuf)>> {
    let mut patience = 5;
    loop {
        let Ok(mut file) = open_record(&path) else { return Ok(None) };
        if !try_lock(&file) {
            // A sweep by another process holds the lock only briefly.
            if patience > 0 {
                patience -= 1;
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let mut text = String::new();
            let _unread = file.read_to_string(&mut text);
            // A lock counts only while its owner lives, because any process that could open the file may hold it.
            if text.split_whitespace().next().is_some_and(|process| !lives(process)) && replace_record(&path, &text) {
                continue;
            }
            let who = match text.split_whitespace().next() {
                Some(process) if process == std::process::id().to_string() => "this command".to_owned(),
                Some(process) => format!("another netlathe (process {process})"),
                None => "another netlathe".to_owned(),
            };
            return Err(Error::XdpInUse { interface: interface.to_owned(), who });
        }
        // The previous owner may have removed the file after we opened it. Our lock would then be on a deleted file.
        let locked = file.metadata().map(|locked| locked.ino());
        if locked.is_ok_and(|locked| fs::metadata(&path).is_ok_and(|there| there.ino() == locked)) {
            return Ok(Some((file, path)));
        }
    }
}

/// Opens or creates a record. Only the owner may open, and so lock, the record; the folder is restricted likewise.
/// Permissions of records from earlier releases are corrected.
fn open_record(path: &Path) -> io::Result<File> {
    make_folder()?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn make_folder() -> io::Result<()> {
    let folder = Path::new(FOLDER);
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
        trust(parent, 0o755, |parent| lchown(parent, Some(0), Some(0)))?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
        _ => {}
    }
    trust(folder, 0o700, |folder| {
        match folder.symlink_metadata()?.is_dir() {
            true => fs::remove_dir_all(folder)?,
            false => fs::remove_file(folder)?,
        }
        DirBuilder::new().mode(0o700).create(folder)
    })
}

/// Makes sure that a folder is no link and belongs to root or the caller, with these permissions: in a folder of theirs,
/// other users could lead root to any file. Root takes it over by `take`.
fn trust(folder: &Path, mode: u32, take: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let caller = rustix::process::geteuid().as_raw();
    let is_ours = |there: &Metadata| there.is_dir() && [0, caller].contains(&there.uid());
    if !is_ours(&folder.symlink_metadata()?) {
        if caller != 0 {
            let why = format!("{} belongs to another user", folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        take(folder)?;
        if !is_ours(&folder.symlink_metadata()?) {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, folder.display().to_string()));
        }
    }
    if folder.symlink_metadata()?.uid() == caller {
        fs::set_permissions(folder, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Whether a process with this ID exists.
fn lives(process: &str) -> bool {
    Path::new("/proc").join(process).exists()
}

/// Replaces a record whose owner has ended while another process still holds the lock. The new copy is unlocked and
/// keeps the owner's programs on record. One process at a time does this. Returns false on failure.
fn replace_record(path: &Path, text: &str) -> bool {
    let guard = Path::new(FOLDER).join(".given-up");
    let Ok(guard) = open_record(&guard) else { return false };
    if !try_lock(&guard) {
        return true;
    }
    // Another process may already have replaced the record.
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

/// Removes leftover records whose programs no longer exist. When a network namespace disappears, its interfaces and
/// programs go with it but the record remains.
fn sweep(but: &Path) {
    let is_record = |entry: &DirEntry| {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.split_once('-'));
        numbers.is_some_and(|(a, b)| a.parse::<u64>().is_ok() && b.parse::<u64>().is_ok())
            && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    let records = fs::read_dir(FOLDER).into_iter().flatten().flatten().filter(is_record).map(|entry| entry.path());
    for path in records.filter(|path| path != but) {
        let Ok(file) = File::open(&path) else { continue };
        // A record without programs may be of an owner that was killed before it recorded one.
        let is_old = file
            .metadata()
            .and_then(|there| there.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNRECORDED));
        let leftover =
            |text: String| recorded_in(&text).all(is_gone) && (recorded_in(&text).next().is_some() || is_old);
        if try_lock(&file) && io::read_to_string(&file).is_ok_and(leftover) {
            // On failure the next sweep tries again.
            let _left = fs::remove_file(&path);
        }
    }
}

fn try_lock(file: &File) -> bool {
    // SAFETY: takes numbers only.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// The program IDs in a record, which follow the process ID.
fn recorded_in(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace().skip(1).filter_map(|id| id.parse().ok())
}

/// The IDs of an interface's programs for the driver, the kernel and the hardware.
fn programs(interface: &Interface) -> Result<Vec<u32>> {
    const WHAT: &str = "the XDP program";
    let answer = netlink::request(interface, WHAT)?;
    programs_in(&answer)
        .map_err(|source| Error::System { what: format!("querying {WHAT} of {}", interface.name), source })
}

/// Attribute numbers from IFLA_XDP_PROG_ID on, of linux/if_link.h: the program ID, then the program ID of each attach
/// mode (driver, generic, hardware).
const PROGRAM_IDS: std::ops::RangeInclusive<u16> = 4..=7;

/// Reads the program IDs from attribute IFLA_XDP of an answer.
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

/// The part of `union bpf_attr` for information queries.
#[repr(C)]
struct InfoQuery {
    descriptor: u32,
    length: u32,
    into: u64,
}

/// The start of `struct bpf_prog_info`.
#[repr(C)]
struct Information {
    before: [u64; 8],
    name: [u8; 16],
}

/// Opens a program by its ID.
pub(crate) fn program(id: u32) -> io::Result<OwnedFd> {
    let mut which = [id, 0, 0];
    // SAFETY: the attributes are three numbers, which the kernel reads.
    let fd = unsafe { bpf_call(BPF_PROG_GET_FD_BY_ID, &mut which) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether the program no longer exists. False if this user may not query programs.
fn is_gone(id: u32) -> bool {
    program(id).is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
}

/// The name of a program, if it has one and this user may read it.
fn name_of(id: u32) -> Option<String> {
    let program = program(id).ok()?;
    let mut info = Information { before: [0; 8], name: [0; 16] };
    let mut ask = InfoQuery {
        descriptor: program.as_raw_fd() as u32,
        length: size_of::<Information>() as u32,
        into: (&raw mut info) as u64,
    };
    // SAFETY: the kernel writes at most `length` bytes into memory borrowed during the call, and zeros request no
    // lists.
    if unsafe { bpf_call(BPF_OBJ_GET_INFO_BY_FD, &mut ask) } < 0 {
        return None;
    }
    let name: Vec<u8> = info.name.iter().copied().take_while(|byte| *byte != 0).collect();
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
        // With the flag for nested attributes.
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

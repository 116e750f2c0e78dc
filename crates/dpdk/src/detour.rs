//! Redirects the frames of an interface through this process and back.
//!
//! Four short BPF programs do this. Each is attached by a link that only this process holds. When the process ends, for
//! any reason, the kernel detaches the programs and the interface is as before. While the process is stopped or does
//! not carry frames for another reason, the programs pass frames on as if they were not attached: see [`Pulse`].

use crate::Result;
use crate::error::Error;
use crate::interface::Interface;
use crate::packet_ring::Map;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// An interface whose frames pass through two TAP devices. Frames that the host sends can be read from the first, and
/// frames that arrive from the second. Frames written to the first reach the host as if they had arrived on the
/// interface. Frames written to the second are sent on the interface.
///
/// Addresses, routes, queueing disciplines and offloads do not change. The kernel segments super-frames and completes
/// checksums where frames enter the TAP devices.
#[derive(Debug)]
pub struct Detour {
    _links: [OwnedFd; 4],
    pulse: Pulse,
}

/// Returning frames carry this mark until they are back on the interface.
const MARK: u32 = 0x6e6c_6f6e;

impl Detour {
    /// Redirects the frames of `interface` through the TAP devices `host` and `wire` as long as this value lives.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::NoDetour`] without root outside user namespaces, or if the kernel lacks TCX
    /// links (before Linux 6.6); [`Error::System`].
    pub fn open(interface: &str, host: &str, wire: &str) -> Result<Detour> {
        let [on, host, wire] = [interface, host, wire].map(Interface::named);
        let (on, host, wire) = (on?, host?, wire?);
        let pulse = Pulse::open(&on)?;
        let away =
            |from: Attach, to: &Interface, passed| link(&on, from, &away_to(to.index, pulse.map.as_raw_fd(), passed));
        let back = |from: &Interface, flags| link(from, Attach::Ingress, &back_to(on.index, flags));
        // The return paths come first, so that no frame is redirected that could not return.
        let to_host = back(&host, BPF_F_INGRESS)?;
        let to_wire = back(&wire, 0)?;
        let sent = away(Attach::Egress, &host, SENT)?;
        let arriving = away(Attach::Ingress, &wire, ARRIVED)?;
        Ok(Detour { _links: [sent, arriving, to_host, to_wire], pulse })
    }

    /// The pulse. It must keep beating while frames are carried.
    #[must_use]
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }
}

/// The heartbeat of the process that carries frames: a time in memory shared with the BPF programs. If the last beat is
/// older than one second, the programs do not redirect frames but pass them on and count them. Before the first beat
/// they pass frames on without counting.
#[derive(Debug)]
pub struct Pulse {
    map: OwnedFd,
    page: Map,
}

/// Frames that passed on without being carried, since the first [`Pulse::beat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Frames that the host sent.
    pub sent: u64,
    /// Frames that arrived for the host.
    pub arrived: u64,
}

/// Offsets in the shared memory: the last beat, in ns of the kernel's monotonic clock, and two frame counters.
const BEAT: i16 = 0;
const SENT: i16 = 8;
const ARRIVED: i16 = 16;
const PULSE: u32 = 24;
/// Frames pass on after this time without a beat, in ns.
const STALE_NS: i32 = 1_000_000_000;

impl Pulse {
    fn open(on: &Interface) -> Result<Pulse> {
        let failed = || Error::system(format!("making the map of the programs on {}", on.name));
        let mut create =
            MapCreate { kind: BPF_MAP_TYPE_ARRAY, key: 4, value: PULSE, entries: 1, flags: BPF_F_MMAPABLE };
        // SAFETY: the attributes contain no pointers.
        let map = unsafe { bpf(BPF_MAP_CREATE, &mut create) }.ok_or_else(failed)?;
        // The kernel allocates whole pages for such a map.
        let page = Map::of_rings(map.as_raw_fd(), 4_096, libc::PROT_READ | libc::PROT_WRITE);
        Ok(Pulse { page: page.map_err(|()| failed())?, map })
    }

    /// Records that frames are carried now. The thread that carries them must call this at least every 100 ms.
    pub fn beat(&self) {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes a timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        self.word(BEAT).store(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64, Ordering::Release);
    }

    /// Frames that passed on without being carried so far.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let of = |at| self.word(at).load(Ordering::Relaxed);
        Passed { sent: of(SENT), arrived: of(ARRIVED) }
    }

    fn word(&self, at: i16) -> &AtomicU64 {
        // SAFETY: the word lies in the mapping, is 8-byte aligned, lives as long as the mapping, and is changed only
        // atomically by the BPF programs.
        unsafe { self.page.byte(at as usize).cast().as_ref() }
    }
}

/// The attach point of a program, from `enum bpf_attach_type` of linux/bpf.h.
#[derive(Clone, Copy)]
enum Attach {
    Ingress = 46,
    Egress = 47,
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
/// Attach ahead of other programs, so that these see each frame once, after its return.
const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_INGRESS: i32 = 1;
const BPF_FUNC_KTIME_GET_NS: i32 = 5;
const BPF_FUNC_REDIRECT: i32 = 23;
/// The source register of an instruction that loads the address of a map's value.
const BPF_PSEUDO_MAP_VALUE: u8 = 2;
/// The return value that passes a frame on.
const TCX_NEXT: i32 = -1;
/// The offset of the mark in `struct __sk_buff`.
const SKB_MARK: i16 = 8;

/// `struct bpf_insn`: operation, destination and source register, offset, number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

pub(crate) const fn instruction(operation: u8, to: u8, from: u8, offset: i16, number: i32) -> Instruction {
    Instruction { operation, registers: to | from << 4, offset, number }
}

pub(crate) const fn set(register: u8, number: i32) -> Instruction {
    instruction(0xb7, register, 0, 0, number)
}

pub(crate) const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// Redirects unmarked frames to interface `index` while the pulse in `map` is fresh. Otherwise passes them on and,
/// after the first beat, counts them at `passed`. Passes marked frames on and clears their mark.
fn away_to(index: u32, map: libc::c_int, passed: i16) -> Vec<Instruction> {
    vec![
        instruction(0x61, 2, 1, SKB_MARK, 0),
        // A 32-bit comparison. If the mark is ours, jump to where it is cleared.
        instruction(0x16, 2, 0, 15, MARK as i32),
        instruction(0x18, 6, BPF_PSEUDO_MAP_VALUE, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(0x79, 7, 6, BEAT, 0),
        // No beat yet: pass on without counting.
        instruction(0x15, 7, 0, 9, 0),
        instruction(0x85, 0, 0, 0, BPF_FUNC_KTIME_GET_NS),
        instruction(0x1f, 0, 7, 0, 0),
        // Signed: another CPU's beat may be later than this clock reading.
        instruction(0x65, 0, 0, 4, STALE_NS),
        set(1, index as i32),
        set(2, 0),
        instruction(0x85, 0, 0, 0, BPF_FUNC_REDIRECT),
        EXIT,
        set(1, 1),
        // An atomic addition.
        instruction(0xdb, 6, 1, passed, 0),
        set(0, TCX_NEXT),
        EXIT,
        set(2, 0),
        instruction(0x63, 1, 2, SKB_MARK, 0),
        set(0, TCX_NEXT),
        EXIT,
    ]
}

/// Marks frames and redirects them out of, or into, interface `index`.
fn back_to(index: u32, flags: i32) -> Vec<Instruction> {
    vec![
        set(2, MARK as i32),
        instruction(0x63, 1, 2, SKB_MARK, 0),
        set(1, index as i32),
        set(2, flags),
        instruction(0x85, 0, 0, 0, BPF_FUNC_REDIRECT),
        EXIT,
    ]
}

/// The part of `union bpf_attr` that creates a map.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

/// The part of `union bpf_attr` that creates a link.
#[repr(C)]
struct Create {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    revision: u64,
}

/// Attaches a program to an interface.
fn link(interface: &Interface, attach: Attach, program: &[Instruction]) -> Result<OwnedFd> {
    let failed = |what: &str| {
        let what = format!("{what} a program on {}", interface.name);
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINVAL) => {
                Error::NoDetour { what, why: "this kernel has no links at tc (TCX), which came with Linux 6.6" }
            }
            Some(libc::EPERM | libc::EACCES) => {
                Error::NoDetour { what, why: "it needs root outside of user namespaces: run it with sudo" }
            }
            _ => Error::system(what),
        }
    };
    let program = load("netlathe", BPF_PROG_TYPE_SCHED_CLS, attach as u32, program).ok_or_else(|| failed("loading"))?;
    let mut create = Create {
        program: program.as_raw_fd() as u32,
        interface: interface.index,
        attach: attach as u32,
        flags: BPF_F_BEFORE,
        relative: 0,
        padding: 0,
        revision: 0,
    };
    // SAFETY: the attributes contain no pointers.
    unsafe { bpf(BPF_LINK_CREATE, &mut create) }.ok_or_else(|| failed("attaching"))
}

/// Loads a program with the given type, attach type and name (at most 15 bytes are used). On failure the error is in
/// errno.
pub(crate) fn load(called: &str, kind: u32, attach: u32, program: &[Instruction]) -> Option<OwnedFd> {
    let license = c"Apache-2.0";
    let mut name = [0; 16];
    name.iter_mut().take(15).zip(called.bytes()).for_each(|(to, from)| *to = from);
    let mut load = Load {
        kind,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel: 0,
        flags: 0,
        name,
        interface: 0,
        attach,
    };
    // SAFETY: the attributes point to the program and the licence, which are borrowed during the call.
    unsafe { bpf(BPF_PROG_LOAD, &mut load) }
}

/// Runs a bpf(2) command that returns a descriptor. On failure the error is in errno.
///
/// # Safety
/// `attributes` must be the struct that the command reads, and its pointers must be valid.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> Option<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd = unsafe { bpf_call(command, attributes) };
    // SAFETY: the descriptor is new and has no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Runs a bpf(2) command and returns its result. If the result is negative, the error is in errno.
///
/// # Safety
/// As for [`bpf`]; memory that the kernel writes must be borrowed for the call.
pub(crate) unsafe fn bpf_call<T>(command: libc::c_int, attributes: &mut T) -> libc::c_long {
    // SAFETY: guaranteed by the caller; the kernel reads at most the size of `attributes`.
    unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) }
}

/// Stops the kernel from sending its own frames through a TAP device, and lengthens the device's queue for bursts.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn seclude(tap: &str) -> Result<()> {
    // The file is absent if the kernel has no IPv6. The kernel then sends nothing anyway.
    let switch = format!("/proc/sys/net/ipv6/conf/{tap}/disable_ipv6");
    match std::fs::write(&switch, "1") {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(Error::System { what: format!("writing {switch}"), source });
        }
        _ => {}
    }
    Interface::named(tap)?.set_queue_length(QUEUE)
}

/// The queue length of a secluded TAP device in frames.
const QUEUE: u32 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_land_where_they_should() {
        let program = away_to(7, 3, SENT);
        let landing = |operation: u8| {
            let jump = program.iter().position(|i| i.operation == operation).expect("a jump");
            let landing = jump + 1 + program[jump].offset as usize;
            [program[landing].operation, program[landing + 1].operation]
        };
        // The jump on the mark clears the mark, the jump without a beat passes the frame on, and the jump on an old
        // beat counts the frame.
        assert_eq!((landing(0x16), landing(0x15), landing(0x65)), ([0xb7, 0x63], [0xb7, 0x95], [0xb7, 0xdb]));
        assert_eq!(program.last().map(|i| i.operation), Some(0x95));
        assert_eq!(size_of::<Instruction>(), 8);
        assert_eq!((size_of::<Load>(), size_of::<Create>(), size_of::<MapCreate>()), (72, 32, 20));
    }
}

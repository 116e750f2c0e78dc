//! The frames of an interface, led through this process and back.
//!
//! Four programs of eight instructions, each attached by a link that this process alone holds: when it
//! ends, however it ends, the kernel detaches them and the interface is as it was.

use crate::Result;
use crate::error::Error;
use crate::interface::Interface;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An interface whose frames pass two TAP devices: what the host sends comes out of one, what arrives
/// comes out of the other. What is written to the first reaches the host as if it had arrived on the
/// interface; what is written to the second is sent on it.
///
/// Addresses, routes, queueing disciplines and offloads stay as they are: super-frames are cut up and
/// checksums completed where frames enter the TAP devices.
#[derive(Debug)]
pub struct Detour {
    _links: [OwnedFd; 4],
}

/// Frames that come back carry this mark until they are on the interface again.
const MARK: u32 = 0x6e6c_6f6e;

impl Detour {
    /// Leads the frames of `interface` through the TAP devices `host` and `wire`, as long as the value
    /// lives.
    ///
    /// # Errors
    /// [`Error::NoInterface`], and [`Error::NoDetour`] without root outside of user namespaces, and where the
    /// kernel has no such links: before Linux 6.6.
    pub fn open(interface: &str, host: &str, wire: &str) -> Result<Detour> {
        let [on, host, wire] = [interface, host, wire].map(Interface::named);
        let (on, host, wire) = (on?, host?, wire?);
        let away = |from: Attach, to: &Interface| link(&on, from, &away_to(to.index));
        let back = |from: &Interface, flags| link(from, Attach::Ingress, &back_to(on.index, flags));
        // First the ways back: no frame is led away that could not return.
        let to_host = back(&host, BPF_F_INGRESS)?;
        let to_wire = back(&wire, 0)?;
        let sent = away(Attach::Egress, &host)?;
        let arriving = away(Attach::Ingress, &wire)?;
        Ok(Detour { _links: [sent, arriving, to_host, to_wire] })
    }
}

/// Where a program sits, by `enum bpf_attach_type` of linux/bpf.h.
#[derive(Clone, Copy)]
enum Attach {
    Ingress = 46,
    Egress = 47,
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
/// Ahead of other programs: these see each frame once, after it has come back.
const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_INGRESS: i32 = 1;
const BPF_FUNC_REDIRECT: i32 = 23;
/// What a program gives to pass a frame on.
const TCX_NEXT: i32 = -1;
/// Where `struct __sk_buff` has the mark.
const SKB_MARK: i16 = 8;

/// `struct bpf_insn`: operation, destination and source register, offset, number.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

const fn instruction(operation: u8, to: u8, from: u8, offset: i16, number: i32) -> Instruction {
    Instruction { operation, registers: to | from << 4, offset, number }
}

const fn set(register: u8, number: i32) -> Instruction {
    instruction(0xb7, register, 0, 0, number)
}

const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// Frames that were not away yet go out by the interface `index`; the others go on without their mark.
fn away_to(index: u32) -> Vec<Instruction> {
    vec![
        instruction(0x61, 2, 1, SKB_MARK, 0),
        // A 32-bit comparison: four instructions on if it is ours.
        instruction(0x16, 2, 0, 4, MARK as i32),
        set(1, index as i32),
        set(2, 0),
        instruction(0x85, 0, 0, 0, BPF_FUNC_REDIRECT),
        EXIT,
        set(2, 0),
        instruction(0x63, 1, 2, SKB_MARK, 0),
        set(0, TCX_NEXT),
        EXIT,
    ]
}

/// Marked frames go out by the interface `index`, or come in by it.
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

/// The part of it that attaches one.
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
    let license = c"Apache-2.0";
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"netlathe");
    let mut load = Load {
        kind: BPF_PROG_TYPE_SCHED_CLS,
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
        attach: attach as u32,
    };
    let failed = |what: &str| {
        let what = format!("{what} a program on {}", interface.name);
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINVAL) => {
                Error::NoDetour { what, why: "this kernel has no links at tc (TCX), which came with Linux 6.6" }
            }
            Some(libc::EPERM | libc::EACCES) => {
                Error::NoDetour { what, why: "it takes root, outside of user namespaces: run it with sudo" }
            }
            _ => Error::system(what),
        }
    };
    // SAFETY: the attributes point to the program and the licence, which are borrowed meanwhile.
    let program = unsafe { bpf(BPF_PROG_LOAD, &mut load) }.ok_or_else(|| failed("loading"))?;
    let mut create = Create {
        program: program.as_raw_fd() as u32,
        interface: interface.index,
        attach: attach as u32,
        flags: BPF_F_BEFORE,
        relative: 0,
        padding: 0,
        revision: 0,
    };
    // SAFETY: the attributes point to nothing.
    unsafe { bpf(BPF_LINK_CREATE, &mut create) }.ok_or_else(|| failed("attaching"))
}

/// A command of bpf(2) that gives a descriptor; the reason is in errno.
///
/// # Safety
/// `attributes` are what the command reads, and what they point to is there.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> Option<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf_call(command, attributes) };
    // SAFETY: the descriptor is new and nobody else's.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A command of bpf(2), and what it gives; the reason is in errno where that is below zero.
///
/// # Safety
/// As for [`bpf`]; what the kernel writes to is borrowed for it, too.
pub(crate) unsafe fn bpf_call<T>(command: libc::c_int, attributes: &mut T) -> libc::c_long {
    // SAFETY: the caller's promise; the kernel reads as many bytes as there are.
    unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) }
}

/// Makes a TAP device one through which the kernel sends nothing by itself, with room for bursts.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn seclude(tap: &str) -> Result<()> {
    // Absent where the kernel has no IPv6: then it sends nothing anyway.
    let switch = format!("/proc/sys/net/ipv6/conf/{tap}/disable_ipv6");
    match std::fs::write(&switch, "1") {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(Error::System { what: format!("writing {switch}"), source });
        }
        _ => {}
    }
    Interface::named(tap)?.set_queue_length(QUEUE)
}

/// Frames that a secluded TAP device holds until they are read.
const QUEUE: u32 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_land_where_frames_that_came_back_go_on() {
        let program = away_to(7);
        let jump = program.iter().position(|i| i.operation == 0x16).expect("a jump");
        let landing = jump + 1 + program[jump].offset as usize;
        assert_eq!((program[landing].operation, program[landing + 1].operation), (0xb7, 0x63));
        assert_eq!(program.last().map(|i| i.operation), Some(0x95));
        assert_eq!(size_of::<Instruction>(), 8);
        assert_eq!((size_of::<Load>(), size_of::<Create>()), (72, 32));
    }
}

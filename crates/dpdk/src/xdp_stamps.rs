//! Arrival stamps for frames on XDP sockets. The kernel does not stamp these frames.
//!
//! The XDP program of DPDK's driver hands each frame to the socket of its queue. We replace it with a program that
//! first writes the time ahead of the frame. The kernel copies this metadata to the socket together with the frame
//! (`bpf_xdp_adjust_meta`). The driver's program is restored before the driver closes. If the kernel refuses any step,
//! the driver's setup stays in place and frames have no stamps.

use crate::clock::{TscClock, kernel_ns};
use crate::detour::{EXIT, Instruction, instruction, load, set};
use crate::interface::Interface;
use crate::waits::{OLDEST, beside};
use crate::xdp::program;
use crate::{Mbuf, netlink};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use units::Time;

/// Our program in place of the driver's, as long as this value lives.
#[derive(Debug)]
pub(crate) struct Stamper {
    interface: Interface,
    drivers: OwnedFd,
    ours: OwnedFd,
    mode: u32,
}

impl Stamper {
    /// Replaces the driver's program on `interface`. `before` is the set of descriptors from before the driver attached
    /// it. `None` if the kernel refuses.
    pub(crate) fn open(interface: &Interface, before: &BTreeSet<RawFd>) -> Option<Stamper> {
        let map = crate::losses::descriptors().difference(before).copied().find(|fd| is_socket_map(*fd))?;
        let (id, mode) = attached(interface)?;
        let drivers = program(id).ok()?;
        let ours = load(NAME, BPF_PROG_TYPE_XDP, 0, &stamping(map))?;
        let stamper = Stamper { interface: interface.clone(), drivers, ours, mode };
        stamper.replace(&stamper.drivers, &stamper.ours).ok()?;
        Some(stamper)
    }

    fn replace(&self, from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
        let attributes = [
            (IFLA_XDP_FD, to.as_raw_fd()),
            (IFLA_XDP_FLAGS, (XDP_FLAGS_REPLACE | self.mode).cast_signed()),
            (IFLA_XDP_EXPECTED_FD, from.as_raw_fd()),
        ];
        set_program(&self.interface, &attributes)
    }
}

impl Drop for Stamper {
    fn drop(&mut self) {
        // Fails if another program has replaced or removed ours.
        let _gone = self.replace(&self.ours, &self.drivers);
    }
}

/// Removes any XDP program from an interface.
pub(crate) fn take_off(interface: &Interface) -> io::Result<()> {
    let Some((_, mode)) = attached(interface) else { return Ok(()) };
    set_program(interface, &[(IFLA_XDP_FD, -1), (IFLA_XDP_FLAGS, mode.cast_signed())])
}

fn set_program(interface: &Interface, attributes: &[(u16, i32)]) -> io::Result<()> {
    let inner: Vec<u8> = attributes
        .iter()
        .flat_map(|(kind, value)| {
            let head = [8_u16.to_ne_bytes(), kind.to_ne_bytes()].concat();
            head.into_iter().chain(value.to_ne_bytes())
        })
        .collect();
    let mut about = [0; 16];
    about[4..8].copy_from_slice(&interface.index.to_ne_bytes());
    let head = [(inner.len() as u16 + 4).to_ne_bytes(), (libc::IFLA_XDP | NESTED).to_ne_bytes()].concat();
    netlink::acknowledged_request(libc::RTM_SETLINK, &[&about, &head, &inner])
}

/// Measures waits from the stamps.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    clock: Option<TscClock>,
}

impl Stamps {
    /// Makes each frame report its wait from now on.
    pub(crate) fn measure_waits(&mut self, clock: TscClock) {
        self.clock = Some(clock);
    }

    /// Sets the waits of frames that were just received. The waits end at the returned time. `None` if waits are not
    /// measured.
    pub(crate) fn set_waits(&self, frames: &mut [Mbuf]) -> Option<Time> {
        let Some(clock) = &self.clock else {
            frames.iter_mut().for_each(|frame| frame.set_waited(0));
            return None;
        };
        let (now, at) = beside(clock, || kernel_ns(libc::CLOCK_MONOTONIC));
        for frame in frames {
            let ahead = frame.take_ahead::<STAMP>();
            frame.set_waited(ahead.map_or(0, |ahead| waited(ahead, now)));
        }
        Some(at)
    }
}

/// The size of a stamp in bytes: CLOCK_MONOTONIC in ns, and the same value with some bits flipped, which identifies the
/// stamp.
const STAMP: usize = 16;
const TURNED: i32 = 0x5a3c_9617;
fn waited(stamp: [u8; STAMP], now: u64) -> u32 {
    let (time, check) = stamp.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let (time, check) = (number(time), number(check));
    if check ^ time != i64::from(TURNED).cast_unsigned() {
        return 0;
    }
    now.checked_sub(time).filter(|waited| *waited <= OLDEST).map_or(0, |waited| waited as u32) // OLDEST fits a u32
}

/// The name of the driver's program, by which tools recognise its purpose.
pub(crate) const NAME: &str = "xsk_def_prog";
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_MAP_TYPE_XSKMAP: &str = "17";
const BPF_PSEUDO_MAP_FD: u8 = 1;
const BPF_FUNC_KTIME_GET_NS: i32 = 5;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;
const BPF_FUNC_XDP_ADJUST_META: i32 = 54;
const XDP_PASS: i32 = 2;
/// Field offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE: i16 = 16;

const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
const NESTED: u16 = 1 << 15;
const XDP_FLAGS_REPLACE: u32 = 1 << 4;

/// Writes the time ahead of a frame if there is room, and hands the frame to the socket of its queue.
fn stamping(map: RawFd) -> Vec<Instruction> {
    let call = |function| instruction(0x85, 0, 0, 0, function);
    let copy = |to, from| instruction(0xbf, to, from, 0, 0);
    let load = |to, from, offset| instruction(0x61, to, from, offset, 0);
    let store = |to, from, offset| instruction(0x7b, to, from, offset, 0);
    vec![
        copy(6, 1),
        set(2, -(STAMP as i32)),
        call(BPF_FUNC_XDP_ADJUST_META),
        // If refused, continue without a stamp.
        instruction(0x55, 0, 0, 10, 0),
        call(BPF_FUNC_KTIME_GET_NS),
        load(1, 6, DATA_META),
        load(2, 6, DATA),
        copy(3, 1),
        instruction(0x07, 3, 0, 0, STAMP as i32),
        // The verifier requires this bounds check.
        instruction(0x2d, 3, 2, 4, 0),
        store(1, 0, 0),
        copy(3, 0),
        instruction(0xa7, 3, 0, 0, TURNED),
        store(1, 3, 8),
        load(2, 6, RX_QUEUE),
        instruction(0x18, 1, BPF_PSEUDO_MAP_FD, 0, map),
        instruction(0, 0, 0, 0, 0),
        set(3, XDP_PASS),
        call(BPF_FUNC_REDIRECT_MAP),
        EXIT,
    ]
}

/// Whether a descriptor is a map of XDP sockets.
fn is_socket_map(fd: RawFd) -> bool {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    about.lines().any(|line| line.strip_prefix("map_type:").is_some_and(|kind| kind.trim() == BPF_MAP_TYPE_XSKMAP))
}

/// The ID of an interface's XDP program and the flag of its attach mode, if it has a program.
fn attached(interface: &Interface) -> Option<(u32, u32)> {
    let answer = netlink::request(interface, "the XDP program").ok()?;
    let all = netlink::attributes_in(&answer).ok()?;
    let (_, xdp) = all.into_iter().find(|(kind, _)| *kind == libc::IFLA_XDP)?;
    let inner = netlink::attributes(xdp);
    let (_, how) = inner.iter().find(|(kind, _)| *kind == IFLA_XDP_ATTACHED)?;
    // XDP_ATTACHED_DRV and XDP_ATTACHED_SKB map to XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE.
    let mode = match how.first()? {
        1 => 1 << 2,
        2 => 1 << 1,
        _ => return None,
    };
    Some((netlink::number(&inner, IFLA_XDP_PROG_ID)?, mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_land_where_the_frame_is_handed_on() {
        let program = stamping(7);
        let text: Vec<String> = program.iter().map(|instruction| format!("{instruction:?}")).collect();
        let last = text.iter().position(|line| line.contains("offset: 16")).expect("the queue is read");
        for (from, by) in [(3, 10), (9, 4)] {
            assert!(text[from].contains(&format!("offset: {by},")), "{}", text[from]);
            assert_eq!(from + 1 + by, last);
        }
    }

    #[test]
    fn only_stamps_of_ours_count() {
        let stamp = |time: u64, check: u64| {
            let mut stamp = [0; STAMP];
            stamp[..8].copy_from_slice(&time.to_ne_bytes());
            stamp[8..].copy_from_slice(&check.to_ne_bytes());
            stamp
        };
        let check = |time: u64| time ^ 0x5a3c_9617;
        assert_eq!(waited(stamp(5_000, check(5_000)), 7_500), 2_500);
        assert_eq!(waited(stamp(5_000, check(5_001)), 7_500), 0, "something else lay there");
        assert_eq!(waited(stamp(8_000, check(8_000)), 7_500), 0, "not after the look");
        assert_eq!(waited(stamp(5_000, check(5_000)), 2 * OLDEST), 0, "too old");
        assert_eq!(waited([0; STAMP], 7_500), 0);
    }
}

//! Our compiled object: its programs, where they attach, and how it is opened.

use super::Points;
use crate::error::{Error, not_allowed};
use crate::record::Probe;
use aya::programs::{BtfTracePoint, FEntry, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/slice.bpf.o"));

/// `FRAMES` of `bpf/maps.h`.
const FRAMES: u32 = 65_536;
/// Number of system calls that are tracked.
const CALLS: usize = 512;
const SENDS: u8 = 1;
const RECEIVES: u8 = 2;

/// A program of the object, and where it attaches.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) probe: Probe,
    /// Slices are impossible without it.
    pub(super) needed: bool,
    /// It belongs to [`Points::Few`].
    few: bool,
}

const fn program(name: &'static str, probe: Probe) -> Program {
    Program { name, probe, needed: false, few: false }
}

impl Program {
    const fn needed(self) -> Program {
        Program { needed: true, ..self }
    }

    const fn few(self) -> Program {
        Program { few: true, ..self }
    }

    /// The programs that stamp at `points`.
    pub(super) fn at(points: Points) -> impl Iterator<Item = &'static Program> {
        PROGRAMS.iter().filter(move |program| program.few || points == Points::All)
    }
}

const PROGRAMS: &[Program] = &[
    program("on_sys_enter", Probe::SysEnter).needed(),
    program("on_sys_exit", Probe::SysExit).needed(),
    program("on_tcp_send", Probe::TcpSend).few(),
    program("on_queue", Probe::Queue).needed().few(),
    program("on_qdisc_in", Probe::QdiscIn),
    program("on_qdisc_out", Probe::QdiscOut),
    program("on_xmit", Probe::Transmit).needed(),
    program("on_xmit_done", Probe::TransmitDone),
    program("on_netif_rx", Probe::NetifRx).needed(),
    program("on_gro", Probe::Gro),
    program("on_receive", Probe::Receive).needed().few(),
    program("on_tcp_receive", Probe::TcpReceive),
    program("on_ready", Probe::Ready).few(),
    program("on_copy", Probe::Copy).needed().few(),
    program("on_copied", Probe::Copied),
    program("on_recv_length", Probe::ReceiveLength).few(),
    program("on_fork", Probe::Fork).needed().few(),
];

/// The program of [`PROGRAMS`] that tracks child processes. It stays attached while the others are detached.
pub(super) const FORK: &str = "on_fork";

/// The programs and their maps, not loaded yet, with room for `events` events.
pub(super) fn open(btf: &Btf, buffer: u32, events: usize) -> Result<Ebpf, Error> {
    let calls = calls();
    let counted = u32::try_from(events).unwrap_or(0);
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(btf))
        .override_global("CALL", &calls, true)
        .override_global("COUNTED", &counted, true)
        .map_max_entries("records", buffer);
    if counted > 0 {
        loader.map_max_entries("counts", FRAMES);
    }
    loader.load(OBJECT).map_err(|cause| not_allowed(&cause))
}

/// What each system call does: send, receive or neither.
fn calls() -> [u8; CALLS] {
    let mut calls = [0; CALLS];
    let sends = [
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_sendfile,
        libc::SYS_splice,
    ];
    let receives = [libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_recvmmsg, libc::SYS_read, libc::SYS_readv];
    let numbers = sends.iter().map(|n| (n, SENDS)).chain(receives.iter().map(|n| (n, RECEIVES)));
    for (number, call) in numbers {
        if let Some(place) = usize::try_from(*number).ok().and_then(|n| calls.get_mut(n)) {
            *place = call;
        }
    }
    calls
}

pub(super) fn tracepoint<'a>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint, ProgramError> {
    programs.program_mut(name).expect("it is in the object that we compiled").try_into()
}

pub(super) fn function(programs: &mut Ebpf) -> Result<&mut FEntry, ProgramError> {
    programs.program_mut("on_ip_send").expect("it is in the object that we compiled").try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_has_a_program() {
        for probe in Probe::ALL.iter().filter(|probe| **probe != Probe::IpSend) {
            assert!(PROGRAMS.iter().any(|program| program.probe == *probe), "{probe:?}");
        }
        let calls = calls();
        assert_eq!(calls[usize::try_from(libc::SYS_sendto).expect("small")], SENDS);
        assert_eq!(calls[usize::try_from(libc::SYS_read).expect("small")], RECEIVES);
    }
}

//! The capabilities that each command and kind of port needs, and those that a run keeps once it is set up. Messages,
//! `doctor`, docs/guide/privileges.md, packaging/ and tests follow this list.

/// A capability of Linux, by its number in linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Chown = 0,
    DacOverride = 1,
    DacReadSearch = 2,
    Fowner = 3,
    Fsetid = 4,
    Kill = 5,
    NetAdmin = 12,
    NetRaw = 13,
    IpcLock = 14,
    SysRawio = 17,
    SysPtrace = 19,
    SysAdmin = 21,
    SysNice = 23,
    Mknod = 27,
    Setfcap = 31,
    Perfmon = 38,
    Bpf = 39,
}

use Capability::{
    Bpf, Chown, DacOverride, DacReadSearch, Fowner, Fsetid, IpcLock, Mknod, NetAdmin, NetRaw, Perfmon, Setfcap,
    SysAdmin, SysNice, SysPtrace, SysRawio,
};

impl Capability {
    /// Returns its name in manual pages and systemd units.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Chown => "CAP_CHOWN",
            DacOverride => "CAP_DAC_OVERRIDE",
            DacReadSearch => "CAP_DAC_READ_SEARCH",
            Fowner => "CAP_FOWNER",
            Fsetid => "CAP_FSETID",
            Capability::Kill => "CAP_KILL",
            NetAdmin => "CAP_NET_ADMIN",
            NetRaw => "CAP_NET_RAW",
            IpcLock => "CAP_IPC_LOCK",
            SysRawio => "CAP_SYS_RAWIO",
            SysPtrace => "CAP_SYS_PTRACE",
            SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysNice => "CAP_SYS_NICE",
            Mknod => "CAP_MKNOD",
            Setfcap => "CAP_SETFCAP",
            Perfmon => "CAP_PERFMON",
            Bpf => "CAP_BPF",
        }
    }

    /// Returns its bit in a set of capabilities.
    pub(crate) fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// The capabilities that a command or kind of port needs.
#[derive(Debug)]
pub(crate) struct RequiredRights {
    /// The command or kind of port, in messages and in the guide.
    pub(crate) what: &'static str,
    /// The capabilities required at the start.
    pub(crate) needs: &'static [Capability],
    /// The capabilities that a run keeps after set-up.
    pub(crate) keeps: &'static [Capability],
    /// The purpose of the capabilities, beginning with "to".
    pub(crate) why: &'static str,
}

/// Captures and models.
pub(crate) const NOTHING: RequiredRights = RequiredRights {
    what: "virtual time, `line:`, `dpdk:net_null0`, `check`, `doctor`, `manual`, `measure --pcap`, `measure --host`, `slice attach`",
    needs: &[],
    keeps: &[],
    why: "for files only",
};

/// Interfaces with packet sockets.
pub(crate) const PACKET: RequiredRights = RequiredRights {
    what: "`if:` by af_packet, `measure --in`, `gen --in`, `search`",
    needs: &[NetRaw],
    keeps: &[],
    why: "to open packet sockets",
};

/// Interfaces of the Open Traffic Generator API.
pub(crate) const OTG: RequiredRights = RequiredRights {
    what: "`otg`",
    needs: &[NetRaw],
    keeps: &[NetAdmin, NetRaw, SysNice],
    why: "to open packet sockets, again if an interface is made again, to take links up and down, and to wake in time",
};

/// Interfaces with XDP sockets.
pub(crate) const XDP: RequiredRights = RequiredRights {
    what: "`if:` by af_xdp",
    needs: &[IpcLock, NetAdmin, NetRaw, SysAdmin],
    keeps: &[NetAdmin],
    why: "to lock frame buffers (unless ulimit -l is unlimited), attach an XDP program, open XDP sockets and find the program by its number; to take it off at the end",
};

/// TAP devices.
pub(crate) const TAP: RequiredRights = RequiredRights {
    what: "`tap:`",
    needs: &[NetAdmin, NetRaw],
    keeps: &[NetRaw],
    why: "to make the device and to read when frames arrived in it",
};

/// An interface of the host.
pub(crate) const ON: RequiredRights = RequiredRights {
    what: "`emulate --on`",
    needs: &[Bpf, NetAdmin, NetRaw],
    keeps: &[NetRaw],
    why: "to load programs, attach them, make TAP devices and read when frames arrived in these",
};

/// NICs bound to DPDK.
pub(crate) const PCI: RequiredRights = RequiredRights {
    what: "`pci:`, `dpdk:` devices other than `net_null`",
    needs: &[],
    keeps: &[DacOverride, DacReadSearch, IpcLock, NetAdmin, NetRaw, SysAdmin, SysRawio],
    why: "as the driver wants; with VFIO a user needs /dev/vfio/GROUP and an unlimited ulimit -l",
};

/// Slices of the kernel's path.
pub(crate) const SLICE: RequiredRights = RequiredRights {
    what: "`slice kernel`, `slice pipeline --kernel` beside its ports",
    needs: &[Bpf, Perfmon],
    keeps: &[Bpf, Perfmon],
    why: "to load and attach probes, and at the end to measure what they cost",
};

/// Slow disks that root mounts.
pub(crate) const DISK: RequiredRights = RequiredRights {
    what: "`disk` as root",
    needs: &[Chown, DacOverride, Fowner, SysAdmin],
    keeps: &[Chown, DacOverride, Fowner, Fsetid, Mknod, Setfcap, SysAdmin, SysPtrace],
    why: "to mount, to serve the files of all users, and to unmount",
};

/// Labs that outlive the command.
pub(crate) const LAB: RequiredRights = RequiredRights {
    what: "`lab up`, `lab down`",
    needs: &[DacOverride, NetAdmin, SysAdmin],
    keeps: &[DacOverride, NetAdmin, SysAdmin],
    why: "to make namespaces and links and to write below /run",
};

/// All rows, in the order of the guide.
pub(crate) const ROWS: [&RequiredRights; 10] = [&NOTHING, &PACKET, &OTG, &XDP, &TAP, &ON, &PCI, &SLICE, &DISK, &LAB];

/// The capabilities that the systemd unit and the setcap line of the guide grant: those for interfaces with af_packet
/// and for TAP devices.
pub(crate) const SHIPPED: &[Capability] = &[NetAdmin, NetRaw];

/// Returns the names separated by commas, for messages.
pub(crate) fn names(capabilities: &[Capability]) -> String {
    capabilities.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(", ")
}

/// Returns a set in the notation of setcap(8).
pub(crate) fn for_setcap(capabilities: &[Capability]) -> String {
    names(capabilities).to_lowercase().replace(", ", ",") + "+ep"
}

use std::ffi::CStr;
use std::io;

/// What can go wrong, in one line each, with the remedy where it is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `rte_eal_init` failed. DPDK cannot be started again in this process.
    #[error("DPDK does not start: {reason}{}", said(.log))]
    EalInit {
        /// The errno's text.
        reason: String,
        /// What EAL logged, lines joined by `; `.
        log: String,
    },
    /// The process has called [`Eal::init`](crate::Eal::init) before.
    #[error("DPDK has been started in this process before; it starts once per process")]
    EalTwice,
    /// Text that cannot be passed to C.
    #[error("{what} contains a NUL byte")]
    Nul {
        /// Which text.
        what: &'static str,
    },
    /// A pool could not be made.
    #[error("no pool of {frames} frames of {data_room} B: {reason}{}", said(.log))]
    Pool {
        /// Frames asked for.
        frames: u32,
        /// Bytes per frame.
        data_room: u16,
        /// The errno's text, and the remedy for too little memory.
        reason: String,
        /// What EAL logged.
        log: String,
    },
    /// A device could not be attached.
    #[error("cannot open {device}: {reason}{}", said(.log))]
    Attach {
        /// The device's arguments as given.
        device: String,
        /// The errno's text, and the remedy where known.
        reason: String,
        /// What the driver logged.
        log: String,
    },
    /// A port could not be configured or started.
    #[error("cannot {what} {device}: {reason}{}", said(.log))]
    Port {
        /// `configure`, `start`, …
        what: &'static str,
        /// The device's name.
        device: String,
        /// The errno's text, and the remedy where known.
        reason: String,
        /// What the driver logged.
        log: String,
    },
    /// The device is already open in this process.
    #[error("{device} is already open in this process")]
    PortInUse {
        /// The device's name.
        device: String,
    },
    /// DPDK's driver for packet sockets.
    #[error(
        "DPDK's net_af_packet is not supported: it reassembles IP fragments and shares arriving frames with other ports; write \
         if:{interface},driver=af_packet, which uses netlathe's own packet sockets"
    )]
    DriverOfPackets {
        /// The interface that was named.
        interface: String,
    },
    /// More queues than the device has.
    #[error("{device} has {most} {direction} queues, not {asked}")]
    Queues {
        /// The device's name.
        device: String,
        /// `receive` or `transmit`.
        direction: &'static str,
        /// What it has.
        most: u16,
        /// What was asked.
        asked: u16,
    },
    /// Frames of the port's MTU do not fit the pool's buffers.
    #[error("frames of MTU {mtu} need buffers of {needed} B; the pool's have {data_room} B")]
    Room {
        /// The MTU asked for, in bytes.
        mtu: u16,
        /// Bytes that a buffer needs.
        needed: u32,
        /// Bytes that the pool's buffers have.
        data_room: u16,
    },
    /// Bytes that do not fit a frame's buffer.
    #[error("{length} B do not fit a buffer of {room} B")]
    FrameTooLong {
        /// The length asked for, in bytes.
        length: usize,
        /// Bytes from the frame's start to its buffer's end.
        room: usize,
    },
    /// A thread could not be registered with DPDK: it knows at most `RTE_MAX_LCORE` (128) at a time.
    #[error("DPDK does not take another thread: {reason}")]
    Register {
        /// The errno's text.
        reason: String,
    },
    /// The port cannot be told when frames are to depart.
    #[error("{device} does not support launch times: {why}; use pacer deadline, or filler with the line rate")]
    NoLaunchTime {
        /// The device.
        device: String,
        /// What is missing.
        why: String,
    },
    /// Frames cannot carry the time of their departure.
    #[error("frames have no room for the time of their departure: {reason}")]
    Launch {
        /// The errno's text.
        reason: String,
    },
    /// There is no such interface in this network namespace.
    #[error("there is no interface {name} in this network namespace; `ip link` lists them")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// Another program has the TAP device.
    #[error(
        "TAP device {name} exists and is in use, perhaps by another netlathe: choose another name, or end that program first"
    )]
    TapInUse {
        /// Its name.
        name: String,
    },
    /// Its frames are not Ethernet's.
    #[error(
        "interface {name} carries packets without an Ethernet header, as tunnels do: name an Ethernet interface, such as the one that the tunnel leaves by"
    )]
    NotEthernet {
        /// Its name.
        name: String,
    },
    /// The interface is down.
    #[error("interface {name} is down; set it up with `ip link set {} up`", units::quoted(.name))]
    InterfaceDown {
        /// Its name.
        name: String,
    },
    /// The interface was there, and is no more.
    #[error(
        "interface {name} disappeared; check whether it was deleted, renamed or moved to another network namespace"
    )]
    InterfaceGone {
        /// Its name.
        name: String,
    },
    /// An XDP program is on the interface that is not ours to take off.
    #[error(
        "interface {interface} has an XDP program that is not netlathe's (id {id}{name}), and af_xdp would replace it: \
         `ip link set dev {} xdp off` if it is not needed, or write if:{interface},driver=af_packet",
        units::quoted(.interface)
    )]
    XdpProgram {
        /// The interface.
        interface: String,
        /// The program's number, as `bpftool prog` shows it.
        id: u32,
        /// Its name behind a comma, if it is known.
        name: String,
    },
    /// The interface's XDP program is a living netlathe's.
    #[error(
        "{who} uses interface {interface} with af_xdp and takes all frames that arrive there: end it first, name another \
         interface, or write if:{interface},driver=af_packet for both, which share it"
    )]
    XdpInUse {
        /// The interface.
        interface: String,
        /// Whose it is.
        who: String,
    },
    /// The kernel cannot lead an interface's frames elsewhere.
    #[error("{what} failed: {why}")]
    NoDetour {
        /// What was tried.
        what: String,
        /// What is missing.
        why: &'static str,
    },
    /// The kernel does not permit it.
    #[error("{what} is not permitted; run as root, or in a namespace of your own: `unshare -Urn`")]
    Permission {
        /// What was tried.
        what: String,
    },
    /// Any other error of a system call.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// Whether the kernel refused a frame since it is longer than the interface's MTU.
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self, Error::System { source, .. } if source.raw_os_error() == Some(libc::EMSGSIZE))
    }

    /// The last system call's error, with permission told apart.
    pub(crate) fn system(what: impl Into<String>) -> Self {
        Error::of_system(what, io::Error::last_os_error())
    }

    pub(crate) fn of_system(what: impl Into<String>, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::Permission { what: what.into() },
            _ => Error::System { what: what.into(), source },
        }
    }
}

/// A log's text as the tail of a message.
fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" (DPDK says: {log})") }
}

/// The text of an errno (either sign), DPDK's own numbers included.
pub(crate) fn errno_text(errno: i32) -> String {
    // SAFETY: takes any number; gives a static or thread-local string, never NULL.
    let text = unsafe { dpdk_sys::shim_strerror(errno.abs()) };
    // SAFETY: NUL-terminated, and copied before this thread's next call could change it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

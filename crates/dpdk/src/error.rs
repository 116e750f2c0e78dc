use std::ffi::CStr;
use std::io;

/// Errors of this crate. Each message is one line and names the remedy if known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `rte_eal_init` failed. DPDK cannot be started again in this process.
    #[error("DPDK does not start: {reason}{}", log_suffix(.log))]
    EalInit {
        /// The errno's text.
        reason: String,
        /// What EAL logged, lines joined by `; `.
        log: String,
    },
    /// The process has already called [`Eal::init`](crate::Eal::init).
    #[error("DPDK has been started in this process before; it starts once per process")]
    EalTwice,
    /// The text contains a NUL byte and cannot be passed to C.
    #[error("{what} contains a NUL byte")]
    Nul {
        /// The name of the text.
        what: &'static str,
    },
    /// A pool could not be created.
    #[error("no pool of {frames} frames of {data_room} B: {reason}{}", log_suffix(.log))]
    Pool {
        /// Requested frames.
        frames: u32,
        /// Bytes per frame.
        data_room: u16,
        /// The errno's text, and the remedy for too little memory.
        reason: String,
        /// What EAL logged.
        log: String,
    },
    /// A device could not be attached.
    #[error("cannot open {device}: {reason}{}", log_suffix(.log))]
    Attach {
        /// The device's arguments as the user gave them.
        device: String,
        /// The errno's text, and the remedy where known.
        reason: String,
        /// What the driver logged.
        log: String,
    },
    /// A port could not be configured or started.
    #[error("cannot {what} {device}: {reason}{}", log_suffix(.log))]
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
    /// DPDK's driver for packet sockets was requested.
    #[error(
        "DPDK's net_af_packet is not supported: it reassembles IP fragments and shares arriving frames with other ports; write \
         if:{interface},driver=af_packet, which uses netlathe's own packet sockets"
    )]
    DriverOfPackets {
        /// The interface that the user named.
        interface: String,
    },
    /// More queues were requested than the device has.
    #[error("{device} has {most} {direction} queues, not {asked}")]
    Queues {
        /// The device's name.
        device: String,
        /// `receive` or `transmit`.
        direction: &'static str,
        /// The number that the device has.
        most: u16,
        /// The number requested.
        asked: u16,
    },
    /// Frames of the port's MTU do not fit the pool's buffers.
    #[error("frames of MTU {mtu} need buffers of {needed} B; the pool's have {data_room} B")]
    Room {
        /// The requested MTU in bytes.
        mtu: u16,
        /// The buffer size needed, in bytes.
        needed: u32,
        /// The pool's buffer size in bytes.
        data_room: u16,
    },
    /// The bytes do not fit the frame's buffer.
    #[error("{length} B do not fit a buffer of {room} B")]
    FrameTooLong {
        /// The requested length in bytes.
        length: usize,
        /// Bytes from the start of the frame to the end of its buffer.
        room: usize,
    },
    /// A thread could not be registered with DPDK, which accepts at most `RTE_MAX_LCORE` (128) at a time.
    #[error("DPDK does not take another thread: {reason}")]
    Register {
        /// The errno's text.
        reason: String,
    },
    /// The port does not support launch times.
    #[error("{device} does not support launch times: {why}; use pacer deadline, or filler with the line rate")]
    NoLaunchTime {
        /// The device.
        device: String,
        /// What is missing.
        why: String,
    },
    /// Frames have no room for a launch time.
    #[error("frames have no field for their departure time: {reason}")]
    Launch {
        /// The errno's text.
        reason: String,
    },
    /// The interface does not exist in this network namespace.
    #[error("there is no interface {name} in this network namespace; `ip link` lists them")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// Another program uses the TAP device.
    #[error(
        "TAP device {name} exists and is in use, perhaps by another netlathe: choose another name, or end that program first"
    )]
    TapInUse {
        /// Its name.
        name: String,
    },
    /// The interface's frames have no Ethernet header.
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
    /// The interface has disappeared.
    #[error(
        "interface {name} disappeared; check whether it was deleted, renamed or moved to another network namespace"
    )]
    InterfaceGone {
        /// Its name.
        name: String,
    },
    /// The interface has an XDP program that netlathe did not attach.
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
        /// A comma and the program's name, if known.
        name: String,
    },
    /// A running netlathe process owns the interface's XDP program.
    #[error(
        "{who} uses interface {interface} with af_xdp and takes all frames that arrive there: end it first, name another \
         interface, or write if:{interface},driver=af_packet for both, which share it"
    )]
    XdpInUse {
        /// The interface.
        interface: String,
        /// The owner.
        who: String,
    },
    /// The machine has no PCI device at this address.
    #[error("there is no NIC {address} (No such device): `netlathe doctor` lists the machine's NICs")]
    NoNic {
        /// The address.
        address: String,
    },
    /// Linux uses the NIC itself.
    #[error(
        "NIC {address} is {bound}, so Linux has it: `netlathe doctor` prints the commands that hand it to netlathe, and says whether \
         this host is reached through it"
    )]
    NicOfLinux {
        /// The address.
        address: String,
        /// The kernel driver it is bound to.
        bound: String,
    },
    /// Another process uses the NIC.
    #[error("{owner} uses NIC {address}: end it first, or name another NIC")]
    NicInUse {
        /// The address.
        address: String,
        /// The owner.
        owner: String,
    },
    /// A PCI NIC needs memory that it can address.
    #[error(
        "{device} needs huge pages here ({why}), and fewer than {needed} MiB are free: `echo {} > /proc/sys/vm/nr_hugepages` reserves \
         them",
        needed.div_ceil(2)
    )]
    HugePages {
        /// The device.
        device: String,
        /// Why ordinary pages do not suffice.
        why: &'static str,
        /// Memory of this run, in MiB.
        needed: u32,
    },
    /// The kernel cannot redirect an interface's frames.
    #[error("{what} failed: {why}")]
    NoDetour {
        /// What was tried.
        what: String,
        /// What is missing.
        why: &'static str,
    },
    /// The kernel does not permit the operation.
    #[error("{what} is not permitted; run as root, or in a namespace of your own: `unshare -Urn`")]
    Permission {
        /// What was tried.
        what: String,
    },
    /// Any other system call error.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Error {
    /// Whether the kernel refused a frame because it is longer than the interface's MTU.
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self, Error::System { source, .. } if source.raw_os_error() == Some(libc::EMSGSIZE))
    }

    /// The error of the last system call. Permission errors become [`Error::Permission`].
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

/// A log's text, formatted for the end of a message.
fn log_suffix(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" (DPDK says: {log})") }
}

/// The text of an errno with either sign, including DPDK's own numbers.
pub(crate) fn errno_text(errno: i32) -> String {
    // SAFETY: takes any number and returns a static or thread-local string, never NULL.
    let text = unsafe { dpdk_sys::shim_strerror(errno.abs()) };
    // SAFETY: the string is NUL-terminated, and copied before this thread's next call could change it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

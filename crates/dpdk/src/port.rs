use crate::eal::{log_mark, log_since};
use crate::error::errno_text;
use crate::interface::{self, Interface};
use crate::losses::{self, Sockets};
use crate::netlink;
use crate::packet_ring::leave_out_outgoing;
use crate::queues::{RxQueue, TxQueue};
use crate::xdp::Claim;
use crate::xdp_stamps::Stamper;
use crate::{Eal, Error, LaunchTime, NicClock, Pool, Result, Vdev};
use dpdk_sys as sys;
use std::ffi::{CString, c_int};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// What a port is to have.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Frames that a receive queue holds; the driver may adjust it.
    pub rx_descriptors: u16,
    /// Frames that a transmit queue holds; the driver may adjust it.
    pub tx_descriptors: u16,
    /// The longest packet in bytes, without Ethernet's header, for drivers of NICs. The MTU of a Linux
    /// interface is left as it is: that is set with `ip link`. `None` for the driver's own.
    pub mtu: Option<u16>,
    /// Receive frames for other stations too.
    pub promiscuous: bool,
    /// Frames say when they are to depart.
    pub launch_time: LaunchTime,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            promiscuous: true,
            launch_time: LaunchTime::Never,
        }
    }
}

/// What a port is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// The device's name in DPDK.
    pub device: String,
    /// DPDK's driver.
    pub driver: String,
    /// The Linux interface behind it, if there is one.
    pub interface: Option<String>,
    /// Its address.
    pub mac: [u8; 6],
    /// Whether the link is up: the interface's state if there is one.
    pub link_up: bool,
    /// The link's speed in Mbit/s, 0 if unknown. Software drivers make one up (10 000).
    pub speed_mbps: u32,
    /// The longest packet in bytes, without Ethernet's header: the interface's if there is one.
    pub mtu: u32,
    /// The largest MTU that the driver takes.
    pub max_mtu: u16,
    /// The longest frame that can be sent, in bytes without FCS, when it carries no VLAN tag.
    pub max_frame: usize,
    /// Receive queues that it could have.
    pub max_rx_queues: u16,
    /// Transmit queues that it could have.
    pub max_tx_queues: u16,
    /// Whether the NIC can be told when a frame is to depart.
    pub send_on_timestamp: bool,
    /// DPDK's receive offload bits.
    pub rx_offloads: u64,
    /// DPDK's transmit offload bits.
    pub tx_offloads: u64,
}

/// What a port has counted since it was opened, as its driver tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes received, without FCS for software drivers.
    pub rx_bytes: u64,
    /// Bytes sent, likewise.
    pub tx_bytes: u64,
    /// Frames lost because the receive queue was full; for socket drivers, what the kernel says.
    pub rx_missed: u64,
    /// Frames received with errors.
    pub rx_errors: u64,
    /// Frames that the driver took and could not send.
    pub tx_errors: u64,
    /// Times that the pool was empty when a frame came.
    pub rx_no_buffer: u64,
    /// Frames that came with a checksum which their sender had left to a device to fill in, see [`RxQueue::poll`].
    pub rx_completed: u64,
}

/// A port that is configured, and receives and sends nothing yet.
#[derive(Debug)]
pub struct Port {
    inner: Arc<PortInner>,
    rx_queues: u16,
    tx_queues: u16,
    launches: bool,
}

/// A running port and its queues.
///
/// The queues keep the port running: it stops, is closed and detached when the handle and the last
/// of them are dropped.
#[derive(Debug)]
pub struct Started {
    /// The receive queues, in order.
    pub rx: Vec<RxQueue>,
    /// The transmit queues, in order.
    pub tx: Vec<TxQueue>,
    /// The port, for what concerns it as a whole.
    pub port: Port,
}

/// The longest frame that reaches the line, in bytes without FCS: what is longer the kernel or the NIC drops after
/// the driver has counted it. What the other end of a veth pair refuses is worse: the kernel keeps it in the packet ring,
/// at the head of all that follows, or says that there is no room now.
#[derive(Debug)]
pub(crate) struct MaxFrame {
    /// When the port was opened: its buffers are made for that.
    pub(crate) at_open: usize,
    /// When somebody looked last.
    now: AtomicUsize,
}

/// MTUs in bytes that are smaller than one would think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Narrower {
    /// The interface's own, where it was larger when the port was opened.
    pub own: Option<u32>,
    /// That of a veth's other end, where it is smaller than the interface's.
    pub far: Option<u32>,
}

impl MaxFrame {
    fn new(at_open: usize) -> Arc<MaxFrame> {
        Arc::new(MaxFrame { at_open, now: AtomicUsize::new(at_open) })
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Looks at the MTU of the interface of this number and at its other end's. Gives each where it is smaller: its own
    /// than it was at first, the other end's than its own.
    pub(crate) fn follow(&self, index: u32) -> Narrower {
        let Some(interface) = Interface::numbered(index) else { return Narrower::default() };
        let Ok(mtu) = interface.mtu() else { return Narrower::default() };
        let far = netlink::far_mtu(&interface).filter(|far| *far < mtu);
        let longest = |mtu: u32| (mtu as usize + ETHERNET).min(self.at_open);
        self.now.store(longest(far.unwrap_or(mtu)), Ordering::Relaxed);
        Narrower { own: (longest(mtu) < self.at_open).then_some(mtu), far }
    }
}

/// How the names of TAP devices begin in DPDK.
pub(crate) const TAP: &str = "net_tap";

/// Ethernet's header, in bytes.
const ETHERNET: usize = 14;

/// The Linux interface behind a port, for a thread that looks after it while others have the port.
#[derive(Debug)]
pub struct PortInterface {
    name: String,
    index: u32,
    max_frame: Arc<MaxFrame>,
    has_program: bool,
    /// The driver made it, and sets it down before it removes it.
    goes_with_port: bool,
    // It does not keep the port open.
    port: Weak<PortInner>,
}

impl PortInterface {
    /// Whether it went while the port was open: it was deleted or moved to another network namespace. One that was
    /// renamed is still there.
    #[must_use]
    pub fn has_gone(&self) -> bool {
        // In this order: a device that goes with its port goes after the last who has it.
        !interface::is_there(self.index) && self.port.strong_count() > 0
    }

    /// The name that it had when the port was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is set up, and whether it has a carrier besides. `None` when it has gone, or is going with its port.
    #[must_use]
    pub fn state(&self) -> Option<(bool, bool)> {
        let interface = Interface::numbered(self.index)?;
        let (up, _) = interface.state().ok()?;
        let carrier = up && interface.has_carrier().ok()?.unwrap_or(true);
        // In this order, as for whether it went.
        let goes = self.goes_with_port && self.port.strong_count() == 0;
        (!goes).then_some((up, carrier))
    }

    /// Looks at its MTU and its other end's, which transmit queues then go by ([`TxQueue::follow_link`]), and gives
    /// what is smaller.
    #[must_use]
    pub fn follow_mtu(&self) -> Narrower {
        self.max_frame.follow(self.index)
    }

    /// Whether frames reach the port by an XDP program, which stays on the interface where that is moved to another
    /// network namespace.
    #[must_use]
    pub fn has_program(&self) -> bool {
        self.has_program
    }
}

#[derive(Debug)]
pub(crate) struct PortInner {
    eal: &'static Eal,
    pub(crate) number: u16,
    pub(crate) device: String,
    /// What was said behind its name.
    pub(crate) arguments: String,
    bus: &'static CString,
    pub(crate) interface: Option<Interface>,
    pub(crate) max_frame: Arc<MaxFrame>,
    pub(crate) tx_descriptors: u16,
    // Outlives the driver's use of it, which ends when this is dropped.
    _pool: Pool,
    // Holds the interface's promiscuity.
    _membership: Option<OwnedFd>,
    pub(crate) sockets: Sockets,
    pub(crate) completed: AtomicU64,
    // Given up when the driver has taken its program off, which is when this is dropped.
    claim: Option<Claim>,
    // Gone before the driver closes.
    pub(crate) stamper: Option<Stamper>,
}

impl Port {
    /// Attaches a device and configures it to receive into buffers of `pool`.
    ///
    /// `device` is what `--vdev` takes (`net_af_packet0,iface=veth0`; see [`Vdev`](crate::Vdev)), or
    /// a PCI address (`0000:03:00.1`) that [`EalConfig::pci`](crate::EalConfig::pci) allowed, or the
    /// name of a device that EAL made at its start. Interfaces are those of the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::PortInUse`], [`Error::Queues`], [`Error::Room`]; of XDP sockets
    /// [`Error::XdpProgram`] and [`Error::XdpInUse`], nothing being touched then; otherwise
    /// [`Error::Attach`] and [`Error::Port`] with what the driver said. Nothing stays attached.
    pub fn open(eal: &'static Eal, device: impl AsRef<str>, pool: &Pool, config: &PortConfig) -> Result<Port> {
        let text = device.as_ref().trim();
        let text = text.strip_prefix("pci:").unwrap_or(text);
        let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
        if let Some(mtu) = config.mtu {
            // Ethernet's header, two tags and the FCS that some NICs keep.
            let needed = u32::from(mtu) + 26;
            if needed > u32::from(pool.data_room()) {
                return Err(Error::Room { mtu, needed, data_room: pool.data_room() });
            }
        }
        // A driver's own words for a missing interface are poor.
        let socket_driver = name.starts_with("net_af_packet") || name.starts_with("net_af_xdp");
        let mut claim = None;
        if let Some(interface) = arguments.split(',').find_map(|a| a.strip_prefix("iface="))
            && socket_driver
        {
            let interface = Interface::named(interface)?;
            interface.check_header()?;
            claim = name.starts_with("net_af_xdp").then(|| Claim::take(&interface)).transpose()?;
        }

        // The driver would take a queue of it, and share with them what arrives.
        if name.starts_with(TAP)
            && let Some(tap) = arguments.split(',').find_map(|a| a.strip_prefix("iface="))
            && let Ok(there) = Interface::named(tap)
            && there.driver()?.as_deref() == Some("tun")
            && there.has_carrier()? == Some(true)
        {
            return Err(Error::TapInUse { name: tap.to_owned() });
        }

        let mut inner = attach(eal, name, arguments, text, pool)?;
        inner.claim = claim;
        let inner = Arc::new(inner);
        let mut port = Port { inner, rx_queues: config.rx_queues, tx_queues: config.tx_queues, launches: false };
        port.configure(config)?;
        Ok(port)
    }

    /// A port that receives what it is sent, through a ring of `slots` frames which refuses more. One
    /// thread may send while another receives. Frames of any length pass.
    ///
    /// The ring's memory (8 B per slot) stays with the process when the port goes.
    ///
    /// # Errors
    /// [`Error::Attach`] when EAL's memory does not suffice; those of [`open`](Port::open).
    pub fn ring(eal: &'static Eal, slots: u32, pool: &Pool) -> Result<Port> {
        let ring = Vdev::ring_name();
        let name = format!("net_ring_{ring}");
        let c_ring = CString::new(ring).map_err(|_| Error::Nul { what: "a ring's name" })?;
        {
            let _control = eal.control();
            let mark = log_mark();
            // SAFETY: EAL runs, the lock is held, and the name is copied.
            let rc = unsafe { sys::shim_ring_port(c_ring.as_ptr(), slots) };
            if rc < 0 {
                let log = log_since(mark);
                return Err(Error::Attach { device: name, reason: reason(rc, &log), log });
            }
        }
        Port::open(eal, name, pool, &PortConfig::default())
    }

    fn configure(&mut self, config: &PortConfig) -> Result<()> {
        let info = self.inner.raw_info()?;
        let refused =
            |direction, most, asked| Err(Error::Queues { device: self.inner.device.clone(), direction, most, asked });
        if config.rx_queues > info.max_rx_queues {
            return refused("receive", info.max_rx_queues, config.rx_queues);
        }
        if config.tx_queues > info.max_tx_queues {
            return refused("transmit", info.max_tx_queues, config.tx_queues);
        }
        let offered = info.send_on_timestamp != 0;
        if config.launch_time == LaunchTime::Required && !offered {
            let why = format!("its driver {} does not offer it", text(&info.driver));
            return Err(Error::NoLaunchTime { device: self.inner.device.clone(), why });
        }
        self.launches = offered && config.launch_time != LaunchTime::Never;
        let mut raw = sys::shim_port_config {
            rx_queues: config.rx_queues,
            tx_queues: config.tx_queues,
            rx_descriptors: config.rx_descriptors,
            tx_descriptors: config.tx_descriptors,
            // Software drivers claim at most 1514 B whatever their slots hold: DPDK would refuse.
            mtu: if self.inner.interface.is_some() { 0 } else { config.mtu.unwrap_or(0) },
            launch_time: u16::from(self.launches),
        };
        let inner = Arc::get_mut(&mut self.inner).expect("no queue has been handed out");
        let pool = inner._pool.raw();
        {
            let _control = inner.eal.control();
            let before = losses::descriptors();
            let mark = log_mark();
            // SAFETY: the port is ours, stopped, and configured by this thread alone; the pool is valid
            // and stays so until the port is closed.
            let rc = unsafe { sys::shim_port_configure(inner.number, &raw mut raw, pool) };
            inner.sockets.claim(&before);
            inner.check("configure", rc, mark)?;
            if inner.claim.is_some() {
                inner.stamper = inner.interface.as_ref().and_then(|interface| Stamper::open(interface, &before));
            }
            // The driver has adjusted it.
            inner.tx_descriptors = raw.tx_descriptors;
        }
        if let Some(claim) = &mut inner.claim {
            claim.note()?;
        }
        inner.set_max_frame(config)?;
        // Of an interface the socket does it, and the flag stays as somebody has set it: a driver that is not told sets
        // it to off as it starts.
        let by_driver = match &inner.interface {
            Some(interface) => interface.is_set_promiscuous()?,
            None => config.promiscuous,
        };
        if by_driver {
            let _control = inner.eal.control();
            // SAFETY: the port is ours. A driver without the switch refuses: it has no filter either.
            unsafe { sys::shim_port_promiscuous(inner.number, 1) };
        }
        if let Some(interface) = inner.interface.as_ref().filter(|_| config.promiscuous) {
            let socket = interface::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
            interface.promiscuous(&socket)?;
            inner._membership = Some(socket);
        }
        Ok(())
    }

    /// Starts the port and hands out its queues.
    ///
    /// # Errors
    /// [`Error::Port`] with what the driver said; the port is then closed.
    pub fn start(self) -> Result<Started> {
        {
            let _control = self.inner.eal.control();
            let mark = log_mark();
            // SAFETY: the port is ours, configured and stopped.
            let rc = unsafe { sys::shim_port_start(self.inner.number) };
            self.inner.check("start", rc, mark)?;
        }
        let rx = (0..self.rx_queues).map(|queue| RxQueue::new(Arc::clone(&self.inner), queue)).collect();
        let tx = (0..self.tx_queues).map(|queue| TxQueue::new(Arc::clone(&self.inner), queue)).collect();
        Ok(Started { rx, tx, port: self })
    }

    /// The clock by which frames say when they are to depart, where that was asked for and the driver
    /// does it.
    #[must_use]
    pub fn launch_clock(&self) -> Option<NicClock> {
        self.launches.then(|| NicClock { port: Arc::clone(&self.inner) })
    }

    /// The Linux interface behind it, if there is one.
    #[must_use]
    pub fn interface(&self) -> Option<PortInterface> {
        let interface = self.inner.interface.as_ref()?;
        Some(PortInterface {
            name: interface.name.clone(),
            index: interface.index,
            max_frame: Arc::clone(&self.inner.max_frame),
            has_program: self.inner.claim.is_some(),
            goes_with_port: self.inner.device.starts_with(TAP),
            port: Arc::downgrade(&self.inner),
        })
    }

    /// What the port is, as of now.
    ///
    /// # Errors
    /// [`Error::Port`] when its device has gone.
    pub fn info(&self) -> Result<PortInfo> {
        let raw = self.inner.raw_info()?;
        // DPDK's socket drivers say that the link is up whatever the interface's state.
        let (mtu, link_up) = match &self.inner.interface {
            Some(interface) => (interface.mtu()?, interface.state()?.1),
            None => (u32::from(raw.mtu), raw.link_up != 0),
        };
        Ok(PortInfo {
            device: self.inner.device.clone(),
            driver: text(&raw.driver),
            interface: self.inner.interface.as_ref().map(|i| i.name.clone()),
            mac: raw.mac,
            link_up,
            speed_mbps: raw.speed_mbps,
            mtu,
            max_mtu: raw.max_mtu,
            max_frame: self.inner.max_frame.now(),
            max_rx_queues: raw.max_rx_queues,
            max_tx_queues: raw.max_tx_queues,
            send_on_timestamp: raw.send_on_timestamp != 0,
            rx_offloads: raw.rx_offloads,
            tx_offloads: raw.tx_offloads,
        })
    }

    /// What the port has counted.
    ///
    /// # Errors
    /// [`Error::Port`] when the driver cannot tell.
    pub fn stats(&self) -> Result<PortStats> {
        let _control = self.inner.eal.control();
        let mark = log_mark();
        let mut raw = sys::shim_port_stats::default();
        // SAFETY: the port is ours; the struct is written.
        let rc = unsafe { sys::shim_port_stats(self.inner.number, &raw mut raw) };
        self.inner.check("read the counters of", rc, mark)?;
        Ok(PortStats {
            rx_frames: raw.ipackets,
            tx_frames: raw.opackets,
            rx_bytes: raw.ibytes,
            tx_bytes: raw.obytes,
            rx_missed: raw.imissed + self.inner.lost(),
            rx_errors: raw.ierrors,
            tx_errors: raw.oerrors,
            rx_no_buffer: raw.rx_nombuf,
            rx_completed: self.inner.completed.load(Ordering::Relaxed),
        })
    }

    /// Whether somebody has taken the XDP program off by which frames reach this port, or put another in its place:
    /// nothing arrives any more then. False of ports without one.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.inner.claim.as_ref().is_some_and(Claim::is_broken)
    }

    /// All counters of the driver, by DPDK's names.
    ///
    /// # Errors
    /// [`Error::Port`] when the driver cannot tell.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>> {
        let _control = self.inner.eal.control();
        let mut raw = Vec::new();
        loop {
            let mark = log_mark();
            // SAFETY: the port is ours, and there is room for as many as it is told.
            let rc = unsafe { sys::shim_port_xstats(self.inner.number, raw.as_mut_ptr(), raw.len() as u32) };
            self.inner.check("read the counters of", rc, mark)?;
            let count = rc.max(0) as usize;
            if count <= raw.len() {
                raw.truncate(count);
                return Ok(raw.iter().map(|x: &sys::shim_xstat| (text(&x.name), x.value)).collect());
            }
            raw.resize(count, sys::shim_xstat { name: [0; 64], value: 0 });
        }
    }
}

/// Finds the device, or attaches it, and takes it for us.
fn attach(eal: &'static Eal, name: &str, arguments: &str, text: &str, pool: &Pool) -> Result<PortInner> {
    let c_name = CString::new(name).map_err(|_| Error::Nul { what: "a device's name" })?;
    let c_arguments = CString::new(arguments).map_err(|_| Error::Nul { what: "a device's arguments" })?;
    let bus = if is_pci_address(name) { bus_pci() } else { bus_vdev() };
    let mark = log_mark();
    let failed = |rc: i32| {
        let log = log_since(mark);
        Error::Attach { device: text.to_owned(), reason: reason(rc, &log), log }
    };

    let mut open = eal.control();
    let before = losses::descriptors();
    let mut sockets = Sockets::default();
    if !open.insert(name.to_owned()) {
        return Err(Error::PortInUse { device: name.to_owned() });
    }
    // SAFETY: EAL runs; NUL-terminated.
    let mut number = unsafe { sys::shim_port_find(c_name.as_ptr()) };
    if number < 0 {
        // SAFETY: EAL runs, the lock is held, and the strings are copied.
        let rc = unsafe { sys::shim_attach(bus.as_ptr(), c_name.as_ptr(), c_arguments.as_ptr()) };
        if rc < 0 {
            open.remove(name);
            return Err(failed(rc));
        }
        // SAFETY: as above.
        number = unsafe { sys::shim_port_find(c_name.as_ptr()) };
        if number < 0 {
            open.remove(name);
            return Err(failed(number));
        }
    }
    sockets.claim(&before);
    for socket in sockets.packet() {
        // Where it cannot be had, it is as it was: the machine's own frames count as arrived.
        let _refused = leave_out_outgoing(*socket);
    }
    drop(open);
    // From here on, dropping it closes and detaches the device.
    let mut inner = PortInner {
        eal,
        number: number as u16,
        device: name.to_owned(),
        arguments: arguments.to_owned(),
        bus,
        interface: None,
        max_frame: MaxFrame::new(usize::from(u16::MAX)),
        tx_descriptors: 0,
        _pool: pool.clone(),
        _membership: None,
        sockets,
        completed: AtomicU64::new(0),
        claim: None,
        stamper: None,
    };
    let index = inner.raw_info()?.interface_index;
    inner.interface = Interface::numbered(index);
    Ok(inner)
}

fn bus_pci() -> &'static CString {
    static NAME: std::sync::OnceLock<CString> = std::sync::OnceLock::new();
    NAME.get_or_init(|| CString::from(c"pci"))
}

fn bus_vdev() -> &'static CString {
    static NAME: std::sync::OnceLock<CString> = std::sync::OnceLock::new();
    NAME.get_or_init(|| CString::from(c"vdev"))
}

/// `0000:03:00.1` or `03:00.1`.
fn is_pci_address(name: &str) -> bool {
    let hex = |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((bus, function)) = name.rsplit_once('.') else { return false };
    let parts: Vec<&str> = bus.split(':').collect();
    hex(function, 1)
        && match parts[..] {
            [bus, device] => hex(bus, 2) && hex(device, 2),
            [domain, bus, device] => hex(domain, 4) && hex(bus, 2) && hex(device, 2),
            _ => false,
        }
}

/// An errno and what to do about it.
fn reason(rc: c_int, log: &str) -> String {
    let mut text = errno_text(rc);
    let remedy = if log.contains("call to mmap failed on AF_PACKET socket") {
        // The driver locks its rings; the errno is EAGAIN, or EPERM when nothing may be locked.
        text = "its rings may not be locked in memory".to_owned();
        "; without CAP_IPC_LOCK it takes a limit of 8 MiB: `ulimit -l 8192`, or `memlock` in /etc/security/limits.conf"
    } else if log.contains("not permitted")
        // All that af_packet's driver says when the kernel gives it no socket.
        || log.contains("Could not open AF_PACKET socket")
        || rc == -libc::EACCES || (rc == -libc::EPERM && log.is_empty())
    {
        "; run as root (in a container with CAP_NET_RAW and CAP_NET_ADMIN), or in a namespace of your own: `unshare -Urn` \
         (XDP sockets need root)"
    } else if log.contains("will not fit in mbuf") {
        "; the pool's buffers are smaller than the slots of the ring: see Vdev::af_packet_data_room"
    } else if log.contains("not less than peer tx queues") {
        text = "the other end of this veth sends on more queues than this one receives on".to_owned();
        "; `ethtool -L` with rx 1 tx 1 at both ends, or use af_packet"
    } else if log.contains("xdp socket") || log.contains("umem") {
        "; XDP sockets need root outside of any user namespace, an MTU of at most 3500, and buffers of at most 3700 B: \
         use af_packet otherwise"
    } else if log.contains("could not set PACKET_FANOUT") {
        // The driver makes it of the process's number and the interface's: those of neighbours may give the same.
        text = "its sockets' group has the number of another process's by chance".to_owned();
        "; run it again"
    } else if log.contains("TUNSETIFF") {
        "; an interface of that name exists and is no free TAP device: choose another name"
    } else if log.contains("failed to parse device") {
        text = "there is no such driver".to_owned();
        "; DPDK's begin with net_, such as net_null0, net_ring0, net_memif0"
    } else if log.contains("Cannot find device") {
        "; `dpdk-devbind.py --status` shows the NICs, and whether a driver for DPDK has them"
    } else if rc == -libc::ENOMEM {
        "; give DPDK more memory, or the ring fewer frames"
    } else if rc == -1 {
        // What drivers return that do not say why, rather than EPERM.
        text = "its driver refuses".to_owned();
        "; check the arguments after its name"
    } else {
        ""
    };
    text + remedy
}

pub(crate) fn text(name: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl PortInner {
    /// Frames that were lost before the driver saw them, as far as it does not tell.
    fn lost(&self) -> u64 {
        let tap = self.interface.as_ref().filter(|_| self.device.starts_with(TAP));
        let of_tap = tap.map_or(0, |tap| losses::of_tap(&tap.name));
        self.sockets.lost() + of_tap
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn check(&self, what: &'static str, rc: c_int, mark: u64) -> Result<()> {
        if rc >= 0 {
            return Ok(());
        }
        let log = log_since(mark);
        Err(Error::Port { what, device: self.device.clone(), reason: reason(rc, &log), log })
    }

    pub(crate) fn raw_info(&self) -> Result<sys::shim_port_info> {
        let _control = self.eal.control();
        let mark = log_mark();
        // SAFETY: plain data, for which zeros are a value.
        let mut raw: sys::shim_port_info = unsafe { std::mem::zeroed() };
        // SAFETY: the port is ours; the struct is written.
        let rc = unsafe { sys::shim_port_info(self.number, &raw mut raw) };
        self.check("ask about", rc, mark)?;
        Ok(raw)
    }

    fn set_max_frame(&mut self, config: &PortConfig) -> Result<()> {
        let longest = match (&self.interface, config.mtu) {
            (Some(interface), _) => interface.mtu()? as usize + ETHERNET,
            (None, Some(mtu)) => usize::from(mtu) + ETHERNET,
            (None, None) if self.bus.as_bytes() == b"pci" => usize::from(self.raw_info()?.mtu) + ETHERNET,
            // net_null, net_ring, net_memif: whatever fits a buffer.
            (None, None) => usize::from(u16::MAX),
        };
        self.max_frame = MaxFrame::new(longest);
        if let Some(interface) = &self.interface {
            self.max_frame.follow(interface.index);
        }
        Ok(())
    }
}

impl Drop for PortInner {
    fn drop(&mut self) {
        let mut open = self.eal.control();
        self.stamper = None;
        // SAFETY: the last handle and queue are gone, so nothing uses the port. Stopping one that has
        // not been started is harmless.
        unsafe { sys::shim_port_stop(self.number) };
        // SAFETY: it is stopped.
        unsafe { sys::shim_port_close(self.number) };
        if let Ok(name) = CString::new(self.device.as_str()) {
            // SAFETY: it is closed; NUL-terminated.
            unsafe { sys::shim_detach(self.bus.as_ptr(), name.as_ptr()) };
        }
        open.remove(&self.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_and_virtual_devices_are_told_apart() {
        for yes in ["0000:03:00.1", "03:00.0", "abcd:ef:1f.7"] {
            assert!(is_pci_address(yes), "{yes}");
        }
        for no in ["net_null0", "net_af_packet0.1", "0000:03:00", "eth0.100", "000:03:00.1"] {
            assert!(!is_pci_address(no), "{no}");
        }
    }

    #[test]
    fn reasons_come_with_remedies() {
        assert!(reason(-libc::EPERM, "").contains("unshare -Urn"));
        assert!(reason(-1, "could not open AF_PACKET socket:Operation not permitted").contains("root"));
        assert!(reason(-1, "open_packet_iface(): Could not open AF_PACKET socket").contains("root"));
        let veth = reason(
            -22,
            "libbpf: Kernel error message: veth: XDP expects number of rx queues not less than peer tx queues; xsk_configure(): Failed to create xsk socket.",
        );
        assert!(veth.contains("both ends"), "{veth}");
        assert!(!reason(-1, "Driver cannot attach the device").contains("root"));
        assert!(reason(-libc::EFAULT, "failed to parse device \"vdev:net_x0\"").contains("no such driver"));
        assert!(reason(-libc::EINVAL, "Unable to set TUNSETIFF for c0: Invalid argument").contains("another name"));
        assert!(reason(-libc::ENOMEM, "2016 bytes will not fit in mbuf (1000 bytes)").contains("data_room"));
    }
}

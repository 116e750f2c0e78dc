use crate::attached::{Attached, reason, text};
use crate::eal::{log_mark, log_since};
use crate::interface::{self, Interface};
use crate::losses;
use crate::netlink;
use crate::nic::pci_address;
use crate::packet_port::{Counts, PacketPort};
use crate::queues::{RxQueue, TxQueue};
use crate::xdp::Claim;
use crate::{Eal, Error, LaunchTime, NicClock, Pool, Result, Vdev};
use dpdk_sys as sys;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Port settings.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Number of receive queues.
    pub rx_queues: u16,
    /// Number of transmit queues.
    pub tx_queues: u16,
    /// Size of a receive queue in frames. The driver may adjust it.
    pub rx_descriptors: u16,
    /// Size of a transmit queue in frames. The driver may adjust it.
    pub tx_descriptors: u16,
    /// The MTU in bytes, without the Ethernet header, for NIC drivers. `None` keeps the driver's default. The MTU of a
    /// Linux interface is never changed: set it with `ip link`.
    pub mtu: Option<u16>,
    /// Also receive frames addressed to other stations.
    pub promiscuous: bool,
    /// Whether frames carry a launch time.
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

/// Properties of a port.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// The DPDK device name.
    pub device: String,
    /// The DPDK driver.
    pub driver: String,
    /// The Linux interface behind the port, if any.
    pub interface: Option<String>,
    /// The MAC address.
    pub mac: [u8; 6],
    /// Whether the link is up. This is the interface's state if there is an interface.
    pub link_up: bool,
    /// The link speed in Mbit/s, 0 if unknown. Software drivers report a made-up value (10 000).
    pub speed_mbps: u32,
    /// The MTU in bytes, without the Ethernet header. This is the interface's MTU if there is an interface.
    pub mtu: u32,
    /// The largest MTU that the driver accepts.
    pub max_mtu: u16,
    /// The longest frame that can be sent, in bytes without FCS and without a VLAN tag.
    pub max_frame: usize,
    /// The largest possible number of receive queues.
    pub max_rx_queues: u16,
    /// The largest possible number of transmit queues.
    pub max_tx_queues: u16,
    /// Whether the NIC supports launch times.
    pub send_on_timestamp: bool,
    /// DPDK's receive offload bits.
    pub rx_offloads: u64,
    /// DPDK's transmit offload bits.
    pub tx_offloads: u64,
}

/// Port counters since the port was opened, as the driver reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes received, without FCS for software drivers.
    pub rx_bytes: u64,
    /// Bytes sent, without FCS for software drivers.
    pub tx_bytes: u64,
    /// Frames dropped because the receive queue was full. For socket drivers the kernel reports this number.
    pub rx_missed: u64,
    /// Frames received with errors.
    pub rx_errors: u64,
    /// Frames that the driver took but could not send.
    pub tx_errors: u64,
    /// Times that a frame arrived and the pool was empty.
    pub rx_no_buffer: u64,
    /// Frames received with a checksum that the sender had left to a device. See [`RxQueue::poll`].
    pub rx_completed: u64,
}

/// A configured port. It receives and sends nothing before [`Port::start`].
#[derive(Debug)]
pub struct Port {
    inner: Arc<PortInner>,
    rx_queues: u16,
    tx_queues: u16,
    launches: bool,
}

/// A running port and its queues.
///
/// The queues keep the port running. The port is stopped, closed and detached when the handle and the last queue are
/// dropped.
#[derive(Debug)]
pub struct Started {
    /// The receive queues, in order.
    pub rx: Vec<RxQueue>,
    /// The transmit queues, in order.
    pub tx: Vec<TxQueue>,
    /// The port itself, for information and counters.
    pub port: Port,
}

/// The longest frame that reaches the line, in bytes without FCS. The kernel or the NIC drops longer frames after the
/// driver has counted them as sent. A frame that exceeds the MTU at the other end of a veth pair is worse: the kernel
/// keeps it at the head of the packet ring and blocks all later frames, or reports that there is no room now.
#[derive(Debug)]
pub(crate) struct MaxFrame {
    /// The limit when the port was opened. The buffers have this size.
    pub(crate) at_open: usize,
    /// The limit at the latest check.
    now: AtomicUsize,
}

/// MTU limits at both ends, in bytes. Each is set only if it is lower than expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MtuLimits {
    /// The interface's own MTU, if it is lower than when the port was opened.
    pub own: Option<u32>,
    /// The MTU of a veth's other end, if it is lower than the interface's.
    pub far: Option<u32>,
}

impl MaxFrame {
    fn new(at_open: usize) -> Arc<MaxFrame> {
        Arc::new(MaxFrame { at_open, now: AtomicUsize::new(at_open) })
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Reads the MTU of interface number `index` and of its other end. Returns the interface's MTU if it is lower than
    /// at open, and the other end's MTU if it is lower than the interface's.
    pub(crate) fn follow(&self, index: u32) -> MtuLimits {
        let Some(interface) = Interface::numbered(index) else { return MtuLimits::default() };
        let Ok(mtu) = interface.mtu() else { return MtuLimits::default() };
        let far = netlink::far_mtu(&interface).filter(|far| *far < mtu);
        let longest = |mtu: u32| (mtu as usize + ETHERNET).min(self.at_open);
        self.now.store(longest(far.unwrap_or(mtu)), Ordering::Relaxed);
        MtuLimits { own: (longest(mtu) < self.at_open).then_some(mtu), far }
    }
}

/// The prefix of TAP device names in DPDK.
pub(crate) const TAP: &str = "net_tap";

/// The length of the Ethernet header in bytes.
const ETHERNET: usize = 14;

/// The Linux interface behind a port, for a thread that monitors it while other threads use the port.
#[derive(Debug)]
pub struct PortInterface {
    name: String,
    index: u32,
    max_frame: Arc<MaxFrame>,
    has_program: bool,
    /// The driver created the interface, and sets it down before removing it.
    goes_with_port: bool,
    // Weak: it does not keep the port open.
    port: Weak<PortInner>,
}

impl PortInterface {
    /// Whether the interface disappeared while the port was open, because it was deleted or moved to another network
    /// namespace. A renamed interface has not disappeared.
    #[must_use]
    pub fn has_gone(&self) -> bool {
        // The order matters: a device that its port removes disappears after the last owner of the port.
        !interface::is_there(self.index) && self.port.strong_count() > 0
    }

    /// The interface name when the port was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the interface is set up, and whether it is up and has a carrier. `None` if it has disappeared or its
    /// port is removing it.
    #[must_use]
    pub fn state(&self) -> Option<(bool, bool)> {
        let interface = Interface::numbered(self.index)?;
        let (up, _) = interface.state().ok()?;
        let carrier = up && interface.has_carrier().ok()?.unwrap_or(true);
        // The order matters, as in `has_gone`.
        let goes = self.goes_with_port && self.port.strong_count() == 0;
        (!goes).then_some((up, carrier))
    }

    /// Reads the MTU of the interface and of its other end, and returns those that are lower than expected. Transmit
    /// queues adopt the result in [`TxQueue::follow_link`].
    #[must_use]
    pub fn follow_mtu(&self) -> MtuLimits {
        self.max_frame.follow(self.index)
    }

    /// Whether an XDP program delivers the port's frames. The program stays on the interface when it is moved to
    /// another network namespace.
    #[must_use]
    pub fn has_program(&self) -> bool {
        self.has_program
    }
}

/// The link of a NIC on PCI, for a thread that monitors it while other threads use the port.
#[derive(Debug)]
pub struct NicLink {
    device: String,
    // Weak: it does not keep the port open.
    port: Weak<PortInner>,
}

impl NicLink {
    /// The NIC's PCI address.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Whether the link is up. `None` once the port is closed, or if the driver does not know.
    #[must_use]
    pub fn is_up(&self) -> Option<bool> {
        let port = self.port.upgrade()?;
        let PortBackend::Driver(attached) = &port.backend else { return None };
        attached.info().ok().map(|info| info.link_up != 0)
    }

    /// The speed of the link in Mbit/s. `None` without a link, or if the driver does not know.
    #[must_use]
    pub fn speed_mbps(&self) -> Option<u32> {
        let port = self.port.upgrade()?;
        let PortBackend::Driver(attached) = &port.backend else { return None };
        let info = attached.info().ok()?;
        (info.link_up != 0 && info.speed_mbps > 0).then_some(info.speed_mbps)
    }
}

#[derive(Debug)]
pub(crate) struct PortInner {
    pub(crate) backend: PortBackend,
    pub(crate) device: String,
    pub(crate) interface: Option<Interface>,
    pub(crate) max_frame: Arc<MaxFrame>,
    pub(crate) tx_descriptors: u16,
    // Outlives the driver's use of the pool, which ends when this value is dropped.
    pub(crate) pool: Pool,
    // Keeps the interface promiscuous.
    _membership: Option<OwnedFd>,
    pub(crate) completed: AtomicU64,
}

/// How the port receives and sends.
#[derive(Debug)]
pub(crate) enum PortBackend {
    /// Through a DPDK driver.
    Driver(Attached),
    /// Through our own packet sockets.
    Packet(PacketPort),
}

/// The driver name reported for packet sockets: the DPDK driver that they replace.
const PACKET: &str = "net_af_packet";

impl Port {
    /// Attaches a DPDK device and configures it to receive into buffers of `pool`.
    ///
    /// `device` is an argument of `--vdev` (`net_null0`; see [`Vdev`](crate::Vdev)), a PCI address (`0000:03:00.1`)
    /// allowed by [`EalConfig::pci`](crate::EalConfig::pci), or the name of a device that EAL created at start.
    /// Interfaces are those of the calling thread's network namespace. DPDK's driver for packet sockets is refused: see
    /// [`packet`](Port::packet).
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::NotEthernet`], [`Error::PortInUse`], [`Error::Queues`], [`Error::Room`],
    /// [`Error::NoLaunchTime`], [`Error::TapInUse`], [`Error::DriverOfPackets`]. For XDP sockets also
    /// [`Error::XdpProgram`] and [`Error::XdpInUse`], before anything is changed. Otherwise [`Error::Attach`] and
    /// [`Error::Port`] with the driver's message. Nothing stays attached after an error.
    pub fn open(eal: &'static Eal, device: impl AsRef<str>, pool: &Pool, config: &PortConfig) -> Result<Port> {
        let text = device.as_ref().trim();
        let text = text.strip_prefix("pci:").unwrap_or(text);
        let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
        let address = pci_address(name);
        let name = address.as_deref().unwrap_or(name);
        eal.check_memory(name, address.is_some())?;
        if let Some(mtu) = config.mtu {
            // The Ethernet header, two tags, and the FCS that some NICs keep.
            let needed = u32::from(mtu) + 26;
            if needed > u32::from(pool.data_room()) {
                return Err(Error::Room { mtu, needed, data_room: pool.data_room() });
            }
        }
        let interface = arguments.split(',').find_map(|a| a.strip_prefix("iface="));
        if name.starts_with(PACKET) {
            interface.map_or(Ok(()), |interface| Interface::named(interface).map(|_| ()))?;
            return Err(Error::DriverOfPackets { interface: interface.unwrap_or("NAME").to_owned() });
        }
        // The driver's error for a missing interface is unclear.
        let mut claim = None;
        if let Some(interface) = interface.filter(|_| name.starts_with("net_af_xdp")) {
            let interface = Interface::named(interface)?;
            interface.check_header()?;
            claim = Some(Claim::take(&interface)?);
        }

        // The driver would attach another queue to the TAP device and share its frames with the program that has it.
        if name.starts_with(TAP)
            && let Some(tap) = interface
            && let Ok(there) = Interface::named(tap)
            && there.driver()?.as_deref() == Some("tun")
            && there.has_carrier()? == Some(true)
        {
            return Err(Error::TapInUse { name: tap.to_owned() });
        }

        let mut attached = Attached::open(eal, name, arguments, text)?;
        attached.claim = claim;
        let interface = Interface::numbered(attached.info()?.interface_index);
        let mut inner = PortInner::new(PortBackend::Driver(attached), name, interface, pool);
        let launches = inner.configure(config)?;
        inner.join(config.promiscuous)?;
        Ok(Port { inner: Arc::new(inner), rx_queues: config.rx_queues, tx_queues: config.tx_queues, launches })
    }

    /// Opens a Linux interface of the calling thread's network namespace with packet sockets. This works for any user
    /// who may open packet sockets, for example in a user namespace. Any number of ports and programs can use the
    /// interface. Each receives all frames that arrive, and none that this machine sends. Several receive queues share
    /// the frames by flow.
    ///
    /// Without a receive queue nothing is received and the kernel copies nothing. Frames longer than the interface's
    /// MTU at open are rejected ([`RxQueue::refused`]).
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::NotEthernet`], [`Error::NoLaunchTime`], [`Error::Permission`],
    /// [`Error::System`].
    pub fn packet(interface: &str, pool: &Pool, config: &PortConfig) -> Result<Port> {
        let interface = Interface::named(interface)?;
        interface.check_header()?;
        if config.launch_time == LaunchTime::Required {
            let why = "packet sockets do not offer it".to_owned();
            return Err(Error::NoLaunchTime { device: interface.name, why });
        }
        let sockets = PacketPort::open(&interface, interface.mtu()?, config.rx_queues, config.tx_queues)?;
        let name = interface.name.clone();
        let mut inner = PortInner::new(PortBackend::Packet(sockets), &name, Some(interface), pool);
        inner.tx_descriptors = config.tx_descriptors;
        inner.set_max_frame(config)?;
        inner.join(config.promiscuous && config.rx_queues > 0)?;
        let (rx_queues, tx_queues) = (config.rx_queues, config.tx_queues);
        Ok(Port { inner: Arc::new(inner), rx_queues, tx_queues, launches: false })
    }

    /// Opens a loopback port with `queues` queues per direction. Each receive queue receives the frames sent on the
    /// transmit queue of the same number, through a ring of `slots` frames. A full ring refuses frames. One thread may
    /// send while another receives. Frames may have any length. A process can have at most 16 rings.
    ///
    /// The process keeps the rings' memory (8 B per slot) after the port is closed.
    ///
    /// # Errors
    /// [`Error::Attach`] if EAL has too little memory; those of [`open`](Port::open).
    pub fn ring(eal: &'static Eal, slots: u32, queues: u16, pool: &Pool) -> Result<Port> {
        let ring = Vdev::ring_name();
        let name = format!("net_ring_{ring}");
        let c_ring = CString::new(ring).map_err(|_| Error::Nul { what: "a ring's name" })?;
        {
            let _control = eal.control();
            let mark = log_mark();
            // SAFETY: EAL runs, the lock is held, and the name is copied.
            let rc = unsafe { sys::shim_ring_port(c_ring.as_ptr(), slots, queues) };
            if rc < 0 {
                let log = log_since(mark);
                return Err(Error::Attach { device: name, reason: reason(rc, &log), log });
            }
        }
        let config = PortConfig { rx_queues: queues, tx_queues: queues, ..PortConfig::default() };
        Port::open(eal, name, pool, &config)
    }

    /// Starts the port and returns its queues.
    ///
    /// # Errors
    /// [`Error::Port`] with the driver's message; for packet sockets [`Error::System`]. The port is then closed.
    pub fn start(self) -> Result<Started> {
        if let PortBackend::Driver(attached) = &self.inner.backend {
            attached.start()?;
        }
        let rx =
            (0..self.rx_queues).map(|queue| RxQueue::new(Arc::clone(&self.inner), queue)).collect::<Result<_>>()?;
        let tx =
            (0..self.tx_queues).map(|queue| TxQueue::new(Arc::clone(&self.inner), queue)).collect::<Result<_>>()?;
        Ok(Started { rx, tx, port: self })
    }

    /// The NIC clock for launch times. `None` unless launch times were requested and the driver supports them.
    #[must_use]
    pub fn launch_clock(&self) -> Option<NicClock> {
        let PortBackend::Driver(attached) = &self.inner.backend else { return None };
        self.launches.then(|| NicClock { _port: Arc::clone(&self.inner), number: attached.number })
    }

    /// The Linux interface behind the port, if any.
    #[must_use]
    pub fn interface(&self) -> Option<PortInterface> {
        let interface = self.inner.interface.as_ref()?;
        Some(PortInterface {
            name: interface.name.clone(),
            index: interface.index,
            max_frame: Arc::clone(&self.inner.max_frame),
            has_program: self.inner.claim().is_some(),
            goes_with_port: self.inner.tap().is_some(),
            port: Arc::downgrade(&self.inner),
        })
    }

    /// The link of the port, if it is a NIC on PCI.
    #[must_use]
    pub fn nic_link(&self) -> Option<NicLink> {
        let PortBackend::Driver(attached) = &self.inner.backend else { return None };
        let link = || NicLink { device: self.inner.device.clone(), port: Arc::downgrade(&self.inner) };
        attached.is_pci().then(link)
    }

    /// The port's current properties.
    ///
    /// # Errors
    /// [`Error::Port`] if the device has disappeared; those of the system calls that read the interface's state.
    pub fn info(&self) -> Result<PortInfo> {
        let interface = self.inner.interface.as_ref();
        let mut info = match &self.inner.backend {
            PortBackend::Driver(attached) => {
                let raw = attached.info()?;
                PortInfo {
                    device: self.inner.device.clone(),
                    driver: text(&raw.driver),
                    interface: None,
                    mac: raw.mac,
                    link_up: raw.link_up != 0,
                    speed_mbps: raw.speed_mbps,
                    mtu: u32::from(raw.mtu),
                    max_mtu: raw.max_mtu,
                    max_frame: self.inner.max_frame.now(),
                    max_rx_queues: raw.max_rx_queues,
                    max_tx_queues: raw.max_tx_queues,
                    send_on_timestamp: raw.send_on_timestamp != 0,
                    rx_offloads: raw.rx_offloads,
                    tx_offloads: raw.tx_offloads,
                }
            }
            PortBackend::Packet(_) => PortInfo {
                device: self.inner.device.clone(),
                driver: PACKET.to_owned(),
                interface: None,
                mac: interface.map(Interface::mac).transpose()?.map(|mac| mac.0).unwrap_or_default(),
                link_up: false,
                speed_mbps: 0,
                mtu: 0,
                max_mtu: u16::MAX,
                max_frame: self.inner.max_frame.now(),
                max_rx_queues: u16::MAX,
                max_tx_queues: u16::MAX,
                send_on_timestamp: false,
                rx_offloads: 0,
                tx_offloads: 0,
            },
        };
        // DPDK's socket drivers always report that the link is up.
        if let Some(interface) = interface {
            info.interface = Some(interface.name.clone());
            (info.mtu, info.link_up) = (interface.mtu()?, interface.state()?.1);
        }
        Ok(info)
    }

    /// The port's counters.
    ///
    /// # Errors
    /// [`Error::Port`] if the driver cannot report them.
    pub fn stats(&self) -> Result<PortStats> {
        let rx_completed = self.inner.completed.load(Ordering::Relaxed);
        match &self.inner.backend {
            PortBackend::Driver(attached) => {
                let raw = attached.stats()?;
                let of_tap = self.inner.tap().map_or(0, |tap| losses::of_tap(&tap.name));
                Ok(PortStats {
                    rx_frames: raw.ipackets,
                    tx_frames: raw.opackets,
                    rx_bytes: raw.ibytes,
                    tx_bytes: raw.obytes,
                    rx_missed: raw.imissed + attached.lost() + of_tap,
                    rx_errors: raw.ierrors,
                    tx_errors: raw.oerrors,
                    rx_no_buffer: raw.rx_nombuf,
                    rx_completed,
                })
            }
            PortBackend::Packet(sockets) => {
                let (rx_frames, rx_bytes) = Counts::of_all(&sockets.received);
                let (tx_frames, tx_bytes) = Counts::of_all(&sockets.sent);
                Ok(PortStats {
                    rx_frames,
                    tx_frames,
                    rx_bytes,
                    tx_bytes,
                    rx_missed: sockets.lost(),
                    rx_no_buffer: sockets.no_buffer(),
                    rx_completed,
                    ..PortStats::default()
                })
            }
        }
    }

    /// Whether another program has removed or replaced the XDP program that delivers this port's frames. The port then
    /// no longer receives. False for ports without an XDP program.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.inner.claim().is_some_and(Claim::is_broken)
    }

    /// All counters of the driver, under DPDK's names. Empty for packet sockets, which have only the counters of
    /// [`stats`](Port::stats).
    ///
    /// # Errors
    /// [`Error::Port`] if the driver cannot report them.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>> {
        match &self.inner.backend {
            PortBackend::Driver(attached) => attached.xstats(),
            PortBackend::Packet(_) => Ok(Vec::new()),
        }
    }
}

impl PortInner {
    fn new(backend: PortBackend, device: &str, interface: Option<Interface>, pool: &Pool) -> PortInner {
        PortInner {
            backend,
            device: device.to_owned(),
            interface,
            max_frame: MaxFrame::new(usize::from(u16::MAX)),
            tx_descriptors: 0,
            pool: pool.clone(),
            _membership: None,
            completed: AtomicU64::new(0),
        }
    }

    /// Configures the DPDK port. Returns whether frames carry launch times.
    fn configure(&mut self, config: &PortConfig) -> Result<bool> {
        let PortBackend::Driver(attached) = &mut self.backend else { return Ok(false) };
        let info = attached.info()?;
        let refused =
            |direction, most, asked| Err(Error::Queues { device: self.device.clone(), direction, most, asked });
        if config.rx_queues > info.max_rx_queues {
            return refused("receive", info.max_rx_queues, config.rx_queues);
        }
        if config.tx_queues > info.max_tx_queues {
            return refused("transmit", info.max_tx_queues, config.tx_queues);
        }
        let offered = info.send_on_timestamp != 0;
        if config.launch_time == LaunchTime::Required && !offered {
            let why = format!("its driver {} does not offer it", text(&info.driver));
            return Err(Error::NoLaunchTime { device: self.device.clone(), why });
        }
        let launches = offered && config.launch_time != LaunchTime::Never;
        let mut raw = sys::shim_port_config {
            rx_queues: config.rx_queues,
            tx_queues: config.tx_queues,
            rx_descriptors: config.rx_descriptors,
            tx_descriptors: config.tx_descriptors,
            // Software drivers report a limit of 1514 B regardless of their slot size, so DPDK would refuse a larger
            // MTU.
            mtu: if self.interface.is_some() { 0 } else { config.mtu.unwrap_or(0) },
            launch_time: u16::from(launches),
        };
        attached.configure(&mut raw, &self.pool, self.interface.as_ref())?;
        // With an interface, a packet socket makes it promiscuous ([`PortInner::join`]). The user's flag must stay
        // unchanged, but a driver that is not asked for promiscuous mode clears the flag at start.
        let by_driver = match &self.interface {
            Some(interface) => interface.is_set_promiscuous()?,
            None => config.promiscuous,
        };
        if by_driver {
            attached.be_promiscuous();
        }
        // The driver has adjusted this value.
        self.tx_descriptors = raw.tx_descriptors;
        self.set_max_frame(config)?;
        Ok(launches)
    }

    /// Makes the interface, if any, accept frames for other stations while the port is open.
    fn join(&mut self, promiscuous: bool) -> Result<()> {
        if let Some(interface) = self.interface.as_ref().filter(|_| promiscuous) {
            let socket = interface::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
            interface.promiscuous(&socket)?;
            self._membership = Some(socket);
        }
        Ok(())
    }

    fn set_max_frame(&mut self, config: &PortConfig) -> Result<()> {
        let longest = match (&self.interface, config.mtu, &self.backend) {
            (Some(interface), ..) => interface.mtu()? as usize + ETHERNET,
            (None, Some(mtu), _) => usize::from(mtu) + ETHERNET,
            (None, None, PortBackend::Driver(attached)) if attached.is_pci() => {
                usize::from(attached.info()?.mtu) + ETHERNET
            }
            // net_null, net_ring and net_memif carry any frame that fits a buffer.
            (None, None, _) => usize::from(u16::MAX),
        };
        self.max_frame = MaxFrame::new(longest);
        if let Some(interface) = &self.interface {
            self.max_frame.follow(interface.index);
        }
        Ok(())
    }

    /// The claim on the interface's XDP program, if the port has one.
    fn claim(&self) -> Option<&Claim> {
        match &self.backend {
            PortBackend::Driver(attached) => attached.claim.as_ref(),
            PortBackend::Packet(_) => None,
        }
    }

    /// The TAP device created by the driver, if any.
    fn tap(&self) -> Option<&Interface> {
        let made = matches!(self.backend, PortBackend::Driver(_)) && self.device.starts_with(TAP);
        self.interface.as_ref().filter(|_| made)
    }
}

use crate::attached::{Attached, reason, text};
use crate::eal::{log_mark, log_since};
use crate::interface::{self, Interface};
use crate::losses;
use crate::netlink;
use crate::packet_port::{Counts, PacketPort};
use crate::queues::{RxQueue, TxQueue};
use crate::xdp::Claim;
use crate::{Eal, Error, LaunchTime, NicClock, Pool, Result, Vdev};
use dpdk_sys as sys;
use std::ffi::CString;
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
    pub(crate) way: Way,
    pub(crate) device: String,
    pub(crate) interface: Option<Interface>,
    pub(crate) max_frame: Arc<MaxFrame>,
    pub(crate) tx_descriptors: u16,
    // Outlives the driver's use of it, which ends when this is dropped.
    pub(crate) pool: Pool,
    // Holds the interface's promiscuity.
    _membership: Option<OwnedFd>,
    pub(crate) completed: AtomicU64,
}

/// How frames come and go.
#[derive(Debug)]
pub(crate) enum Way {
    /// By a driver of DPDK.
    Driver(Attached),
    /// By packet sockets of our own.
    Packet(PacketPort),
}

/// How packet sockets are called where drivers are: as DPDK's driver that they took the place of.
const PACKET: &str = "net_af_packet";

impl Port {
    /// Attaches a device of DPDK and configures it to receive into buffers of `pool`.
    ///
    /// `device` is what `--vdev` takes (`net_null0`; see [`Vdev`](crate::Vdev)), or
    /// a PCI address (`0000:03:00.1`) that [`EalConfig::pci`](crate::EalConfig::pci) allowed, or the
    /// name of a device that EAL made at its start. Interfaces are those of the calling thread's
    /// network namespace. DPDK's driver for packet sockets is refused: see [`packet`](Port::packet).
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
        let interface = arguments.split(',').find_map(|a| a.strip_prefix("iface="));
        if name.starts_with(PACKET) {
            interface.map_or(Ok(()), |interface| Interface::named(interface).map(|_| ()))?;
            return Err(Error::DriverOfPackets { interface: interface.unwrap_or("NAME").to_owned() });
        }
        // A driver's own words for a missing interface are poor.
        let mut claim = None;
        if let Some(interface) = interface.filter(|_| name.starts_with("net_af_xdp")) {
            let interface = Interface::named(interface)?;
            interface.check_header()?;
            claim = Some(Claim::take(&interface)?);
        }

        // The driver would take a queue of it, and share with them what arrives.
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
        let mut inner = PortInner::new(Way::Driver(attached), name, interface, pool);
        let launches = inner.configure(config)?;
        inner.join(config.promiscuous)?;
        Ok(Port { inner: Arc::new(inner), rx_queues: config.rx_queues, tx_queues: config.tx_queues, launches })
    }

    /// A Linux interface of the calling thread's network namespace by packet sockets, which works for every user who may
    /// open them, as in a user namespace. Any number of ports and programs may have the interface: each receives all that
    /// arrives there, and nothing of what this machine sends. With several receive queues they share it by flow.
    ///
    /// With no receive queue nothing is received, and the kernel copies nothing. Frames that are longer than the
    /// interface's MTU is now are not delivered ([`RxQueue::refused`]).
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::NotEthernet`], [`Error::NoLaunchTime`], [`Error::Permission`], [`Error::System`].
    pub fn packet(interface: &str, pool: &Pool, config: &PortConfig) -> Result<Port> {
        let interface = Interface::named(interface)?;
        interface.check_header()?;
        if config.launch_time == LaunchTime::Required {
            let why = "packet sockets do not offer it".to_owned();
            return Err(Error::NoLaunchTime { device: interface.name, why });
        }
        let sockets = PacketPort::open(&interface, interface.mtu()?, config.rx_queues, config.tx_queues)?;
        let name = interface.name.clone();
        let mut inner = PortInner::new(Way::Packet(sockets), &name, Some(interface), pool);
        inner.tx_descriptors = config.tx_descriptors;
        inner.set_max_frame(config)?;
        inner.join(config.promiscuous && config.rx_queues > 0)?;
        let (rx_queues, tx_queues) = (config.rx_queues, config.tx_queues);
        Ok(Port { inner: Arc::new(inner), rx_queues, tx_queues, launches: false })
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

    /// Starts the port and hands out its queues.
    ///
    /// # Errors
    /// [`Error::Port`] with what the driver said, and of packet sockets [`Error::System`]; the port is then closed.
    pub fn start(self) -> Result<Started> {
        if let Way::Driver(attached) = &self.inner.way {
            attached.start()?;
        }
        let rx =
            (0..self.rx_queues).map(|queue| RxQueue::new(Arc::clone(&self.inner), queue)).collect::<Result<_>>()?;
        let tx =
            (0..self.tx_queues).map(|queue| TxQueue::new(Arc::clone(&self.inner), queue)).collect::<Result<_>>()?;
        Ok(Started { rx, tx, port: self })
    }

    /// The clock by which frames say when they are to depart, where that was asked for and the driver
    /// does it.
    #[must_use]
    pub fn launch_clock(&self) -> Option<NicClock> {
        let Way::Driver(attached) = &self.inner.way else { return None };
        self.launches.then(|| NicClock { _port: Arc::clone(&self.inner), number: attached.number })
    }

    /// The Linux interface behind it, if there is one.
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

    /// What the port is, as of now.
    ///
    /// # Errors
    /// [`Error::Port`] when its device has gone.
    pub fn info(&self) -> Result<PortInfo> {
        let interface = self.inner.interface.as_ref();
        let mut info = match &self.inner.way {
            Way::Driver(attached) => {
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
            Way::Packet(_) => PortInfo {
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
        // DPDK's socket drivers say that the link is up whatever the interface's state.
        if let Some(interface) = interface {
            info.interface = Some(interface.name.clone());
            (info.mtu, info.link_up) = (interface.mtu()?, interface.state()?.1);
        }
        Ok(info)
    }

    /// What the port has counted.
    ///
    /// # Errors
    /// [`Error::Port`] when the driver cannot tell.
    pub fn stats(&self) -> Result<PortStats> {
        let rx_completed = self.inner.completed.load(Ordering::Relaxed);
        match &self.inner.way {
            Way::Driver(attached) => {
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
            Way::Packet(sockets) => {
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

    /// Whether somebody has taken the XDP program off by which frames reach this port, or put another in its place:
    /// nothing arrives any more then. False of ports without one.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.inner.claim().is_some_and(Claim::is_broken)
    }

    /// All counters of the driver, by DPDK's names; packet sockets have none but those of [`stats`](Port::stats).
    ///
    /// # Errors
    /// [`Error::Port`] when the driver cannot tell.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>> {
        match &self.inner.way {
            Way::Driver(attached) => attached.xstats(),
            Way::Packet(_) => Ok(Vec::new()),
        }
    }
}

impl PortInner {
    fn new(way: Way, device: &str, interface: Option<Interface>, pool: &Pool) -> PortInner {
        PortInner {
            way,
            device: device.to_owned(),
            interface,
            max_frame: MaxFrame::new(usize::from(u16::MAX)),
            tx_descriptors: 0,
            pool: pool.clone(),
            _membership: None,
            completed: AtomicU64::new(0),
        }
    }

    /// Sets DPDK's port up. Gives whether frames say when they are to depart.
    fn configure(&mut self, config: &PortConfig) -> Result<bool> {
        let Way::Driver(attached) = &mut self.way else { return Ok(false) };
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
            // Software drivers claim at most 1514 B whatever their slots hold: DPDK would refuse.
            mtu: if self.interface.is_some() { 0 } else { config.mtu.unwrap_or(0) },
            launch_time: u16::from(launches),
        };
        attached.configure(&mut raw, &self.pool, self.interface.as_ref())?;
        // Of an interface a socket does it ([`PortInner::join`]), and the flag stays as somebody has set it: a driver that is
        // asked nothing sets it to off as it starts.
        let by_driver = match &self.interface {
            Some(interface) => interface.is_set_promiscuous()?,
            None => config.promiscuous,
        };
        if by_driver {
            attached.be_promiscuous();
        }
        // The driver has adjusted it.
        self.tx_descriptors = raw.tx_descriptors;
        self.set_max_frame(config)?;
        Ok(launches)
    }

    /// Has the interface, if there is one, receive frames for other stations as long as the port is open.
    fn join(&mut self, promiscuous: bool) -> Result<()> {
        if let Some(interface) = self.interface.as_ref().filter(|_| promiscuous) {
            let socket = interface::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
            interface.promiscuous(&socket)?;
            self._membership = Some(socket);
        }
        Ok(())
    }

    fn set_max_frame(&mut self, config: &PortConfig) -> Result<()> {
        let longest = match (&self.interface, config.mtu, &self.way) {
            (Some(interface), ..) => interface.mtu()? as usize + ETHERNET,
            (None, Some(mtu), _) => usize::from(mtu) + ETHERNET,
            (None, None, Way::Driver(attached)) if attached.is_pci() => usize::from(attached.info()?.mtu) + ETHERNET,
            // net_null, net_ring, net_memif: whatever fits a buffer.
            (None, None, _) => usize::from(u16::MAX),
        };
        self.max_frame = MaxFrame::new(longest);
        if let Some(interface) = &self.interface {
            self.max_frame.follow(interface.index);
        }
        Ok(())
    }

    /// The claim of the interface's XDP program, if frames come by one.
    fn claim(&self) -> Option<&Claim> {
        match &self.way {
            Way::Driver(attached) => attached.claim.as_ref(),
            Way::Packet(_) => None,
        }
    }

    /// The TAP device that the driver made.
    fn tap(&self) -> Option<&Interface> {
        let made = matches!(self.way, Way::Driver(_)) && self.device.starts_with(TAP);
        self.interface.as_ref().filter(|_| made)
    }
}

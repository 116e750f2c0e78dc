//! `otg`: opens interfaces, serves requests until a signal, and cleans up.

use super::host_ports;
use crate::options::otg::{NamedPort, Otg};
use crate::output::{self, Failure};
use crate::rights;
use crate::rights::RunCapabilities;
use crate::rights::list::OTG;
use crate::run::readiness;
use crate::run::serve;
use crate::run::stop::Stop;
use dpdk::{PacketRing, PacketSender, RingConfig};
use otg::{Api, Link, OpenPort, Receive, Transmit};
use service::{Address, Listener};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Interval between checks for the end of the run.
const LOOK: Duration = Duration::from_millis(50);
/// Requests that are carried out at a time, each on a thread. Others wait.
const REQUESTS: usize = 16;
/// How long open connections have to end.
const GRACE: Duration = Duration::from_millis(500);

/// Serves until a signal.
pub(crate) fn run(options: &Otg) -> Result<ExitCode, Failure> {
    check(&options.ports)?;
    rights::require(&OTG)?;
    let interfaces: Vec<&str> = options.ports.iter().map(|port| port.interface.as_str()).collect();
    if !options.take_over {
        host_ports::refuse_used(&interfaces, "use ports of a lab or a test bed, or add --take-over")?;
    }
    let stop = Stop::on_signals()?;
    let ports = options.ports.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(REQUESTS).build();
    let runtime = runtime.map_err(|cause| Failure::new(format!("cannot serve: {cause}")))?;
    let listener = listen(&options.listen)?;
    // Interfaces may be deleted and made again, and links are taken up and down on request.
    let keeps = rights::set(OTG.keeps);
    let path = match &options.listen {
        Address::Unix(path) => std::path::absolute(path).ok(),
        Address::Tcp(..) => None,
    };
    let folder = path.as_deref().and_then(Path::parent);
    rights::give_up(RunCapabilities { own: keeps, others: keeps }, Some(&[]), folder);
    let api = Arc::new(Api::start(ports).map_err(|cause| Failure::new(format!("cannot start threads: {cause}")))?);
    let attending = Arc::clone(&api);
    let attendant = thread::Builder::new().name("attendant".to_owned()).spawn(move || attending.attend());
    let attendant = attendant.map_err(|cause| Failure::new(format!("cannot start threads: {cause}")))?;
    let shown = match &options.listen {
        Address::Unix(_) => listener.address(),
        Address::Tcp(..) => format!("http://{}", listener.address()),
    };
    if options.verbose > 0 {
        output::say(format_args!("otg serves at {shown}"));
    }
    readiness::tell_if(options.verbose > 0);
    let stopped = async {
        while !stop.asked() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let router = otg::router(Arc::clone(&api));
    let served = runtime.block_on(service::serve_other(listener, router, otg::LARGEST_BODY, stopped));
    api.end();
    // A panic has been printed.
    let _panicked = attendant.join();
    runtime.shutdown_timeout(GRACE);
    drop(api);
    served.map_err(|cause| Failure::new(format!("cannot serve at {shown}: {cause}: start it again")))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses names and interfaces that are used twice.
fn check(ports: &[NamedPort]) -> Result<(), Failure> {
    for (n, port) in ports.iter().enumerate() {
        if let Some(other) =
            ports[..n].iter().find(|other| other.name == port.name || other.interface == port.interface)
        {
            let what = if other.name == port.name { &port.name } else { &port.interface };
            return Err(Failure::new(format!("--ports has '{what}' twice: name each port once")));
        }
    }
    Ok(())
}

/// Opens the socket. Warns if other machines reach it.
fn listen(at: &Address) -> Result<Listener, Failure> {
    let listener = serve::bind(at)?;
    let own = listener.address();
    if own.parse().is_ok_and(|own: SocketAddr| !own.ip().is_loopback()) {
        output::warn(format!("everyone who reaches {own} can send traffic: the API has no password"));
    }
    Ok(listener)
}

fn open(port: &NamedPort) -> Result<OpenPort, Failure> {
    let interface = &port.interface;
    let ring = PacketRing::open(interface, &ring_config()).map_err(Failure::new)?;
    let sender = PacketSender::open(interface).map_err(Failure::new)?;
    Ok(OpenPort {
        name: port.name.clone(),
        text: format!("if:{interface}"),
        mac: ring.mac().map_err(Failure::new)?,
        mtu: ring.mtu().map_err(Failure::new)?,
        line_bps: line_rate(interface),
        transmit: Box::new(Sender { sender, interface: interface.clone() }),
        receive: Box::new(Receiver { ring: Some(ring), interface: interface.clone(), lost: 0, whole: Vec::new() }),
        link: Box::new(InterfaceLink(interface.clone())),
    })
}

fn ring_config() -> RingConfig {
    RingConfig { block_size: 128 << 10, blocks: 128, timeout_ms: 2, ..RingConfig::default() }
}

/// The speed of a NIC's link. Virtual interfaces have none; the speed they report is fictitious.
fn line_rate(interface: &str) -> Option<u64> {
    let folder = Path::new("/sys/class/net").join(interface);
    if !folder.join("device").exists() {
        return None;
    }
    let mbps: u64 = std::fs::read_to_string(folder.join("speed")).ok()?.trim().parse().ok()?;
    Some(mbps * 1_000_000).filter(|bps| *bps > 0)
}

struct Sender {
    sender: PacketSender,
    interface: String,
}

impl Transmit for Sender {
    fn begin(&mut self) {
        // The kernel wakes a thread up to this late; the default is 50 µs. It accepts any shorter time.
        let _refused = nix::sys::prctl::set_timerslack(1);
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool, String> {
        let sent = self.sender.send(frame).map_err(|error| error.to_string());
        // An interface that was deleted and created again has a new number.
        if sent.is_err()
            && let Ok(fresh) = PacketSender::open(&self.interface)
        {
            self.sender = fresh;
        }
        sent
    }
}

struct Receiver {
    /// `None` while the interface does not exist.
    ring: Option<PacketRing>,
    interface: String,
    /// Losses of earlier rings.
    lost: u64,
    whole: Vec<u8>,
}

impl Receive for Receiver {
    fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), String> {
        let Some(ring) = &mut self.ring else {
            self.ring = Some(PacketRing::open(&self.interface, &ring_config()).map_err(|error| error.to_string())?);
            return Ok(());
        };
        let error = match ring.next(wait) {
            Ok(Some(batch)) => {
                for frame in &batch {
                    if frame.vlan.is_some() {
                        self.whole.clear();
                        frame.write_to(&mut self.whole);
                        each(frame.time_ns, &self.whole);
                    } else {
                        each(frame.time_ns, frame.bytes);
                    }
                }
                return Ok(());
            }
            Ok(None) => return Ok(()),
            Err(error) => error,
        };
        if matches!(error, dpdk::Error::InterfaceGone { .. }) {
            self.lost = self.lost();
            self.ring = None;
        }
        Err(error.to_string())
    }

    fn answer(&mut self, frame: &[u8]) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.send(frame))
    }

    fn lost(&mut self) -> u64 {
        self.lost + self.ring.as_mut().and_then(|ring| ring.counts().ok()).map_or(0, |counts| counts.dropped)
    }
}

struct InterfaceLink(String);

impl Link for InterfaceLink {
    fn is_up(&self) -> bool {
        dpdk::link(&self.0).is_ok_and(|link| link.up && link.carrier)
    }

    fn set(&self, up: bool) -> Result<(), String> {
        let state = if up { "up" } else { "down" };
        let mut ip = Command::new("ip");
        ip.args(["link", "set", "dev", &self.0, state]).stdin(Stdio::null());
        let done = ip.output().map_err(|cause| format!("ip cannot be run: {cause}"))?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
    }
}

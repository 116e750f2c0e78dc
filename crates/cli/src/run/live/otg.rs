//! `otg`: opens interfaces, serves requests until a signal, and cleans up.

use super::host_ports;
use crate::options::otg::{Listen, NamedPort, Otg};
use crate::output::{self, Failure};
use crate::rights;
use crate::rights::RunCapabilities;
use crate::rights::list::OTG;
use crate::run::readiness;
use crate::run::stop::Stop;
use dpdk::{PacketRing, PacketSender, RingConfig};
use otg::{Api, Link, OpenPort, Receive, Transmit};
use std::future::Future;
use std::net::ToSocketAddrs as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Interval between checks for the end of the run.
const LOOK: Duration = Duration::from_millis(50);
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| Failure::new(format!("cannot serve: {cause}")))?;
    let listener = runtime.block_on(listen(&options.listen))?;
    // Interfaces may be deleted and made again, and links are taken up and down on request.
    let keeps = rights::set(OTG.keeps);
    let folder = listener.path.as_deref().and_then(Path::parent);
    rights::give_up(RunCapabilities { own: keeps, others: keeps }, Some(&[]), folder);
    let api = Arc::new(Api::start(ports).map_err(|cause| Failure::new(format!("cannot start threads: {cause}")))?);
    let attending = Arc::clone(&api);
    let attendant = thread::spawn(move || attending.attend());
    if options.verbose > 0 {
        output::say(format_args!("otg serves at {}", listener.shown));
    }
    readiness::tell_if(options.verbose > 0);
    let served = runtime.block_on(serve(&listener, &api, &stop));
    api.end();
    // A panic has been printed.
    let _panicked = attendant.join();
    runtime.shutdown_timeout(GRACE);
    drop(api);
    if let Some(path) = &listener.path {
        // It may have been deleted already.
        let _gone = std::fs::remove_file(path);
    }
    served.map(|()| ExitCode::SUCCESS)
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

struct Listener {
    socket: Socket,
    /// The socket in the file system.
    path: Option<PathBuf>,
    shown: String,
}

enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

async fn listen(at: &Listen) -> Result<Listener, Failure> {
    match at {
        Listen::Tcp(address) => {
            let failed = |cause: std::io::Error| {
                Failure::new(format!("cannot listen at {address}: {cause}: write another --listen"))
            };
            let found: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
            let listener = std::net::TcpListener::bind(&found[..]).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let own = listener.local_addr().map_err(failed)?;
            if !own.ip().is_loopback() {
                output::warn(format!("everyone who reaches {own} can send traffic: the API has no password"));
            }
            Ok(Listener { socket: Socket::Tcp(listener), path: None, shown: format!("http://{own}") })
        }
        Listen::Unix(path) => {
            let failed =
                |cause: std::io::Error| Failure::new(format!("cannot listen at unix:{}: {cause}", path.display()));
            // A socket that a killed run has left would refuse every later one.
            let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
            if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
                std::fs::remove_file(path).map_err(failed)?;
            }
            let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let shown = format!("unix:{}", path.display());
            let path = std::path::absolute(path).map_err(failed)?;
            Ok(Listener { socket: Socket::Unix(listener), path: Some(path), shown })
        }
    }
}

async fn serve(listener: &Listener, api: &Arc<Api>, stop: &Stop) -> Result<(), Failure> {
    let router = otg::router(Arc::clone(api));
    let failed = |cause: std::io::Error| Failure::new(format!("cannot serve at {}: {cause}", listener.shown));
    match &listener.socket {
        Socket::Tcp(socket) => {
            let socket = socket.try_clone().and_then(tokio::net::TcpListener::from_std).map_err(failed)?;
            until(stop, async { axum::serve(socket, router).await }).await.map_err(failed)
        }
        Socket::Unix(socket) => {
            let socket = socket.try_clone().and_then(tokio::net::UnixListener::from_std).map_err(failed)?;
            until(stop, async { axum::serve(socket, router).await }).await.map_err(failed)
        }
    }
}

/// Waits for the end of the server or for a signal.
async fn until(stop: &Stop, server: impl Future<Output = std::io::Result<()>>) -> std::io::Result<()> {
    let stopped = async {
        while !stop.asked() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        served = server => served,
        () = stopped => Ok(()),
    }
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

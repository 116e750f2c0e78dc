//! `otg`: opens ports, serves requests until a signal, and cleans up.

mod device_port;
mod interface_port;

use super::devices::log_level;
use super::{host_ports, required_rights};
use crate::options::otg::{NamedPort, Otg};
use crate::output::{self, Failure};
use crate::rights;
use crate::rights::RunCapabilities;
use crate::rights::list::OTG;
use crate::run::readiness;
use crate::run::serve;
use crate::run::stop::Stop;
use device_port::Dpdk;
use otg::{Api, OpenPort};
use scenario::{Driver, PortSpec};
use service::{Address, Listener};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Interval between checks for the end of the run.
const LOOK: Duration = Duration::from_millis(50);
/// Number of requests that are served at a time, each on its own thread. Others wait.
const REQUESTS: usize = 16;
/// Time for open connections to end.
const GRACE: Duration = Duration::from_millis(500);

/// Serves until a signal.
pub(crate) fn run(options: &Otg) -> Result<ExitCode, Failure> {
    let named = options.ports();
    check(&named)?;
    if named.iter().any(|port| by_packet_sockets(&port.port).is_some()) {
        rights::require(&OTG)?;
    }
    named.iter().filter_map(|port| required_rights::row(&port.port)).try_for_each(rights::require)?;
    if !options.take_over {
        let interfaces: Vec<&str> = named.iter().flat_map(|port| host_ports::interfaces(&port.port)).collect();
        host_ports::refuse_used(&interfaces, "use ports of a lab or a test bed, or add --take-over")?;
    }
    let stop = Stop::on_signals()?;
    let ports = open(&named, options.verbose, &stop)?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(REQUESTS).build();
    let runtime = runtime.map_err(|cause| Failure::new(format!("cannot serve: {cause}")))?;
    let listener = listen(&options.listen)?;
    // Interfaces may be deleted and made again, and links are taken up and down on request.
    let mut keeps = rights::set(OTG.keeps);
    let mut writable = Vec::new();
    for port in &named {
        let (of_port, folder) = required_rights::of_polled(&port.port);
        keeps |= of_port;
        writable.extend(folder);
    }
    let path = match &options.listen {
        Address::Unix(path) => std::path::absolute(path).ok(),
        Address::Tcp(..) => None,
    };
    let folder = path.as_deref().and_then(Path::parent);
    rights::drop_rights(RunCapabilities { own: keeps, others: keeps }, Some(&writable), folder);
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
    // The message of a panic has already been printed.
    let _panicked = attendant.join();
    runtime.shutdown_timeout(GRACE);
    drop(api);
    served.map_err(|cause| Failure::new(format!("cannot serve at {shown}: {cause}: start it again")))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses names and ports that are used twice.
fn check(ports: &[NamedPort]) -> Result<(), Failure> {
    for (n, port) in ports.iter().enumerate() {
        let is_same = |other: &&NamedPort| match (port.port.interface(), other.port.interface()) {
            (Some(own), Some(other)) => own == other,
            // Null ports receive nothing, so several are allowed.
            _ => port.port == other.port && port.port != PortSpec::Null,
        };
        if ports[..n].iter().any(|other| other.name == port.name) {
            return Err(Failure::new(format!("--ports has '{}' twice: name each port once", port.name)));
        }
        if ports[..n].iter().any(|other| is_same(&other)) {
            return Err(Failure::new(format!("--ports has '{}' twice: name each port once", port.port)));
        }
    }
    Ok(())
}

/// Opens the socket. Warns if other machines can reach it.
fn listen(at: &Address) -> Result<Listener, Failure> {
    let listener = serve::bind(at)?;
    let own = listener.address();
    if own.parse().is_ok_and(|own: SocketAddr| !own.ip().is_loopback()) {
        output::warn(format!("anyone who can reach {own} can send traffic: the API has no password"));
    }
    Ok(listener)
}

/// The interface of this port, if packet sockets serve it.
fn by_packet_sockets(port: &PortSpec) -> Option<&str> {
    match port {
        PortSpec::Interface { driver: Some(Driver::AfXdp), .. } => None,
        port => port.interface(),
    }
}

/// Opens all ports. Those that need DPDK share it.
fn open(ports: &[NamedPort], verbose: u8, stop: &Stop) -> Result<Vec<OpenPort>, Failure> {
    let of_dpdk = ports.iter().map(|port| &port.port).filter(|port| by_packet_sockets(port).is_none());
    let dpdk = Dpdk::start(&of_dpdk.collect::<Vec<_>>(), log_level(verbose), stop)?;
    let open = |port: &NamedPort| match (by_packet_sockets(&port.port), &dpdk) {
        (Some(interface), _) => interface_port::open(&port.name, port.port.to_string(), interface),
        (None, Some(dpdk)) => dpdk.open(&port.name, &port.port),
        (None, None) => unreachable!("DPDK is started for every port that needs it"),
    };
    ports.iter().map(open).collect()
}

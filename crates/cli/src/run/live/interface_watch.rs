//! Watches the interfaces of a run. A deleted interface ends the run. An interface that goes down or gets a smaller MTU
//! does not.

use crate::output::{self, Failure};
use crate::plan::request::{Arrivals, Request};
use crate::run::live::nic_links::NicLinks;
use dataplane::{Config, Device, Feed, Worker};
use dpdk::{LinkChanges, PortInterface};
use std::time::{Duration, Instant};

/// Interval between checks for changes. Frames handed to an interface after it disappeared count as sent.
const EVERY: Duration = Duration::from_millis(100);

/// The interfaces, by index. An index survives a rename and is not reused.
pub(crate) struct Watched {
    ports: Vec<Port>,
    /// Interfaces without a port: those of receivers, and those whose frames are diverted.
    others: Vec<(String, u32)>,
    gone: Option<String>,
    /// Interfaces whose carrier must come back before the run starts. Some NICs lose it for seconds when a program is
    /// attached.
    carriers: Vec<String>,
    /// Notifications of changes; `None` if unavailable. Reading an interface takes several system calls, each of which
    /// may delay a departure, so interfaces are only read after a change.
    changes: Option<LinkChanges>,
    asked: Instant,
    /// The links of NICs that are bound to DPDK, which the kernel does not report.
    nics: NicLinks,
}

/// An interface behind a port, and its observed state.
struct Port {
    interface: PortInterface,
    /// Whether the interface is up, and whether it has a carrier.
    state: (bool, bool),
    /// The smallest MTU during the run, if it was lowered.
    lowered_to: Option<u32>,
    /// The smallest MTU of the other end, if that is smaller than the interface's own.
    far_end: Option<u32>,
}

/// The interfaces among the ports of a run that have a carrier now.
pub(crate) fn with_carrier(configs: &[Config]) -> Vec<String> {
    let inputs = configs.iter().filter_map(|config| match &config.feed {
        Feed::Device(device) => Some(device),
        Feed::Stream(..) | Feed::Replay { .. } => None,
    });
    let others = configs.iter().flat_map(|config| config.more_inputs.iter().chain([&config.output]));
    let interfaces = inputs.chain(others).filter_map(|device| match device {
        Device::Interface { name, .. } => Some(name),
        _ => None,
    });
    interfaces.filter(|name| dpdk::link(name).is_ok_and(|link| link.carrier)).cloned().collect()
}

impl Watched {
    /// The interfaces of a request that `workers` run. Those in `carriers` had a carrier before their ports were
    /// opened.
    pub(crate) fn of(
        request: &Request,
        receiver: Option<&Arrivals>,
        workers: &[Worker],
        carriers: Vec<String>,
        nics: NicLinks,
    ) -> Self {
        let ports = workers.iter().flat_map(Worker::interfaces);
        let ports =
            ports.map(|interface| Port { interface, state: (true, true), lowered_to: None, far_end: None }).collect();
        let receiver = receiver.and_then(|arrivals| arrivals.port.interface());
        let others = receiver.into_iter().chain(request.on.as_ref().map(|on| on.interface.as_str()));
        let numbered = |name: &str| Some((name.to_owned(), dpdk::link(name).ok()?.index));
        let others = others.filter_map(numbered).collect();
        let changes = LinkChanges::open().ok();
        let mut watched = Watched { ports, others, gone: None, carriers, changes, asked: Instant::now(), nics };
        // Reads all interfaces once, because changes between the opening of the ports and now caused no notification.
        watched.check();
        watched
    }

    /// True if an interface had disappeared at the last check.
    pub(crate) fn has_lost_one(&mut self) -> bool {
        if self.asked.elapsed() >= EVERY {
            self.asked = Instant::now();
            self.nics.check();
            if self.changes.as_mut().is_none_or(LinkChanges::any) {
                self.check();
            }
        }
        self.gone.is_some()
    }

    /// Whether all interfaces that had a carrier before the run have it again.
    pub(crate) fn has_carriers(&mut self) -> bool {
        // The query fails for an interface that has disappeared, so the run does not wait for it.
        self.carriers.retain(|name| dpdk::link(name).is_ok_and(|link| !link.carrier));
        self.carriers.is_empty()
    }

    fn check(&mut self) {
        let least = |one: Option<u32>, other| one.into_iter().chain(other).min();
        for Port { interface, state, lowered_to, far_end } in &mut self.ports {
            // A device that disappeared with its port keeps its last observed state.
            let Some(now) = interface.state() else { continue };
            *state = now;
            let narrower = interface.follow_mtu();
            *lowered_to = least(*lowered_to, narrower.own);
            *far_end = least(*far_end, narrower.far);
        }
        let port = self.ports.iter().map(|port| &port.interface).find(|interface| interface.has_gone());
        let other = self.others.iter().find(|(_, index)| !dpdk::is_there(*index));
        let port = port.map(|interface| (interface.name(), interface.has_program()));
        let gone = port.or_else(|| other.map(|(name, _)| (name.as_str(), false)));
        self.gone = self.gone.take().or(gone.map(|(name, has_program)| {
            let remedy = match has_program {
                true => {
                    let named = units::quoted(name);
                    format!("; if it was moved, netlathe's XDP program moved with it: ip link set dev {named} xdp off")
                }
                false => String::new(),
            };
            format!(
                "interface {name} disappeared, which ended the run: the report is valid up to there, but frames sent in its last 0.1 s may count as out; see ip link{remedy}"
            )
        }));
    }

    /// Reports changes during the run. Returns the failure if an interface disappeared.
    pub(crate) fn failure(mut self) -> Option<Failure> {
        self.check();
        self.nics.warn();
        for Port { interface, state, lowered_to, far_end } in &self.ports {
            let name = interface.name();
            match *state {
                (false, _) => output::warn(format!(
                    "{name} is down at the end of the run: nothing left it after it went down, although some frames may count as out"
                )),
                (true, false) => output::warn(format!(
                    "{name} has no carrier at the end of the run: frames counted as out do not leave it until its other end is up"
                )),
                (true, true) => {}
            }
            if let Some(mtu) = lowered_to {
                output::warn(format!(
                    "{name} had its MTU lowered to {mtu} during the run: longer frames were dropped as too-long since, and some of the first 0.1 s may count as out"
                ));
            }
            if let Some(mtu) = far_end {
                output::warn(format!(
                    "{name} leads to an interface with an MTU of {mtu}, which takes nothing longer: such frames are dropped as too-long; give both ends of the pair one MTU, by ip link set"
                ));
            }
        }
        self.gone.map(Failure::new)
    }
}

//! Interfaces that carry this host's own traffic. Taking their frames cuts the host off, so they are refused unless the
//! user agrees.

use crate::output::{self, Failure};
use crate::plan::detour;
use crate::plan::request::{Arrivals, Request};
use crate::run::live::stream_receiver::ring_of;
use dpdk::HostUse;
use lab::LabInterface;
use scenario::{Driver, PipelinePlan, PortSpec, SourcePlan};

/// Refuses ports that this host uses itself. A generator's output is accepted, unless its driver takes arriving frames,
/// see [`driver`].
pub(super) fn check(request: &Request, receiver: Option<&Arrivals>) -> Result<(), Failure> {
    // The TAP devices behind --on are ours, and their frames still reach the host.
    if request.common.take_over || request.on.is_some() {
        return Ok(());
    }
    let plans = request.pipelines.iter().flat_map(|plan| {
        let receives = plan.input_ports().next().is_some();
        let output = Some(&plan.output).filter(|output| receives || takes_arrivals(output));
        plan.input_ports().chain(output)
    });
    let mut used: Vec<(&str, String)> = Vec::new();
    for port in plans.chain(receiver.map(|arrivals| &arrivals.port)) {
        for interface in interfaces(port) {
            let known = used.iter().any(|(known, _)| *known == interface);
            used.extend(use_of(interface).filter(|_| !known).map(|why| (interface, why)));
        }
    }
    let Some((first, _)) = used.first() else { return Ok(()) };
    let it = if used.len() == 1 { "it" } else { "them" };
    let remedy = format!(
        "to impair that traffic, write netlathe emulate --on {first}; to take {it} from the host anyway, add --take-over"
    );
    Err(refusal(&used, &remedy))
}

/// Refuses a port of `measure` that takes arriving frames from this host. Most ports only listen.
pub(super) fn check_listener(port: &PortSpec, take_over: bool) -> Result<(), Failure> {
    match (takes_arrivals(port), take_over) {
        (false, true) => Err(Failure::new(format!(
            "--take-over: measure only listens on {port} and takes no traffic from the host: leave it out"
        ))),
        (true, false) => {
            let remedy = "name the interface alone, since af_packet only listens; to take it from the host anyway, add --take-over";
            refuse_used(&interfaces(port), remedy)
        }
        _ => Ok(()),
    }
}

/// Refuses interfaces that this host uses itself.
pub(super) fn refuse_used(interfaces: &[&str], remedy: &str) -> Result<(), Failure> {
    let used: Vec<(&str, String)> =
        interfaces.iter().filter_map(|interface| Some((*interface, use_of(interface)?))).collect();
    if used.is_empty() { Ok(()) } else { Err(refusal(&used, remedy)) }
}

fn refusal(used: &[(&str, String)], remedy: &str) -> Failure {
    let which: Vec<String> = used.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    let carry = if used.len() == 1 { "carries" } else { "carry" };
    Failure::new(format!("{} {carry} this host's own traffic, which would be cut off: {remedy}", which.join(" and ")))
}

/// The driver of a generator's output. If no driver was asked, and the host uses the interface or `--in` receives on it,
/// this is af_packet, which leaves arriving frames to them.
pub(super) fn driver(plan: &PipelinePlan, request: &Request) -> Option<Driver> {
    let PortSpec::Interface { name, driver, .. } = &plan.output else { return None };
    if driver.is_some() {
        return *driver;
    }
    // The XDP program of af_xdp would take what --in should receive.
    let listens = request.receiver.as_ref().filter(|arrivals| ring_of(&arrivals.port) == Some(name.as_str()));
    if listens.is_some() {
        return Some(Driver::AfPacket);
    }
    if request.common.take_over || matches!(plan.source, SourcePlan::Port(_)) {
        return None;
    }
    let why = use_of(name)?;
    output::note(format!(
        "{name}: driver af_packet, so that this host still receives what arrives there ({why}); --take-over uses af_xdp, which takes it"
    ));
    Some(Driver::AfPacket)
}

/// Whether a port that only sends also takes arriving frames from the host.
fn takes_arrivals(port: &PortSpec) -> bool {
    match port {
        PortSpec::Interface { driver, .. } => *driver == Some(Driver::AfXdp),
        PortSpec::Dpdk(arguments) => arguments.contains("af_xdp") || arguments.contains("remote="),
        _ => false,
    }
}

/// The Linux interfaces behind a port.
pub(super) fn interfaces(port: &PortSpec) -> Vec<&str> {
    match port {
        PortSpec::Interface { name, .. } => vec![name],
        // A TAP device that does not exist yet is created under its name.
        PortSpec::Dpdk(arguments) => {
            // A driver may name other drivers in parentheses: net_failsafe0,dev(net_af_xdp0,iface=eth0).
            let options = arguments.split([',', '(', ')']).filter_map(|option| option.split_once('='));
            let names = options.filter(|(key, _)| key.ends_with("iface") || *key == "remote");
            names.map(|(_, name)| name.trim()).collect()
        }
        _ => Vec::new(),
    }
}

/// This host's use of an interface, if any. If the query fails, opening the port fails too, with a better message.
fn use_of(interface: &str) -> Option<String> {
    if let Some(peer) = detour::session_by(interface) {
        return Some(format!("the SSH session with {peer} uses it"));
    }
    let own = lab::made_here(interface);
    let uses = dpdk::host_uses(interface).unwrap_or_default();
    uses.iter().find(|one| !own.as_ref().is_some_and(|own| is_of_lab(own, one))).map(ToString::to_string)
}

fn is_of_lab(own: &LabInterface, one: &HostUse) -> bool {
    match one {
        HostUse::Address(address, _) => own.addresses.contains(address),
        HostUse::PortOf(..) | HostUse::Carries(..) => own.switched,
        _ => false,
    }
}

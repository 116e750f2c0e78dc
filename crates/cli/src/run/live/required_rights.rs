//! The rights that a live run needs, and those that it keeps once its ports are open.

use crate::output::Failure;
use crate::plan::files;
use crate::plan::request::{Arrivals, Request};
use crate::rights::list::{Capability, ON, PACKET, PCI, RequiredRights, SLICE, TAP, XDP};
use crate::rights::{self, RunCapabilities};
use crate::run::user_limits;
use dataplane::Worker;
use scenario::{Driver, Pacer, PipelinePlan, PortSpec};
use std::path::{Path, PathBuf};

/// The folder of records of XDP programs, which are removed together with the programs.
const CLAIMS: &str = "/run/netlathe/xdp";

/// Refuses a run with insufficient rights, before it creates anything.
pub(super) fn check(request: &Request, receiver: Option<&Arrivals>) -> Result<(), Failure> {
    if request.on.is_some() {
        return rights::require(&ON);
    }
    let ports = request.pipelines.iter().flat_map(ports).chain(receiver.map(|arrivals| &arrivals.port));
    ports.filter_map(row).try_for_each(rights::require)
}

fn ports(plan: &PipelinePlan) -> impl Iterator<Item = &PortSpec> {
    plan.input_ports().chain([&plan.output])
}

/// The rights that a receiver needs to close a polled port, and the folder that it then writes to. Ports that use the
/// kernel's ring need neither.
pub(super) fn of_polled(port: &PortSpec) -> (u64, Option<PathBuf>) {
    match port {
        PortSpec::Interface { driver: Some(Driver::AfXdp), .. } => {
            (rights::set(XDP.keeps), Some(PathBuf::from(CLAIMS)))
        }
        PortSpec::Interface { .. } => (0, None),
        PortSpec::Tap(_) => (rights::set(TAP.keeps), None),
        _ => (rights::set(PCI.keeps), None),
    }
}

/// The rights that a port needs in any case, if they are known in advance.
pub(super) fn row(port: &PortSpec) -> Option<&'static RequiredRights> {
    match port {
        PortSpec::Interface { driver: Some(Driver::AfXdp), .. } => Some(&XDP),
        PortSpec::Interface { .. } => Some(&PACKET),
        PortSpec::Tap(_) => Some(&TAP),
        _ => None,
    }
}

/// Keeps the rights that these drivers need while frames pass and at the end, and gives up all others. Returns the
/// rights for the workers.
pub(super) fn keep(request: &Request, receiver: Option<&Arrivals>, workers: &[Worker]) -> u64 {
    let drivers = workers.iter().flat_map(|worker| worker.drivers()).map(|driver| match driver {
        "net_af_packet" => PACKET.keeps,
        "net_af_xdp" => XDP.keeps,
        "net_tap" => TAP.keeps,
        "net_null" | "net_ring" | "null" => &[],
        _ => PCI.keeps,
    });
    let of_ports = drivers.fold(0, |kept, keeps| kept | rights::set(keeps));
    // With fillers or an asked start, the thread that makes departures raises its priority when it starts.
    let raises = request.common.start_at.is_some();
    let raises = raises || request.pipelines.iter().any(|plan| plan.pacer == Pacer::Filler);
    let kernel = if request.listener.concludes.is_some() { rights::set(SLICE.keeps) } else { 0 };
    let of_on = if request.on.is_some() { rights::set(ON.keeps) } else { 0 };
    let workers_keep = of_ports | of_on | if raises { rights::set(&[Capability::SysNice]) } else { 0 };

    // With this right root can access all files.
    let all_files = rights::set(&[Capability::DacOverride]);
    let pipes = pipes(request);
    // The thread of the service removes its socket at the end.
    let control = request.common.control.as_deref();
    let by_others = kernel | if pipes.is_empty() && control.is_none() { 0 } else { all_files };
    let mut own = workers_keep | by_others;
    own |= receiver.map_or(0, |arrivals| of_polled(&arrivals.port).0);
    if request.common.folder.is_some() || user_limits::has_rates(request) {
        own |= all_files;
    }
    // Without CAP_NET_ADMIN, the kernel hides the MTU of a veth's other end in another network namespace.
    let veth = |port: &PortSpec| port.interface().is_some_and(|name| dpdk::is_veth(name).unwrap_or(false));
    if request.pipelines.iter().flat_map(ports).any(veth) {
        own |= rights::set(&[Capability::NetAdmin]);
    }
    let mut writable = pipes;
    writable.extend(request.common.folder.clone());
    writable.push(CLAIMS.into());
    let folder = control.and_then(|socket| std::path::absolute(socket).ok()?.parent().map(Path::to_owned));
    rights::drop_rights(RunCapabilities { own, others: by_others }, Some(&writable), folder.as_deref());
    workers_keep
}

/// Named pipes that are opened once they have a reader.
fn pipes(request: &Request) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = request.common.stats.iter().cloned().collect();
    if let Some(path) = &request.decisions {
        for plan in &request.pipelines {
            paths.push(path.clone());
            let mut of_ways = vec![path.clone()];
            if let Some(back) = &plan.back {
                of_ways = vec![files::beside(path, &plan.name), files::beside(path, &back.name)];
                paths.extend(of_ways.iter().cloned());
            }
            let classes = plan.classes.iter();
            paths.extend(classes.flat_map(|class| of_ways.iter().map(|path| files::beside(path, &class.name))));
        }
    }
    let lists = request.pipelines.iter().filter_map(|plan| match &plan.output {
        PortSpec::Line(line) => line.frames.clone(),
        _ => None,
    });
    let missing = request.receiver.iter().filter_map(|arrivals| arrivals.missing.clone());
    paths.extend(lists.chain(request.by_user.clone()).chain(missing));
    paths.retain(|path| files::is_pipe(path));
    paths
}

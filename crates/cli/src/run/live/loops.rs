//! Pipelines whose two interfaces are connected inside the kernel, so that frames loop or are delivered twice.

use crate::output::{self, Failure};
use dpdk::Relation;
use scenario::PipelinePlan;

/// The interface of each input, paired with the interface of the output.
fn interfaces(plan: &PipelinePlan) -> impl Iterator<Item = (&str, &str)> {
    plan.input_ports().filter_map(|input| input.interface().zip(plan.output.interface()))
}

/// Refuses ports between which frames would loop forever.
pub(super) fn check(plan: &PipelinePlan) -> Result<(), Failure> {
    interfaces(plan).try_for_each(|ports| check_pair(plan, ports))
}

fn check_pair(plan: &PipelinePlan, (input, output): (&str, &str)) -> Result<(), Failure> {
    // If the query fails, so will opening the port, with a better message.
    match dpdk::relation(input, output) {
        Ok(Some(Relation::Same)) => Err(Failure::new(format!(
            "{}: {output} and {input} are the same interface: name another output",
            plan.name
        ))),
        // This also holds for one direction: frames sent to the output arrive at the input again.
        Ok(Some(Relation::Pair)) => Err(Failure::new(format!(
            "{}: {input} and {output} are the two ends of one veth pair: frames that leave one arrive at the other and would \
             loop for ever; name an interface of another pair for one of them",
            plan.name
        ))),
        _ => Ok(()),
    }
}

/// Warns if the kernel forwards the same frames too. `drivers` are the drivers of the open ports.
pub(super) fn note(plan: &PipelinePlan, drivers: &[&str]) {
    interfaces(plan).for_each(|ports| note_pair(&plan.name, ports, drivers));
}

fn note_pair(name: &str, (input, output): (&str, &str), drivers: &[&str]) {
    match dpdk::relation(input, output) {
        // The bridge does not get frames that af_xdp takes.
        Ok(Some(Relation::Bridged(bridge))) if drivers.contains(&"net_af_packet") => output::warn(format!(
            "{name}: {input} and {output} are ports of the bridge {bridge}, which also forwards frames between them, so each may \
             arrive twice; `ip link set {input} nomaster` takes one off it"
        )),
        Ok(Some(Relation::Above(upper, lower))) => output::warn(format!(
            "{name}: what leaves {upper} leaves by {lower}, including what arrived there, so a sender may get its own frames back; \
             name an interface that does not use {lower}"
        )),
        _ => {}
    }
}

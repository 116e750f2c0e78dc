//! Event devices, with which `limit --algorithm atomic-queue` distributes frames to its workers: Intel's DLB or a
//! software driver.

use super::machine::{Finding, Machine};
use super::pci;

const WHAT: &str = "event devices";
const FOLDER: &str = "sys/bus/pci/devices";
/// DLB 2.0 and 2.5, each as a physical and as a virtual function (DPDK's driver `event_dlb2`).
const DLB: [&str; 4] = ["0x2710", "0x2711", "0x2714", "0x2715"];

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = hardware(machine);
    #[cfg(feature = "live")]
    findings.push(drivers(&machine.read("proc/self/maps").unwrap_or_default()));
    if findings.is_empty() {
        findings.push(Finding::good(WHAT, "no DLB; only limit --algorithm atomic-queue uses one"));
    }
    findings
}

/// Finds DLBs, and checks whether a program can use them.
fn hardware(machine: &Machine) -> Vec<Finding> {
    let is = |address: &String, name: &str, values: &[&str]| {
        machine.read(&format!("{FOLDER}/{address}/{name}")).is_some_and(|id| values.contains(&id.as_str()))
    };
    let found = machine.names(FOLDER).into_iter();
    let dlbs = found.filter(|address| is(address, "vendor", &["0x8086"]) && is(address, "device", &DLB));
    let finding = |address: String| match machine.link(&format!("{FOLDER}/{address}/driver")) {
        Some(driver) if driver == "vfio-pci" => {
            let found = format!("a DLB, ready: limit --algorithm atomic-queue --device {address}; 65 536 flows");
            Finding::good(address, found)
        }
        driver => Finding::bad(
            address.clone(),
            format!("a DLB, with {}", driver.as_deref().unwrap_or("no driver")),
            format!(
                "{}; then limit --algorithm atomic-queue --device {address}",
                pci::bind(&address, driver.is_some())
            ),
        ),
    };
    dlbs.map(finding).collect()
}

/// The software drivers, found in the memory map of this process.
#[cfg(feature = "live")]
fn drivers(maps: &str) -> Finding {
    let has = |driver: &&str| maps.contains(&format!("/librte_{driver}.so"));
    let names: Vec<&str> = ["event_dsw", "event_sw", "event_dlb2"].into_iter().filter(has).collect();
    match names.first() {
        Some(_) => Finding::good(WHAT, format!("{}: for limit --algorithm atomic-queue", names.join(" "))),
        None => Finding::bad(
            WHAT,
            "no driver; only limit --algorithm atomic-queue needs one",
            "apt-get install librte-meta-event",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::FakeMachine;
    use super::*;

    #[test]
    fn shows_a_dlb_and_what_it_lacks() {
        let (fake, machine) = FakeMachine::new(&[("sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086")]);
        fake.write("sys/bus/pci/devices/0000:01:00.0/device", "0x1592");
        assert!(hardware(&machine).is_empty(), "a NIC is none");
        fake.write("sys/bus/pci/devices/0000:6d:00.0/vendor", "0x8086");
        fake.write("sys/bus/pci/devices/0000:6d:00.0/device", "0x2710");
        let found = hardware(&machine);
        assert!(found.len() == 1 && !found[0].good, "{found:?}");
        assert!(
            found[0].remedy.as_ref().is_some_and(
                |remedy| remedy.starts_with("modprobe vfio-pci && ") && remedy.contains("echo 0000:6d:00.0 >")
            ),
            "{found:?}"
        );
    }

    #[cfg(feature = "live")]
    #[test]
    fn drivers_are_those_in_memory() {
        let found = drivers("7f0 r-xp /usr/lib/dpdk/pmds/librte_event_sw.so.23\n7f1 /x/librte_event_dsw.so.23\n");
        assert!(found.good && found.found.starts_with("event_dsw event_sw:"), "{found:?}");
        assert!(!drivers("/x/librte_net_null.so.23").good);
    }
}

//! NICs on PCI: who has them, and how DPDK would get them.

use super::{Finding, Machine};

const FOLDER: &str = "sys/bus/pci/devices";
/// Drivers of the kernel that hand a device over to a program.
const FOR_PROGRAMS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// Drivers that Linux and DPDK use side by side.
const SHARED: [&str; 3] = ["mlx4_core", "mlx5_core", "mana"];

pub(super) fn look(machine: &Machine) -> Vec<Finding> {
    let class = |address: &String| machine.read(&format!("{FOLDER}/{address}/class")).unwrap_or_default();
    let nics: Vec<String> =
        machine.names(FOLDER).into_iter().filter(|address| class(address).starts_with("0x02")).collect();
    if nics.is_empty() {
        return vec![Finding::good("PCI", "no NIC: ports are Linux interfaces here")];
    }
    nics.iter().map(|address| nic(machine, address)).collect()
}

fn nic(machine: &Machine, address: &str) -> Finding {
    let device = format!("{FOLDER}/{address}");
    let id = |name: &str| machine.read(&format!("{device}/{name}")).unwrap_or_default().replace("0x", "");
    let id = format!("{}:{}", id("vendor"), id("device"));
    let driver = machine.link(&format!("{device}/driver"));
    match driver.as_deref() {
        Some(driver) if FOR_PROGRAMS.contains(&driver) => {
            Finding::good(address, format!("{id}, bound to {driver}: the port pci:{address}"))
        }
        Some(driver) if SHARED.contains(&driver) => {
            Finding::good(address, format!("{id}, {driver} shares it with DPDK: the port pci:{address}"))
        }
        driver => linux_has_it(machine, address, &id, driver),
    }
}

fn linux_has_it(machine: &Machine, address: &str, id: &str, driver: Option<&str>) -> Finding {
    let bind = format!("modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci {address}");
    let Some(driver) = driver else {
        return Finding::bad(address, format!("{id}, nobody has it"), bind);
    };
    let interfaces = interfaces(machine, address);
    if interfaces.is_empty() {
        // It may be what the machine is reached by: nothing is advised from here.
        let found = format!("{id}, Linux has it by {driver}, with no interface in this network namespace");
        return Finding::good(address, found);
    }
    let shown = interfaces.join(", ");
    // The route table's second column is the destination.
    let routes = machine.read("proc/net/route").unwrap_or_default();
    let default = routes.lines().filter_map(|line| line.split_once('\t')).find_map(|(name, rest)| {
        (rest.starts_with("00000000\t") && interfaces.iter().any(|interface| interface == name)).then_some(name)
    });
    if let Some(interface) = default {
        let found = format!("{id}, Linux has it by {driver} as {interface}, with the default route: leave it there");
        return Finding::good(address, found);
    }
    let down: String = interfaces.iter().map(|name| format!("ip link set {name} down && ")).collect();
    Finding::bad(
        address,
        format!("{id}, Linux has it by {driver} as {shown}; to have it as pci:{address}"),
        down + &bind,
    )
}

/// The interfaces of a device; virtio's hang one folder below.
fn interfaces(machine: &Machine, address: &str) -> Vec<String> {
    let device = format!("{FOLDER}/{address}");
    let mut names = machine.names(&format!("{device}/net"));
    for part in machine.names(&device).iter().filter(|name| name.starts_with("virtio")) {
        names.extend(machine.names(&format!("{device}/{part}/net")));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::Fake;
    use super::*;

    fn one(driver: Option<&str>, more: &[(&str, &str)]) -> Finding {
        let (fake, machine) = Fake::new(more);
        for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x1572")] {
            fake.write(&format!("{FOLDER}/0000:03:00.0/{name}"), text);
        }
        fake.write(&format!("{FOLDER}/0000:00:01.0/class"), "0x010000");
        if let Some(driver) = driver {
            fake.link(&format!("{FOLDER}/0000:03:00.0/driver"), &format!("../../../bus/pci/drivers/{driver}"));
        }
        let mut findings = look(&machine);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn who_has_a_nic_is_told() {
        let vfio = one(Some("vfio-pci"), &[]);
        assert_eq!(vfio, Finding::good("0000:03:00.0", "8086:1572, bound to vfio-pci: the port pci:0000:03:00.0"));
        assert!(one(Some("mlx5_core"), &[]).good);
        assert!(one(None, &[]).found.ends_with("nobody has it"));
    }

    #[test]
    fn a_nic_of_linux_can_be_had_unless_it_has_the_default_route() {
        let net = ("sys/bus/pci/devices/0000:03:00.0/net/eth1/operstate", "up");
        let linux =
            one(Some("i40e"), &[net, ("proc/net/route", "Iface\tDestination\neth0\t00000000\t01\neth1\t0000000A\t0")]);
        assert!(linux.found.contains("by i40e as eth1"), "{linux:?}");
        let remedy = "ip link set eth1 down && modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci 0000:03:00.0";
        assert_eq!(linux.remedy.as_deref(), Some(remedy));

        let virtio = ("sys/bus/pci/devices/0000:03:00.0/virtio0/net/eth1/operstate", "up");
        let managed = one(Some("virtio-pci"), &[virtio, ("proc/net/route", "eth1\t00000000\t01020304\t0003")]);
        assert!(managed.good && managed.found.ends_with("leave it there"), "{managed:?}");
        let elsewhere = one(Some("virtio-pci"), &[]);
        assert!(elsewhere.good && elsewhere.remedy.is_none(), "{elsewhere:?}");
    }

    #[test]
    fn a_machine_without_nics_is_no_fault() {
        let (_fake, machine) = Fake::new(&[("sys/bus/pci/devices/0000:00:00.0/class", "0x060000")]);
        assert_eq!(look(&machine), [Finding::good("PCI", "no NIC: ports are Linux interfaces here")]);
    }
}

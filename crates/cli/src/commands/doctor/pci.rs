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
    let all =
        |address: &String| [Some(nic(machine, address)), virtual_functions(machine, address), node(machine, address)];
    nics.iter().flat_map(all).flatten().collect()
}

/// Parts of a NIC that are NICs of their own (SR-IOV): one of them can be netlathe's while Linux keeps the NIC.
fn virtual_functions(machine: &Machine, address: &str) -> Option<Finding> {
    let device = format!("{FOLDER}/{address}");
    let count = |name: &str| machine.read(&format!("{device}/{name}"))?.parse::<u32>().ok();
    let most = count("sriov_totalvfs").filter(|most| *most > 0)?;
    let what = format!("{address} SR-IOV");
    let made = count("sriov_numvfs").unwrap_or(0);
    if made > 0 {
        let function = |nth| {
            let link = machine.link(&format!("{device}/virtfn{nth}"))?;
            let driver = machine.link(&format!("{FOLDER}/{link}/driver")).unwrap_or_else(|| "no driver".to_owned());
            Some(format!("{link} ({driver})"))
        };
        let functions: Vec<String> = (0..made).filter_map(function).collect();
        return Some(Finding::good(what, format!("{made} of {most} virtual functions made: {}", functions.join(", "))));
    }
    // A NIC that is handed to a program makes them through that program.
    let interface = interfaces(machine, address).into_iter().next()?;
    Some(Finding::bad(
        what,
        format!("{most} virtual functions possible, none made: one would be netlathe's while Linux keeps {interface}"),
        format!(
            "echo 1 > /{device}/sriov_numvfs && ip link set {interface} vf 0 spoofchk off && ip link set {interface} vf 0 trust on"
        ),
    ))
}

/// Which memory and processors a NIC is near, on a machine that has more than one node of them.
fn node(machine: &Machine, address: &str) -> Option<Finding> {
    let device = format!("{FOLDER}/{address}");
    let online = machine.read("sys/devices/system/node/online")?;
    if !online.contains(['-', ',']) {
        return None;
    }
    let what = format!("{address} NUMA");
    let node = machine.read(&format!("{device}/numa_node"))?;
    let cpus = machine.read(&format!("{device}/local_cpulist")).filter(|cpus| !cpus.is_empty());
    Some(match (node.parse::<u32>(), cpus) {
        (Ok(node), Some(cpus)) => {
            let found = format!("node {node} of {online}: its CPUs {cpus} are near, --cores of the others cross over");
            Finding::good(what, found)
        }
        _ => Finding::bad(
            what,
            format!("the firmware does not tell which of the nodes {online} it is near"),
            "the board's manual tells which slot belongs to which processor; then --cores of that one",
        ),
    })
}

fn nic(machine: &Machine, address: &str) -> Finding {
    let device = format!("{FOLDER}/{address}");
    let id = |name: &str| machine.read(&format!("{device}/{name}")).unwrap_or_default().replace("0x", "");
    let mut id = format!("{}:{}", id("vendor"), id("device"));
    if let Some(whole) = machine.link(&format!("{device}/physfn")) {
        id.push_str(&format!(", a virtual function of {whole}"));
    }
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

    const NIC: &str = "sys/bus/pci/devices/0000:02:00.0";
    const PART: &str = "sys/bus/pci/devices/0000:03:02.0";

    /// The reference's machine: one X710, which is also how one gets to it.
    fn single_nic(made: &str) -> (Fake, Machine) {
        let file = |name: &str| format!("{NIC}/{name}");
        let (fake, machine) = Fake::new(&[("proc/net/route", "eno1\t00000000\t01020304\t0003")]);
        for (name, text) in [
            ("class", "0x020000"),
            ("vendor", "0x8086"),
            ("device", "0x1581"),
            ("net/eno1/operstate", "up"),
            ("sriov_totalvfs", "64"),
            ("sriov_numvfs", made),
        ] {
            fake.write(&file(name), text);
        }
        fake.link(&file("driver"), "../../../bus/pci/drivers/i40e");
        (fake, machine)
    }

    #[test]
    fn one_nic_serves_linux_and_netlathe() {
        let (fake, machine) = single_nic("0");
        let findings = look(&machine);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].good && findings[0].found.ends_with("leave it there"), "{findings:?}");
        assert_eq!(findings[1].what, "0000:02:00.0 SR-IOV");
        assert!(!findings[1].good && findings[1].found.starts_with("64 virtual functions possible, none made"));
        let make = format!(
            "echo 1 > /{NIC}/sriov_numvfs && ip link set eno1 vf 0 spoofchk off && ip link set eno1 vf 0 trust on"
        );
        assert_eq!(findings[1].remedy, Some(make));

        // As the kernel shows it once that was done, and the function was bound.
        fake.write(&format!("{NIC}/sriov_numvfs"), "1");
        fake.link(&format!("{NIC}/virtfn0"), "../0000:03:02.0");
        for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x154c")] {
            fake.write(&format!("{PART}/{name}"), text);
        }
        fake.link(&format!("{PART}/driver"), "../../../bus/pci/drivers/vfio-pci");
        fake.link(&format!("{PART}/physfn"), "../0000:02:00.0");
        let findings = look(&machine);
        assert_eq!(findings[1].found, "1 of 64 virtual functions made: 0000:03:02.0 (vfio-pci)", "{findings:?}");
        let part = "8086:154c, a virtual function of 0000:02:00.0, bound to vfio-pci: the port pci:0000:03:02.0";
        assert_eq!(findings[2], Finding::good("0000:03:02.0", part));
        assert_eq!(findings.len(), 3, "a function has no functions: {findings:?}");
    }

    #[test]
    fn a_nic_is_near_some_processors() {
        let (fake, machine) = single_nic("0");
        let nodes = "sys/devices/system/node/online";
        let numa = |machine: &Machine| look(machine).into_iter().find(|finding| finding.what.ends_with("NUMA"));
        fake.write(nodes, "0");
        fake.write(&format!("{NIC}/numa_node"), "1");
        fake.write(&format!("{NIC}/local_cpulist"), "8-15");
        assert_eq!(numa(&machine), None, "one node: nothing to choose");
        fake.write(nodes, "0-1");
        let near = numa(&machine).expect("two nodes");
        assert!(near.good && near.found.starts_with("node 1 of 0-1: its CPUs 8-15"), "{near:?}");
        fake.write(&format!("{NIC}/numa_node"), "-1");
        assert!(!numa(&machine).expect("two nodes").good);
    }

    #[test]
    fn a_machine_without_nics_is_no_fault() {
        let (_fake, machine) = Fake::new(&[("sys/bus/pci/devices/0000:00:00.0/class", "0x060000")]);
        assert_eq!(look(&machine), [Finding::good("PCI", "no NIC: ports are Linux interfaces here")]);
    }
}

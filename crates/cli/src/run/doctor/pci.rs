//! NICs on PCI: their drivers, and how to bind them for DPDK.

use super::machine::{Finding, Machine};
use dpdk::{DRIVERS_FOR_PROGRAMS, SHARED_DRIVERS};

const FOLDER: &str = "sys/bus/pci/devices";
pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let class = |address: &String| machine.read(&format!("{FOLDER}/{address}/class")).unwrap_or_default();
    let nics: Vec<String> =
        machine.names(FOLDER).into_iter().filter(|address| class(address).starts_with("0x02")).collect();
    if nics.is_empty() {
        return vec![Finding::good("PCI", "no NIC: only Linux interfaces can be ports")];
    }
    let all =
        |address: &String| [Some(nic(machine, address)), virtual_functions(machine, address), node(machine, address)];
    nics.iter().flat_map(all).flatten().collect()
}

/// Virtual functions of a NIC (SR-IOV): netlathe can use one of them while Linux keeps the NIC.
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
        return Some(Finding::good(
            what,
            format!("{made} of {most} virtual functions created: {}", functions.join(", ")),
        ));
    }
    // If a program owns the NIC, only that program can create virtual functions.
    let interface = interfaces(machine, address).into_iter().next()?;
    let named = units::quoted(&interface);
    Some(Finding::bad(
        what,
        format!("{most} virtual functions possible, none created: netlathe can use one while Linux keeps {interface}"),
        format!(
            "echo 1 > /{device}/sriov_numvfs && ip link set {named} vf 0 spoofchk off && ip link set {named} vf 0 trust on"
        ),
    ))
}

/// The NUMA node of a NIC, on machines with more than one.
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
            let found =
                format!("node {node} of {online}: its CPUs {cpus} are near; other --cores reach it across nodes");
            Finding::good(what, found)
        }
        _ => Finding::bad(
            what,
            format!("the firmware does not say which of the nodes {online} is near"),
            "look up the slot's processor in the board's manual, and use --cores of that one",
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
        Some(driver) if DRIVERS_FOR_PROGRAMS.contains(&driver) => {
            let (own, shared) = (own_address_only(machine, address), group(machine, address));
            Finding::good(address, format!("{id}, bound to {driver}: the port pci:{address}{own}{shared}"))
        }
        Some(driver) if SHARED_DRIVERS.contains(&driver) => {
            Finding::good(address, format!("{id}, {driver} shares it with DPDK: the port pci:{address}"))
        }
        driver => linux_has_it(machine, address, &id, driver),
    }
}

/// Returns the commands that bind a device to vfio-pci in a root shell. They need no tools of DPDK. `bound` says
/// whether a driver has the device now.
pub(super) fn bind(address: &str, bound: bool) -> String {
    let device = format!("/{FOLDER}/{address}");
    let unbind = if bound { format!(" && echo {address} > {device}/driver/unbind") } else { String::new() };
    format!(
        "modprobe vfio-pci && echo vfio-pci > {device}/driver_override{unbind} && echo {address} > /sys/bus/pci/drivers_probe"
    )
}

/// Completes the finding for a virtual function that cannot receive unicast frames for other stations. The Intel 82576
/// and I350 have no mode for this.
fn own_address_only(machine: &Machine, address: &str) -> &'static str {
    match machine.link(&format!("{FOLDER}/{address}/physfn/driver")).as_deref() {
        Some("igb") => {
            "; it receives unicast only for its own MAC, so it can end a path (gen, measure) but not carry other stations' frames (shape, emulate, limit)"
        }
        _ => "",
    }
}

/// Completes the finding for a NIC that shares its IOMMU group with devices that the kernel uses. VFIO hands over whole
/// groups only. Bridges may stay with the kernel.
fn group(machine: &Machine, address: &str) -> String {
    let bridge =
        |other: &str| machine.read(&format!("{FOLDER}/{other}/class")).is_some_and(|class| class.starts_with("0x06"));
    let used = |other: &str| {
        let driver = machine.link(&format!("{FOLDER}/{other}/driver"))?;
        (!DRIVERS_FOR_PROGRAMS.contains(&driver.as_str())).then(|| format!("{other} ({driver})"))
    };
    let group = machine.names(&format!("{FOLDER}/{address}/iommu_group/devices"));
    let others: Vec<String> =
        group.iter().filter(|other| *other != address && !bridge(other)).filter_map(|other| used(other)).collect();
    if others.is_empty() {
        return String::new();
    }
    format!(
        "; its IOMMU group also has {}, which must leave Linux too, or the NIC move to another slot",
        others.join(", ")
    )
}

fn linux_has_it(machine: &Machine, address: &str, id: &str, driver: Option<&str>) -> Finding {
    let shared = group(machine, address);
    let Some(driver) = driver else {
        return Finding::bad(address, format!("{id}, bound to no driver{shared}"), bind(address, false));
    };
    let interfaces = interfaces(machine, address);
    if interfaces.is_empty() {
        // The user may be logged in through this NIC, so there is no remedy.
        let found = format!("{id}, used by Linux ({driver}), with no interface in this network namespace");
        return Finding::good(address, found);
    }
    let shown = interfaces.join(", ");
    if let Some(why) = needed(machine, &interfaces) {
        return Finding::good(address, format!("{id}, used by Linux ({driver}) as {shown}, {why}: leave it there"));
    }
    let down: String = interfaces.iter().map(|name| format!("ip link set {} down && ", units::quoted(name))).collect();
    Finding::bad(
        address,
        format!("{id}, used by Linux ({driver}) as {shown}{shared}; to use it as pci:{address}"),
        down + &bind(address, true),
    )
}

/// Why Linux should keep a NIC with these interfaces, if the user may be logged in through it.
fn needed(machine: &Machine, interfaces: &[String]) -> Option<String> {
    let here = machine.interfaces().unwrap_or_default();
    let of_sys = machine.names("sys/class/net");
    // Not every entry is an interface: bonding_masters is a file.
    let missing =
        of_sys.iter().any(|name| !here.contains(name) && !machine.names(&format!("{CLASS}/{name}")).is_empty());
    if missing || here.iter().any(|name| !of_sys.contains(name)) {
        return Some("which is not in this network namespace, so its use is unknown".to_owned());
    }
    for interface in interfaces {
        let folder = format!("{CLASS}/{interface}");
        let above = machine
            .link(&format!("{folder}/master"))
            .or_else(|| machine.names(&folder).iter().find_map(|name| name.strip_prefix("upper_").map(str::to_owned)));
        if let Some(above) = above {
            return Some(format!("with {above} on it"));
        }
    }
    let default = default_routes(machine);
    if default.is_empty() {
        return Some("and without a default route it is unclear which NIC this machine is reached by".to_owned());
    }
    let reached = default.iter().any(|name| interfaces.contains(name));
    reached.then(|| "with the default route".to_owned())
}

const CLASS: &str = "sys/class/net";

/// The interfaces of default routes, of IPv4 and of IPv6.
fn default_routes(machine: &Machine) -> Vec<String> {
    /// Flag of the kernel's own IPv6 reject route at `lo`, which is skipped.
    const RTF_REJECT: u32 = 0x200;
    let v4 = machine.read("proc/net/route").unwrap_or_default();
    let v6 = machine.read("proc/net/ipv6_route").unwrap_or_default();
    // Columns: name, destination.
    let of_v4 = v4.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        (fields.next()? == "00000000").then(|| name.to_owned())
    });
    // Columns: destination, prefix length, seven others that end with the flags, name.
    let of_v6 = v6.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, "00", .., flags, name] = fields[..] else { return None };
        let refuses = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & RTF_REJECT != 0);
        (destination.bytes().all(|digit| digit == b'0') && !refuses).then(|| name.to_owned())
    });
    of_v4.chain(of_v6).collect()
}

/// The interfaces of a device. Those of virtio devices are one folder deeper.
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
    use super::super::machine::FakeMachine;
    use super::*;

    fn one(driver: Option<&str>, more: &[(&str, &str)]) -> Finding {
        let (fake, machine) = FakeMachine::new(more);
        for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x1572")] {
            fake.write(&format!("{FOLDER}/0000:03:00.0/{name}"), text);
        }
        fake.write(&format!("{FOLDER}/0000:00:01.0/class"), "0x010000");
        if let Some(driver) = driver {
            fake.link(&format!("{FOLDER}/0000:03:00.0/driver"), &format!("../../../bus/pci/drivers/{driver}"));
        }
        let mut findings = check(&machine);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn shows_the_driver_of_a_nic() {
        let vfio = one(Some("vfio-pci"), &[]);
        assert_eq!(vfio, Finding::good("0000:03:00.0", "8086:1572, bound to vfio-pci: the port pci:0000:03:00.0"));
        assert!(one(Some("mlx5_core"), &[]).good);
        assert!(one(None, &[]).found.ends_with("bound to no driver"));
    }

    const ROUTES: (&str, &str) = ("proc/net/route", "Iface\tDestination\neth0\t00000000\t01\neth1\t0000000A\t0");
    const DEVICES: (&str, &str) = ("proc/net/dev", "Inter-|\n face |\n  eth0: 1 1\n  eth1: 1 1");
    const ETH0: (&str, &str) = ("sys/class/net/eth0/operstate", "up");
    const ETH1: (&str, &str) = ("sys/class/net/eth1/operstate", "up");
    const BONDS: (&str, &str) = ("sys/class/net/bonding_masters", "");
    const NET: (&str, &str) = ("sys/bus/pci/devices/0000:03:00.0/net/eth1/operstate", "up");

    #[track_caller]
    fn assert_left(more: &[(&str, &str)], why: &str) {
        let finding = one(Some("i40e"), more);
        assert!(finding.good && finding.remedy.is_none(), "{finding:?}");
        assert!(finding.found.ends_with(&format!("{why}: leave it there")), "{finding:?}");
    }

    #[test]
    fn advises_nothing_for_a_nic_that_may_carry_the_login() {
        let v6 = |flags: &str, name: &str| {
            let zeros = "0".repeat(32);
            format!(
                "{zeros} 00 {zeros} 00 fe800000000000000000000000000001 00000400 00000001 00000000 {flags}     {name}\n"
            )
        };
        let only_v6 = format!("{}{}", v6("00450003", "eth1"), v6("00200200", "lo"));
        let refusing = v6("00200200", "eth1");
        let linked = [NET, ETH0, ETH1, BONDS, DEVICES];
        let with = |more: &[(&'static str, &'static str)]| [&linked[..], more].concat();
        assert_left(&[&linked[..], &[("proc/net/ipv6_route", only_v6.as_str())]].concat(), "with the default route");
        assert_left(
            &[&linked[..], &[("proc/net/ipv6_route", refusing.as_str())]].concat(),
            "and without a default route it is unclear which NIC this machine is reached by",
        );
        assert_left(&with(&[ROUTES, ("sys/class/net/eth1/upper_eth1.7/ifindex", "9")]), "with eth1.7 on it");
        // As after `unshare -n`: /sys has the host's interfaces.
        let elsewhere = "so its use is unknown";
        assert_left(&[NET, ETH0, ETH1, ("proc/net/dev", "lo: 0"), ROUTES], elsewhere);
        assert_left(&[NET, ETH0, ETH1, ("proc/net/dev", "eth0: 0\neth1: 0\nveth0: 0"), ROUTES], elsewhere);
    }

    #[test]
    fn advises_binding_a_nic_unless_it_has_the_default_route() {
        let linux = one(Some("i40e"), &[NET, ETH0, ETH1, BONDS, DEVICES, ROUTES]);
        assert!(linux.found.contains("(i40e) as eth1"), "{linux:?}");
        let remedy = "ip link set eth1 down && modprobe vfio-pci \
                      && echo vfio-pci > /sys/bus/pci/devices/0000:03:00.0/driver_override \
                      && echo 0000:03:00.0 > /sys/bus/pci/devices/0000:03:00.0/driver/unbind \
                      && echo 0000:03:00.0 > /sys/bus/pci/drivers_probe";
        assert_eq!(linux.remedy.as_deref(), Some(remedy));

        let virtio = ("sys/bus/pci/devices/0000:03:00.0/virtio0/net/eth1/operstate", "up");
        let managed = one(Some("virtio-pci"), &[virtio, ("proc/net/route", "eth1\t00000000\t01020304\t0003")]);
        assert!(managed.good && managed.found.ends_with("leave it there"), "{managed:?}");
        let elsewhere = one(Some("virtio-pci"), &[]);
        assert!(elsewhere.good && elsewhere.remedy.is_none(), "{elsewhere:?}");
    }

    const NIC: &str = "sys/bus/pci/devices/0000:02:00.0";
    const PART: &str = "sys/bus/pci/devices/0000:03:02.0";

    /// The machine of the case in docs/guide/receiver.md: one X710, which also carries the login.
    fn single_nic(made: &str) -> (FakeMachine, Machine) {
        let file = |name: &str| format!("{NIC}/{name}");
        let (fake, machine) = FakeMachine::new(&[("proc/net/route", "eno1\t00000000\t01020304\t0003")]);
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
        let findings = check(&machine);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].good && findings[0].found.ends_with("leave it there"), "{findings:?}");
        assert_eq!(findings[1].what, "0000:02:00.0 SR-IOV");
        assert!(!findings[1].good && findings[1].found.starts_with("64 virtual functions possible, none created"));
        let make = format!(
            "echo 1 > /{NIC}/sriov_numvfs && ip link set eno1 vf 0 spoofchk off && ip link set eno1 vf 0 trust on"
        );
        assert_eq!(findings[1].remedy, Some(make));

        // The kernel's files after these commands, with the function bound.
        fake.write(&format!("{NIC}/sriov_numvfs"), "1");
        fake.link(&format!("{NIC}/virtfn0"), "../0000:03:02.0");
        for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x154c")] {
            fake.write(&format!("{PART}/{name}"), text);
        }
        fake.link(&format!("{PART}/driver"), "../../../bus/pci/drivers/vfio-pci");
        fake.link(&format!("{PART}/physfn"), "../0000:02:00.0");
        let findings = check(&machine);
        assert_eq!(findings[1].found, "1 of 64 virtual functions created: 0000:03:02.0 (vfio-pci)", "{findings:?}");
        let part = "8086:154c, a virtual function of 0000:02:00.0, bound to vfio-pci: the port pci:0000:03:02.0";
        assert_eq!(findings[2], Finding::good("0000:03:02.0", part));
        assert_eq!(findings.len(), 3, "a function has no functions: {findings:?}");
    }

    #[test]
    fn names_the_node_of_a_nic() {
        let (fake, machine) = single_nic("0");
        let nodes = "sys/devices/system/node/online";
        let numa = |machine: &Machine| check(machine).into_iter().find(|finding| finding.what.ends_with("NUMA"));
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
    fn names_devices_that_share_the_group() {
        let group = "sys/bus/pci/devices/0000:03:00.0/iommu_group/devices";
        let sound = ("sys/bus/pci/devices/0000:03:00.1/class", "0x040300");
        let member = |name: &str| format!("{group}/{name}/class");
        let (itself, other) = (member("0000:03:00.0"), member("0000:03:00.1"));
        let (fake, machine) = FakeMachine::new(&[sound, (&itself, "0x020000"), (&other, "0x040300")]);
        for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x1572")] {
            fake.write(&format!("{FOLDER}/0000:03:00.0/{name}"), text);
        }
        fake.link(&format!("{FOLDER}/0000:03:00.0/driver"), "../../../bus/pci/drivers/vfio-pci");
        assert!(!check(&machine)[0].found.contains("group"), "a device without a driver does not matter");
        fake.link(&format!("{FOLDER}/0000:03:00.1/driver"), "../../../bus/pci/drivers/snd_hda_intel");
        let found = &check(&machine)[0].found;
        assert!(found.contains("its IOMMU group also has 0000:03:00.1 (snd_hda_intel)"), "{found}");
    }

    #[test]
    fn names_the_frames_that_a_virtual_function_of_igb_cannot_receive() {
        let (fake, machine) = single_nic("1");
        std::fs::remove_file(fake.folder.path().join(NIC).join("driver")).expect("the link");
        fake.link(&format!("{NIC}/driver"), "../../../bus/pci/drivers/igb");
        for (name, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x10ca")] {
            fake.write(&format!("{PART}/{name}"), text);
        }
        fake.link(&format!("{PART}/driver"), "../../../bus/pci/drivers/vfio-pci");
        fake.link(&format!("{PART}/physfn"), "../0000:02:00.0");
        let findings = check(&machine);
        let part = findings.iter().find(|finding| finding.what == "0000:03:02.0").expect("the function");
        assert!(part.found.contains("only for its own MAC"), "{part:?}");
    }

    #[test]
    fn machine_without_nics_is_not_a_problem() {
        let (_fake, machine) = FakeMachine::new(&[("sys/bus/pci/devices/0000:00:00.0/class", "0x060000")]);
        assert_eq!(check(&machine), [Finding::good("PCI", "no NIC: only Linux interfaces can be ports")]);
    }
}

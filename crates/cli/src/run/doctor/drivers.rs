//! DPDK, its network drivers, and AF_XDP.

use super::machine::{Finding, Machine};

#[cfg(not(feature = "live"))]
pub(super) fn check(_: &Machine) -> Vec<Finding> {
    vec![Finding::bad("DPDK", "not built in", "build with the default features")]
}

#[cfg(feature = "live")]
pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![dpdk()];
    let loaded = loaded(&machine.read("proc/self/maps").unwrap_or_default());
    findings.push(drivers(&loaded));
    findings.push(af_xdp(machine, &loaded));
    findings
}

/// Checks that DPDK starts and opens a port.
#[cfg(feature = "live")]
fn dpdk() -> Finding {
    use ::dpdk::{Eal, EalConfig, Pool, Port, PortConfig, Vdev};
    let opened = Eal::init(&EalConfig::new("netlathe-doctor").memory_mib(64)).and_then(|eal| {
        let pool = Pool::new(eal, "doctor", 1_023, 2_048)?;
        Port::open(eal, Vdev::null(), &pool, &PortConfig::default()).map(drop)
    });
    match opened {
        Ok(()) => Finding::good("DPDK", format!("{} starts and opens a port", Eal::version())),
        Err(error) => {
            Finding::bad("DPDK", error.to_string(), "run scripts/setup.sh, which installs DPDK and its drivers")
        }
    }
}

/// The network drivers that DPDK has loaded. They are read from the memory map of this process, so the plugin folder
/// need not be known.
#[cfg(feature = "live")]
fn loaded(maps: &str) -> Vec<String> {
    let mut names: Vec<String> = maps
        .lines()
        .filter_map(|line| Some(line.rsplit_once("/librte_net_")?.1.split_once(".so")?.0.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(feature = "live")]
fn drivers(loaded: &[String]) -> Finding {
    const WHAT: &str = "drivers";
    /// Drivers of DPDK that netlathe uses for its own kinds of ports.
    const OURS: [&str; 2] = ["af_xdp", "tap"];
    /// Drivers without hardware.
    const SOFTWARE: [&str; 14] = [
        "af_packet", "af_xdp", "bond", "failsafe", "memif", "null", "pcap", "ring", "softnic", "tap", "vdev_netvsc",
        "vhost", "virtio", "netvsc",
    ];
    let missing: Vec<&str> = OURS.into_iter().filter(|name| !loaded.iter().any(|driver| driver == name)).collect();
    if !missing.is_empty() {
        let found = format!("{} not installed", missing.join(", "));
        return Finding::bad(WHAT, found, "apt-get install librte-meta-net, or scripts/setup.sh");
    }
    let (software, nics): (Vec<&String>, Vec<&String>) =
        loaded.iter().partition(|name| SOFTWARE.contains(&name.as_str()));
    let software: Vec<&str> = software.into_iter().map(String::as_str).collect();
    Finding::good(WHAT, format!("{}; {} for NICs", software.join(" "), nics.len()))
}

#[cfg(feature = "live")]
fn af_xdp(machine: &Machine, loaded: &[String]) -> Finding {
    const WHAT: &str = "AF_XDP";
    let protocols = machine.read("proc/net/protocols").unwrap_or_default();
    if !protocols.lines().any(|line| line.split_whitespace().next() == Some("XDP")) {
        let found = "not in this kernel; af_packet is used";
        return Finding::bad(WHAT, found, "a kernel with CONFIG_XDP_SOCKETS=y");
    }
    if !loaded.iter().any(|driver| driver == "af_xdp") {
        return Finding::bad(
            WHAT,
            "DPDK's driver is not installed; af_packet is used",
            "apt-get install librte-meta-net",
        );
    }
    if ::lab::privileged() && machine.is_first_user_namespace() {
        Finding::good(WHAT, "supported by kernel and driver")
    } else {
        Finding::bad(WHAT, "supported, but not permitted for this user; af_packet is used", "run as root")
    }
}

#[cfg(all(test, feature = "live"))]
mod tests {
    use super::super::machine::FakeMachine;
    use super::*;

    #[test]
    fn drivers_are_read_from_the_process() {
        let maps = "7f00-7f01 r-xp 0 fe:00 1 /usr/lib/dpdk/pmds-23.0/librte_net_af_xdp.so.23.0\n\
                    7f01-7f02 r--p 0 fe:00 1 /usr/lib/dpdk/pmds-23.0/librte_net_af_xdp.so.23.0\n\
                    7f02-7f03 r--p 0 fe:00 1 /usr/lib/dpdk/pmds-23.0/librte_net_ixgbe.so.23.0\n\
                    7f03-7f04 r--p 0 fe:00 1 /usr/lib/librte_eal.so.23.0\n";
        assert_eq!(loaded(maps), ["af_xdp", "ixgbe"]);
        let some = drivers(&loaded(maps));
        assert!(!some.good && some.found == "tap not installed", "{some:?}");
        let all = drivers(&["af_packet", "af_xdp", "ixgbe", "mlx5", "tap"].map(str::to_owned));
        assert_eq!(all, Finding::good("drivers", "af_packet af_xdp tap; 2 for NICs"));
    }

    #[test]
    fn af_xdp_needs_kernel_and_driver() {
        let (fake, machine) = FakeMachine::new(&[("proc/net/protocols", "protocol  size\nUDP  1\nXDPX  1")]);
        let driver = ["af_xdp".to_owned()];
        assert!(af_xdp(&machine, &driver).found.contains("not in this kernel"));
        fake.write("proc/net/protocols", "protocol  size\nXDP      960      0");
        assert!(af_xdp(&machine, &[]).found.contains("driver is not installed"));
        fake.write("proc/self/uid_map", "0 1000 1");
        assert!(af_xdp(&machine, &driver).found.contains("not permitted for this user"));
    }
}

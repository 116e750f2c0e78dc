//! Settings of an interface that affect frames: pause frames stop its sender, offloads change frames, and a small ring
//! loses bursts.

use super::machine::{Finding, Machine};
use crate::output::Failure;
use std::process::Command;
use units::quoted;

const FOLDER: &str = "sys/class/net";
/// Offloads that falsify a run: the name in `ethtool -k`, the name in `ethtool -K`, and the effect.
const OFFLOADS: [(&str, &str, OffloadProblem); 10] = [
    ("tx-checksumming", "tx", OffloadProblem::Sent),
    ("tcp-segmentation-offload", "tso", OffloadProblem::Sent),
    ("generic-segmentation-offload", "gso", OffloadProblem::Sent),
    ("tx-udp-segmentation", "tx-udp-segmentation", OffloadProblem::Sent),
    ("generic-receive-offload", "gro", OffloadProblem::Received),
    ("large-receive-offload", "lro", OffloadProblem::Received),
    ("rx-gro-hw", "rx-gro-hw", OffloadProblem::Received),
    ("rx-gro-list", "rx-gro-list", OffloadProblem::Received),
    ("tx-vlan-offload", "txvlan", OffloadProblem::Tags),
    ("rx-vlan-offload", "rxvlan", OffloadProblem::Tags),
];

/// The effect of an offload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OffloadProblem {
    Sent,
    Received,
    Tags,
}

impl OffloadProblem {
    fn text(self) -> &'static str {
        match self {
            OffloadProblem::Sent => "local programs send super-frames and unfinished checksums",
            OffloadProblem::Received => "frames are received merged",
            OffloadProblem::Tags => "VLAN tags travel beside the frame",
        }
    }
}

/// Checks the named interfaces, or all that are up except `lo`.
pub(super) fn check(machine: &Machine, named: &[String]) -> Result<Vec<Finding>, Failure> {
    let present = machine.interfaces().unwrap_or_else(|| machine.names(FOLDER));
    if let Some(absent) = named.iter().find(|name| !present.contains(name)) {
        let how = match scenario::name_before_peer(absent) {
            Some(own) => format!("that is how `ip link` shows {own}: write {own}"),
            None => "`ip link` lists them".to_owned(),
        };
        return Err(Failure::new(format!("there is no interface {absent} in this network namespace; {how}")));
    }
    let up = |name: &&String| {
        let state = machine.read(&format!("{FOLDER}/{name}/operstate"));
        name.as_str() != "lo" && state.as_deref() == Some("up")
    };
    let chosen: Vec<&String> =
        if named.is_empty() { present.iter().filter(up).collect() } else { named.iter().collect() };
    let mut findings = Vec::new();
    for name in chosen {
        findings.push(pause(name, ethtool(&["-a", name])));
        findings.push(offloads(name, ethtool(&["-k", name])));
        findings.push(ring(name, ethtool(&["-g", name])));
    }
    Ok(findings)
}

/// The output of `ethtool`, or why there is none.
fn ethtool(arguments: &[&str]) -> Result<String, String> {
    let program = ::lab::which("ethtool").ok_or(NO_ETHTOOL)?;
    let output =
        Command::new(program).args(arguments).env("LC_ALL", "C").output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))
    }
}

/// A finding for a setting that could not be read. The remedy is the command that shows it, or how to install ethtool.
fn unknown(what: String, error: &str, command: &str) -> Finding {
    let remedy = if error == NO_ETHTOOL { "apt-get install ethtool".to_owned() } else { format!("{command} as root") };
    Finding::bad(what, format!("not known ({error})"), remedy)
}

const NO_ETHTOOL: &str = "ethtool is not installed";

/// The value after a name in the output of ethtool.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.trim().strip_prefix(name)?.strip_prefix(':')?.trim()))
}

fn pause(name: &str, listing: Result<String, String>) -> Finding {
    let what = format!("{name} pause");
    let text = match listing {
        Ok(text) => text,
        Err(error) if error.contains("not supported") => {
            return Finding::good(what, "no pause frames: the driver has none to set");
        }
        Err(error) => return unknown(what, &error, &format!("ethtool -a {}", quoted(name))),
    };
    let on = |name| value(&text, name).is_some_and(|value| value.starts_with("on"));
    let found = match (on("RX"), on("TX")) {
        (false, false) => return Finding::good(what, "off both ways"),
        (true, true) => {
            "received and sent: the other end can stop departures, and a full ring here stops the other end"
        }
        (true, false) => "received: the other end can stop departures",
        (false, true) => "sent: a full ring here stops the other end, so losses look like delays",
    };
    Finding::bad(what, found, format!("ethtool -A {} autoneg off rx off tx off", quoted(name)))
}

fn offloads(name: &str, listing: Result<String, String>) -> Finding {
    let what = format!("{name} offloads");
    let text = match listing {
        Ok(text) => text,
        Err(error) => return unknown(what, &error, &format!("ethtool -k {}", quoted(name))),
    };
    let state = |feature: &str| value(&text, feature).unwrap_or("off");
    let on: Vec<_> = OFFLOADS.into_iter().filter(|(feature, ..)| state(feature).starts_with("on")).collect();
    if on.is_empty() {
        return Finding::good(what, "off: frames are seen as on the wire");
    }
    let (fixed, settable): (Vec<_>, Vec<_>) =
        on.iter().copied().partition(|(feature, ..)| state(feature).contains("[fixed]"));
    let mut harms: Vec<&str> = Vec::new();
    for (.., harm) in &on {
        if !harms.contains(&harm.text()) {
            harms.push(harm.text());
        }
    }
    let names: Vec<&str> = on.iter().map(|(_, short, _)| *short).collect();
    let found = format!("{} on: {}", names.join(" "), harms.join("; "));
    let mut remedies = Vec::new();
    if !settable.is_empty() {
        let off: String = settable.iter().map(|(_, short, _)| format!(" {short} off")).collect();
        remedies.push(format!("ethtool -K {}{off}", quoted(name)));
    }
    if !fixed.is_empty() {
        let names: Vec<&str> = fixed.iter().map(|(_, short, _)| *short).collect();
        remedies.push(format!("{} cannot be turned off on this interface", names.join(" ")));
    }
    Finding::bad(what, found, remedies.join("; "))
}

/// Checks the size of the receive ring. A small ring loses bursts before any program can see them, including DPDK's
/// drivers for Linux interfaces.
fn ring(name: &str, listing: Result<String, String>) -> Finding {
    let what = format!("{name} ring");
    let text = match listing {
        Ok(text) => text,
        Err(error) if error.contains("not supported") => return Finding::good(what, "the ring size cannot be set"),
        Err(error) => return unknown(what, &error, &format!("ethtool -g {}", quoted(name))),
    };
    let mut settings = measure::host::InterfaceSettings::default();
    settings.read_ring(&text);
    match (settings.ring, settings.ring_max) {
        (Some(now), Some(max)) if now < max => Finding::bad(
            what,
            format!("{now} of {max} receive descriptors: bursts are lost there while CPUs are idle"),
            format!("ethtool -G {} rx {max}", quoted(name)),
        ),
        (Some(now), Some(_)) => Finding::good(what, format!("{now} receive descriptors, the maximum")),
        _ => Finding::good(what, "the driver does not report the ring's size"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::FakeMachine;
    use super::*;

    #[test]
    fn pause_frames_in_either_direction_matter() {
        let with = |rx: &str, tx: &str| {
            let text = format!(
                "Pause parameters for eth1:\nAutonegotiate:\toff\nRX:\t\t{rx}\nTX:\t\t{tx}\nRX negotiated: off\n"
            );
            pause("eth1", Ok(text))
        };
        assert_eq!(with("off", "off"), Finding::good("eth1 pause", "off both ways"));
        for (rx, tx, expected) in
            [("on", "on", "received and sent"), ("on", "off", "received:"), ("off", "on", "sent:")]
        {
            let found = with(rx, tx);
            assert!(found.found.starts_with(expected), "{found:?}");
            assert_eq!(found.remedy.as_deref(), Some("ethtool -A eth1 autoneg off rx off tx off"));
        }
        assert!(pause("eth1", Err("netlink error: Operation not supported".into())).good);
        assert!(!pause("eth1", Err("netlink error: Operation not permitted".into())).good);
    }

    /// Recorded from a NIC (e1000e), shortened.
    const LISTING: &str = "Features for eth1:\nrx-checksumming: on\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\
        \ttx-checksum-ip-generic: on\nscatter-gather: on\ntcp-segmentation-offload: on\ngeneric-segmentation-offload: off\n\
        generic-receive-offload: on\nlarge-receive-offload: off [fixed]\nrx-vlan-offload: on [fixed]\ntx-vlan-offload: off\n";

    #[test]
    fn offloads_that_spoil_a_run_are_named_with_the_command() {
        let found = offloads("eth1", Ok(LISTING.to_owned()));
        assert!(found.found.starts_with("tx tso gro rxvlan on: local programs send"), "{found:?}");
        let remedy = "ethtool -K eth1 tx off tso off gro off; rxvlan cannot be turned off on this interface";
        assert_eq!(found.remedy.as_deref(), Some(remedy));
        assert!(offloads("eth1", Ok(LISTING.replace(": on", ": off"))).good);
        let remedy = |error: &str| offloads("eth1", Err(error.into())).remedy;
        assert_eq!(remedy(NO_ETHTOOL).as_deref(), Some("apt-get install ethtool"));
        assert_eq!(remedy("netlink error: No such device").as_deref(), Some("ethtool -k eth1 as root"));
    }

    #[test]
    fn advises_enlarging_a_small_ring() {
        let with = |now: &str| {
            let text =
                format!("Pre-set maximums:\nRX:\t\t4096\nTX:\t\t4096\nCurrent hardware settings:\nRX:\t\t{now}\n");
            ring("eno1", Ok(text))
        };
        let small = with("512");
        assert!(!small.good && small.found.starts_with("512 of 4096 receive descriptors"), "{small:?}");
        assert_eq!(small.remedy.as_deref(), Some("ethtool -G eno1 rx 4096"));
        assert!(with("4096").good && with("n/a").found.contains("does not report"));
        assert!(ring("veth0", Err("netlink error: Operation not supported".into())).good);
        assert!(!ring("eno1", Err("ethtool is not installed".into())).good);
    }

    #[test]
    fn checks_interfaces_that_are_up_unless_others_are_named() {
        let state = |name: &str| format!("{FOLDER}/{name}/operstate");
        let (fake, machine) = FakeMachine::new(&[]);
        for (name, operstate) in [("lo", "up"), ("nl-absent0", "up"), ("nl-absent1", "down")] {
            fake.write(&state(name), operstate);
        }
        let names = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            check(&machine, &named).map(|findings| findings.into_iter().map(|finding| finding.what).collect::<Vec<_>>())
        };
        assert_eq!(
            names(&[]).ok(),
            Some(["pause", "offloads", "ring"].map(|what| format!("nl-absent0 {what}")).to_vec())
        );
        assert_eq!(names(&["nl-absent1"]).ok().map(|found| found.len()), Some(3));
        assert!(names(&["nosuch0"]).is_err());
        // `nl-absent0` is in another namespace, but /sys still shows it.
        fake.write("proc/net/dev", "Inter-| Receive\n face |bytes\n    lo: 0 0\nnl-absent1: 0 0");
        assert!(names(&["nl-absent0"]).is_err());
        assert_eq!(names(&[]).ok(), Some(Vec::new()));
    }
}

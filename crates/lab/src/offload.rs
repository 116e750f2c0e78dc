//! Turning offloads off, so that a frame on the veth is the frame that a wire would carry.
//!
//! veth hands buffers over as they are: left alone, a receiver sees 64 KiB "frames" with checksums not yet computed.
//! Lists of features differ from kernel to kernel and `ethtool -K` refuses a whole command for one unknown name, so
//! the interface is asked what it has, that is turned off, and the result is read back.

use crate::error::{Error, Result};
use crate::tool;

/// A feature as `ethtool -k` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Feature<'a> {
    name: &'a str,
    on: bool,
    fixed: bool,
}

/// Turns off, in a namespace, everything that makes an interface's frames differ from a wire's.
pub(crate) fn turn_off(namespace: &str, interface: &str) -> Result<()> {
    let before = show(namespace, interface)?;
    let wanted: Vec<&str> =
        parse(&before).filter(|f| f.on && !f.fixed && alters_frames(f.name)).map(|f| settable_name(f.name)).collect();
    if !wanted.is_empty() {
        let mut command = tool::command("ip");
        command.args(["netns", "exec", namespace, "ethtool", "-K", interface]);
        for name in wanted {
            command.args([name, "off"]);
        }
        tool::output(command)?;
    }
    let after = show(namespace, interface)?;
    let left: Vec<&str> = parse(&after).filter(|f| f.on && alters_frames(f.name)).map(|f| f.name).collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::Offloads { namespace: namespace.to_owned(), interface: interface.to_owned(), features: left.join(", ") })
}

fn show(namespace: &str, interface: &str) -> Result<String> {
    let mut command = tool::command("ip");
    command.args(["netns", "exec", namespace, "ethtool", "-k", interface]);
    tool::output(command)
}

fn parse(text: &str) -> impl Iterator<Item = Feature<'_>> {
    text.lines().filter_map(|line| {
        let (name, state) = line.trim().split_once(": ")?;
        let on = state.starts_with("on");
        (on || state.starts_with("off")).then(|| Feature { name, on, fixed: state.contains("[fixed]") })
    })
}

/// Whether a feature lets a frame on the veth differ from the frame on a wire: in its length (segmentation left to
/// the device, aggregation), in its bytes (checksums, VLAN tags carried beside the frame).
fn alters_frames(name: &str) -> bool {
    ["segmentation", "checksum", "scatter-gather", "receive-offload", "-gro", "-gso", "vlan-offload", "vlan-stag-hw"]
        .iter()
        .any(|part| name.contains(part))
        // Whether a device survives a malformed super-frame; with segmentation off it sees none.
        && name != "tx-gso-robust"
}

/// The name that `ethtool -K` takes: the headings of `-k` have short names of their own.
fn settable_name(name: &str) -> &str {
    match name {
        "rx-checksumming" => "rx",
        "tx-checksumming" => "tx",
        "scatter-gather" => "sg",
        "tcp-segmentation-offload" => "tso",
        "generic-segmentation-offload" => "gso",
        "generic-receive-offload" => "gro",
        "large-receive-offload" => "lro",
        "udp-fragmentation-offload" => "ufo",
        "rx-vlan-offload" => "rxvlan",
        "tx-vlan-offload" => "txvlan",
        leaf => leaf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_with_their_state() {
        let text = "Features for c0:\nrx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\nhighdma: on\n\
                    tx-vlan-offload: on [requested off]\n";
        let features: Vec<Feature<'_>> = parse(text).collect();
        assert_eq!(
            features,
            [
                Feature { name: "rx-checksumming", on: true, fixed: false },
                Feature { name: "tx-checksum-ipv4", on: false, fixed: true },
                Feature { name: "highdma", on: true, fixed: false },
                Feature { name: "tx-vlan-offload", on: true, fixed: false },
            ]
        );
    }

    #[test]
    fn what_alters_frames_is_told_from_what_does_not() {
        for name in [
            "rx-checksumming", "tx-udp-segmentation", "tx-gso-list", "rx-gro-list", "rx-udp-gro-forwarding",
            "generic-receive-offload", "large-receive-offload", "rx-vlan-offload", "tx-vlan-stag-hw-insert",
            "tx-scatter-gather-fraglist",
        ] {
            assert!(alters_frames(name), "{name} would be left on");
        }
        for name in ["highdma", "ntuple-filters", "tx-nocache-copy", "loopback", "tx-gso-robust", "receive-hashing"] {
            assert!(!alters_frames(name), "{name} would be turned off");
        }
    }
}

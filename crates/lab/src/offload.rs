//! Turns offloads off, so that frames on the veth equal those on a real wire.
//!
//! veth passes buffers on unchanged: by default, a receiver sees 64 KiB "frames" without checksums. Feature lists
//! differ between kernels, and `ethtool -K` refuses the whole command for one unknown name. So the features of the
//! interface are read, turned off, and read back.

use crate::error::{Error, Result};
use crate::tool;

/// A feature as `ethtool -k` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Feature<'a> {
    name: &'a str,
    on: bool,
    fixed: bool,
}

/// Turns off all features of an interface that make its frames differ from those on a wire.
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

/// Whether a feature can make a frame on the veth differ from the frame on a wire: in its length (segmentation left to
/// the device, aggregation) or its bytes (checksums, VLAN tags stored beside the frame).
fn alters_frames(name: &str) -> bool {
    ["segmentation", "checksum", "scatter-gather", "receive-offload", "-gro", "-gso", "vlan-offload", "vlan-stag-hw"]
        .iter()
        .any(|part| name.contains(part))
        // States whether a device survives a malformed super-frame, which does not occur with segmentation off.
        && name != "tx-gso-robust"
}

/// The name for `ethtool -K`: the headings of `-k` have their own short names.
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
    fn parses_features_with_their_state() {
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
    fn recognises_features_that_alter_frames() {
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

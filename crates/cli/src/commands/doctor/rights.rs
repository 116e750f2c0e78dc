//! What this user may do: ports of every kind, labs by user namespaces; and the tools.

use super::{Finding, Machine};

#[cfg(not(feature = "live"))]
pub(super) fn look(_: &Machine) -> Vec<Finding> {
    vec![Finding::bad("live ports", "this netlathe was built without them", "build with the default features")]
}

#[cfg(feature = "live")]
pub(super) fn look(machine: &Machine) -> Vec<Finding> {
    let root = ::lab::privileged();
    vec![privileges(root, machine.is_first_user_namespace()), user_namespaces(machine, root), tools()]
}

#[cfg(feature = "live")]
fn privileges(root: bool, first: bool) -> Finding {
    if root && first {
        Finding::good("privileges", "root: every kind of port")
    } else if root {
        let found = "root of a user namespace: live ports only in its own network namespaces, with af_packet and TAP";
        Finding::bad("privileges", found, "run as root outside of it for af_xdp, NICs on PCI and emulate --on")
    } else {
        let found = "not root: live ports only in a lab (netlathe lab run), with af_packet";
        Finding::bad("privileges", found, "run as root for the machine's own interfaces")
    }
}

#[cfg(feature = "live")]
fn user_namespaces(machine: &Machine, root: bool) -> Finding {
    let who = if root { "ordinary users" } else { "you" };
    match ::lab::permit_user_namespaces(&machine.root) {
        None => Finding::good("user namespaces", format!("permitted: {who} can run labs without root")),
        Some(remedy) => {
            Finding::bad("user namespaces", format!("forbidden: {who} cannot run labs without root"), remedy)
        }
    }
}

#[cfg(feature = "live")]
fn tools() -> Finding {
    let missing: Vec<&str> =
        ["ip", "bridge", "ethtool", "unshare"].into_iter().filter(|tool| ::lab::which(tool).is_none()).collect();
    if missing.is_empty() {
        return Finding::good("tools", "ip, bridge, ethtool and unshare, which labs need");
    }
    let remedy = "apt-get install iproute2 ethtool util-linux";
    Finding::bad("tools", format!("{} missing: no labs", missing.join(", ")), remedy)
}

#[cfg(all(test, feature = "live"))]
mod tests {
    use super::super::Fake;
    use super::*;

    #[test]
    fn root_of_a_user_namespace_is_not_all_of_root() {
        assert!(privileges(true, true).good && !privileges(false, true).good);
        let inside = privileges(true, false);
        assert!(!inside.good && inside.found.contains("user namespace"), "{inside:?}");
    }

    #[test]
    fn forbidden_namespaces_have_a_remedy() {
        let (fake, machine) = Fake::new(&[("proc/sys/user/max_user_namespaces", "100")]);
        assert!(user_namespaces(&machine, false).good);
        fake.write("proc/sys/user/max_user_namespaces", "0");
        let found = user_namespaces(&machine, false);
        assert_eq!(found.remedy.as_deref(), Some("sysctl -w user.max_user_namespaces=10000"));
    }
}

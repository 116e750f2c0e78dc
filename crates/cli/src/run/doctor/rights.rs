//! The rights of this user for each kind of port and for labs, and the tools that labs need.

use super::machine::{Finding, Machine};
#[cfg(feature = "live")]
use crate::rights::list::{Capability, ROWS, names};
#[cfg(feature = "live")]
use crate::rights::{self, remedy};

#[cfg(not(feature = "live"))]
pub(super) fn check(_: &Machine) -> Vec<Finding> {
    vec![Finding::bad("live ports", "this netlathe was built without them", "build with the default features")]
}

#[cfg(feature = "live")]
pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let root = ::lab::privileged();
    let lacking: Vec<_> = ROWS.iter().map(|row| (row.what, rights::missing(row))).collect();
    let lacking: Vec<_> = lacking.into_iter().filter(|(_, missing)| !missing.is_empty()).collect();
    vec![
        privileges(root, machine.is_first_user_namespace(), &lacking),
        user_namespaces(machine, root),
        landlock(rights::has_landlock()),
        tools(),
    ]
}

/// Lists the rows of docs/guide/privileges.md that lack capabilities.
#[cfg(feature = "live")]
fn privileges(root: bool, first: bool, lacking: &[(&str, Vec<Capability>)]) -> Finding {
    const WHAT: &str = "privileges";
    if !first && root {
        let found = "root of a user namespace: live ports only in its own network namespaces, with af_packet and TAP";
        return Finding::bad(WHAT, found, "run as root outside of it for af_xdp, NICs on PCI and emulate --on");
    }
    if lacking.is_empty() {
        return Finding::good(WHAT, "root: every kind of port");
    }
    let mut all: Vec<Capability> = Vec::new();
    for capability in lacking.iter().flat_map(|(_, missing)| missing) {
        if !all.contains(capability) {
            all.push(*capability);
        }
    }
    let rows = lacking.iter().map(|(what, missing)| format!("{} ({})", what.replace('`', ""), names(missing)));
    let found = format!("missing for {}", rows.collect::<Vec<_>>().join("; "));
    Finding::bad(WHAT, found, format!("{}; in a lab no root is needed: netlathe lab run", remedy(&all)))
}

#[cfg(feature = "live")]
fn user_namespaces(machine: &Machine, root: bool) -> Finding {
    let users = if root { "ordinary users" } else { "you" };
    match ::lab::permit_user_namespaces(&machine.root) {
        None => Finding::good("user namespaces", format!("permitted: {users} can run labs without root")),
        Some(remedy) => {
            Finding::bad("user namespaces", format!("forbidden: {users} cannot run labs without root"), remedy)
        }
    }
}

#[cfg(feature = "live")]
fn landlock(there: bool) -> Finding {
    const WHAT: &str = "Landlock";
    if there {
        return Finding::good(WHAT, "a live run can write its own files only, once it is set up");
    }
    let found = "not in this kernel: a live run may open other files for writing, as far as its user may";
    Finding::bad(WHAT, found, "a kernel with CONFIG_SECURITY_LANDLOCK=y, and landlock among lsm= of its command line")
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
    use super::super::machine::FakeMachine;
    use super::*;

    #[test]
    fn root_of_a_user_namespace_is_not_all_of_root() {
        let lacking = [("`tap:`", vec![Capability::NetAdmin])];
        assert!(privileges(true, true, &[]).good && !privileges(false, true, &lacking).good);
        let inside = privileges(true, false, &[]);
        assert!(!inside.good && inside.found.contains("user namespace"), "{inside:?}");
    }

    #[test]
    fn what_is_missing_is_named_with_what_needs_it() {
        let lacking = [("`tap:`", vec![Capability::NetAdmin]), ("`emulate --on`", vec![Capability::NetAdmin])];
        let finding = privileges(false, true, &lacking);
        assert_eq!(finding.found, "missing for tap: (CAP_NET_ADMIN); emulate --on (CAP_NET_ADMIN)");
        let remedy = finding.remedy.expect("there is one");
        assert!(remedy.contains("netlathe lab run"), "{remedy}");
        assert_eq!(remedy.to_lowercase().matches("net_admin").count(), 1, "{remedy}");
    }

    #[test]
    fn forbidden_namespaces_have_a_remedy() {
        let (fake, machine) = FakeMachine::new(&[("proc/sys/user/max_user_namespaces", "100")]);
        assert!(user_namespaces(&machine, false).good);
        fake.write("proc/sys/user/max_user_namespaces", "0");
        let found = user_namespaces(&machine, false);
        assert_eq!(found.remedy.as_deref(), Some("sysctl -w user.max_user_namespaces=10000"));
    }
}

use super::interface::interface_name;
use super::{PortKind, PortSpec};
use engine::Kind;
use std::fmt;

pub(super) const PORT: PortKind = PortKind {
    kind: Kind { name: "tap", grammar: "tap:NAME", summary: "a TAP device made by netlathe", example: "tap:lathe0" },
    takes_value: true,
    is_virtual: false,
    can_receive: true,
    parse: |name| interface_name(name).map(PortSpec::Tap),
    print: |port, f| match port {
        PortSpec::Tap(name) => write!(f, "tap:{name}"),
        _ => Err(fmt::Error),
    },
};

use super::{PortKind, PortSpec};
use engine::Kind;
use std::fmt;

pub(super) const PORT: PortKind = PortKind {
    kind: Kind { name: "null", grammar: "null", summary: "drops and counts", example: "null" },
    takes_value: false,
    is_virtual: true,
    can_receive: false,
    parse: |_| Ok(PortSpec::Null),
    print: |port, f| match port {
        PortSpec::Null => f.write_str("null"),
        _ => Err(fmt::Error),
    },
};

use super::{PortKind, PortSpec, named};
use engine::Kind;
use std::fmt;

pub(super) const PORT: PortKind = PortKind {
    kind: Kind { name: "dpdk", grammar: "dpdk:ARGS", summary: "any DPDK device", example: "dpdk:net_null0" },
    takes_value: true,
    is_virtual: false,
    can_receive: true,
    parse: |args| Ok(PortSpec::Dpdk(named("dpdk", args, "device")?)),
    print: |port, f| match port {
        PortSpec::Dpdk(args) => write!(f, "dpdk:{args}"),
        _ => Err(fmt::Error),
    },
};

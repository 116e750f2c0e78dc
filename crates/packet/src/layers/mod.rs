//! The protocols of a frame, one file each, and the walk that finds them.
//!
//! Each protocol is declared once: its name, fields, default header, checksum, and the numbers by which the layer below
//! announces it. Rules, rewriting, keys, flows and the table in the docs read these declarations.
//! To add a protocol, add a file and a line to the list below.

mod build;
mod checksum;
mod field;
mod kind;
mod path;
mod prepared;
mod pseudo;
mod walk;

pub use build::{NoStack, stack, stack_around, stack_with, with_ethernet};
pub(crate) use checksum::{ICRC, has_right_crc, make_crcs_right};
pub use checksum::{checksum_is_right, keep_crcs, make_checksums_right, write_field};
pub use field::{Field, FieldPosition, Role};
pub use kind::{Bind, Checksum, Description, Length, Next, Over};
pub use path::{FieldFinder, FieldPath, Level, can_be, read_layer};
pub(crate) use prepared::PreparedChecksums;
pub(crate) use pseudo::hides_an_address;
pub use pseudo::{Pseudo, pseudo_header};
pub(crate) use walk::is_announced_port;
pub use walk::{Layer, Layers, MOST_LAYERS, Rest};

macro_rules! layers {
    ($($variant:ident $module:ident;)*) => {
        $(mod $module;)*

        /// A protocol that the walk knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the description of each has the text")]
        pub enum LayerKind { $($variant),* }

        impl LayerKind {
            /// Every protocol, in the order of the list.
            pub const ALL: &'static [LayerKind] = &[$(LayerKind::$variant),*];

            /// What the protocol declares.
            #[must_use]
            pub const fn description(self) -> &'static Description {
                match self { $(LayerKind::$variant => &$module::DESCRIPTION),* }
            }
        }
    };
}

layers! {
    Ethernet ethernet;
    Llc llc;
    Vlan vlan;
    Mpls mpls;
    PseudoWire pseudo_wire;
    Pppoe pppoe;
    Arp arp;
    Pause pause;
    Pfc pfc;
    Ipv4 ipv4;
    Ipv6 ipv6;
    HopByHop hop_by_hop;
    Routing routing;
    Srv6 srv6;
    Fragment fragment;
    DestinationOptions destination_options;
    Ah ah;
    Esp esp;
    Udp udp;
    Tcp tcp;
    Icmp icmp;
    Icmp6 icmp6;
    Sctp sctp;
    SctpData sctp_data;
    Gre gre;
    Erspan erspan;
    L2tp3 l2tp3;
    Vxlan vxlan;
    VxlanGpe vxlan_gpe;
    Geneve geneve;
    Gtpu gtpu;
    Roce roce;
    Bfd bfd;
}

impl LayerKind {
    /// The protocol with this name or alias.
    #[must_use]
    pub fn named(name: &str) -> Option<LayerKind> {
        let is = |kind: &LayerKind| {
            let description = kind.description();
            description.name == name || description.aliases.contains(&name)
        };
        LayerKind::ALL.iter().copied().find(is)
    }

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.description().name
    }

    /// Its field with this name.
    #[must_use]
    pub fn field(self, name: &str) -> Option<&'static Field> {
        self.description().fields.iter().find(|field| field.name == name)
    }
}

#[cfg(test)]
mod tests;

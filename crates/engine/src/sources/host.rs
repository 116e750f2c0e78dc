use super::spec::StreamSpec;
use super::values::Values;
use packet::{Key, MacAddr, Requester, Template};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The sender of a stream's frames: the addresses that the generator has on its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Whether the addresses are IPv6.
    pub v6: bool,
    /// True if the stream sets the destination itself, is a given frame, or is ARP.
    pub aimed: bool,
    addresses: Values,
    macs: Values,
    /// VLAN IDs, outermost first.
    vlans: [Option<Values>; 2],
}

impl Host {
    /// The sender in the frames that `template` creates for `spec`; `None` if the frames have no sender address.
    pub(super) fn of(spec: &StreamSpec, template: &Template) -> Option<Host> {
        let values_of =
            |key: Key| spec.fields.iter().find(|(given, _)| *given == key).map(|(_, values)| values.clone());
        let values = |key: Key| {
            let site = template.site(key)?;
            Some((values_of(key).unwrap_or_else(|| Values::fixed(template.value(&site))), site.width))
        };
        // The link sees the addresses of the tunnel, not those of the stream.
        if !spec.tunnels.is_empty() {
            return None;
        }
        let (addresses, width) = values(Key::Source)?;
        let [outer, inner] = [Key::Svlan, Key::Vlan].map(|key| values(key).map(|(values, _)| values));
        Some(Host {
            v6: width == 16,
            aimed: !spec.wants_neighbour(),
            addresses,
            macs: values(Key::Smac)?.0,
            vlans: if outer.is_some() { [outer, inner] } else { [inner, None] },
        })
    }

    /// The MAC address of the sender with this IP address and these VLANs, if the stream has such a sender. If both
    /// addresses vary, it is the MAC address with the same index.
    #[must_use]
    pub fn mac_of(&self, address: IpAddr, vlans: [Option<u16>; 2]) -> Option<MacAddr> {
        let number = match address {
            IpAddr::V4(address) if !self.v6 => u128::from(address.to_bits()),
            IpAddr::V6(address) if self.v6 => address.to_bits(),
            _ => return None,
        };
        let tagged = self.vlans.iter().zip(vlans).all(|own_and_its| match own_and_its {
            (Some(own), Some(vlan)) => own.position(vlan.into()).is_some(),
            (own, vlan) => own.is_none() && vlan.is_none(),
        });
        let index = self.addresses.position(number).filter(|_| tagged)?;
        Some(MacAddr::of_number(self.macs.nth(index)))
    }

    /// The sender of neighbour requests: the sender of the first frame.
    #[must_use]
    pub fn requester(&self) -> Requester {
        let address = self.addresses.nth(0);
        let address = if self.v6 {
            IpAddr::V6(Ipv6Addr::from_bits(address))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(address as u32))
        };
        // VLAN IDs have twelve bits.
        let vlans = self.vlans.each_ref().map(|values| values.as_ref().map(|values| values.nth(0) as u16));
        Requester { mac: MacAddr::of_number(self.macs.nth(0)), address, vlans }
    }
}

/// The receivers of a stream: the destination addresses of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destinations {
    v6: bool,
    addresses: Values,
    /// MAC addresses that the stream sets itself.
    macs: Option<Values>,
}

impl Destinations {
    /// The receivers of the frames that `template` creates for `spec`; `None` if the frames have no addresses.
    pub(super) fn of(spec: &StreamSpec, template: &Template) -> Option<Destinations> {
        let values_of =
            |key: Key| spec.fields.iter().find(|(given, _)| *given == key).map(|(_, values)| values.clone());
        if !spec.tunnels.is_empty() {
            return None;
        }
        let site = template.site(Key::Destination)?;
        let addresses = values_of(Key::Destination).unwrap_or_else(|| Values::fixed(template.value(&site)));
        Some(Destinations { v6: site.width == 16, addresses, macs: values_of(Key::Dmac) })
    }

    /// Whether frames of the stream go to this address.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) if !self.v6 => self.addresses.position(address.to_bits().into()).is_some(),
            IpAddr::V6(address) if self.v6 => self.addresses.position(address.to_bits()).is_some(),
            _ => false,
        }
    }

    /// The MAC address of a receiver on a port with the address `own`. It is `own` if the stream uses that as a
    /// destination. Otherwise it is [`MADE`](Destinations::MADE), which no kernel accepts as its own and forwards.
    #[must_use]
    pub fn mac(&self, own: MacAddr) -> MacAddr {
        let is_given = self.macs.as_ref().is_some_and(|macs| macs.position(own.number()).is_some());
        if is_given { own } else { Destinations::MADE }
    }

    /// Destination MAC address of a stream without `dmac`.
    pub const MADE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    /// The number of addresses.
    #[must_use]
    pub fn count(&self) -> u128 {
        self.addresses.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{Payload, Stack};
    use packet::Protocol;

    fn host(spec: &StreamSpec) -> Option<Host> {
        let template = spec.template(&mut crate::random::Random::stream(1, "host"), 0).expect("a template").0;
        Host::of(spec, &template)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn walk(first: &str, last: &str) -> Values {
        let number = |text: &str| match ip(text) {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        Values { parts: vec![(number(first), number(last))], step: 1, random: false }
    }

    #[test]
    fn stream_owns_exactly_its_source_addresses() {
        let mut spec = StreamSpec::made(Protocol::Udp, false);
        spec.fields.push((Key::Source, walk("10.0.0.1", "10.0.0.3")));
        let untagged = host(&spec).expect("a host");
        let first = MacAddr([2, 0, 0, 0, 0, 1]);
        assert_eq!(untagged.mac_of(ip("10.0.0.3"), [None; 2]), Some(first), "what is not said is as made");
        assert_eq!(untagged.mac_of(ip("10.0.0.4"), [None; 2]), None);
        assert_eq!(untagged.mac_of(ip("::a00:1"), [None; 2]), None, "the same number is another address in IPv6");
        assert_eq!(untagged.mac_of(ip("10.0.0.3"), [Some(5), None]), None);
        assert_eq!((untagged.requester().address, untagged.aimed), (ip("10.0.0.1"), false));
        spec.fields.push((Key::Vlan, Values::fixed(5)));
        spec.fields
            .push((Key::Smac, Values { parts: vec![(0x0200_0000_0011, 0x0200_0000_0013)], step: 1, random: false }));
        spec.fields.push((Key::Dmac, Values::fixed(0x0200_0000_00ff)));
        let tagged = host(&spec).expect("a host");
        assert_eq!(tagged.mac_of(ip("10.0.0.3"), [Some(5), None]), Some(MacAddr([2, 0, 0, 0, 0, 0x13])));
        assert_eq!(tagged.mac_of(ip("10.0.0.3"), [None; 2]), None);
        assert_eq!((tagged.requester().vlans, tagged.aimed), ([Some(5), None], true));
    }

    #[test]
    fn receiver_has_the_destination_addresses() {
        let target = |spec: &StreamSpec| {
            let template = spec.template(&mut crate::random::Random::stream(1, "host"), 0).expect("a template").0;
            assert_eq!(template.value(&template.site(Key::Dmac).expect("Ethernet")), Destinations::MADE.number());
            Destinations::of(spec, &template)
        };
        let mut spec = StreamSpec::made(Protocol::Udp, false);
        spec.fields.push((Key::Destination, walk("10.9.0.1", "10.9.0.3")));
        let v4 = target(&spec).expect("a target");
        assert_eq!((v4.has(ip("10.9.0.3")), v4.has(ip("10.9.0.4")), v4.has(ip("::a09:1"))), (true, false, false));
        assert_eq!(v4.count(), 3);
        let own = MacAddr([2, 7, 7, 7, 7, 7]);
        assert_eq!(v4.mac(own), Destinations::MADE);
        spec.fields.push((Key::Dmac, Values::fixed(own.number())));
        let template = spec.template(&mut crate::random::Random::stream(1, "host"), 0).expect("a template").0;
        let aimed = Destinations::of(&spec, &template).expect("a target");
        let other = MacAddr([2, 7, 7, 7, 7, 8]);
        assert_eq!((aimed.mac(own), aimed.mac(other)), (own, Destinations::MADE), "never that of a router");
        assert_eq!(target(&StreamSpec::made(Protocol::Ethernet, false)), None);
    }

    #[test]
    fn given_frames_have_an_owner_and_frames_without_address_have_none() {
        let mut bytes = Protocol::Udp.headers(true, 2);
        bytes.extend([0; 20]);
        let mut spec = StreamSpec::made(Protocol::Udp, true);
        spec.stack = Stack::Hex(bytes);
        spec.payload = Some(Payload::Zeros);
        let given = host(&spec).expect("a host");
        assert!(given.v6 && given.aimed);
        assert!(given.mac_of(ip("::"), [Some(0), Some(0)]).is_some());
        assert_eq!(host(&StreamSpec::made(Protocol::Ethernet, false)), None);
    }
}

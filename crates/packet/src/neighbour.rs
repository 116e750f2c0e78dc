//! Makes a port a neighbour on its link: it answers hosts that resolve or ping its addresses, and asks for the hardware
//! addresses of other hosts. Uses ARP (RFC 826), neighbour discovery (RFC 4861), and echoes of ICMP (RFC 792) and
//! ICMPv6 (RFC 4443).

use crate::checksum::internet_checksum;
use crate::headers::Headers;
use crate::key::{ICMP, ICMPV6};
use crate::mac::MacAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ARP: u16 = 0x0806;
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Length in bytes of a solicitation or advertisement with one option, a hardware address.
const DISCOVERY: usize = 32;
/// Ethernet pads shorter frames to this length, without FCS.
const SHORTEST: usize = 60;
/// Hop limit of packets from the same link: no router has forwarded them.
const NEIGHBOUR_HOPS: u8 = 255;

/// Kind of a request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredRequest {
    /// An ARP request.
    Arp,
    /// A neighbour solicitation.
    Solicitation,
    /// An echo request of ICMP or ICMPv6: a ping.
    Echo,
}

/// The port's own side of an address request to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its hardware address.
    pub mac: MacAddr,
    /// Its address, of the same version as the neighbour's.
    pub address: IpAddr,
    /// Identifiers of the VLAN tags it sends with, outermost first.
    pub vlans: [Option<u16>; 2],
}

/// Answers a frame that asks for an address of ours. `owner` returns the hardware address that owns an address in the
/// VLANs of the frame (outermost tag first). The answer, without FCS, replaces the content of `reply`.
///
/// Answers ARP requests, neighbour solicitations and echo requests that are complete, unfragmented and have correct
/// checksums, and that were sent to that hardware address or to a group. The answer has the VLAN tags of the request.
#[must_use]
pub fn write_reply(
    frame: &[u8],
    owner: impl Fn(IpAddr, [Option<u16>; 2]) -> Option<MacAddr>,
    reply: &mut Vec<u8>,
) -> Option<AnsweredRequest> {
    let headers = Headers::of(frame)?;
    let tags = headers.tags.map(|tag| tag.map(|tag| tag & 0x0fff));
    let own = |address: IpAddr| {
        let mac = owner(address, tags)?;
        let group = frame[0] & 1 == 1;
        (group || frame[..6] == mac.0).then_some(mac)
    };
    reply.clear();
    let answered = if headers.ether_type == ARP {
        arp_reply(frame, headers.network, own, reply)?
    } else {
        let ip = headers.ip.filter(|ip| !ip.fragment && ip.end <= frame.len())?;
        let (source, destination) = (ip.source(frame)?, ip.destination(frame)?);
        let at = ip.transport?;
        let message = frame.get(at..ip.end).filter(|message| message.len() >= 8)?;
        match (ip.version, ip.protocol) {
            (4, ICMP) => {
                let sums_match =
                    internet_checksum(&[frame.get(ip.start..at)?]) == 0 && internet_checksum(&[message]) == 0;
                let mac = own(destination).filter(|_| sums_match && message[..2] == [ECHO_REQUEST, 0])?;
                echo_reply(frame, ip.start, at, ip.end, mac, reply);
                AnsweredRequest::Echo
            }
            (6, ICMPV6) if sum_v6(source, destination, message)? == 0 => match message[0] {
                ECHO_REQUEST_V6 if message[1] == 0 => {
                    let mac = own(destination)?;
                    echo_reply(frame, ip.start, at, ip.end, mac, reply);
                    AnsweredRequest::Echo
                }
                SOLICITATION if message[1] == 0 && message.len() >= 24 && frame[ip.start + 7] == NEIGHBOUR_HOPS => {
                    let target: [u8; 16] = message[8..24].try_into().ok()?;
                    let target = Ipv6Addr::from(target);
                    let mac = own(IpAddr::V6(target))?;
                    let IpAddr::V6(requester) = source else { return None };
                    advertisement(frame, ip.start, mac, target, requester, reply);
                    AnsweredRequest::Solicitation
                }
                _ => return None,
            },
            _ => return None,
        }
    };
    reply.resize(reply.len().max(SHORTEST), 0);
    Some(answered)
}

/// Asks for the hardware address of `neighbour`: an ARP request or a neighbour solicitation, without FCS.
///
/// # Panics
/// If the two addresses are of different IP versions.
#[must_use]
pub fn address_request(requester: &Requester, neighbour: IpAddr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(SHORTEST + 30);
    match (requester.address, neighbour) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            ethernet(&mut frame, [0xff; 6], requester, ARP);
            arp(&mut frame, 1, (requester.mac.0, from.octets()), ([0; 6], to.octets()));
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            // The solicited-node multicast address for addresses with these last three bytes (RFC 4291).
            let [.., a, b, c] = to.octets();
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
            ethernet(&mut frame, [0x33, 0x33, 0xff, a, b, c], requester, 0x86dd);
            discovery(&mut frame, SOLICITATION, 0, (from, group), to, (1, requester.mac));
        }
        _ => panic!("the requester and its neighbour have addresses of one IP version"),
    }
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

/// The addresses of requester and target, if the frame is an ARP request or a neighbour solicitation. `None` if the
/// requester asks for its own address, to detect a duplicate: that needs no answer.
#[must_use]
pub fn parse_address_request(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let headers = Headers::of(frame)?;
    if headers.ether_type == ARP {
        let packet = frame.get(headers.network..headers.network + 28)?;
        let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).map(|bytes| IpAddr::V4(bytes.into())).ok();
        let (requester, target) = (address(14)?, address(24)?);
        return (packet[..8] == [0, 1, 8, 0, 6, 4, 0, 1] && requester != target).then_some((requester, target));
    }
    let (requester, message) = icmp_v6(frame, &headers)?;
    let target: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    let target = IpAddr::V6(target.into());
    (message[0] == SOLICITATION && !requester.is_unspecified() && requester != target).then_some((requester, target))
}

/// The sender of an ICMP or ICMPv6 error and its reason, if the frame is one.
#[must_use]
pub fn parse_icmp_error(frame: &[u8]) -> Option<(IpAddr, &'static str)> {
    let headers = Headers::of(frame)?;
    if let Some((router, message)) = icmp_v6(frame, &headers) {
        let why = match message[..2] {
            [1, 0] => "no route to the destination",
            [1, 1] => "forbidden",
            [1, 3] => "address unreachable",
            [1, 4] => "port unreachable",
            [1, _] => "destination unreachable",
            [2, _] => "packet too big",
            [3, _] => "hop limit exceeded",
            _ => return None,
        };
        return Some((router, why));
    }
    let ip = headers.ip.filter(|ip| ip.version == 4 && ip.protocol == ICMP && !ip.fragment)?;
    let message = frame.get(ip.transport?..ip.end).filter(|message| message.len() >= 8)?;
    let why = match message[..2] {
        [3, 0] => "network unreachable",
        [3, 1] => "host unreachable",
        [3, 3] => "port unreachable",
        [3, 4] => "fragmentation needed",
        [3, 9 | 10 | 13] => "forbidden",
        [3, _] => "destination unreachable",
        [11, _] => "time to live exceeded",
        _ => return None,
    };
    Some((ip.source(frame)?, why))
}

/// Sender and message of a complete ICMPv6 packet.
fn icmp_v6<'a>(frame: &'a [u8], headers: &Headers) -> Option<(IpAddr, &'a [u8])> {
    let ip = headers.ip.filter(|ip| ip.version == 6 && ip.protocol == ICMPV6 && !ip.fragment)?;
    let message = frame.get(ip.transport?..ip.end).filter(|message| message.len() >= 8)?;
    Some((ip.source(frame)?, message))
}

/// The hardware address of `neighbour`, if the frame contains it. That is an ARP packet from the neighbour, requests
/// included (RFC 826), an advertisement of its address, or a solicitation from it with its hardware address (RFC 4861,
/// 7.2.3).
#[must_use]
pub fn hardware_address(frame: &[u8], neighbour: IpAddr) -> Option<MacAddr> {
    let headers = Headers::of(frame)?;
    match neighbour {
        IpAddr::V4(neighbour) if headers.ether_type == ARP => {
            let packet = frame.get(headers.network..headers.network + 28)?;
            let sender: [u8; 6] = packet[8..14].try_into().ok()?;
            (packet[..6] == [0, 1, 8, 0, 6, 4]
                && matches!(packet[6..8], [0, 1 | 2])
                && packet[14..18] == neighbour.octets())
            .then_some(MacAddr(sender))
        }
        IpAddr::V6(neighbour) => {
            let ip = headers.ip.filter(|ip| ip.version == 6 && ip.protocol == ICMPV6 && ip.end <= frame.len())?;
            let message = frame.get(ip.transport?..ip.end).filter(|message| message.len() >= 24)?;
            let source = ip.source(frame)?;
            // Options are type, length in units of 8 bytes, content; 1 is the sender's hardware address, 2 the
            // target's.
            let (option_type, about_neighbour) = match message[..2] {
                [ADVERTISEMENT, 0] => (2, message[8..24] == neighbour.octets()),
                [SOLICITATION, 0] => (1, source == IpAddr::V6(neighbour)),
                _ => return None,
            };
            let valid = sum_v6(source, ip.destination(frame)?, message)? == 0
                && frame[ip.start + 7] == NEIGHBOUR_HOPS
                && about_neighbour;
            let mut options = message.get(24..).filter(|_| valid)?;
            while let [kind, length, ..] = options
                && *length > 0
            {
                let (option, rest) = options.split_at_checked(usize::from(*length) * 8)?;
                if *kind == option_type {
                    return option[2..8].try_into().ok().map(MacAddr);
                }
                options = rest;
            }
            None
        }
        IpAddr::V4(_) => None,
    }
}

fn arp_reply(
    frame: &[u8],
    at: usize,
    own: impl Fn(IpAddr) -> Option<MacAddr>,
    reply: &mut Vec<u8>,
) -> Option<AnsweredRequest> {
    let packet = frame.get(at..at + 28)?;
    let [mac, sender, _, target] = [8..14, 14..18, 18..24, 24..28].map(|range| &packet[range]);
    // A request for IPv4 over Ethernet. A request for the sender's own address is an announcement and needs no answer.
    if packet[..8] != [0, 1, 8, 0, 6, 4, 0, 1] || sender == target {
        return None;
    }
    let target: [u8; 4] = target.try_into().ok()?;
    let own = own(IpAddr::V4(Ipv4Addr::from(target)))?;
    let (mac, sender): ([u8; 6], [u8; 4]) = (mac.try_into().ok()?, sender.try_into().ok()?);
    reply.extend(mac);
    reply.extend(own.0);
    reply.extend(&frame[12..at]);
    arp(reply, 2, (own.0, target), (mac, sender));
    Some(AnsweredRequest::Arp)
}

fn arp(frame: &mut Vec<u8>, operation: u8, sender: ([u8; 6], [u8; 4]), target: ([u8; 6], [u8; 4])) {
    frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
    for (mac, address) in [sender, target] {
        frame.extend(mac);
        frame.extend(address);
    }
}

/// The echo with source and destination swapped. Only type and checksum of the message change.
fn echo_reply(frame: &[u8], ip: usize, message: usize, end: usize, mac: MacAddr, reply: &mut Vec<u8>) {
    reply.extend(&frame[6..12]);
    reply.extend(mac.0);
    reply.extend(&frame[12..end]);
    let (at, length) = if frame[ip] >> 4 == 4 { (ip + 12, 4) } else { (ip + 8, 16) };
    let (source, destination) = reply[at..at + 2 * length].split_at_mut(length);
    source.swap_with_slice(destination);
    let request = reply[message];
    if request == ECHO_REQUEST {
        reply[message] = 0;
        reply[ip + 8] = 64;
        reply[ip + 10..ip + 12].fill(0);
        let sum = internet_checksum(&[&reply[ip..message]]);
        reply[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        reply[message] = ECHO_REQUEST_V6 + 1;
        reply[ip + 7] = 64;
    }
    // RFC 1624, equation 3, for the change of the first word. Swapped addresses have the same sum.
    let word = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]);
    let sum = !internet_checksum(&[
        &(!word(message + 2)).to_be_bytes(),
        &(!(u16::from(request) << 8)).to_be_bytes(),
        &[reply[message], 0],
    ]);
    reply[message + 2..message + 4].copy_from_slice(&(!sum).to_be_bytes());
}

fn advertisement(
    frame: &[u8],
    network: usize,
    mac: MacAddr,
    target: Ipv6Addr,
    requester: Ipv6Addr,
    reply: &mut Vec<u8>,
) {
    // A host without an address checks whether this one is in use; the answer goes to all nodes (RFC 4861, 7.2.4).
    let (to, flags) =
        if requester.is_unspecified() { (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0x20) } else { (requester, 0x60) };
    if requester.is_unspecified() {
        reply.extend([0x33, 0x33, 0, 0, 0, 1]);
    } else {
        reply.extend(&frame[6..12]);
    }
    reply.extend(mac.0);
    reply.extend(&frame[12..network]);
    discovery(reply, ADVERTISEMENT, flags, (target, to), target, (2, mac));
}

/// The Ethernet header of an address request, with its tags.
fn ethernet(frame: &mut Vec<u8>, to: [u8; 6], requester: &Requester, ether_type: u16) {
    frame.extend(to);
    frame.extend(requester.mac.0);
    let both = requester.vlans[1].is_some();
    for (n, vlan) in requester.vlans.into_iter().flatten().enumerate() {
        frame.extend(if both && n == 0 { [0x88, 0xa8] } else { [0x81, 0x00] });
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
}

/// An IPv6 packet with a neighbour discovery message about `target` and one option.
fn discovery(
    frame: &mut Vec<u8>,
    kind: u8,
    flags: u8,
    (from, to): (Ipv6Addr, Ipv6Addr),
    target: Ipv6Addr,
    (option, mac): (u8, MacAddr),
) {
    frame.extend([0x60, 0, 0, 0, 0, DISCOVERY as u8, ICMPV6, NEIGHBOUR_HOPS]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    let at = frame.len();
    frame.extend([kind, 0, 0, 0, flags, 0, 0, 0]);
    frame.extend(target.octets());
    frame.extend([option, 1]);
    frame.extend(mac.0);
    let sum = sum_v6(IpAddr::V6(from), IpAddr::V6(to), &frame[at..]).expect("both are of version 6");
    frame[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
}

/// Checksum of an ICMPv6 message with its pseudo header; zero over a message whose checksum is correct.
fn sum_v6(source: IpAddr, destination: IpAddr, message: &[u8]) -> Option<u16> {
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) else { return None };
    let length = (message.len() as u32).to_be_bytes();
    Some(internet_checksum(&[&source.octets(), &destination.octets(), &length, &[0, 0, 0, ICMPV6], message]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn v4(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    fn v6(last: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x12, last))
    }

    fn host(address: IpAddr) -> Requester {
        Requester { mac: HOST, address, vlans: [None; 2] }
    }

    fn ours(address: IpAddr, vlans: [Option<u16>; 2]) -> Option<MacAddr> {
        ((address == v4(9) || address == v6(9)) && vlans[0] != Some(7)).then_some(OWN)
    }

    fn reply_to(frame: &[u8]) -> Option<(AnsweredRequest, Vec<u8>)> {
        let mut reply = vec![1; 9];
        write_reply(frame, ours, &mut reply).map(|answered| (answered, reply))
    }

    /// An echo request with `payload`, from the host to us.
    fn ping(v6_too: bool, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = if v6_too { (v6(1), v6(9)) } else { (v4(1), v4(9)) };
        let mut message = vec![if v6_too { 128 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 5];
        message.extend(payload);
        let sum = match v6_too {
            true => sum_v6(source, destination, &message).expect("IPv6"),
            false => internet_checksum(&[&message]),
        };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = [OWN.0, HOST.0].concat();
        if let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, 60]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        } else {
            let mut header = vec![0x45, 0, 0, 20 + message.len() as u8, 0x77, 0x77, 0x40, 0, 60, 1, 0, 0];
            header.extend([10, 0, 0, 1, 10, 0, 0, 9]);
            let sum = internet_checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend([0x08, 0x00]);
            frame.extend(header);
        }
        frame.extend(message);
        frame
    }

    #[test]
    fn replies_to_address_requests_and_parses_the_replies() {
        for (from, target, kind) in
            [(v4(1), v4(9), AnsweredRequest::Arp), (v6(1), v6(9), AnsweredRequest::Solicitation)]
        {
            for vlans in [[None; 2], [Some(5), None], [Some(6), Some(5)]] {
                let request = address_request(&Requester { vlans, ..host(from) }, target);
                assert!(request.len() >= 60);
                let (answered, reply) = reply_to(&request).expect("an answer");
                assert_eq!((answered, &reply[..6], &reply[6..12]), (kind, &HOST.0[..], &OWN.0[..]));
                let tags = Headers::of(&reply).map(|headers| headers.tags);
                assert_eq!(tags, Some(vlans), "the tags of the request");
                assert_eq!((hardware_address(&reply, target), hardware_address(&reply, from)), (Some(OWN), None));
                assert_eq!(
                    (hardware_address(&request, from), hardware_address(&request, target)),
                    (Some(host(from).mac), None),
                    "a request carries the hardware address of its sender"
                );
                // No answer for another address, in another VLAN, or to a frame for another host.
                assert_eq!(reply_to(&super::address_request(&Requester { vlans, ..host(from) }, from)), None);
                assert_eq!(
                    reply_to(&super::address_request(&Requester { vlans: [Some(7), None], ..host(from) }, target)),
                    None
                );
                let mut elsewhere = request.clone();
                elsewhere[..6].copy_from_slice(&[2, 0, 0, 0, 0, 8]);
                assert_eq!(reply_to(&elsewhere), None);
                for length in 0..request.len().min(42) {
                    assert_eq!(reply_to(&request[..length]), None, "cut to {length} B");
                }
            }
        }
    }

    #[test]
    fn parses_address_requests_and_icmp_errors() {
        for (from, target) in [(v4(1), v4(9)), (v6(1), v6(9))] {
            let request = address_request(&host(from), target);
            assert_eq!((parse_address_request(&request), parse_icmp_error(&request)), (Some((from, target)), None));
            assert_eq!(
                parse_address_request(&super::address_request(&host(from), from)),
                None,
                "duplicate address detection"
            );
            let (_, reply) = reply_to(&request).expect("an answer");
            assert_eq!((parse_address_request(&reply), parse_icmp_error(&reply)), (None, None));
            for length in 0..request.len().min(42) {
                assert_eq!(parse_address_request(&request[..length]), None);
            }
        }
        for (v6_too, kind, code, why) in [
            (false, 3, 0, "network unreachable"),
            (false, 3, 1, "host unreachable"),
            (false, 3, 13, "forbidden"),
            (false, 11, 0, "time to live exceeded"),
            (true, 1, 0, "no route to the destination"),
            (true, 1, 3, "address unreachable"),
            (true, 3, 0, "hop limit exceeded"),
        ] {
            let mut error = ping(v6_too, b"the packet that was refused");
            let at = if v6_too { 54 } else { 34 };
            (error[at], error[at + 1]) = (kind, code);
            assert_eq!(parse_icmp_error(&error), Some((if v6_too { v6(1) } else { v4(1) }, why)));
            assert_eq!((parse_address_request(&error), parse_icmp_error(&error[..at])), (None, None));
        }
        assert_eq!(parse_icmp_error(&ping(false, b"")), None);
    }

    #[test]
    fn replies_to_an_unspecified_source_by_multicast() {
        let unspecified = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let (_, reply) = reply_to(&address_request(&host(unspecified), v6(9))).expect("an answer");
        assert_eq!((&reply[..6], hardware_address(&reply, v6(9))), (&[0x33, 0x33, 0, 0, 0, 1][..], Some(OWN)));
        assert_eq!(reply[14 + 40 + 4], 0x20, "not solicited, to override");
        // An ARP probe is answered; an announcement asks for nothing.
        let probe = address_request(&host(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), v4(9));
        assert!(reply_to(&probe).is_some());
        assert_eq!(reply_to(&address_request(&host(v4(9)), v4(9))), None);
    }

    #[test]
    fn echo_replies_carry_the_whole_payload() {
        for v6_too in [false, true] {
            for payload in [&b""[..], b"odd", b"0123456789abcdef0123456789abcdef"] {
                let request = ping(v6_too, payload);
                let (answered, reply) = reply_to(&request).expect("an answer");
                assert_eq!((answered, &reply[..6], &reply[6..12]), (AnsweredRequest::Echo, &HOST.0[..], &OWN.0[..]));
                let ip = Headers::of(&reply).and_then(|headers| headers.ip).expect("a packet");
                let (source, destination) = (ip.source(&reply).expect("4"), ip.destination(&reply).expect("4"));
                assert_eq!((source, destination), if v6_too { (v6(9), v6(1)) } else { (v4(9), v4(1)) });
                let message = &reply[ip.transport.expect("a message")..ip.end];
                assert_eq!((message[0], &message[4..8]), (if v6_too { 129 } else { 0 }, &[0x12, 0x34, 0, 5][..]));
                assert_eq!(&message[8..], payload);
                let sum =
                    if v6_too { sum_v6(source, destination, message) } else { Some(internet_checksum(&[message])) };
                assert_eq!(sum, Some(0), "a right checksum");
                if !v6_too {
                    assert_eq!(internet_checksum(&[&reply[14..34]]), 0);
                }
                // A bit error anywhere in the message prevents the answer.
                let at = request.len() - message.len();
                for byte in at..request.len() {
                    let mut wrong = request.clone();
                    wrong[byte] ^= 0x10;
                    assert_eq!(reply_to(&wrong), None, "byte {byte}");
                }
            }
        }
        // A fragment of a request gets no answer.
        let mut fragment = ping(false, b"half");
        fragment[20] = 0x20;
        fragment[24..26].fill(0);
        let sum = internet_checksum(&[&fragment[14..34]]);
        fragment[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(reply_to(&fragment), None);
    }
}

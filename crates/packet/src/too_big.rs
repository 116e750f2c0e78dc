use crate::checksum::internet_checksum;
use crate::headers::Headers;
use crate::key::{ICMP, ICMPV6};

/// Maximum length of an ICMP and an ICMPv6 error: RFC 1812 §4.3.2.3, and RFC 4443 §2.4 (c).
const LONGEST: (usize, usize) = (576, 1_280);
/// TTL or hop limit of the error.
const HOPS: u8 = 64;

/// Writes into `answer` the frame that asks the sender of `frame` for packets of at most `mtu` bytes: ICMP
/// "fragmentation needed" (RFC 792, RFC 1191 §4) or ICMPv6 "packet too big" (RFC 4443 §3.2). Its source is the packet's
/// destination, since an emulated path has no address of its own.
///
/// Returns false where a router would send no error: packets without Don't Fragment, later fragments, ICMP errors,
/// packets from or to groups or broadcast addresses, and frames without IP.
pub fn packet_too_big(frame: &[u8], mtu: u32, answer: &mut Vec<u8>) -> bool {
    answer.clear();
    written(frame, mtu, answer).is_some()
}

fn written(frame: &[u8], mtu: u32, answer: &mut Vec<u8>) -> Option<()> {
    let ip = Headers::of(frame)?.ip?;
    let packet = frame.get(ip.start..ip.end.min(frame.len()))?;
    let (source, destination) = ip.addresses(frame)?;
    let transport = ip.transport?;
    let (is_error, longest) = if ip.version == 4 {
        // A router silently drops a packet whose total length ends within its header.
        let may_not_be_cut = *packet.get(6)? & 0x40 != 0;
        // Source quench, destination unreachable, redirect, time exceeded, parameter problem.
        let error = ip.protocol == ICMP && frame.get(transport).is_none_or(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12));
        (error || !may_not_be_cut, LONGEST.0)
    } else {
        (ip.protocol == ICMPV6 && frame.get(transport).is_none_or(|kind| *kind < 128), LONGEST.1)
    };
    let group = frame[0] & 1 != 0 || frame[6] & 1 != 0;
    if is_error || group || !is_station(source) || !is_station(destination) {
        return None;
    }
    let header = if ip.version == 4 { 20 } else { 40 };
    let quoted = &packet[..packet.len().min(longest - header - 8)];
    answer.extend_from_slice(&frame[6..12]);
    answer.extend_from_slice(&frame[..6]);
    // Tags and EtherType stay.
    answer.extend_from_slice(&frame[12..ip.start]);
    let start = answer.len();
    if ip.version == 4 {
        let length = (header + 8 + quoted.len()) as u16;
        answer.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, HOPS, ICMP, 0, 0]);
        answer[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        answer.extend_from_slice(destination);
        answer.extend_from_slice(source);
        let sum = internet_checksum(&[&answer[start..]]);
        answer[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let length = (8 + quoted.len()) as u16;
        answer.extend_from_slice(&[0x60, 0, 0, 0]);
        answer.extend_from_slice(&length.to_be_bytes());
        answer.extend_from_slice(&[ICMPV6, HOPS]);
        answer.extend_from_slice(destination);
        answer.extend_from_slice(source);
    }
    let icmp = answer.len();
    let kind: [u8; 2] = if ip.version == 4 { [3, 4] } else { [2, 0] };
    answer.extend_from_slice(&kind);
    answer.extend_from_slice(&[0, 0]);
    // In version 4 the upper half of the word is unused: no packet is longer than 65 535 bytes.
    answer.extend_from_slice(&mtu.to_be_bytes());
    answer.extend_from_slice(quoted);
    let sum = if ip.version == 4 {
        internet_checksum(&[&answer[icmp..]])
    } else {
        let length = ((answer.len() - icmp) as u32).to_be_bytes();
        internet_checksum(&[&answer[start + 8..icmp], &length, &[0, 0, 0, ICMPV6], &answer[icmp..]])
    };
    answer[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Whether an address is that of one host: not a group, broadcast or "this host".
fn is_station(address: &[u8]) -> bool {
    let zero = address.iter().all(|byte| *byte == 0);
    let group = if address.len() == 4 { address[0] >= 224 } else { address[0] == 0xff };
    !zero && !group
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: usize = 14;

    fn packet(dont_fragment: bool) -> Vec<u8> {
        let mut frame = vec![0; 1_514];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        frame[V4] = 0x45;
        frame[V4 + 2..V4 + 4].copy_from_slice(&1_500_u16.to_be_bytes());
        frame[V4 + 6] = if dont_fragment { 0x40 } else { 0 };
        frame[V4 + 9] = 17;
        frame[V4 + 12..V4 + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[V4 + 20..V4 + 24].copy_from_slice(&[1, 2, 3, 4]);
        frame
    }

    #[test]
    fn too_big_message_has_the_mtu_and_valid_checksums() {
        let mut answer = Vec::new();
        assert!(packet_too_big(&packet(true), 1_200, &mut answer));
        assert_eq!(answer.len(), 14 + 576);
        assert_eq!(answer[..14], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        assert_eq!(answer[V4 + 12..V4 + 20], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(answer[V4 + 20..V4 + 22], [3, 4]);
        assert_eq!(answer[V4 + 24..V4 + 28], [0, 0, 4, 176]);
        assert_eq!(answer[V4 + 28..], packet(true)[V4..V4 + 548]);
        assert_eq!(internet_checksum(&[&answer[V4..V4 + 20]]), 0);
        assert_eq!(internet_checksum(&[&answer[V4 + 20..]]), 0);
    }

    #[test]
    fn version_6_has_the_pseudo_header_in_its_sum() {
        let mut frame = vec![0; 1_514];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 5, 180, 17, 64]);
        (frame[22], frame[37], frame[38], frame[53]) = (0xfd, 1, 0xfd, 2);
        let mut answer = Vec::new();
        assert!(packet_too_big(&frame, 1_400, &mut answer));
        assert_eq!(answer.len(), 14 + 1_280);
        assert_eq!((answer[20], answer[37], answer[53]), (ICMPV6, 2, 1));
        assert_eq!(answer[54..56], [2, 0]);
        assert_eq!(answer[58..62], 1_400_u32.to_be_bytes());
        let length = ((answer.len() - 54) as u32).to_be_bytes();
        assert_eq!(internet_checksum(&[&answer[22..54], &length, &[0, 0, 0, ICMPV6], &answer[54..]]), 0);
    }

    #[test]
    fn sends_no_answer_where_a_router_would_not() {
        let told = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = packet(true);
            change(&mut frame);
            packet_too_big(&frame, 1_200, &mut Vec::new())
        };
        assert!(told(&|_| {}));
        assert!(!told(&|frame| frame[V4 + 6] = 0), "a packet that may be cut");
        assert!(!told(&|frame| frame[0] = 0xff), "a broadcast");
        assert!(!told(&|frame| frame[V4 + 16] = 239), "a group");
        assert!(!told(&|frame| frame[V4 + 12..V4 + 16].fill(0)), "from no address");
        assert!(!told(&|frame| frame[V4 + 7] = 1), "a later fragment");
        assert!(!told(&|frame| (frame[V4 + 9], frame[V4 + 20]) = (ICMP, 3)), "an error");
        assert!(told(&|frame| (frame[V4 + 9], frame[V4 + 20]) = (ICMP, 8)), "a ping");
        assert!(!told(&|frame| frame[12] = 0x88), "no IP");
        assert!(!told(&|frame| frame[V4 + 2..V4 + 4].fill(0)), "a total length of 0");
        for length in 0..60 {
            assert!(!told(&|frame| frame.truncate(length.min(33))));
        }
    }
}

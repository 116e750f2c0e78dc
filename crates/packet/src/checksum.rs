use crate::headers::{Headers, IpHeader, TCP, UDP};
use crate::rewrite::transport_checksum;

/// The Internet checksum (RFC 1071) over several pieces, each but the last of even length.
#[must_use]
pub fn internet_checksum(pieces: &[&[u8]]) -> u16 {
    !folded(pieces.iter().map(|piece| sum(piece)).sum())
}

/// The sum of a piece in 32-bit words; [`folded`] adds their halves (RFC 1071 §2(C)).
#[inline]
pub(crate) fn sum(piece: &[u8]) -> u64 {
    let mut words = piece.chunks_exact(4);
    let mut sum = 0;
    for word in &mut words {
        sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    sum + match *words.remainder() {
        [a, b, c] => u64::from(u32::from_be_bytes([a, b, c, 0])),
        [a, b] => u64::from(u16::from_be_bytes([a, b])),
        [a] => u64::from(u16::from_be_bytes([a, 0])),
        _ => 0,
    }
}

/// Folds a sum below 2⁴⁸, as that of any frame is, into 16 bits in ones' complement.
#[inline]
pub(crate) fn folded(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// Completes a TCP or UDP checksum that so far holds only the sum of the pseudo header. Returns whether it did. Linux
/// leaves the rest to the outgoing device (`CHECKSUM_PARTIAL`, include/linux/skbuff.h), and virtual devices leave it
/// undone, since their frames never leave memory. Any other checksum stays as it is, right or wrong.
pub fn complete_checksum(frame: &mut [u8]) -> bool {
    unfinished(frame).is_some_and(|(at, whole)| {
        frame[at..at + 2].copy_from_slice(&whole.to_be_bytes());
        true
    })
}

/// Offset of an unfinished checksum, and its final value.
fn unfinished(frame: &[u8]) -> Option<(usize, u16)> {
    let Summed { ip, at, segment, pseudo } = Summed::of(frame).filter(|of| matches!(of.ip.protocol, TCP | UDP))?;
    let found = u16::from_be_bytes([frame[at], frame[at + 1]]);
    if found != !pseudo {
        return None;
    }
    let whole = unlike_none(&ip, internet_checksum(&[segment]));
    // One finished checksum in 65 536 equals the sum of its pseudo header.
    (whole != found).then_some((at, whole))
}

/// What a transport checksum covers.
struct Summed<'f> {
    ip: IpHeader,
    /// Offset of the checksum.
    at: usize,
    segment: &'f [u8],
    /// Checksum of the pseudo header alone.
    pseudo: u16,
}

impl Summed<'_> {
    /// `None` without a transport checksum, or if part of what it covers is missing.
    fn of(frame: &[u8]) -> Option<Summed<'_>> {
        let ip = Headers::of(frame)?.ip.filter(|ip| !ip.fragment)?;
        let (at, addresses) = (transport_checksum(&ip, frame)?, ip.both_addresses(frame)?);
        let segment = frame.get(ip.transport?..ip.end).filter(|_| at + 2 <= ip.end)?;
        let rest = segment.len() as u64 + u64::from(ip.protocol);
        Some(Summed { ip, at, segment, pseudo: !folded(sum(addresses) + rest) })
    }
}

/// In UDP, 0 means no checksum, and a computed zero is sent as all ones (RFC 768).
#[inline]
pub(crate) fn unlike_none(ip: &IpHeader, sum: u16) -> u16 {
    if sum == 0 && ip.protocol == UDP { 0xffff } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use crate::template::Template;
    use proptest::prelude::*;

    /// A frame with a correct checksum, the offset of that checksum, and the sum of its pseudo header.
    fn frame(protocol: Protocol, v6: bool, payload: &[u8]) -> (Vec<u8>, usize, u16) {
        let headers = protocol.headers(v6, 1);
        let mut frame = vec![0; headers.len() + payload.len()];
        let mut template = Template::made(headers, payload, frame.len());
        template.write(template.sums(), 0, &mut frame);
        let ip = Headers::of(&frame).and_then(|headers| headers.ip).expect("IP");
        let (source, destination) = ip.addresses(&frame).expect("whole");
        let length = ((ip.end - ip.transport.expect("a transport")) as u16).to_be_bytes();
        let pseudo = !internet_checksum(&[source, destination, &length, &[0, ip.protocol]]);
        let at = transport_checksum(&ip, &frame).expect("one with a checksum");
        (frame, at, pseudo)
    }

    proptest! {
        #[test]
        fn what_a_device_would_have_completed_is_completed(v6: bool, udp: bool, payload in prop::collection::vec(any::<u8>(), 1..1_400)) {
            let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
            let (right, at, pseudo) = frame(protocol, v6, &payload);
            let mut left = right.clone();
            left[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
            prop_assert_eq!(complete_checksum(&mut left), left[at..at + 2] != pseudo.to_be_bytes());
            prop_assert_eq!(&left, &right);
            prop_assert!(!complete_checksum(&mut left), "whole ones are left alone");
        }
    }

    #[test]
    fn a_wrong_or_absent_checksum_stays() {
        let (right, at, pseudo) = frame(Protocol::Udp, false, b"hello");
        for field in [0, pseudo ^ 0x0100, 0xffff] {
            let mut changed = right.clone();
            changed[at..at + 2].copy_from_slice(&field.to_be_bytes());
            let before = changed.clone();
            assert!(!complete_checksum(&mut changed));
            assert_eq!(changed, before);
        }
        let mut cut = right;
        cut[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        for length in 0..cut.len() - 1 {
            assert!(!complete_checksum(&mut cut[..length]), "{length} B");
        }
    }

    #[test]
    fn agrees_with_the_example_of_rfc_1071() {
        // RFC 1071 §3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&[&bytes]), !0xddf2);
        assert_eq!(internet_checksum(&[&bytes[..4], &bytes[4..]]), !0xddf2);
        assert_eq!(internet_checksum(&[&[0x12]]), !0x1200);
    }
}

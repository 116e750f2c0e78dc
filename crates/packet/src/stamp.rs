use crate::checksum::folded;
use crate::headers::Headers;
use crate::layers::{ICRC, LayerKind, Layers, keep_crcs};

/// Identifies a generated frame: 18 bytes that a receiver can find again.
///
/// ```text
/// 0      2            4        6           10                 18
/// | 6e4c | complement | stream | sequence  | departure, UNIX ns |    all big-endian
/// ```
///
/// The stamp ends where the innermost IP packet ends (before the ICRC of RoCE), or where the frame (without FCS) ends
/// if it has no IP packet. The *complement* makes the ones' complement sum of the stamp zero, as RFC 7820 does for
/// OWAMP. So the content of the stamp does not change the checksums over it, at any offset, and a receiver mistakes
/// other bytes for a stamp only once in 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the stream.
    pub stream: u16,
    /// Number of the frame in its stream, from 0; wraps after 2³² frames.
    pub sequence: u32,
    /// Departure, in nanoseconds since the UNIX epoch.
    pub time_ns: u64,
}

/// "nL".
const MAGIC: u16 = 0x6e4c;

impl Stamp {
    /// Length in bytes.
    pub const LENGTH: usize = 18;

    /// Writes the stamp over the last bytes of `content`, which ends where the IP packet or the frame ends. Writes
    /// nothing if `content` is too short.
    #[inline]
    pub fn write(self, content: &mut [u8]) {
        let Some(place) = content.last_chunk_mut::<{ Self::LENGTH }>() else { return };
        let mut bytes = [0; Self::LENGTH];
        bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.stream.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[10..].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes[2..4].copy_from_slice(&(!folded(self.sum())).to_be_bytes());
        *place = bytes;
    }

    /// Finds the stamp of a frame (without FCS), if it has one, even if padding or a trailer follows the IP packet.
    #[must_use]
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Stamp> {
        Stamp::find(frame).map(|(stamp, _)| stamp)
    }

    /// As [`of`](Stamp::of), with the offset of the stamp's end.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<(Stamp, usize)> {
        let behind = |end: usize| Stamp::at_end(&frame[..end]).map(|stamp| (stamp, end));
        behind(frame.len()).or_else(|| {
            let headers = Headers::of(frame)?;
            let end = headers.ip.map(|ip| ip.end).filter(|end| *end < frame.len());
            // A device may have put the frame into a tunnel, with padding or a trailer inside.
            let inner = || headers.may_hold_more(frame).then(|| Layers::of(frame));
            let ends = |layers: Layers| {
                layers.all().iter().rev().find_map(|layer| match layer.kind {
                    LayerKind::Roce => behind((layer.end as usize).saturating_sub(ICRC)),
                    _ => behind(layer.end as usize),
                })
            };
            end.and_then(behind).or_else(|| ends(inner()?))
        })
    }

    /// Sets the departure time of a frame, if it is stamped.
    #[inline]
    pub fn set_time(frame: &mut [u8], time_ns: u64) {
        if let Some((stamp, end)) = Stamp::find(frame) {
            Stamp { time_ns, ..stamp }.put(frame, end);
        }
    }

    /// Writes the stamp over the one that ends at `end`, and keeps CRCs correct: a stamp sums to zero, but its CRC is
    /// not zero.
    #[inline]
    pub fn put(self, frame: &mut [u8], end: usize) {
        keep_crcs(frame, |frame| self.write(&mut frame[..end]));
    }

    /// Sets the departure time in a stamp without one, at the end of `content`. The caller has just written the stamp
    /// there, so there is no search or check.
    #[inline]
    pub fn set_first_time(content: &mut [u8], time_ns: u64) {
        let Some(place) = content.last_chunk_mut::<{ Self::LENGTH }>() else { return };
        // The complement loses what the time adds to the sum (RFC 1624).
        let rest = u64::from(!u16::from_be_bytes([place[2], place[3]]));
        place[2..4].copy_from_slice(&(!folded(rest + halves(time_ns))).to_be_bytes());
        place[10..].copy_from_slice(&time_ns.to_be_bytes());
    }

    #[inline]
    fn at_end(content: &[u8]) -> Option<Stamp> {
        let [m0, m1, c0, c1, s0, s1, n0, n1, n2, n3, time @ ..] = *content.last_chunk::<{ Self::LENGTH }>()?;
        if u16::from_be_bytes([m0, m1]) != MAGIC {
            return None;
        }
        let stamp = Stamp {
            stream: u16::from_be_bytes([s0, s1]),
            sequence: u32::from_be_bytes([n0, n1, n2, n3]),
            time_ns: u64::from_be_bytes(time),
        };
        let complement = u16::from_be_bytes([c0, c1]);
        (folded(stamp.sum() + u64::from(complement)) == 0xffff).then_some(stamp)
    }

    /// Sum of its words without the complement.
    #[inline]
    fn sum(self) -> u64 {
        u64::from(MAGIC) + u64::from(self.stream) + halves(self.sequence.into()) + halves(self.time_ns)
    }
}

/// The sum of the 16-bit words of a number.
fn halves(number: u64) -> u64 {
    (number >> 48) + (number >> 32 & 0xffff) + (number >> 16 & 0xffff) + (number & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::internet_checksum;

    const STAMP: Stamp = Stamp { stream: 0xfffe, sequence: 0xffff_ffff, time_ns: 1_795_282_352_123_456_789 };

    #[test]
    fn is_found_at_the_end_and_before_padding() {
        let mut frame = vec![0xaa; 60];
        STAMP.write(&mut frame);
        assert_eq!(Stamp::of(&frame), Some(STAMP));
        assert_eq!(Stamp::of(&frame[..59]), None);

        // An IPv4 packet of 40 bytes, followed by 6 bytes of padding.
        let mut padded = vec![0; 60];
        padded[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0x00, 0x00, 0x28]);
        STAMP.write(&mut padded[..54]);
        assert_eq!(Stamp::of(&padded), Some(STAMP));
        Stamp::set_time(&mut padded, 5);
        assert_eq!(Stamp::of(&padded), Some(Stamp { time_ns: 5, ..STAMP }));
    }

    /// A device that adds or removes a tunnel may pad the inner frame, or the outer one.
    #[test]
    fn is_found_in_tunnels() {
        use crate::layers::{LayerKind, stack};
        use LayerKind::{Ethernet, Geneve, Gre, Gtpu, Ipv4, Ipv6, Mpls, Pppoe, Udp, Vlan, Vxlan};
        let mut payload = [0xaa; 24];
        STAMP.write(&mut payload);
        for kinds in [
            &[Ethernet, Ipv4, Udp][..],
            &[Ethernet, Vlan, Pppoe, Ipv4, Udp],
            &[Ethernet, Mpls, Ipv6, Udp],
            &[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Udp],
            &[Ethernet, Ipv6, Udp, Geneve, Ethernet, Ipv4, Udp],
            &[Ethernet, Ipv4, Udp, Gtpu, Ipv4, Udp],
            &[Ethernet, Ipv4, Gre, Ethernet, Ipv4, Udp],
        ] {
            let plain = stack(kinds, &payload).expect("a stack");
            assert_eq!(Stamp::of(&plain), Some(STAMP), "{kinds:?}");
            // Six bytes after the inner packet, and six after the outer one.
            let inner = [&plain[..], &[0; 6]].concat();
            assert_eq!(Stamp::of(&inner), Some(STAMP), "{kinds:?} padded");
            let Some(carried) = kinds.iter().rposition(|kind| *kind == Ethernet).filter(|at| *at > 0) else { continue };
            let within = [&stack(&kinds[carried..], &payload).expect("a stack")[..], &[0; 6]].concat();
            let mut frame = [stack(&kinds[..carried], &within).expect("a stack"), vec![0; 6]].concat();
            if kinds[carried - 1] == Gre {
                frame[36..38].copy_from_slice(&[0x65, 0x58]);
            }
            assert_eq!(Stamp::of(&frame), Some(STAMP), "{kinds:?} padded within");
        }
    }

    #[test]
    fn a_first_time_is_the_same_as_a_stamp_with_it() {
        for time_ns in [0, 1, 0xffff, 0x1_0000, u64::MAX, STAMP.time_ns] {
            for sequence in [0, 1, 0xffff_ffff] {
                let stamp = Stamp { sequence, ..STAMP };
                let (mut frame, mut whole) = (vec![0xaa; 60], vec![0xaa; 60]);
                Stamp { time_ns: 0, ..stamp }.write(&mut frame);
                Stamp::set_first_time(&mut frame, time_ns);
                Stamp { time_ns, ..stamp }.write(&mut whole);
                assert_eq!(frame, whole, "{sequence} at {time_ns}");
            }
        }
    }

    #[test]
    fn changes_no_checksum_at_any_offset() {
        for length in [40, 41] {
            let mut bytes = vec![0x5a; length];
            bytes[length - Stamp::LENGTH..].fill(0);
            let before = internet_checksum(&[&bytes]);
            for time_ns in [0, 1, 0xffff, u64::MAX, 1_795_282_352_123_456_789] {
                Stamp { time_ns, ..STAMP }.write(&mut bytes);
                assert_eq!(internet_checksum(&[&bytes]), before, "{length} B, {time_ns}");
            }
        }
    }

    #[test]
    fn chance_is_no_stamp() {
        let mut frame = vec![0; 60];
        STAMP.write(&mut frame);
        for byte in 42..60 {
            for bit in 0..8 {
                let mut wrong = frame.clone();
                wrong[byte] ^= 1 << bit;
                assert_eq!(Stamp::of(&wrong), None, "byte {byte}, bit {bit}");
            }
        }
        for length in 0..60 {
            assert_eq!(Stamp::of(&vec![0x6e; length]), None);
        }
    }
}

use crate::random::Random;
use crate::stages::Change;
use measure::Effect;
use packet::NoPayload;

/// How frames are corrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Inverts one bit, anywhere in the frame, as netem does. Any checksum detects it.
    #[default]
    Bit,
    /// Replaces one byte, anywhere in the frame.
    Byte,
    /// Changes two words of the payload, so that every Internet checksum stays valid.
    ChecksumValid,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Bit, Mode::Byte, Mode::ChecksumValid];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Bit => "bit",
            Mode::Byte => "byte",
            Mode::ChecksumValid => "checksum-valid",
        }
    }

    /// A random change of this frame, or why there is none in this mode.
    pub(super) fn draw(self, frame: &[u8], random: &mut Random) -> Result<Change, Untouchable> {
        if frame.is_empty() {
            return Err(Untouchable::NoPayload(NoPayload::NoIp));
        }
        match self {
            Mode::Bit => {
                let bit = random.below(frame.len() as u64 * 8);
                Ok(Change::Flip { at: (bit / 8) as u32, mask: 1 << (bit % 8) })
            }
            Mode::Byte => {
                let at = random.below(frame.len() as u64) as u32;
                Ok(Change::Flip { at, mask: 1 + random.below(255) as u8 })
            }
            Mode::ChecksumValid => undetected(frame, random),
        }
    }
}

/// Why a frame has no change that all its checksums miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untouchable {
    NoPayload(NoPayload),
    /// Its payload is shorter than two words of 16 bits.
    Short,
}

impl Untouchable {
    /// The effect under which reports count it.
    pub(super) fn effect(self) -> Effect {
        match self {
            Untouchable::NoPayload(NoPayload::NoIp) => Effect::NoIp,
            Untouchable::NoPayload(NoPayload::Fragment) => Effect::Fragment,
            Untouchable::NoPayload(NoPayload::NoTransport) => Effect::NoTransport,
            Untouchable::Short => Effect::Short,
        }
    }
}

/// Swaps two different words of the innermost payload. If all words are equal, raises one and lowers another, or
/// inverts a single word of all zeros or all ones. Each keeps the sum (RFC 1071) of every layer: every checksummed part
/// starts at an even offset from both words, or at an odd offset from both.
fn undetected(frame: &[u8], random: &mut Random) -> Result<Change, Untouchable> {
    let payload = packet::innermost_payload(frame).map_err(Untouchable::NoPayload)?;
    let words = payload.len() as u64 / 2;
    let offset = |word: u64| payload.start + 2 * word as usize;
    let value = |word: u64| &frame[offset(word)..offset(word) + 2];
    if words < 2 {
        let is_zero = words == 1 && (value(0) == [0, 0] || value(0) == [0xff, 0xff]);
        return if is_zero { Ok(Change::Zero { at: offset(0) as u32 }) } else { Err(Untouchable::Short) };
    }
    let (a, from) = (random.below(words), random.below(words));
    let other = (0..words).map(|step| (from + step) % words).find(|b| value(*b) != value(a));
    Ok(match other {
        Some(b) => Change::Swap { a: offset(a) as u32, b: offset(b) as u32 },
        None => {
            let b = (a + 1 + random.below(words - 1)) % words;
            Change::Shift { a: offset(a) as u32, b: offset(b) as u32, by: 1 + random.below(0xfffe) as u16 }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Frame, HeapFrame, internet_checksum};

    /// An IPv4 packet of this protocol around `payload`, with valid checksums.
    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut transport = match protocol {
            6 => vec![0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0],
            _ => [&[0x04, 0xd2, 0, 0x35][..], &(8 + payload.len() as u16).to_be_bytes(), &[0, 0]].concat(),
        };
        transport.extend(payload);
        let at = if protocol == 6 { 16 } else { 6 };
        let sum = transport_sum(protocol, &transport);
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let mut ip = vec![0x45, 0x01, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip[2..4].copy_from_slice(&(20 + transport.len() as u16).to_be_bytes());
        let sum = internet_checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        [&[2; 12][..], &[8, 0], &ip, &transport].concat()
    }

    fn transport_sum(protocol: u8, transport: &[u8]) -> u16 {
        let pseudo = [&[10, 0, 0, 1, 10, 0, 0, 2, 0, protocol][..], &(transport.len() as u16).to_be_bytes()].concat();
        internet_checksum(&[&pseudo, transport])
    }

    #[test]
    fn effect_checksums_stay_valid_and_the_payload_changes() {
        let mut random = Random::stream(1, "test");
        for protocol in [6, 17] {
            for length in [4, 5, 9, 1_000] {
                let payload: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
                let before = packet(protocol, &payload);
                for _ in 0..200 {
                    let mut frame = HeapFrame::new(before.clone());
                    Mode::ChecksumValid.draw(&before, &mut random).expect("a change").apply(&mut frame);
                    assert_ne!(frame.bytes(), before);
                    assert_eq!(transport_sum(protocol, &frame.bytes()[34..]), 0, "{protocol} {length}");
                }
            }
        }
    }

    #[test]
    fn effect_inner_and_outer_checksums_stay_valid() {
        use LayerKind::{Ethernet, Geneve, Gre, Gtpu, Ipv4, Ipv6, L2tp3, Mpls, Pppoe, Routing, Tcp, Udp, Vxlan};
        use packet::layers::{LayerKind, Layers, checksum_is_right, make_checksums_right, stack};
        let mut random = Random::stream(1, "test");
        for kinds in [
            &[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Tcp][..],
            &[Ethernet, Ipv6, Udp, Gtpu, Ipv4, Udp],
            &[Ethernet, Ipv4, Udp, Geneve, Ethernet, Pppoe, Ipv6, Tcp],
            &[Ethernet, Mpls, Mpls, Ethernet, Ipv4, Udp],
            &[Ethernet, Ipv4, L2tp3, Ethernet, Ipv4, Udp],
            &[Ethernet, Ipv6, Routing, Ipv4, Gre, Ipv4, Udp],
        ] {
            for payload in [(0..99).collect::<Vec<u8>>(), vec![7; 99], vec![0; 4]] {
                let mut before = stack(kinds, &payload).expect("a stack");
                let layers = Layers::of(&before);
                // The outer datagram also has a checksum, which covers the inner payload.
                if let Some(udp) = layers.all().iter().find(|layer| layer.kind == Udp) {
                    before[udp.start as usize + 6] = 1;
                }
                make_checksums_right(&mut before, &layers);
                for _ in 0..50 {
                    let mut frame = HeapFrame::new(before.clone());
                    Mode::ChecksumValid.draw(&before, &mut random).expect("a change").apply(&mut frame);
                    let content = layers.last().expect("layers").content as usize;
                    assert_eq!(frame.bytes()[..content], before[..content], "headers stay");
                    assert_ne!(frame.bytes(), before);
                    let sums = (0..kinds.len()).map(|of| checksum_is_right(frame.bytes(), &layers, of));
                    let sums: Vec<_> = sums.collect();
                    assert!(!sums.contains(&Some(false)), "{kinds:?} {sums:?}");
                }
            }
        }
    }

    #[test]
    fn leaves_frames_that_cannot_be_changed_undetected() {
        let mut random = Random::stream(1, "test");
        let mut draw = |bytes: &[u8]| Mode::ChecksumValid.draw(bytes, &mut random);
        let no_payload = |why| Err(Untouchable::NoPayload(why));
        assert_eq!(draw(&packet(17, &[1, 2, 3])), Err(Untouchable::Short), "one whole word");
        assert_eq!(draw(&packet(17, &[])), Err(Untouchable::Short));
        assert_eq!(draw(&packet(1, &[1, 2, 3, 4])), no_payload(NoPayload::NoTransport), "ICMP");
        assert_eq!(draw(&[2; 60]), no_payload(NoPayload::NoIp));
        let mut fragment = packet(17, &[1, 2, 3, 4]);
        fragment[20] = 0x20;
        assert_eq!(draw(&fragment), no_payload(NoPayload::Fragment));
        assert!(draw(&packet(17, &[1, 2, 3, 4])).is_ok());
    }

    #[test]
    fn effect_on_constant_payloads_is_undetected() {
        let mut random = Random::stream(1, "test");
        for protocol in [6, 17] {
            for (byte, length) in [(0, 4), (0, 1_000), (0xff, 5), (7, 100), (0xff, 1_000), (0, 2), (0xff, 3)] {
                let before = packet(protocol, &vec![byte; length]);
                let mut seen = std::collections::HashSet::new();
                for _ in 0..200 {
                    let mut frame = HeapFrame::new(before.clone());
                    Mode::ChecksumValid.draw(&before, &mut random).expect("a change").apply(&mut frame);
                    assert_ne!(frame.bytes(), before, "{byte} {length}");
                    assert_eq!(transport_sum(protocol, &frame.bytes()[34..]), 0, "{protocol} {byte} {length}");
                    seen.insert(frame.bytes().to_vec());
                }
                assert!(seen.len() > 100 || length < 4, "{} different frames", seen.len());
            }
        }
    }

    #[test]
    fn effect_on_tunnels_keeps_inner_and_outer_checksums_valid() {
        let mut random = Random::stream(1, "test");
        for payload in [vec![9; 64], (0..64).collect()] {
            // VXLAN and GTP-U, with a checksum in the outer UDP header.
            let inner = packet(6, &payload);
            let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &inner].concat();
            let gtp = [&[0x30, 255, 0, 0, 0, 0, 0, 1][..], &inner[14..]].concat();
            for (port, tunnel) in [(4_789_u16, vxlan), (2_152, gtp)] {
                let ethernet = if port == 4_789 { 14 } else { 0 };
                let mut before = packet(17, &tunnel);
                before[36..38].copy_from_slice(&port.to_be_bytes());
                before[40..42].fill(0);
                let sum = transport_sum(17, &before[34..]);
                before[40..42].copy_from_slice(&sum.to_be_bytes());
                for _ in 0..100 {
                    let mut frame = HeapFrame::new(before.clone());
                    Mode::ChecksumValid.draw(&before, &mut random).expect("a change").apply(&mut frame);
                    assert_eq!(transport_sum(17, &frame.bytes()[34..]), 0, "outer, {port}");
                    let start = 50 + ethernet + 20;
                    assert_eq!(transport_sum(6, &frame.bytes()[start..]), 0, "inner, {port}");
                    assert_eq!(frame.bytes()[..start + 20], before[..start + 20], "headers");
                    assert_ne!(frame.bytes(), before);
                }
            }
        }
    }

    #[test]
    fn bit_mode_inverts_one_bit_anywhere() {
        let mut random = Random::stream(1, "test");
        let mut seen = vec![0_u32; 60 * 8];
        for _ in 0..60_000 {
            let Ok(Change::Flip { at, mask }) = Mode::Bit.draw(&[0; 60], &mut random) else { panic!("a flip") };
            assert_eq!(mask.count_ones(), 1);
            seen[at as usize * 8 + mask.trailing_zeros() as usize] += 1;
        }
        // Five standard deviations of a binomial with n = 60 000, p = 1/480: 56.
        assert!(seen.iter().all(|n| n.abs_diff(125) < 56), "{seen:?}");
    }
}

use crate::random::Random;
use crate::stages::Change;
use packet::Headers;

/// How frames are corrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Inverts one bit, anywhere in the frame, as netem does. Any checksum detects it.
    #[default]
    Bit,
    /// Replaces one byte, anywhere in the frame.
    Byte,
    /// Swaps two words of the payload, so that the Internet checksum stays valid.
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

    /// A random change of this frame; `None` if this mode allows none.
    pub(super) fn draw(self, frame: &[u8], random: &mut Random) -> Option<Change> {
        if frame.is_empty() {
            return None;
        }
        match self {
            Mode::Bit => {
                let bit = random.below(frame.len() as u64 * 8);
                Some(Change::Flip { at: (bit / 8) as u32, mask: 1 << (bit % 8) })
            }
            Mode::Byte => {
                let at = random.below(frame.len() as u64) as u32;
                Some(Change::Flip { at, mask: 1 + random.below(255) as u8 })
            }
            Mode::ChecksumValid => swap(frame, random),
        }
    }
}

/// Two different words of the payload, chosen at random. Swapping them keeps the sum (RFC 1071) if both are aligned
/// words of the checksum, that is, if the payload starts at an even offset of the checksummed part.
fn swap(frame: &[u8], random: &mut Random) -> Option<Change> {
    let headers = Headers::of(frame)?;
    if headers.ip?.fragment {
        return None;
    }
    let payload = headers.payload(frame)?;
    let words = payload.len() as u64 / 2;
    if words < 2 {
        return None;
    }
    let place = |word: u64| payload.start + 2 * word as usize;
    let value = |word: u64| &frame[place(word)..place(word) + 2];
    let (a, from) = (random.below(words), random.below(words));
    let b = (0..words).map(|step| (from + step) % words).find(|b| value(*b) != value(a))?;
    Some(Change::Swap { a: place(a) as u32, b: place(b) as u32 })
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
    fn leaves_frames_that_cannot_be_changed_undetected() {
        let mut random = Random::stream(1, "test");
        let mut draw = |bytes: &[u8]| Mode::ChecksumValid.draw(bytes, &mut random);
        assert_eq!(draw(&packet(17, &[7; 100])), None, "all words are alike");
        assert_eq!(draw(&packet(17, &[1, 2, 3])), None, "one whole word");
        assert_eq!(draw(&packet(1, &[1, 2, 3, 4])), None, "ICMP");
        let mut fragment = packet(17, &[1, 2, 3, 4]);
        fragment[20] = 0x20;
        assert_eq!(draw(&fragment), None);
        assert!(draw(&packet(17, &[1, 2, 3, 4])).is_some());
    }

    #[test]
    fn bit_mode_inverts_one_bit_anywhere() {
        let mut random = Random::stream(1, "test");
        let mut seen = vec![0_u32; 60 * 8];
        for _ in 0..60_000 {
            let Some(Change::Flip { at, mask }) = Mode::Bit.draw(&[0; 60], &mut random) else { panic!("a flip") };
            assert_eq!(mask.count_ones(), 1);
            seen[at as usize * 8 + mask.trailing_zeros() as usize] += 1;
        }
        // Five standard deviations of a binomial with n = 60 000, p = 1/480: 56.
        assert!(seen.iter().all(|n| n.abs_diff(125) < 56), "{seen:?}");
    }
}

/// The Internet checksum (RFC 1071) over several pieces, each but the last of even length.
#[must_use]
pub fn internet_checksum(pieces: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for piece in pieces {
        let mut words = piece.chunks_exact(2);
        for word in &mut words {
            sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [last] = words.remainder() {
            sum += u64::from(*last) << 8;
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_example_of_rfc_1071() {
        // RFC 1071 §3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&[&bytes]), !0xddf2);
        assert_eq!(internet_checksum(&[&bytes[..4], &bytes[4..]]), !0xddf2);
        assert_eq!(internet_checksum(&[&[0x12]]), !0x1200);
    }
}

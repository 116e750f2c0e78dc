const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;

/// Length in bytes of the IPv4 or IPv6 packet in a frame, by its own header; behind up to two VLAN
/// tags. `None` when the frame holds no IP packet or is cut before the length.
#[must_use]
pub fn ip_length(frame: &[u8]) -> Option<u32> {
    let mut at = ETHERNET;
    for _ in 0..3 {
        let ether_type = frame.get(at - 2..at)?;
        match ether_type {
            [0x81, 0x00] | [0x88, 0xa8] => at += VLAN_TAG,
            [0x08, 0x00] => return be16(frame, at + 2),
            [0x86, 0xdd] => return Some(40 + be16(frame, at + 4)?),
            _ => return None,
        }
    }
    None
}

fn be16(frame: &[u8], at: usize) -> Option<u32> {
    let bytes = frame.get(at..at + 2)?;
    Some(u32::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_packet_behind_tags() {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[16..18].copy_from_slice(&[0x00, 0x2e]);
        assert_eq!(ip_length(&frame), Some(46));

        let mut tagged = vec![0; 64];
        tagged[12..14].copy_from_slice(&[0x81, 0x00]);
        tagged[16..18].copy_from_slice(&[0x86, 0xdd]);
        tagged[22..24].copy_from_slice(&[0x00, 0x10]);
        assert_eq!(ip_length(&tagged), Some(56));
    }

    #[test]
    fn never_panics_on_short_or_odd_frames() {
        for length in 0..40 {
            assert_eq!(ip_length(&vec![0x81; length]), None);
        }
        let arp = [[0; 12].as_slice(), &[0x08, 0x06], &[0; 46]].concat();
        assert_eq!(ip_length(&arp), None);
    }
}

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

/// A number that the frames of one flow share: of addresses and ports behind up to two VLAN tags, of
/// the hardware addresses where there is no IP packet. Fragments count by their addresses alone.
/// Not for tables that an enemy may fill: it is FNV-1a without a key.
#[must_use]
pub fn flow_hash(frame: &[u8]) -> u32 {
    let hash = |seed: u32, bytes: &[u8]| {
        bytes.iter().fold(seed, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    };
    const SEED: u32 = 0x811c_9dc5;
    let mut at = ETHERNET;
    for _ in 0..3 {
        match frame.get(at - 2..at) {
            Some([0x81, 0x00] | [0x88, 0xa8]) => at += VLAN_TAG,
            Some([0x08, 0x00]) if frame.len() >= at + 20 => {
                let addresses = hash(SEED, &frame[at + 12..at + 20]);
                let header = usize::from(frame[at] & 0x0f) * 4;
                let whole = frame[at + 6] & 0x3f == 0 && frame[at + 7] == 0;
                let ports =
                    frame.get(at + header..at + header + 4).filter(|_| whole && matches!(frame[at + 9], 6 | 17));
                return hash(addresses, ports.unwrap_or_default());
            }
            Some([0x86, 0xdd]) if frame.len() >= at + 40 => {
                let addresses = hash(SEED, &frame[at + 8..at + 40]);
                let ports = frame.get(at + 40..at + 44).filter(|_| matches!(frame[at + 6], 6 | 17));
                return hash(addresses, ports.unwrap_or_default());
            }
            _ => break,
        }
    }
    hash(SEED, frame.get(..12).unwrap_or(frame))
}

fn be16(frame: &[u8], at: usize) -> Option<u32> {
    let bytes = frame.get(at..at + 2)?;
    Some(u32::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_share_a_hash_and_ports_part_them() {
        let frame = |port: u8, fragment: u8| {
            let mut frame = vec![0; 60];
            frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
            (frame[20], frame[23], frame[37]) = (fragment, 17, port);
            frame
        };
        assert_eq!(flow_hash(&frame(1, 0)), flow_hash(&frame(1, 0)));
        assert_ne!(flow_hash(&frame(1, 0)), flow_hash(&frame(2, 0)));
        assert_eq!(flow_hash(&frame(1, 0x20)), flow_hash(&frame(2, 0x20)), "fragments have no ports");
        for length in 0..60 {
            assert_eq!(flow_hash(&frame(1, 0)[..length]), flow_hash(&frame(1, 0)[..length]), "no panic at {length} B");
        }
    }

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

use crate::Headers;

/// Sets the DSCP of an IP packet (RFC 2474) and updates the IPv4 header checksum. Returns false if the frame has no IP
/// packet.
pub fn set_dscp(frame: &mut [u8], headers: &Headers, dscp: u8) -> bool {
    rewrite(frame, headers, |class| class & 0x03 | dscp << 2)
}

/// Marks an ECN-capable packet as Congestion Experienced (RFC 3168). Returns false, and changes nothing, if the frame
/// has no IP packet or its sender is not ECN-capable.
pub fn set_congestion(frame: &mut [u8], headers: &Headers) -> bool {
    headers.ip.is_some_and(|ip| ip.traffic_class & 0x03 != 0) && rewrite(frame, headers, |class| class | 0x03)
}

fn rewrite(frame: &mut [u8], headers: &Headers, change: impl Fn(u8) -> u8) -> bool {
    let Some(ip) = headers.ip else { return false };
    let new = change(ip.traffic_class);
    match (ip.version, frame.get_mut(ip.start..ip.start + 12)) {
        (4, Some(header)) => {
            // RFC 1624, equation 3: only one 16-bit word of the header changes.
            let old = u16::from_be_bytes([header[0], header[1]]);
            header[1] = new;
            let word = u16::from_be_bytes([header[0], new]);
            let checksum = u16::from_be_bytes([header[10], header[11]]);
            let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(word);
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            true
        }
        (6, Some(header)) => {
            header[0] = header[0] & 0xf0 | new >> 4;
            header[1] = header[1] & 0x0f | new << 4;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::internet_checksum;

    fn v4(class: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00, 0x45, class, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = internet_checksum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    #[test]
    fn marking_keeps_the_ipv4_checksum_valid() {
        for class in 0..=255 {
            for dscp in [0, 12, 14, 63] {
                let mut frame = v4(class);
                let headers = Headers::of(&frame).expect("headers");
                assert!(set_dscp(&mut frame, &headers, dscp));
                assert_eq!(frame, v4(dscp << 2 | class & 3), "{class} {dscp}");
            }
            let mut frame = v4(class);
            let headers = Headers::of(&frame).expect("headers");
            let marked = set_congestion(&mut frame, &headers);
            assert_eq!((marked, frame), (class & 3 != 0, v4(if class & 3 == 0 { class } else { class | 3 })));
        }
    }

    #[test]
    fn ipv6_keeps_its_version_and_flow_label() {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x6a, 0xbc, 0xde, 0xf0, 0, 0, 59, 64]);
        frame.extend([0; 32]);
        let headers = Headers::of(&frame).expect("headers");
        assert!(set_dscp(&mut frame, &headers, 46));
        assert_eq!(frame[14..18], [0x6b, 0xbc, 0xde, 0xf0], "the ECN bits were 3");
        let arp = [&[2; 12][..], &[0x08, 0x06], &[0; 46]].concat();
        let headers = Headers::of(&arp).expect("headers");
        assert!(!set_dscp(&mut arp.clone(), &headers, 46));
    }
}

use crate::mac::MacAddr;
use units::FrameLen;

/// Kind of filler frame, which determines the device that drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillerKind {
    /// Destination and source are the same address: the first learning switch sees that the frame is already on the
    /// port of its destination, and drops it.
    Own,
    /// To an address that a switch is configured to discard (LightShaper §2.3).
    BlackHole(MacAddr),
    /// A MAC control frame (IEEE 802.3 clause 31) with an unassigned opcode: consumed by the receiving MAC.
    MacControl,
}

/// Source address of fillers: a locally administered address that no device has.
const FILLER_SOURCE: MacAddr = MacAddr([0x02, 0x6e, 0x6c, 0x00, 0x00, 0xf1]);
/// Destination address of MAC control frames.
const MAC_CONTROL: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
/// IEEE 802 local experimental EtherType 1.
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

impl FillerKind {
    /// Writes a filler of `length` into `buffer` (cleared first), without FCS.
    pub fn write(self, buffer: &mut Vec<u8>, length: FrameLen) {
        let (destination, kind): (_, &[u8]) = match self {
            FillerKind::Own => (FILLER_SOURCE, &EXPERIMENTAL),
            FillerKind::BlackHole(hole) => (hole, &EXPERIMENTAL),
            // Opcode ffff is unassigned.
            FillerKind::MacControl => (MAC_CONTROL, &[0x88, 0x08, 0xff, 0xff]),
        };
        buffer.clear();
        buffer.extend_from_slice(&destination.0);
        buffer.extend_from_slice(&FILLER_SOURCE.0);
        buffer.extend_from_slice(kind);
        buffer.resize(length.without_fcs() as usize, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_matches_its_discarder() {
        let mut frame = Vec::new();
        FillerKind::Own.write(&mut frame, FrameLen::MIN);
        assert_eq!((frame.len(), &frame[..6]), (60, &frame[6..12]));
        FillerKind::MacControl.write(&mut frame, FrameLen::MAX_STANDARD);
        assert_eq!((frame.len(), &frame[12..14]), (1514, &[0x88, 0x08][..]));
        let hole = MacAddr([2, 0, 0, 0, 0, 0xff]);
        FillerKind::BlackHole(hole).write(&mut frame, FrameLen::MIN);
        assert_eq!(&frame[..6], &hole.0);
        assert_eq!(&frame[6..12], &FILLER_SOURCE.0);
    }
}

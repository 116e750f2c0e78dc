//! What stands before the packet in a record of a capture, and how the packet becomes an Ethernet frame.

use packet::{Frame, HeapFrame};
use pcap_file::DataLink;

/// Destination and source of a header that is made: locally administered, as those of streams are.
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A link type (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// 1: an Ethernet frame.
    Ethernet,
    /// 101, 228 and 229: a packet of IP alone, as of tunnels.
    Raw,
    /// 113: Linux' "cooked" header, as of `tcpdump -i any`.
    Cooked,
    /// 276: its second version.
    Cooked2,
}

impl Link {
    /// `None` for one that is not read.
    pub(crate) fn of(link: DataLink) -> Option<Link> {
        match u32::from(link) {
            1 => Some(Link::Ethernet),
            101 | 228 | 229 => Some(Link::Raw),
            113 => Some(Link::Cooked),
            276 => Some(Link::Cooked2),
            _ => None,
        }
    }

    /// Puts an Ethernet header in the place of what stands before the packet. Gives whether it did, or why it cannot.
    pub(crate) fn make_frame(self, frame: &mut HeapFrame) -> Result<bool, String> {
        let bytes = frame.bytes();
        let (taken, header) = match self {
            Link::Ethernet => return Ok(false),
            Link::Raw => {
                let kind = match bytes.first().map(|first| first >> 4) {
                    Some(4) => [0x08, 0x00],
                    Some(6) => [0x86, 0xdd],
                    _ => return Err("a record holds no packet of IP".into()),
                };
                (0, header(0, None, kind))
            }
            Link::Cooked => {
                let [_, of, _, _, _, length, a, b, c, d, e, f, _, _, kind @ ..] = head::<16>(bytes)?;
                (16, header(of, (length == 6).then_some([a, b, c, d, e, f]), kind))
            }
            Link::Cooked2 => {
                let [high, low, _, _, _, _, _, _, _, _, of, length, a, b, c, d, e, f, _, _] = head::<20>(bytes)?;
                (20, header(of, (length == 6).then_some([a, b, c, d, e, f]), [high, low]))
            }
        };
        frame.edit(|bytes| drop(bytes.splice(..taken, header)));
        Ok(true)
    }
}

fn head<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
    bytes.first_chunk().copied().ok_or_else(|| format!("a record is shorter than its header of {N} B"))
}

/// An Ethernet header: only the sender's address was captured, and whether the packet was for all.
fn header(packet_type: u8, source: Option<[u8; 6]>, kind: [u8; 2]) -> [u8; 14] {
    const BROADCAST: u8 = 1;
    let destination = if packet_type == BROADCAST { [0xff; 6] } else { DESTINATION };
    let mut header = [0; 14];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source.unwrap_or(SOURCE));
    header[12..].copy_from_slice(&kind);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

    fn framed(link: u32, before: &[u8], cut: u32) -> Result<(Vec<u8>, u32), String> {
        let record = [before, &PACKET].concat();
        let mut frame = HeapFrame::default();
        frame.refill(&record, record.len() as u32 + cut);
        Link::of(DataLink::from(link)).expect("it is read").make_frame(&mut frame)?;
        Ok((frame.bytes().to_vec(), frame.length().bytes()))
    }

    #[test]
    fn packets_get_the_header_that_is_known_of_them() {
        let made = [&DESTINATION[..], &SOURCE, &[0x08, 0x00], &PACKET].concat();
        // With FCS, and 100 B that the capture cut off.
        assert_eq!(framed(101, &[], 100), Ok((made.clone(), 14 + 20 + 100 + 4)));
        assert_eq!(framed(228, &[], 100).map(|(bytes, _)| bytes), Ok(made));
        let sender = [0x52, 0x54, 0, 1, 2, 3];
        let cooked = [&[0, 1, 0, 1, 0, 6][..], &sender, &[0, 0, 0x08, 0x00]].concat();
        let made = [&[0xff; 6][..], &sender, &[0x08, 0x00], &PACKET].concat();
        assert_eq!(framed(113, &cooked, 100), Ok((made, 14 + 20 + 100 + 4)));
        let cooked = [&[0x08, 0x00, 0, 0, 0, 0, 0, 9, 0, 1, 4, 6][..], &sender, &[0, 0]].concat();
        let made = [&DESTINATION[..], &sender, &[0x08, 0x00], &PACKET].concat();
        assert_eq!(framed(276, &cooked, 100), Ok((made, 14 + 20 + 100 + 4)));
        // On `lo` the address has six bytes, too, all zero; of a tunnel there is none.
        let tunnel = [&[0, 4, 2, 8, 0, 0][..], &[0; 8], &[0x08, 0x00]].concat();
        assert_eq!(framed(113, &tunnel, 0).map(|(bytes, _)| bytes[6..12].to_vec()), Ok(SOURCE.to_vec()));
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let mut frame = HeapFrame::default();
        for (link, bytes) in [(101, &[][..]), (101, &[0x15]), (113, &[0; 15]), (276, &[0; 19])] {
            frame.refill(bytes, 60);
            let link = Link::of(DataLink::from(link)).expect("it is read");
            assert!(link.make_frame(&mut frame).is_err(), "{link:?} {bytes:?}");
        }
        assert_eq!(Link::of(DataLink::from(105)), None);
    }
}

//! The blocks of pcapng files, and what they say of interfaces.

use crate::capture::{Record, why};
use crate::link::Link;
use packet::HeapFrame;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgReader};
use std::io::Read;

/// Why there is no next frame.
pub(crate) enum NextError {
    LinkType(u32),
    Broken(String),
}

/// The next frame of a pcapng file; skips blocks that hold none.
pub(crate) fn next_frame<R: Read>(
    reader: &mut PcapNgReader<R>,
    frame: &mut HeapFrame,
) -> Result<Option<Record>, NextError> {
    loop {
        let (interface, ticks, fcs) = match reader.next_block() {
            None => return Ok(None),
            Some(Err(error)) => return Err(NextError::Broken(why(error))),
            Some(Ok(Block::EnhancedPacket(packet))) => {
                frame.refill(&packet.data, packet.original_len);
                // The library hands over the raw count as if it were nanoseconds.
                (packet.interface_id, packet.timestamp.as_nanos() as u64, fcs_of_frame(&packet.options))
            }
            Some(Ok(Block::SimplePacket(_))) => {
                return Err(NextError::Broken("it holds simple packet blocks, which have no time stamps".into()));
            }
            Some(Ok(_)) => continue,
        };
        let description = reader
            .interfaces()
            .get(interface as usize)
            .ok_or_else(|| NextError::Broken(format!("a frame names interface {interface}, which is not described")))?;
        let unread = || NextError::LinkType(description.linktype.into());
        frame.leave_out_fcs(fcs.unwrap_or_else(|| fcs_of_interface(description)));
        let made = Link::of(description.linktype).ok_or_else(unread)?.make_frame(frame);
        let made_header = made.map_err(NextError::Broken)?;
        let time_ns = Ticks::of(description).nanoseconds(ticks);
        let time_ns = time_ns.ok_or_else(|| NextError::Broken("a stamp is out of range".into()))?;
        return Ok(Some(Record { time_ns, made_header }));
    }
}

/// Bytes of FCS that each frame of a pcapng interface ends with. `if_fcslen` counts bits; programs that took it for bytes
/// wrote 2 or 4, which are no bits of a whole byte.
fn fcs_of_interface(interface: &InterfaceDescriptionBlock<'_>) -> u32 {
    let said = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfFcsLen(said) => Some(u32::from(*said)),
        _ => None,
    });
    said.map_or(0, |said| if said < 8 { said } else { said / 8 })
}

/// The same of one frame, in bytes, where its flags tell: that is for interfaces whose FCS changes.
fn fcs_of_frame(options: &[EnhancedPacketOption<'_>]) -> Option<u32> {
    options.iter().find_map(|option| match option {
        EnhancedPacketOption::Flags(flags) => Some(flags >> 5 & 0xf).filter(|bytes| *bytes > 0),
        _ => None,
    })
}

/// What a pcapng interface says of its stamps: `if_tsresol` and `if_tsoffset`.
pub(crate) struct Ticks {
    /// The highest bit says whether the exponent below it is of two or of ten.
    resolution: u8,
    offset: u64,
}

impl Ticks {
    pub(crate) fn of(interface: &InterfaceDescriptionBlock<'_>) -> Ticks {
        let mut ticks = Ticks { resolution: 6, offset: 0 };
        for option in &interface.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(value) => ticks.resolution = *value,
                InterfaceDescriptionOption::IfTsOffset(seconds) => ticks.offset = *seconds,
                _ => {}
            }
        }
        ticks
    }

    fn per_second(&self) -> Option<u128> {
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        base.checked_pow(u32::from(self.resolution & 0x7f))
    }

    pub(crate) fn step_ns(&self) -> Option<f64> {
        self.per_second().map(|per_second| 1e9 / per_second as f64)
    }

    fn nanoseconds(&self, ticks: u64) -> Option<u64> {
        let ns = u128::from(ticks).checked_mul(1_000_000_000)? / self.per_second()?;
        (ns + u128::from(self.offset) * 1_000_000_000).try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Frame;
    use pcap_file::DataLink;
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
    use std::borrow::Cow;
    use std::io::Cursor;

    #[test]
    fn an_fcs_that_an_interface_or_a_frame_tells_of_is_left_out() {
        use EnhancedPacketOption::Flags;
        use InterfaceDescriptionOption::IfFcsLen;
        let mut frame = HeapFrame::default();
        // As captured whole, cut within the FCS, cut within the frame, and shorter than an FCS.
        for (held, original) in [(64_u32, 64_u32), (62, 64), (40, 64), (3, 3)] {
            for (of_interface, of_frame, fcs) in [
                (None, None, 0),
                (Some(0), None, 0),
                (Some(32), None, 4),
                (Some(16), None, 2),
                (Some(4), None, 4),
                (None, Some(0x0000_0081), 4),
                (Some(32), Some(0x0000_0041), 2),
                (Some(32), Some(0x0000_0001), 4),
                (None, Some(0xffff_fe1f), 0),
            ] {
                let options = of_interface.map(IfFcsLen).into_iter().collect();
                let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
                let bytes: Vec<u8> = (0..held).map(|at| 0x40 + at as u8).collect();
                let packet = EnhancedPacketBlock {
                    interface_id: 0,
                    timestamp: std::time::Duration::ZERO,
                    original_len: original,
                    data: Cow::Borrowed(&bytes),
                    options: of_frame.map(Flags).into_iter().collect(),
                };
                let mut writer = PcapNgWriter::new(Vec::new()).expect("a section");
                writer.write_pcapng_block(interface).expect("written");
                writer.write_pcapng_block(packet).expect("written");
                let mut reader = PcapNgReader::new(Cursor::new(writer.into_inner())).expect("a capture");
                assert!(matches!(next_frame(&mut reader, &mut frame), Ok(Some(_))));
                let left = original.saturating_sub(fcs);
                let wanted = &bytes[..held.min(left) as usize];
                let said = (of_interface, of_frame, held);
                assert_eq!((frame.original(), frame.bytes()), (left, wanted), "{said:?}");
            }
        }
    }

    #[test]
    fn tick_lengths_of_pcapng() {
        let ns = |options, ticks| {
            Ticks::of(&InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options })
                .nanoseconds(ticks)
        };
        assert_eq!(ns(vec![], 5), Some(5_000), "microseconds where nothing is said");
        assert_eq!(ns(vec![InterfaceDescriptionOption::IfTsResol(9)], 5), Some(5));
        assert_eq!(ns(vec![InterfaceDescriptionOption::IfTsResol(0x81)], 3), Some(1_500_000_000), "halves of a second");
        assert_eq!(ns(vec![InterfaceDescriptionOption::IfTsResol(12)], 5_000), Some(5));
    }
}

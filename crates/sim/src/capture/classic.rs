//! Classic captures (pcap-savefile(5)), including the longer records of a patched libpcap.

use super::bytes::Bytes;
use super::link::Link;
use super::{BrokenCapture, LONGEST_RECORD, Order, ReadOutcome, Record};
use packet::HeapFrame;

/// Length of the file header in bytes.
pub(super) const FILE_HEADER: usize = 24;

/// Record format from the header of a classic capture.
pub(super) struct Classic {
    order: Order,
    /// Nanoseconds per unit of the fraction in timestamps.
    fraction_ns: u64,
    record_header: usize,
    /// Files of versions before 2.4 may have the two lengths of a record swapped.
    old: bool,
    link: Link,
    fcs: u32,
}

impl Classic {
    /// Parses a file header; `None` if the bytes are not one. Returns an unsupported link type as an error.
    pub(super) fn of(header: &[u8; FILE_HEADER]) -> Option<Result<Self, u16>> {
        let [a, b, c, d, ..] = *header;
        let (order, fraction_ns, record_header) = match [a, b, c, d] {
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, 1_000, 16),
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, 1_000, 16),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, 1, 16),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, 1, 16),
            // Kuznetzov's patch of libpcap: interface, protocol and packet type follow the lengths.
            [0x34, 0xcd, 0xb2, 0xa1] => (Order::Little, 1_000, 24),
            [0xa1, 0xb2, 0xcd, 0x34] => (Order::Big, 1_000, 24),
            _ => return None,
        };
        let old = (order.u16(header, 4), order.u16(header, 6)) < (2, 4);
        let (link_type, fcs) = link_type(order.u32(header, 20));
        let link = Link::of(link_type).ok_or(link_type);
        Some(link.map(|link| Classic { order, fraction_ns, record_header, old, link, fcs }))
    }

    pub(super) fn step_ns(&self) -> f64 {
        self.fraction_ns as f64
    }

    /// Reads the next record.
    pub(super) fn read(&mut self, bytes: &mut Bytes, frame: &mut HeapFrame) -> Result<ReadOutcome, BrokenCapture> {
        let Classic { order, fraction_ns, record_header, .. } = *self;
        let header = bytes.peek(record_header)?;
        if header.is_empty() {
            return Ok(ReadOutcome::End);
        }
        if header.len() < record_header {
            return Err(BrokenCapture::cut());
        }
        let [seconds, fraction, mut held, mut original] = [0, 4, 8, 12].map(|at| order.u32(header, at));
        if self.old && held > original {
            (held, original) = (original, held);
        }
        if held > LONGEST_RECORD {
            return Err(BrokenCapture(format!("a record claims {held} bytes")));
        }
        let whole = record_header + held as usize;
        let record = bytes.peek(whole)?;
        if record.len() < whole {
            return Err(BrokenCapture::cut());
        }
        frame.refill(&record[record_header..], original);
        bytes.take(whole);
        frame.leave_out_fcs(self.fcs);
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * fraction_ns;
        Ok(match self.link.make_frame(frame) {
            Ok(made_header) => ReadOutcome::Frame(Record { time_ns: Some(time_ns), made_header }),
            Err(why) => ReadOutcome::Skipped(why),
        })
    }
}

/// Splits a field of the file header into the link type in its lower half, and the length in bytes of the FCS at the
/// end of each record (pcap-savefile(5)). The highest four bits are that length in units of 16 bits. Bit 26 indicates
/// that it is known.
fn link_type(field: u32) -> (u16, u32) {
    const KNOWN: u32 = 1 << 26;
    let fcs = if field & KNOWN == 0 { 0 } else { (field >> 28) * 2 };
    (field as u16, fcs)
}

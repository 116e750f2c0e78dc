//! Blocks of pcapng files (draft-ietf-opsawg-pcapng).
//!
//! Only the parts that frames need are parsed, so unusual texts and options have no effect. Blocks without frames are
//! skipped, whatever they contain.

use super::anomalies::SkipReason;
use super::bytes::Bytes;
use super::link::Link;
use super::{BrokenCapture, LONGEST_RECORD, Order, ReadOutcome, Record};
use packet::HeapFrame;

/// The first bytes of a pcapng file: the type of its section header block, which is the same in both byte orders.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Maximum length of a block. A longer one is corrupt, and the rest of the file cannot be read.
const LONGEST_BLOCK: u32 = 16 << 20;

const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Bytes before and after the body of each block.
const HEAD: usize = 8;
const TAIL: usize = 4;

/// Reads blocks. Byte order and interfaces are valid within one section.
pub(super) struct Blocks {
    order: Order,
    interfaces: Vec<Interface>,
    coarsest_ns: f64,
}

/// The properties of an interface that are needed to read its frames.
#[derive(Clone, Copy)]
struct Interface {
    link: Result<Link, SkipReason>,
    snap: u32,
    ticks: Ticks,
    /// Number of FCS bytes at the end of each frame.
    fcs: u32,
}

/// A frame within the body of its block.
struct Found<'a> {
    interface: u32,
    /// Ticks since the epoch; `None` for a simple packet block.
    ticks: Option<u64>,
    held: u32,
    original: u32,
    rest: &'a [u8],
}

impl Blocks {
    pub(super) fn new() -> Self {
        Blocks { order: Order::Little, interfaces: Vec::new(), coarsest_ns: 0.0 }
    }

    /// The coarsest timestamp resolution of the interfaces described so far.
    pub(super) fn step_ns(&self) -> f64 {
        self.coarsest_ns
    }

    /// Reads until the next record.
    pub(super) fn read(&mut self, bytes: &mut Bytes, frame: &mut HeapFrame) -> Result<ReadOutcome, BrokenCapture> {
        loop {
            let Some((kind, length)) = self.head(bytes)? else { return Ok(ReadOutcome::End) };
            // Some programs do not count the padding in the length of a block.
            let whole = (length as usize).next_multiple_of(4);
            let block = bytes.peek(whole)?;
            if block.len() < whole {
                return Err(BrokenCapture::cut());
            }
            let tail = self.order.u32(block, whole - TAIL);
            if tail != length && tail as usize != whole {
                return Err(BrokenCapture(format!("a block says {length} bytes at its start, and {tail} at its end")));
            }
            let body = &block[HEAD..whole - TAIL];
            let read = match kind {
                INTERFACE => {
                    let interface = Interface::of(body, self.order);
                    self.coarsest_ns = self.coarsest_ns.max(interface.ticks.step_ns());
                    self.interfaces.push(interface);
                    None
                }
                ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET => Some(self.frame(kind, body, frame)),
                _ => None,
            };
            bytes.take(whole);
            if let Some(read) = read {
                return Ok(read.map_or_else(ReadOutcome::Skipped, ReadOutcome::Frame));
            }
        }
    }

    /// The type and length of the next block. A section header sets the byte order of the blocks after it.
    fn head(&mut self, bytes: &mut Bytes) -> Result<Option<(u32, u32)>, BrokenCapture> {
        // The shortest block has 12 bytes; in a section header these include the byte order.
        let head = bytes.peek(HEAD + 4)?;
        if head.is_empty() {
            return Ok(None);
        }
        if head.len() < HEAD + 4 {
            return Err(BrokenCapture::cut());
        }
        let section = head[..4] == SECTION;
        if section {
            self.order = match head[8..] {
                [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
                [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
                _ => return Err(BrokenCapture("a section does not say its byte order".into())),
            };
            self.interfaces.clear();
        }
        let (kind, length) = (self.order.u32(head, 0), self.order.u32(head, 4));
        let least = HEAD + TAIL + if section { 16 } else { 0 };
        if (length as usize) < least || length > LONGEST_BLOCK {
            return Err(BrokenCapture(format!("a block claims {length} bytes")));
        }
        if section && bytes.peek(HEAD + 8)?.get(12..14).is_some_and(|major| self.order.u16(major, 0) != 1) {
            return Err(BrokenCapture("a section has another pcapng version than 1".into()));
        }
        Ok(Some((kind, length)))
    }

    /// Extracts the frame from the body of a block.
    fn frame(&self, kind: u32, body: &[u8], frame: &mut HeapFrame) -> Result<Record, SkipReason> {
        let order = self.order;
        let fixed = if kind == SIMPLE_PACKET { 4 } else { 20 };
        if body.len() < fixed {
            return Err(SkipReason::BadLength);
        }
        let rest = &body[fixed..];
        let stamp = || Some(u64::from(order.u32(body, 4)) << 32 | u64::from(order.u32(body, 8)));
        let lengths = || (order.u32(body, 12), order.u32(body, 16));
        let found = match kind {
            SIMPLE_PACKET => {
                let original = order.u32(body, 0);
                let snap = self.interfaces.first().map_or(0, |interface| interface.snap);
                let held = if snap == 0 { original } else { original.min(snap) };
                Found { interface: 0, ticks: None, held: held.min(rest.len() as u32), original, rest }
            }
            ENHANCED_PACKET => {
                let (held, original) = lengths();
                Found { interface: order.u32(body, 0), ticks: stamp(), held, original, rest }
            }
            // An obsolete packet block: the other 16 bits count drops.
            _ => {
                let (held, original) = lengths();
                Found { interface: order.u16(body, 0).into(), ticks: stamp(), held, original, rest }
            }
        };
        let interface = self.interfaces.get(found.interface as usize).ok_or(SkipReason::UnknownInterface)?;
        let link = interface.link?;
        if found.held > LONGEST_RECORD {
            return Err(SkipReason::TooLong);
        }
        let data = found.rest.get(..found.held as usize).ok_or(SkipReason::BadLength)?;
        frame.refill(data, found.original);
        let options = found.rest.get(data.len().next_multiple_of(4)..).unwrap_or_default();
        let fcs = if kind == SIMPLE_PACKET { None } else { fcs_of_frame(options, order) };
        frame.leave_out_fcs(fcs.unwrap_or(interface.fcs));
        let made_header = link.make_frame(frame)?;
        let time_ns = found.ticks.map(|ticks| interface.ticks.nanoseconds(ticks).unwrap_or(Record::NO_TIME));
        Ok(Record { time_ns, made_header })
    }
}

impl Interface {
    /// Parses an interface description. A description that is too short still counts as an interface.
    fn of(body: &[u8], order: Order) -> Self {
        let mut interface = Interface { link: Err(SkipReason::UnknownInterface), snap: 0, ticks: Ticks::USUAL, fcs: 0 };
        if body.len() < 8 {
            return interface;
        }
        let number = order.u16(body, 0);
        interface.link = Link::of(number).ok_or(SkipReason::LinkType(number));
        interface.snap = order.u32(body, 4);
        for (code, value) in options(&body[8..], order) {
            match (code, value) {
                (9, [resolution]) => interface.ticks.resolution = *resolution,
                (14, [_, _, _, _, _, _, _, _]) => interface.ticks.offset_s = order.u64(value, 0).cast_signed(),
                // `if_fcslen` counts bits. Some programs wrote 2 or 4 (bytes) instead; so few bits are no whole byte.
                (13, [said]) => interface.fcs = u32::from(if *said < 8 { *said } else { *said / 8 }),
                _ => {}
            }
        }
        interface
    }
}

/// Number of FCS bytes at the end of a frame according to its flags, for interfaces whose FCS length varies.
fn fcs_of_frame(rest: &[u8], order: Order) -> Option<u32> {
    let flags = options(rest, order).find(|(code, value)| *code == 2 && value.len() == 4);
    flags.map(|(_, value)| order.u32(value, 0) >> 5 & 0xf).filter(|bytes| *bytes > 0)
}

/// The codes and values of options. `opt_endofopt` is optional. An option that exceeds the block ends the list.
fn options(mut rest: &[u8], order: Order) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        if rest.len() < 4 {
            return None;
        }
        let (code, length) = (order.u16(rest, 0), usize::from(order.u16(rest, 2)));
        let value = rest.get(4..4 + length).filter(|_| code != 0)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}

/// Timestamp format of an interface: `if_tsresol` and `if_tsoffset`.
#[derive(Clone, Copy)]
struct Ticks {
    /// The highest bit selects the base of the exponent in the other bits: two or ten.
    resolution: u8,
    offset_s: i64,
}

impl Ticks {
    /// The default: microseconds.
    const USUAL: Ticks = Ticks { resolution: 6, offset_s: 0 };

    /// Ticks per second; `None` if the number exceeds 128 bits.
    fn per_second(self) -> Option<u128> {
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        base.checked_pow(u32::from(self.resolution & 0x7f))
    }

    fn step_ns(self) -> f64 {
        self.per_second().map_or(0.0, |per_second| 1e9 / per_second as f64)
    }

    /// Nanoseconds since the epoch; `None` outside the range of 64 bits.
    fn nanoseconds(self, ticks: u64) -> Option<u64> {
        // With ticks this short, all 64 bits are less than a nanosecond.
        let since = self.per_second().map_or(0, |per_second| u128::from(ticks) * 1_000_000_000 / per_second);
        (since.cast_signed() + i128::from(self.offset_s) * 1_000_000_000).try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_ticks_of_all_lengths() {
        let ns = |resolution, offset_s, ticks| Ticks { resolution, offset_s }.nanoseconds(ticks);
        assert_eq!(ns(6, 0, 5), Some(5_000));
        assert_eq!(ns(9, 0, 5), Some(5));
        assert_eq!(ns(0x81, 0, 3), Some(1_500_000_000), "halves of a second");
        assert_eq!(ns(12, 0, 5_000), Some(5));
        assert_eq!(ns(0, -3_600, 3_601), Some(1_000_000_000), "an offset is signed");
        assert_eq!(ns(0, -2, 1), None, "before 1970");
        assert_eq!(ns(0, 0, u64::MAX), None, "after 2554");
        assert_eq!(ns(0x7f, 1, u64::MAX), Some(1_000_000_000), "finer than can be counted");
        assert_eq!(ns(0xff, 0, u64::MAX), Some(0));
    }

    #[test]
    fn stops_at_the_end_of_options() {
        let read =
            |bytes: &[u8]| options(bytes, Order::Little).map(|(code, value)| (code, value.len())).collect::<Vec<_>>();
        assert_eq!(read(&[]), []);
        assert_eq!(read(&[9, 0, 1, 0, 6]), [(9, 1)], "no padding, no opt_endofopt");
        assert_eq!(read(&[9, 0, 1, 0, 6, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]), [(9, 1), (2, 0)]);
        assert_eq!(read(&[2, 0, 200, 0, 6, 0, 0, 0]), [], "longer than its block");
        assert_eq!(read(&[2, 0, 1]), []);
    }
}

use measure::DropReason;
use packet::layers::keep_crcs;
use packet::{Frame, Headers, set_congestion};
use std::fmt;
use units::{ParseError, Span};

/// Receives decisions as they are made.
pub type Log = Box<dyn FnMut(&Decision) + Send>;

/// A stage's decision about a frame, or about a copy of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index of the frame in order of arrival, from 0.
    pub frame: u64,
    /// 0 for the frame itself, 1 for its copy.
    pub copy: u32,
    /// Whether the frame is marked with congestion experienced, before any change of its bytes.
    pub marked: bool,
    /// Change of its bytes, if any.
    pub change: Option<Change>,
    /// What happens to it.
    pub fate: Fate,
    /// How long it is held.
    pub delay: Span,
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Passed on.
    Pass,
    /// Passed on, marked by a queue with congestion experienced after any change of its bytes.
    Mark,
    /// Dropped.
    Drop(DropReason),
    /// Held by a queue that has not decided yet. Another decision follows.
    Held,
}

/// A change of a frame's bytes. Offsets count from the first byte of the destination address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Inverts the bits of `mask` in a byte.
    Flip {
        /// Offset of the byte.
        at: u32,
        /// Bits to invert.
        mask: u8,
    },
    /// Swaps two 16-bit words.
    Swap {
        /// Offset of the first word.
        a: u32,
        /// Offset of the second word.
        b: u32,
    },
    /// Raises one 16-bit word and lowers another by the same amount, in ones' complement, which keeps Internet
    /// checksums valid.
    Shift {
        /// Offset of the word that is raised.
        a: u32,
        /// Offset of the word that is lowered.
        b: u32,
        /// The amount, from 1 to 65534.
        by: u16,
    },
    /// Inverts a 16-bit word of all zeros or all ones. In ones' complement both are zero.
    Zero {
        /// Offset of the word.
        at: u32,
    },
}

impl Change {
    /// Applies the change. A frame that is too short stays unchanged. Changes that keep Internet checksums valid also
    /// keep CRCs valid.
    pub fn apply<F: Frame>(self, frame: &mut F) {
        let bytes = frame.bytes_mut();
        match self {
            Change::Flip { .. } => self.write(bytes),
            _ => keep_crcs(bytes, |bytes| self.write(bytes)),
        }
    }

    fn write(self, bytes: &mut [u8]) {
        match self {
            Change::Flip { at, mask } => {
                if let Some(byte) = bytes.get_mut(at as usize) {
                    *byte ^= mask;
                }
            }
            Change::Swap { a, b } => {
                let (a, b) = (a as usize, b as usize);
                if a.max(b) + 2 <= bytes.len() {
                    bytes.swap(a, b);
                    bytes.swap(a + 1, b + 1);
                }
            }
            Change::Shift { a, b, by } => {
                let (a, b) = (a as usize, b as usize);
                if a.max(b) + 2 <= bytes.len() {
                    raise(bytes, a, by);
                    raise(bytes, b, u16::MAX - by);
                }
            }
            Change::Zero { at } => {
                if let Some(word) = bytes.get_mut(at as usize..at as usize + 2) {
                    word.iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
        }
    }
}

/// Adds to a 16-bit word in ones' complement.
fn raise(bytes: &mut [u8], at: usize, by: u16) {
    let sum = u32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]])) + u32::from(by);
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
}

impl Decision {
    /// The header line of a log.
    pub const HEADER: &'static str = "frame,copy,fate,delay_ps,change";

    /// Parses a line of a log.
    ///
    /// # Errors
    /// The text is not a line of a log.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        let bad = |what: &str| ParseError::new(format!("{what} in '{line}'"), format!("write {}", Self::HEADER));
        let fields: Vec<&str> = line.split(',').collect();
        let [frame, copy, fate, delay, change] = fields[..] else { return Err(bad("there are not five fields")) };
        let (marked, fate) = match fate {
            "pass" => (false, Fate::Pass),
            "mark" => (true, Fate::Pass),
            "mark-queue" => (false, Fate::Mark),
            "mark-twice" => (true, Fate::Mark),
            "held" => (false, Fate::Held),
            name => {
                let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
                (false, Fate::Drop(*reason.ok_or_else(|| bad("there is no such fate"))?))
            }
        };
        let number = |text: &str| text.parse().map_err(|_| bad("there is no whole number"));
        let small = |text: &str| text.parse().map_err(|_| bad("there is no position"));
        let change = match change.split_once(' ') {
            None if change.is_empty() => None,
            Some(("flip", rest)) => {
                let (at, mask) = rest.split_once(" 0x").ok_or_else(|| bad("there is no mask"))?;
                let mask = u8::from_str_radix(mask, 16).map_err(|_| bad("there is no mask"))?;
                Some(Change::Flip { at: small(at)?, mask })
            }
            Some(("swap", rest)) => {
                let (a, b) = rest.split_once(' ').ok_or_else(|| bad("there is no second position"))?;
                Some(Change::Swap { a: small(a)?, b: small(b)? })
            }
            Some(("shift", rest)) => {
                let mut numbers = rest.split(' ');
                let mut next = || numbers.next().ok_or_else(|| bad("there are not three numbers"));
                let (a, b) = (small(next()?)?, small(next()?)?);
                let by = next()?.parse().map_err(|_| bad("there is no amount"))?;
                Some(Change::Shift { a, b, by })
            }
            Some(("zero", at)) => Some(Change::Zero { at: small(at)? }),
            _ => return Err(bad("there is no such change")),
        };
        let (frame, copy, delay) = (number(frame)?, small(copy)?, Span::from_ps(number(delay)?));
        Ok(Decision { frame, copy, marked, change, fate, delay })
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = match (self.marked, self.fate) {
            (false, Fate::Pass) => "pass",
            (true, Fate::Pass) => "mark",
            (false, Fate::Mark) => "mark-queue",
            (true, Fate::Mark) => "mark-twice",
            (_, Fate::Drop(reason)) => reason.name(),
            (_, Fate::Held) => "held",
        };
        write!(f, "{},{},{fate},{},", self.frame, self.copy, self.delay.as_ps())?;
        match self.change {
            None => Ok(()),
            Some(Change::Flip { at, mask }) => write!(f, "flip {at} {mask:#04x}"),
            Some(Change::Swap { a, b }) => write!(f, "swap {a} {b}"),
            Some(Change::Shift { a, b, by }) => write!(f, "shift {a} {b} {by}"),
            Some(Change::Zero { at }) => write!(f, "zero {at}"),
        }
    }
}

/// Marks a packet as having experienced congestion (RFC 3168, §5), for [`Fate::Mark`]. False if the packet cannot carry
/// the mark.
pub(super) fn mark<F: Frame>(frame: &mut F) -> bool {
    Headers::of(frame.bytes()).is_some_and(|headers| set_congestion(frame.bytes_mut(), &headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_survive_printing_and_parsing() {
        for line in [
            "0,0,pass,0,",
            "7,1,pass,10000000000,flip 14 0x80",
            "18446744073709551615,0,mark,1,swap 42 60",
            "8,0,pass,1,shift 42 60 65534",
            "8,0,pass,1,zero 42",
            "3,0,loss,0,",
            "3,0,queue,0,",
            "4,0,mark-queue,5,",
            "4,1,mark-twice,5,flip 15 0x01",
            "5,0,held,0,",
        ] {
            assert_eq!(Decision::parse(line).expect(line).to_string(), line);
        }
        for line in ["", "1,2,3", "a,0,pass,0,", "0,0,lost,0,", "0,0,pass,0,flip 1", "0,0,pass,0,turn 1 2"] {
            assert!(Decision::parse(line).is_err(), "{line}");
        }
    }
}

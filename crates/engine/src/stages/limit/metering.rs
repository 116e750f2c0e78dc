use super::{Limit, Marking, Mode, Unknown, patience};
use crate::meters::{Answer, Bucket, Colour, Full, Key, KeyKind, Limiter, Moment, Seconds, Sought, reserve};
use crate::stages::Item;
use measure::DropReason;
use packet::{Frame, Headers};
use std::sync::Arc;
use units::{Layer, Span, Time};

/// Finds the users of frames and decides whether the frames conform. Several workers run this part of the stage, on any
/// thread.
///
/// A burst is processed in passes, so that the memory for all its frames is prefetched at the same time: keys, index,
/// users, and only then decisions.
pub struct Metering {
    pub(super) limiter: Arc<Limiter>,
    kind: KeyKind,
    layer: Layer,
    shapes: bool,
    /// Exceeding frames pass with a mark, even those longer than the bucket.
    marks: bool,
    unknown: Unknown,
    pass_when_full: bool,
    /// Maximum wait of a frame, if it is the same for all users.
    queue: Option<Span>,
    seconds: Option<Seconds>,
    /// The DSCPs of frames that arrive yellow and red.
    dscp: Option<(u8, u8)>,
    sought: Vec<Sought>,
    moment: Moment,
}

/// The state of a frame during metering.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub(super) key: Option<Key>,
    pub(super) slot: Result<u32, Full>,
    /// Length in bytes of the layer that the rate counts.
    pub(super) bytes: u32,
    /// The colour of the frame on arrival.
    pub(super) arrival_colour: Colour,
    pub(super) found: Found,
}

/// The decision about a frame, from which its fate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The frame has no user, or its user is not metered.
    Unmetered,
    Conforms,
    Waits(Time),
    Exceeds,
    Impatient,
    /// The frame is longer than its user's bucket and can never conform.
    Longer,
    Yellow,
    Drop(DropReason),
}

/// The encoding of a missing slot.
const NO_SLOT: u32 = u32::MAX;

impl Look {
    /// Encoded size in bytes.
    pub const BYTES: usize = 48;

    /// The slot of the frame's user, below the table's capacity. `None` without a user, or if the user does not fit
    /// into the table.
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.slot.ok()
    }

    /// Whether the frame exceeds its user's rate.
    #[must_use]
    pub fn exceeds(&self) -> bool {
        matches!(self.found, Found::Exceeds | Found::Impatient | Found::Longer | Found::Yellow)
    }

    /// Encodes the state of a frame with a user that arrived at `at`. Omits the colour on arrival, because colours
    /// require a single thread.
    ///
    /// # Panics
    /// If `into` is shorter than [`Look::BYTES`].
    pub fn write(&self, at: Time, into: &mut [u8]) {
        let key = self.key.unwrap_or(Key::new(0, 0));
        let (found, departs) = match self.found {
            Found::Unmetered => (0, 0),
            Found::Drop(DropReason::Unknown) => (6, 0),
            // A full table is the only other reason for a drop.
            Found::Drop(_) => (7, 0),
            Found::Conforms => (1, 0),
            Found::Exceeds => (2, 0),
            Found::Impatient => (3, 0),
            Found::Yellow => (4, 0),
            Found::Longer => (8, 0),
            Found::Waits(departs) => (5, departs.as_ps()),
        };
        let numbers = u64::from(self.slot.unwrap_or(NO_SLOT)) << 32 | u64::from(self.bytes);
        for (word, field) in [at.as_ps(), key.high, key.low, numbers, found, departs]
            .into_iter()
            .zip(into[..Look::BYTES].chunks_exact_mut(8))
        {
            field.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Decodes the state of a frame and its arrival time.
    ///
    /// # Panics
    /// If `from` is shorter than [`Look::BYTES`].
    #[must_use]
    pub fn read(from: &[u8]) -> (Look, Time) {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| from[i * 8 + byte]));
        let found = match word(4) {
            1 => Found::Conforms,
            2 => Found::Exceeds,
            3 => Found::Impatient,
            4 => Found::Yellow,
            5 => Found::Waits(Time::from_ps(word(5))),
            6 => Found::Drop(DropReason::Unknown),
            8 => Found::Longer,
            7 => Found::Drop(DropReason::NoRoom),
            _ => Found::Unmetered,
        };
        let slot = Some((word(3) >> 32) as u32).filter(|slot| *slot != NO_SLOT).ok_or(Full::NoRoom);
        let look = Look {
            key: Some(Key::new(word(1), word(2))),
            slot,
            bytes: word(3) as u32,
            arrival_colour: Colour::Green,
            found,
        };
        (look, Time::from_ps(word(0)))
    }
}

impl Metering {
    pub(super) fn new(limit: &Limit, limiter: Arc<Limiter>, seconds: Option<Seconds>) -> Self {
        Metering {
            limiter,
            kind: limit.key,
            layer: limit.layer,
            shapes: limit.mode == Mode::Shape,
            marks: limit.mode == Mode::Mark,
            unknown: limit.unknown,
            pass_when_full: limit.pass_when_full,
            queue: limit.queue,
            dscp: match limit.marking {
                Marking::Dscp(yellow, red) if seconds.as_ref().is_some_and(Seconds::aware) => Some((yellow, red)),
                _ => None,
            },
            seconds,
            sought: Vec::new(),
            moment: Moment::of(Time::ZERO),
        }
    }

    /// Meters a burst as worker number `worker` and appends the state of each frame, in order.
    pub fn meter<F: Frame>(&mut self, worker: usize, frames: &[Item<F>], looks: &mut Vec<Look>) {
        let first = looks.len();
        self.look(frames, looks);
        for (look, item) in looks[first..].iter_mut().zip(frames) {
            self.decide(look, item.arrived(), worker);
        }
    }

    /// Finds the users of a burst and appends the state of each frame, in order. Does not decide yet.
    pub fn look<F: Frame>(&mut self, frames: &[Item<F>], looks: &mut Vec<Look>) {
        let first = looks.len();
        self.sought.clear();
        for Item { frame, .. } in frames {
            let key = self.kind.of_frame(frame.bytes());
            if let Some(key) = key {
                self.sought.push(self.limiter.users.seek(key));
            }
            let bytes = self.bytes(frame);
            let arrival_colour = self.dscp.map_or(Colour::Green, |dscp| colour_of(frame.bytes(), dscp));
            looks.push(Look { key, slot: Err(Full::Unknown), bytes, arrival_colour, found: Found::Unmetered });
        }
        self.limiter.users.find_all(&mut self.sought);
        let mut sought = self.sought.iter();
        for (look, item) in looks[first..].iter_mut().zip(frames) {
            if look.key.is_some()
                && let Some(sought) = sought.next()
            {
                let at = item.arrived();
                if self.moment.time() != at {
                    self.moment = Moment::of(at);
                }
                look.slot = self.limiter.users.settle(sought, &self.moment);
            }
        }
    }

    #[inline]
    fn bytes<F: Frame>(&self, frame: &F) -> u32 {
        let length = frame.length();
        match self.layer {
            Layer::Frame => length.bytes(),
            Layer::Wire => length.on_wire().bytes(),
            Layer::Ip => packet::ip_length(frame.bytes(), length).unwrap_or(length.bytes().saturating_sub(18)),
        }
    }

    /// Whether a frame of this many bits can never conform. False if the frame would pass with a mark, or if a second
    /// bucket may hold it.
    #[cold]
    fn is_longer(&self, slot: u32, key: Key, bits: u64) -> bool {
        let users = &self.limiter.users;
        let word = users.word(slot).load(std::sync::atomic::Ordering::Relaxed);
        let bucket = users.bucket_of(slot, key, word).filter(|_| !self.marks && self.seconds.is_none());
        bucket.is_some_and(|bucket| bucket.cost(bits) > bucket.depth())
    }

    /// Decides whether a frame that arrived at `at` conforms, on the given worker.
    #[inline]
    pub fn decide(&mut self, look: &mut Look, at: Time, worker: usize) {
        let Some(key) = look.key else { return };
        if self.moment.time() != at {
            self.moment = Moment::of(at);
        }
        look.found = loop {
            let number = match look.slot {
                Ok(number) => number,
                Err(Full::NoRoom) if !self.pass_when_full => break Found::Drop(DropReason::NoRoom),
                Err(Full::Unknown) if self.unknown == Unknown::Drop => break Found::Drop(DropReason::Unknown),
                Err(_) => break Found::Unmetered,
            };
            let bits = u64::from(look.bytes) * 8;
            let Limiter { users, meter, .. } = &*self.limiter;
            let found = if let Some(seconds) = &mut self.seconds {
                seconds.colour(users, (number, key), &self.moment, bits, look.arrival_colour).map(|colour| match colour
                {
                    Colour::Green => Found::Conforms,
                    Colour::Yellow => Found::Yellow,
                    Colour::Red => Found::Exceeds,
                })
            } else if self.shapes {
                let bucket = |word| users.bucket_of(number, key, word);
                let patience = |bucket: &Bucket| self.queue.unwrap_or_else(|| patience(bucket.rate()));
                match reserve(users.word(number), bucket, &self.moment, bits, patience) {
                    Ok(departs) if departs == at => Some(Found::Conforms),
                    Ok(departs) => Some(Found::Waits(departs)),
                    Err(Answer::Gone) => None,
                    Err(_) => Some(Found::Impatient),
                }
            } else {
                match meter.charge(users, worker, number, key, &self.moment, bits) {
                    Answer::Conforms => Some(Found::Conforms),
                    Answer::Exceeds => Some(Found::Exceeds),
                    Answer::Gone => None,
                }
            };
            match found {
                Some(Found::Exceeds | Found::Impatient) if self.is_longer(number, key, bits) => break Found::Longer,
                Some(found) => break found,
                // The user was idle and has just been evicted.
                None => look.slot = users.find_or_add(key, &self.moment),
            }
        };
    }
}

/// The colour of an arriving frame: green unless its DSCP is the one for yellow or red.
fn colour_of(frame: &[u8], (yellow, red): (u8, u8)) -> Colour {
    let class = Headers::of(frame).and_then(|headers| headers.ip).map(|ip| ip.traffic_class >> 2);
    match class {
        Some(class) if class == red => Colour::Red,
        Some(class) if class == yellow => Colour::Yellow,
        _ => Colour::Green,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_survive_encoding_and_decoding() {
        let at = Time::from_ps(7);
        let drops = [DropReason::NoRoom, DropReason::Unknown].map(Found::Drop);
        let others = [
            Found::Unmetered,
            Found::Conforms,
            Found::Exceeds,
            Found::Impatient,
            Found::Longer,
            Found::Yellow,
            Found::Waits(at),
        ];
        for found in drops.into_iter().chain(others) {
            let slot = if found == drops[0] { Err(Full::NoRoom) } else { Ok(u32::MAX - 1) };
            let look =
                Look { key: Some(Key::new(1 << 60, 3)), slot, bytes: 1_518, arrival_colour: Colour::Green, found };
            let mut bytes = [0xff; Look::BYTES];
            look.write(at, &mut bytes);
            let (read, when) = Look::read(&bytes);
            assert_eq!((read.key, read.slot, read.bytes, read.found, when), (look.key, look.slot, 1_518, found, at));
        }
    }
}

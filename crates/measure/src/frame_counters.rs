use crate::kinds::kinds;
use schemars::JsonSchema;
use serde::Serialize;
use units::FrameLen;

/// Count of frames and their bytes (L2, with FCS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Tally {
    /// Number of frames.
    pub frames: u64,
    /// Bytes, with FCS.
    pub bytes: u64,
}

impl Tally {
    /// Counts one frame.
    #[inline]
    pub fn add(&mut self, length: FrameLen) {
        self.frames += 1;
        self.bytes += u64::from(length.bytes());
    }

    /// Adds another count.
    pub fn add_all(&mut self, other: Tally) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }

    /// The difference to an `earlier` count.
    #[must_use]
    pub fn since(self, earlier: Tally) -> Tally {
        Tally { frames: self.frames - earlier.frames, bytes: self.bytes - earlier.bytes }
    }
}

kinds! {
    /// Why a frame did not leave. The names are stable, because scripts depend on them.
    DropReason, counted by
    /// Drops by reason; serialises as a map of the reasons that occurred.
    Drops:
    Loss     "loss"      "dropped by a loss stage, as asked";
    Pool     "pool"      "no buffer was free to hold the frame";
    Segments "segments"  "the frame arrived in several buffers, longer than the port's MTU allows";
    TooLong  "too-long"  "the frame is longer than the output can send, or than the input takes whole";
    Policed  "policed"   "it exceeded the rate and burst of its user";
    Impatient "limit-queue" "it would have waited longer for its user's rate than the queue of limit allows";
    Longer   "longer-than-bucket" "the frame is longer than the bucket of its user, so that it never conforms";
    NoRoom   "table-full" "its user is new and the table of users has no room";
    Unknown  "unknown-user" "its user has no rate, and such users are to be dropped";
    Overrun  "worker"    "the workers of limit had no time for it";
    Queue    "queue"     "the emulated queue was full: its limit of frames, bytes or time";
    Early    "aqm"       "the emulated queue dropped it before it was full, as asked";
    Outage   "outage"    "the emulated link was down, as asked";
    Mtu      "mtu"       "longer than the emulated link's MTU, which is reported to its sender only with icmp";
    Unwritten "unwritten" "the output's file had no space for it, failed to be written, or had a reader that did not take it";
    Ended    "ended"     "the waveform of its class had ended";
}

/// The counters of a pipeline: `in + copies = out + Σ drops + held` at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameCounters {
    /// Frames received.
    pub arrived: Tally,
    /// Frames sent, without fillers.
    pub left: Tally,
    /// Frames made by duplication.
    pub copies: u64,
    drops: Drops,
}

impl FrameCounters {
    /// Counts a dropped frame.
    pub fn drop_one(&mut self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    /// Counts `n` dropped frames.
    pub fn drop_many(&mut self, reason: DropReason, n: u64) {
        self.drops.count(reason, n);
    }

    /// Adds the frames of `other`.
    pub fn add_all(&mut self, other: &FrameCounters) {
        self.arrived.add_all(other.arrived);
        self.left.add_all(other.left);
        self.copies += other.copies;
        self.drops.add_all(&other.drops);
    }

    /// Frames dropped for one reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.of(reason)
    }

    /// Frames dropped for any reason.
    #[must_use]
    pub fn drops(&self) -> Drops {
        self.drops.clone()
    }

    /// Frames that were neither sent nor dropped, according to the counters. If a pipeline holds a different number,
    /// frames were lost or counted twice.
    #[must_use]
    pub fn should_hold(&self) -> u64 {
        (self.arrived.frames + self.copies).saturating_sub(self.left.frames + self.drops.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_usable_in_scripts() {
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            assert!(reason.name().chars().all(|c| c.is_ascii_lowercase() || c == '-'));
            assert!(DropReason::ALL[..i].iter().all(|other| other.name() != reason.name()));
        }
    }

    #[test]
    fn counters_give_the_number_of_held_frames() {
        let mut books = FrameCounters::default();
        for _ in 0..5 {
            books.arrived.add(FrameLen::MIN);
        }
        books.copies = 1;
        books.left.add(FrameLen::MIN);
        books.drop_one(DropReason::Loss);
        books.drop_many(DropReason::Pool, 2);
        assert_eq!(books.should_hold(), 2);
        assert_eq!(serde_json::to_string(&books.drops()).ok().as_deref(), Some(r#"{"loss":1,"pool":2}"#));
    }
}

use crate::line::Planned;
use crate::queue::Queue;
use dpdk::{BURST, Kept, Mbuf, Outgoing, TscClock, TxQueue};
use units::WireLen;

/// A burst on its way to the port, and what its frames are, in their order: each starts where the one before ends.
pub(super) struct UnderWay {
    pub(super) out: Outgoing,
    /// Byte times of each.
    lengths: [u32; BURST],
    /// Those before it were taken.
    first: usize,
    /// Where the first that was not taken starts.
    position: u64,
    /// Data frames, by their numbers in the burst.
    data: Vec<(usize, Planned)>,
    /// Data frames before it were taken.
    first_data: usize,
}

impl Default for UnderWay {
    fn default() -> Self {
        UnderWay {
            out: Outgoing::new(),
            lengths: [0; BURST],
            first: 0,
            position: 0,
            data: Vec::with_capacity(BURST),
            first_data: 0,
        }
    }
}

impl UnderWay {
    /// Adds a data frame.
    #[inline]
    pub(super) fn add(&mut self, planned: Planned, frame: Mbuf) {
        let number = self.describe(planned.position, planned.length.on_wire(), 1);
        self.data.push((number, planned));
        self.out.push(frame);
    }

    /// Adds a frame that is sent again later, so many times in a row. Gives the byte times that it takes.
    #[inline]
    pub(super) fn add_kept(&mut self, position: u64, length: WireLen, frame: &Kept, times: usize) -> u64 {
        self.describe(position, length, times);
        self.out.push_kept(frame, times);
        times as u64 * u64::from(length.bytes())
    }

    /// What the next `times` frames are. Gives the number of the first in the burst.
    #[inline]
    fn describe(&mut self, position: u64, length: WireLen, times: usize) -> usize {
        let number = BURST - self.out.room();
        if number == 0 {
            self.position = position;
        }
        self.lengths[number..number + times].fill(length.bytes());
        number
    }

    /// Hands over what was not taken yet, and gives how many frames the port has taken now.
    pub(super) fn hand_over(&mut self, tx: &mut TxQueue, queue: &mut Queue, clock: &TscClock) -> usize {
        let taken = tx.send_out(&mut self.out);
        // After the fact: a line that began cannot have begun later than this.
        queue.took(self.position, &self.lengths[self.first..self.first + taken], clock.now());
        taken
    }

    /// The next `taken` frames were taken. Gives their byte times.
    #[inline]
    pub(super) fn took(&mut self, taken: usize) -> u64 {
        let lengths = &self.lengths[self.first..self.first + taken];
        let bytes = lengths.iter().map(|length| u64::from(*length)).sum();
        self.first += taken;
        self.position += bytes;
        bytes
    }

    /// The next data frame that was taken.
    #[inline]
    pub(super) fn next_taken(&mut self) -> Option<&Planned> {
        let (_, planned) = self.data.get(self.first_data).filter(|(number, _)| *number < self.first)?;
        self.first_data += 1;
        Some(planned)
    }

    /// Data frames that were not taken.
    pub(super) fn rest(&self) -> usize {
        self.data.len() - self.first_data
    }

    /// All that was not taken starts later.
    pub(super) fn slip(&mut self, bytes: u64) {
        self.position += bytes;
        for (_, planned) in &mut self.data[self.first_data..] {
            planned.position += bytes;
        }
    }

    /// Makes place once all were taken.
    pub(super) fn clear(&mut self) {
        self.data.clear();
        (self.first, self.first_data) = (0, 0);
    }
}

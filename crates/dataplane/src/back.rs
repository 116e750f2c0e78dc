use dpdk::{Burst, RxQueue, TxQueue};
use measure::{Books, DropReason, ReturnReport};
use packet::Frame;
use units::FrameLen;

/// The way back: from the output port to the input port, unchanged and at once.
pub(crate) struct Back {
    queues: Vec<RxQueue>,
    turn: usize,
    tx: TxQueue,
    /// Frames that the input did not take yet.
    burst: Burst,
    lengths: Vec<FrameLen>,
    books: Books,
}

impl Back {
    pub(crate) fn new(queues: Vec<RxQueue>, tx: TxQueue) -> Self {
        Back { queues, turn: 0, tx, burst: Burst::new(), lengths: Vec::new(), books: Books::default() }
    }

    /// Carries up to `most` frames of what has arrived. While the input takes nothing, nothing more is
    /// read: the driver's ring is the queue, and what it loses is in its own counters. Gives how many
    /// frames were touched.
    pub(crate) fn carry(&mut self, most: usize) -> usize {
        if self.burst.is_empty() {
            let queue = &mut self.queues[self.turn];
            queue.poll_up_to(&mut self.burst, most);
            self.turn = (self.turn + 1) % self.queues.len();
            for frame in &self.burst {
                self.books.came.add(frame.length());
            }
        }
        if self.burst.is_empty() {
            return 0;
        }
        let refused = self.burst.retain(|frame| self.tx.carries(frame));
        self.books.drop_many(DropReason::TooLong, refused as u64);
        self.lengths.clear();
        self.lengths.extend(self.burst.iter().map(Frame::length));
        let sent = self.tx.send(&mut self.burst);
        for length in &self.lengths[..sent] {
            self.books.left.add(*length);
        }
        sent + refused
    }

    pub(crate) fn report(&self) -> ReturnReport {
        ReturnReport {
            came: self.books.came,
            left: self.books.left,
            drops: self.books.drops(),
            held: self.burst.len() as u64,
        }
    }
}

use dpdk::{Burst, Mbuf, TxQueue};
use engine::{Departure, Pipeline};
use measure::{DepartureMeter, DropReason};
use packet::Frame;
use std::collections::VecDeque;
use units::{FrameLen, Time};

/// The way out: hands frames to the transmit queues of a port and books what became of each.
///
/// With several queues the frames of one flow share one, so that their order stays; how many there
/// are changes nothing about when frames depart.
pub(crate) struct Outlet {
    lanes: Vec<Lane>,
    waiting: usize,
}

struct Lane {
    tx: TxQueue,
    /// Frames whose time has come, and their asks and lengths.
    burst: Burst,
    asks: VecDeque<(Time, FrameLen)>,
}

impl Outlet {
    pub(crate) fn new(queues: Vec<TxQueue>) -> Self {
        let lane = |tx| Lane { tx, burst: Burst::new(), asks: VecDeque::new() };
        Outlet { lanes: queues.into_iter().map(lane).collect(), waiting: 0 }
    }

    /// Frames whose time has come and which no queue has taken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether any frame may be added: a queue that takes nothing stops all, for the sake of order.
    pub(crate) fn has_room(&self) -> bool {
        self.lanes.iter().all(|lane| lane.burst.room() > 0)
    }

    /// Adds a frame whose time has come.
    pub(crate) fn add(&mut self, departure: Departure<Mbuf>, pipeline: &mut Pipeline<Mbuf>) {
        let Departure { frame, length, at, .. } = departure;
        let lane = match self.lanes.len() {
            1 => 0,
            lanes => packet::flow_hash(frame.bytes()) as usize % lanes,
        };
        let lane = &mut self.lanes[lane];
        if !lane.tx.carries(&frame) {
            pipeline.lost(DropReason::TooLong);
            return;
        }
        lane.burst.push(frame).expect("frames are added while there is room");
        lane.asks.push_back((at, length));
        self.waiting += 1;
    }

    /// Sends what was added; the clock is read right before each queue is given its frames. Gives how
    /// many were taken.
    pub(crate) fn send(
        &mut self,
        now: impl Fn() -> Time,
        pipeline: &mut Pipeline<Mbuf>,
        meter: &mut DepartureMeter,
    ) -> usize {
        let mut taken = 0;
        for lane in self.lanes.iter_mut().filter(|lane| !lane.burst.is_empty()) {
            let at = now();
            let sent = lane.tx.send(&mut lane.burst);
            for (ask, length) in lane.asks.drain(..sent) {
                pipeline.sent(length);
                pipeline.departed(ask, at);
                meter.record(ask, at, length);
            }
            taken += sent;
        }
        self.waiting -= taken;
        taken
    }
}

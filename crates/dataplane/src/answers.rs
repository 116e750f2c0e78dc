use crate::outlet::Outlet;
use dpdk::{Burst, Mbuf, RxQueue};
use engine::sources::Host;
use measure::{AnsweredTally, AnswersReport, DropReason, FrameCounters};
use packet::{AnsweredRequest, Frame};
use std::collections::VecDeque;
use units::{Span, Time};

/// Answers of a generator to frames that arrive on its sending port. It answers requests for the addresses of its
/// streams, and pings, so that an ordinary host can be the receiver.
///
/// Answers follow a departure in the same call of the driver, or are sent alone while no departure is near. The
/// counters of the pipeline do not include them.
pub(crate) struct Answers {
    queues: Vec<RxQueue>,
    turn: usize,
    hosts: Vec<Host>,
    received: Burst,
    /// Buffer for the next answer.
    text: Vec<u8>,
    ready: VecDeque<(AnsweredRequest, Mbuf)>,
    polled_at: Time,
    report: AnswersReport,
    drops: FrameCounters,
}

/// Counts a frame that needs no answer.
pub(crate) fn ignore(report: &mut AnswersReport, frame: &[u8]) {
    report.ignored += 1;
    if let Some(error) = packet::parse_icmp_error(frame) {
        report.count_icmp_error(error);
    } else if let Some(request) = packet::parse_address_request(frame) {
        report.count_unanswered(request);
    }
}

/// Longest interval between polls, even with dense departures.
const POLL_INTERVAL: Span = Span::from_ms(1);
/// Limit on waiting answers: a ping flood loses some.
const MAX_READY: usize = 64;
/// An answer sent this long before a departure does not delay it.
pub(crate) const CLEAR: Span = Span::from_us(20);

impl Answers {
    /// `before_run` has the counts from before the run.
    pub(crate) fn new(queues: Vec<RxQueue>, hosts: Vec<Host>, before_run: AnswersReport) -> Self {
        Answers {
            queues,
            turn: 0,
            hosts,
            received: Burst::new(),
            text: Vec::with_capacity(2_048),
            ready: VecDeque::with_capacity(MAX_READY),
            polled_at: Time::ZERO,
            report: before_run,
            drops: FrameCounters::default(),
        }
    }

    /// True if the last poll was so long ago that the next one is due even if departures are near.
    pub(crate) fn must_poll(&self, now: Time) -> bool {
        now.since(self.polled_at) >= POLL_INTERVAL
    }

    /// Takes up to `most` of the frames that have arrived, and prepares answers. Returns the number of frames taken.
    pub(crate) fn poll(&mut self, now: Time, most: usize) -> usize {
        self.polled_at = now;
        if self.queues.is_empty() {
            return 0;
        }
        let received = self.queues[self.turn].poll_up_to(&mut self.received, most);
        self.turn = (self.turn + 1) % self.queues.len();
        for mut frame in self.received.drain() {
            self.report.arrived.add(frame.length());
            let owner = |address, vlans| self.hosts.iter().find_map(|host| host.mac_of(address, vlans));
            match packet::write_reply(frame.bytes(), owner, &mut self.text) {
                None => ignore(&mut self.report, frame.bytes()),
                // The buffer of the request has room for an answer of its length, or of the minimum length.
                Some(answered) if self.ready.len() < MAX_READY && frame.copy_from(&self.text).is_ok() => {
                    self.ready.push_back((answered, frame));
                }
                Some(_) => self.drops.drop_one(DropReason::Pool),
            }
        }
        received
    }

    /// The oldest waiting answer.
    pub(crate) fn next(&mut self) -> Option<(AnsweredRequest, Mbuf)> {
        self.ready.pop_front()
    }

    /// Passes answers to the outlet: all that are ready if `alone`, else one to follow a departure.
    pub(crate) fn hand_over(&mut self, outlet: &mut Outlet, alone: bool) {
        let most = if alone { MAX_READY } else { 1 };
        for _ in 0..most {
            if !outlet.has_room() {
                break;
            }
            let Some((answered, frame)) = self.next() else { break };
            outlet.add_answer(answered, frame);
        }
    }

    /// Counters: frames received, answers `since` the run began, answers handed over but `not_taken` by the port, and
    /// unanswered requests.
    pub(crate) fn report(&self, since: AnsweredTally, not_taken: u64) -> AnswersReport {
        let held = self.ready.len() as u64 + not_taken;
        let before = self.report.answered;
        let answered =
            AnsweredTally { arp: before.arp + since.arp, ndp: before.ndp + since.ndp, echo: before.echo + since.echo };
        AnswersReport { answered, drops: self.drops.drops(), held, ..self.report.clone() }
    }
}

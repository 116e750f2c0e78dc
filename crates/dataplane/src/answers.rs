use crate::outlet::Outlet;
use dpdk::{Burst, Mbuf, RxQueue};
use engine::sources::Host;
use measure::{AnsweredTally, AnswersReport, Books, DropReason};
use packet::{Answered, Frame};
use std::collections::VecDeque;
use units::{Span, Time};

/// What a generator does with frames that arrive on the port it sends on: who asks for the addresses that
/// its streams come from, or pings them, gets an answer, so that a normal host can be the receiver.
///
/// Answers leave behind a departure, in the same call of the driver, or by themselves while no departure is
/// near. They are frames of their own: no count of the pipeline has them.
pub(crate) struct Answers {
    queues: Vec<RxQueue>,
    turn: usize,
    hosts: Vec<Host>,
    received: Burst,
    /// What an answer is written to.
    text: Vec<u8>,
    ready: VecDeque<(Answered, Mbuf)>,
    looked: Time,
    report: AnswersReport,
    drops: Books,
}

/// Counts a frame that asks for nothing of ours.
pub(crate) fn ignore(report: &mut AnswersReport, frame: &[u8]) {
    report.ignored += 1;
    if let Some(refusal) = packet::refused(frame) {
        report.refuse(refusal);
    } else if let Some(question) = packet::asked(frame) {
        report.ask_in_vain(question);
    }
}

/// However dense departures are, one who asks is heard so often.
const LISTEN: Span = Span::from_ms(1);
/// More than this waits for no departure: who floods a generator with pings loses some.
const MOST_READY: usize = 64;
/// A departure that is so far away is not delayed by an answer that is sent before it.
pub(crate) const CLEAR: Span = Span::from_us(20);

impl Answers {
    /// `heard` was counted before the run began.
    pub(crate) fn new(queues: Vec<RxQueue>, hosts: Vec<Host>, heard: AnswersReport) -> Self {
        Answers {
            queues,
            turn: 0,
            hosts,
            received: Burst::new(),
            text: Vec::with_capacity(2_048),
            ready: VecDeque::with_capacity(MOST_READY),
            looked: Time::ZERO,
            report: heard,
            drops: Books::default(),
        }
    }

    /// Nobody has been heard for so long that a look is due whatever is to depart.
    pub(crate) fn must_look(&self, now: Time) -> bool {
        now.since(self.looked) >= LISTEN
    }

    /// Takes up to `most` of the frames that have arrived, and makes the answers. Gives how many came.
    pub(crate) fn look(&mut self, now: Time, most: usize) -> usize {
        self.looked = now;
        if self.queues.is_empty() {
            return 0;
        }
        let came = self.queues[self.turn].poll_up_to(&mut self.received, most);
        self.turn = (self.turn + 1) % self.queues.len();
        for mut frame in self.received.drain() {
            self.report.came.add(frame.length());
            let owner = |address, vlans| self.hosts.iter().find_map(|host| host.mac_of(address, vlans));
            match packet::answer(frame.bytes(), owner, &mut self.text) {
                None => ignore(&mut self.report, frame.bytes()),
                // The buffer it came in has room for what is as long, or the shortest frame there is.
                Some(answered) if self.ready.len() < MOST_READY && frame.copy_from(&self.text).is_ok() => {
                    self.ready.push_back((answered, frame));
                }
                Some(_) => self.drops.drop_one(DropReason::Pool),
            }
        }
        came
    }

    /// The answer that has waited longest.
    pub(crate) fn next(&mut self) -> Option<(Answered, Mbuf)> {
        self.ready.pop_front()
    }

    /// Gives answers to the outlet: all that are ready if `alone`, one if it is to ride behind a departure.
    pub(crate) fn hand_over(&mut self, outlet: &mut Outlet, alone: bool) {
        let most = if alone { MOST_READY } else { 1 };
        for _ in 0..most {
            if !outlet.has_room() {
                break;
            }
            let Some((answered, frame)) = self.next() else { break };
            outlet.add_answer(answered, frame);
        }
    }

    /// The books: what came, what of it was answered `since` the run began, what was handed over but
    /// `not_taken` by the port, and what was not answered.
    pub(crate) fn report(&self, since: AnsweredTally, not_taken: u64) -> AnswersReport {
        let held = self.ready.len() as u64 + not_taken;
        let before = self.report.answered;
        let answered =
            AnsweredTally { arp: before.arp + since.arp, ndp: before.ndp + since.ndp, echo: before.echo + since.echo };
        AnswersReport { answered, drops: self.drops.drops(), held, ..self.report.clone() }
    }
}

//! The sending thread of one port.

use crate::flow::{Duration as FlowDuration, End, FCS, Rate, Sizes};
use crate::frame::FrameMaker;
use crate::meters::{FlowMeters, PortMeters, Transmission, now_ns};
use crate::wire::Transmit;
use packet::Stamp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// A thread wakes up late by up to this time, so the end of each wait polls the clock.
const SPIN: Duration = Duration::from_micros(70);
/// Maximum lateness that is caught up.
const FORGIVEN_PS: u64 = 1_000_000_000_000;
/// How long to wait after an error of the port.
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum total frame rate of all flows at which the thread sleeps most of the time. It may then run with a priority
/// above other threads: each frame costs it at most [`SPIN`].
const MOSTLY_ASLEEP: f64 = 3_000.0;

/// A flow with its future departures.
pub(crate) struct Departures {
    pub(crate) meters: Arc<FlowMeters>,
    /// Makers of frames, which are used in turn. There is at least one.
    pub(crate) makers: Vec<Arc<FrameMaker>>,
    pub(crate) sizes: Sizes,
    pub(crate) rate: Rate,
    pub(crate) duration: FlowDuration,
    /// The stream number in its stamps.
    pub(crate) stream: u16,
    /// Picoseconds from the start to the first frame.
    pub(crate) phase_ps: u64,
}

/// A command for a sender. Streams identify flows.
pub(crate) enum Command {
    Start(Vec<Departures>, Instant),
    Stop(Vec<u16>),
    Pause(Vec<u16>),
    Resume(Vec<u16>),
    Change(u16, Sizes, Rate),
    /// A frame that belongs to no flow.
    Send(Vec<u8>),
    /// Answered when all earlier commands have been executed.
    Done(Sender<()>),
    End,
}

struct Running {
    departures: Departures,
    /// Number of the next frame.
    n: u64,
    due_ps: u64,
    end_ps: u64,
    rest: u128,
    /// When the flow was paused.
    paused_ps: Option<u64>,
    /// Identifies the valid entry of the flow in the heap.
    ticket: u64,
}

/// Sends frames until the engine ends.
pub(crate) fn run(mut port: Box<dyn Transmit>, commands: &Receiver<Command>, meters: &PortMeters) {
    port.begin();
    let mut sender = SenderState { running: HashMap::new(), due: BinaryHeap::new(), epoch: Instant::now(), ticket: 0 };
    let mut raised = false;
    let mut frame = Vec::with_capacity(2_048);
    loop {
        let wait = match sender.due.peek() {
            None => Duration::from_secs(3_600),
            Some(Reverse((due, ..))) => {
                Duration::from_nanos(due.saturating_sub(sender.now_ps()) / 1_000).saturating_sub(SPIN)
            }
        };
        let command = if wait.is_zero() {
            commands.try_recv().ok()
        } else {
            match commands.recv_timeout(wait) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        };
        match command {
            Some(Command::End) => return,
            Some(Command::Send(other)) => {
                let taken = port.send(&other).is_ok_and(|taken| taken);
                taken.then(|| meters.sent((other.len() + FCS) as u64));
            }
            Some(command) => {
                sender.obey(command);
                let sleeps = sender.frames_per_second() <= MOSTLY_ASLEEP;
                if sleeps != raised {
                    raised = sleeps;
                    port.set_raised_priority(sleeps);
                }
            }
            None => {}
        }
        // A short wait may also have ended because of a command.
        let Some(Reverse((due, stream, ticket))) = sender.due.peek().copied() else { continue };
        if due.saturating_sub(sender.now_ps()) > SPIN.as_nanos() as u64 * 1_000 {
            continue;
        }
        sender.due.pop();
        let epoch = sender.epoch;
        let Some(flow) = sender.running.get_mut(&stream).filter(|flow| flow.ticket == ticket) else { continue };
        if due >= flow.end_ps {
            flow.departures.meters.set_state(Transmission::Stopped);
            sender.running.remove(&stream);
            continue;
        }
        let size = flow.departures.sizes.at(flow.n);
        let length = size as usize - FCS;
        let makers = &flow.departures.makers;
        let maker = &makers[(flow.n % makers.len() as u64) as usize];
        let has_room = maker.has_room(length);
        let stamp = has_room.then_some(Stamp { stream, sequence: flow.n as u32, time_ns: 0 });
        maker.make(flow.n, length, stamp, &mut frame);
        let passed = |epoch: Instant| epoch.elapsed().as_nanos() as u64 * 1_000;
        while passed(epoch) < due {
            std::hint::spin_loop();
        }
        if has_room {
            maker.set_time(&mut frame, now_ns());
        }
        let taken = port.send(&frame);
        let now = passed(epoch);
        if taken != Ok(true) {
            // A thread with raised priority must sleep while it waits for space in the queue.
            if taken.is_err() || raised {
                std::thread::sleep(PAUSE);
            }
            // The same frame remains due until it departs.
            sender.due.push(Reverse((due.max(now.saturating_sub(FORGIVEN_PS)), stream, ticket)));
            continue;
        }
        meters.sent(size.into());
        flow.departures.meters.sent(&frame, size.into());
        sender.departed((due, stream, ticket), now, size);
    }
}

struct SenderState {
    running: HashMap<u16, Running>,
    /// Due time, stream and ticket.
    due: BinaryHeap<Reverse<(u64, u16, u64)>>,
    epoch: Instant,
    ticket: u64,
}

impl SenderState {
    fn now_ps(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64 * 1_000
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start(flows, start) => {
                let start = start.saturating_duration_since(self.epoch).as_nanos() as u64 * 1_000;
                for departures in flows {
                    let first = start + departures.duration.delay_ps + departures.phase_ps;
                    let end_ps = if let End::Time(time) = departures.duration.end { first + time } else { u64::MAX };
                    let stream = departures.stream;
                    departures.meters.set_state(Transmission::Started);
                    let ticket = self.queue(first, stream);
                    let running = Running { departures, n: 0, due_ps: first, end_ps, rest: 0, paused_ps: None, ticket };
                    self.running.insert(stream, running);
                }
            }
            Command::Stop(streams) => {
                for running in streams.iter().filter_map(|stream| self.running.remove(stream)) {
                    running.departures.meters.set_state(Transmission::Stopped);
                }
            }
            Command::Pause(streams) => {
                let now = self.now_ps();
                for stream in streams {
                    if let Some(flow) = self.running.get_mut(&stream).filter(|flow| flow.paused_ps.is_none()) {
                        flow.paused_ps = Some(now);
                        // No entry of the heap has this ticket, so the flow is not due.
                        flow.ticket = u64::MAX;
                        flow.departures.meters.set_state(Transmission::Paused);
                    }
                }
            }
            Command::Resume(streams) => {
                let now = self.now_ps();
                for stream in streams {
                    let Some(flow) = self.running.get_mut(&stream) else { continue };
                    let Some(paused) = flow.paused_ps.take() else { continue };
                    flow.due_ps += now - paused;
                    flow.end_ps = flow.end_ps.saturating_add(now - paused);
                    flow.departures.meters.set_state(Transmission::Started);
                    let due = flow.due_ps;
                    let ticket = self.queue(due, stream);
                    if let Some(flow) = self.running.get_mut(&stream) {
                        flow.ticket = ticket;
                    }
                }
            }
            Command::Change(stream, sizes, rate) => {
                if let Some(flow) = self.running.get_mut(&stream) {
                    (flow.departures.sizes, flow.departures.rate, flow.rest) = (sizes, rate, 0);
                }
            }
            // The requester may have gone away.
            Command::Done(reply) => drop(reply.send(())),
            Command::Send(_) | Command::End => {}
        }
    }

    /// Plans the next departure of a flow. The preceding one was due at `due` and happened at `now`.
    fn departed(&mut self, (due, stream, ticket): (u64, u16, u64), now: u64, size: u32) {
        let Some(flow) = self.running.get_mut(&stream) else { return };
        flow.n += 1;
        let due = due.max(now.saturating_sub(FORGIVEN_PS));
        flow.due_ps = due + flow.departures.rate.interval_ps(size, &mut flow.rest);
        if let Some((packets, pause)) = flow.departures.duration.burst
            && flow.n % packets == 0
        {
            flow.due_ps += pause;
        }
        if matches!(flow.departures.duration.end, End::After(count) if flow.n >= count) {
            flow.departures.meters.set_state(Transmission::Stopped);
            self.running.remove(&stream);
        } else {
            self.due.push(Reverse((flow.due_ps, stream, ticket)));
        }
    }

    /// The total rate of all flows that are not paused. Includes flows that have ended since the last command.
    fn frames_per_second(&self) -> f64 {
        let running = self.running.values().filter(|flow| flow.paused_ps.is_none());
        running.map(|flow| flow.departures.rate.frames_per_second(flow.departures.sizes.mean())).sum()
    }

    fn queue(&mut self, due: u64, stream: u16) -> u64 {
        self.ticket += 1;
        self.due.push(Reverse((due, stream, self.ticket)));
        self.ticket
    }
}

/// Phases in picoseconds of flows that start together. Flows with the same rate are spread evenly over their period,
/// and each further rate starts at another offset, so that frames of different flows do not leave in bursts.
pub(crate) fn phases(frames_per_second: &[f64]) -> Vec<u64> {
    let periods: Vec<u64> = frames_per_second.iter().map(|rate| (1e12 / rate) as u64).collect();
    let mut groups: Vec<(u64, u64)> = Vec::new();
    let mut group_of: HashMap<u64, usize> = HashMap::new();
    for period in &periods {
        let group = *group_of.entry(*period).or_insert_with(|| {
            groups.push((*period, 0));
            groups.len() - 1
        });
        groups[group].1 += 1;
    }
    let mut placed = vec![0_u64; groups.len()];
    periods
        .iter()
        .map(|period| {
            let group = group_of[period];
            let (count, k) = (groups[group].1, placed[group]);
            placed[group] += 1;
            let step = period / count;
            let shift = (step as f64 * (group as f64 * 0.618_033_988_749_895).fract()) as u64;
            (u128::from(*period) * u128::from(k) / u128::from(count)) as u64 + shift
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Payload;
    use crate::reader::Node;

    #[test]
    fn flows_of_one_rate_are_spread_over_their_period() {
        let phases = phases(&[1.0; 1_000]);
        assert!(phases.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000_000), "a millisecond apart");
        assert_eq!(phases[0], 0);
    }

    /// Flows with one frame per second each are together a steady stream, not one burst per second.
    #[test]
    fn a_thousand_slow_flows_are_planned_a_millisecond_apart() {
        let packet = serde_json::json!([{ "ethernet": {} }]);
        let nodes = Node::root(&packet).list().expect("a list");
        let maker = Arc::new(FrameMaker::read(&nodes, Payload::Bytes(true)).expect("a frame"));
        let flow = |(stream, phase_ps): (usize, u64)| Departures {
            meters: Arc::new(FlowMeters::new(Vec::new(), true)),
            makers: vec![Arc::clone(&maker)],
            sizes: Sizes::Fixed(64),
            rate: Rate::Frames(1),
            duration: FlowDuration { end: End::After(3), burst: None, delay_ps: 0 },
            stream: stream as u16,
            phase_ps,
        };
        let flows = phases(&[1.0; 1_000]).into_iter().enumerate().map(flow).collect();
        let mut sender =
            SenderState { running: HashMap::new(), due: BinaryHeap::new(), epoch: Instant::now(), ticket: 0 };
        sender.obey(Command::Start(flows, sender.epoch));
        assert!((sender.frames_per_second() - 1_000.0).abs() < 1e-6);
        let mut planned = Vec::new();
        while let Some(Reverse(next)) = sender.due.pop() {
            planned.push((next.0, next.1));
            // The delay of a busy machine. It must not move later departures.
            sender.departed(next, next.0 + 7_000_000_000, 64);
        }
        let wanted: Vec<(u64, u16)> = (0..3_000).map(|n| (n * 1_000_000_000, (n % 1_000) as u16)).collect();
        assert_eq!(planned, wanted);
        assert!(sender.running.is_empty());
    }

    #[test]
    fn flows_of_different_rates_do_not_leave_together() {
        let mut rates = vec![1_000.0];
        rates.extend([1.0; 1_000]);
        rates.push(500.0);
        let phases = phases(&rates);
        let period = 1_000_000_000;
        let within: Vec<u64> = phases.iter().map(|phase| phase % period).collect();
        let apart = |a: u64, b: u64| a.abs_diff(b).min(period - a.abs_diff(b));
        assert!(within[1..1_001].iter().all(|phase| apart(*phase, within[0]) > period / 10));
        assert!(apart(within[1_001], within[0]) > period / 10 && apart(within[1_001], within[1]) > period / 10);
    }
}

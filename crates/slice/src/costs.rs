//! The cost of each probe, and its share in each slice.

use crate::formulas::Overhead;
use crate::kernel::Counters;
use crate::record::{Point, Probe, Record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Cost of a kernel program, without entry and exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeCost {
    /// Run time from its stamp to its end, in ns.
    pub body_ns: f64,
    /// Runs per frame of the calibration.
    pub per_packet: f64,
}

/// Cost of the probes on this machine, from calibration. The default is zero.
///
/// A program stamps first and works afterwards, so its work lies in the slice that its stamp starts. Entry lies before
/// the stamp and exit after it. Half of the sum is attributed to each side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// NetSlice's four costs, for a frame that has all its stamps.
    #[serde(flatten)]
    pub overhead: Overhead,
    /// Entry to and exit from a program at a network tracepoint, in ns.
    pub way_ns: f64,
    /// The same for a program at the entry or return of system calls. It is higher, because the system call leaves the
    /// kernel's fast path.
    pub call_way_ns: f64,
    /// Cost per program.
    pub probes: BTreeMap<Probe, ProbeCost>,
    /// Events that the programs add to the counts, in order of the events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventCost>,
    /// Share of the calibration time that its CPU spent on other programs. Their work is included in the costs.
    #[serde(default)]
    pub others: f64,
}

/// Events that the programs add to a count: NetSlice's n(…,e).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventCost {
    /// Name of the event.
    pub event: String,
    /// n(β,e), of two stamps: a start and a stop.
    pub beta: f64,
    /// n(o,e), of one stamp, which lies between start and stop.
    pub inside: f64,
    /// n(γ,e), of the hand-over.
    pub gamma: f64,
}

/// Probes that only stamp, and that run to their end only for traced frames. Their run time shows the machine's pace
/// under any load.
const PACERS: [Probe; 6] =
    [Probe::Transmit, Probe::TransmitDone, Probe::TcpReceive, Probe::Ready, Probe::Copy, Probe::Copied];
/// Timed runs needed for an estimate.
const ENOUGH: u64 = 64;

impl Costs {
    /// Run time of the probes as a multiple of the calibrated one, from the timed runs. `None` if there are too few.
    #[must_use]
    pub fn pace(&self, runs: &Counters) -> Option<f64> {
        let (mut timed, mut spent, mut expected) = (0, 0.0, 0.0);
        for probe in PACERS {
            let n = runs.timed[probe as usize];
            timed += n;
            spent += runs.spent[probe as usize] as f64;
            expected += n as f64 * self.body(probe);
        }
        (timed >= ENOUGH && expected > 0.0).then(|| spent / expected)
    }

    /// The costs at another pace of the machine. All times scale alike; events are counted and do not scale.
    #[must_use]
    pub fn at_pace(&self, pace: f64) -> Costs {
        let Overhead { alpha, beta, inside, gamma } = self.overhead;
        let overhead = Overhead { alpha: alpha * pace, beta: beta * pace, inside: inside * pace, gamma: gamma * pace };
        let scaled = |cost: &ProbeCost| ProbeCost { body_ns: cost.body_ns * pace, ..*cost };
        Costs {
            overhead,
            way_ns: self.way_ns * pace,
            call_way_ns: self.call_way_ns * pace,
            probes: self.probes.iter().map(|(probe, cost)| (*probe, scaled(cost))).collect(),
            events: self.events.clone(),
            others: self.others,
        }
    }

    fn body(&self, probe: Probe) -> f64 {
        self.probes.get(&probe).map_or(0.0, |cost| cost.body_ns)
    }

    fn way(&self, probe: Probe) -> f64 {
        match probe {
            // A missing probe costs nothing.
            _ if !self.probes.contains_key(&probe) => 0.0,
            Probe::SysEnter | Probe::SysExit => self.call_way_ns,
            _ => self.way_ns,
        }
    }

    /// Total cost of a program, in ns.
    #[must_use]
    pub fn probe(&self, probe: Probe) -> f64 {
        self.body(probe) + self.way(probe)
    }

    /// The work after stamp `n`. At its first stamp in the network, a frame gets a slot and its headers are read; the
    /// calibration measures this at the device's queue. Later network stamps only stamp.
    fn after(&self, record: &Record, n: usize) -> f64 {
        let point = record.stamps[n].point;
        if matches!(point, Point::SendEnter | Point::TcpSend | Point::IpSend) {
            return self.body(point.probe());
        }
        let before = &record.stamps[..n];
        let first = before.iter().all(|s| matches!(s.point, Point::SendEnter | Point::TcpSend | Point::IpSend));
        match point {
            // It starts a piece, as the device's queue starts a packet.
            Point::Ready if record.piece > 0 => self.body(Probe::Queue),
            _ if first => self.body(Probe::Queue),
            Point::Queue if self.probes.contains_key(&Probe::Transmit) => self.body(Probe::Transmit),
            _ => self.body(point.probe()),
        }
    }

    /// Time that the probes add between stamp `n` of a frame and the next, in ns.
    ///
    /// # Panics
    /// There is no next stamp.
    #[must_use]
    pub fn between(&self, record: &Record, n: usize) -> f64 {
        let (here, next) = (record.stamps[n], record.stamps[n + 1]);
        let own = self.after(record, n) + (self.way(here.point.probe()) + self.way(next.point.probe())) / 2.0;
        let others: f64 = self.meanwhile(record, n).iter().map(|probe| self.probe(*probe)).sum();
        let cut = self.body(Probe::Queue) + self.way(Probe::Ready);
        let pieces = f64::from(pieces_before(record, n)) * cut;
        let parts: f64 = self.of_parts(record, n).map(|(probe, times)| self.probe(probe) * f64::from(times)).sum();
        own + others + parts + pieces
    }

    /// Programs that run while the later parts of a packet are read, and how often. Each read is a call.
    fn of_parts(&self, record: &Record, n: usize) -> impl Iterator<Item = (Probe, u32)> {
        let (here, next) = (record.stamps[n].point, record.stamps[n + 1].point);
        let calls = if here == Point::Part { record.parts.saturating_sub(1) } else { 0 };
        let few = if (here, next) == (Point::Copy, Point::Copy) { record.parts.saturating_sub(1) } else { 0 };
        let of_calls = [Probe::ReceiveLength, Probe::SysExit, Probe::SysEnter, Probe::Copy];
        let each_call = of_calls.map(|probe| (probe, calls));
        // The last of these runs is a stamp.
        let copied = [(Probe::Copied, calls.saturating_sub(1))];
        let of_few = [(Probe::ReceiveLength, few), (Probe::Copy, few.saturating_sub(1))];
        each_call.into_iter().chain(copied).chain(of_few)
    }

    /// Programs that run on the same CPU between stamp `n` and the next without stamping this frame.
    fn meanwhile(&self, record: &Record, n: usize) -> &'static [Probe] {
        let (here, next) = (record.stamps[n], record.stamps[n + 1]);
        let first = record.stamps[0];
        let same_cpu = here.cpu == next.cpu;
        let on_the_senders = same_cpu && first.point == Point::SendEnter && first.cpu == here.cpu;
        match (here.point, next.point) {
            (Point::Arrive, Point::Receive) if same_cpu => &[Probe::TransmitDone],
            (Point::Copied, Point::ReceiveExit) if record.flow.protocol == 6 => &[Probe::ReceiveLength],
            // On the CPU that the reader waits for, the sender ends its call and waits in the next one.
            (Point::Ready, Point::Copy | Point::Copied) if on_the_senders => &[Probe::SysExit, Probe::SysEnter],
            // The reader was preempted in a call, and ends that call before it makes the next.
            (Point::Ready, Point::ReceiveEnter) if on_the_senders => &[Probe::SysExit],
            _ => &[],
        }
    }

    /// Events that the programs add between stamp `n` and the next: n(o,e) for each program that runs there.
    pub(crate) fn added(&self, record: &Record, n: usize, event: usize) -> f64 {
        let one = self.events.get(event).map_or(0.0, |cost| cost.inside);
        let others = self.meanwhile(record, n).iter().filter(|probe| self.probes.contains_key(probe)).count();
        let counted = self.of_parts(record, n).filter(|(probe, _)| self.probes.contains_key(probe));
        let parts: u32 = counted.map(|(_, times)| times).sum();
        let pieces = pieces_before(record, n);
        one * (1.0 + others as f64 + f64::from(parts) + f64::from(pieces))
    }

    /// Time that the probes add to the round of a frame, in ns: formula (5) with the cost of each stamp.
    #[must_use]
    pub fn whole(&self, record: &Record) -> f64 {
        let Some(last) = record.stamps.last() else { return 0.0 };
        // The first piece carries the cost of the probes before the split.
        let from = (0..record.stamps.len() - 1).find(|&n| pieces_before(record, n) > 0);
        let from = from.map_or(0, |n| n + 1);
        let between: f64 = (from..record.stamps.len() - 1).map(|n| self.between(record, n)).sum();
        let ends = |point: Point| self.way(point.probe()) / 2.0;
        between
            + ends(record.stamps[from].point)
            + ends(last.point)
            + self.body(last.point.probe())
            + self.overhead.gamma
    }
}

/// Number of datagrams that were split off one packet between stamp `n` and the next. The probe there ran for each of
/// them.
fn pieces_before(record: &Record, n: usize) -> u16 {
    let cut = record.stamps[n].point == Point::Receive && record.stamps[n + 1].point == Point::Ready;
    if cut { record.piece.saturating_sub(1) } else { 0 }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::tests::record;

    pub(crate) fn costs() -> Costs {
        let probe = |body_ns| ProbeCost { body_ns, per_packet: 1.0 };
        Costs {
            overhead: Overhead { alpha: 60.0, beta: 100.0, inside: 50.0, gamma: 200.0 },
            way_ns: 20.0,
            call_way_ns: 80.0,
            probes: [
                (Probe::SysEnter, probe(30.0)),
                (Probe::SysExit, probe(40.0)),
                (Probe::Queue, probe(100.0)),
                (Probe::Transmit, probe(10.0)),
                (Probe::TransmitDone, probe(11.0)),
                (Probe::NetifRx, probe(12.0)),
                (Probe::Receive, probe(13.0)),
            ]
            .into(),
            events: Vec::new(),
            others: 0.0,
        }
    }

    #[test]
    fn each_cost_lies_where_it_falls() {
        let costs = costs();
        let mut record = record(&[
            (Point::SendEnter, 0),
            (Point::Queue, 1_000),
            (Point::Transmit, 2_000),
            (Point::Arrive, 3_000),
            (Point::Receive, 4_000),
        ]);
        let of = |record: &Record, n| costs.between(record, n);
        assert!((of(&record, 0) - (30.0 + 40.0 + 10.0)).abs() < 1e-9, "the call's probe and half of each way");
        assert!((of(&record, 1) - (100.0 + 20.0)).abs() < 1e-9, "the first stamp in the network reads headers");
        assert!((of(&record, 2) - (10.0 + 20.0)).abs() < 1e-9);
        assert!((of(&record, 3) - (12.0 + 20.0 + 31.0)).abs() < 1e-9, "the driver's return runs before the softirq");
        record.stamps[4].cpu = 1;
        assert!((of(&record, 3) - (12.0 + 20.0)).abs() < 1e-9, "but not on another CPU");
        let whole = 80.0 + 120.0 + 30.0 + 32.0 + 40.0 + 10.0 + 13.0 + 200.0;
        assert!((costs.whole(&record) - whole).abs() < 1e-9, "{}", costs.whole(&record));
    }

    #[test]
    fn each_read_of_a_part_costs_its_probes() {
        let mut costs = costs();
        for probe in [Probe::ReceiveLength, Probe::Copy, Probe::Copied] {
            costs.probes.insert(probe, ProbeCost { body_ns: 5.0, per_packet: 1.0 });
        }
        let mut record = record(&[(Point::Copy, 0), (Point::Part, 100), (Point::Copied, 90_000)]);
        record.parts = 2;
        let two = costs.between(&record, 1);
        record.parts = 8;
        // Two probes at system calls with 80 ns of entry and exit each, three others with 20 ns.
        let read = (30.0 + 80.0) + (40.0 + 80.0) + 3.0 * (5.0 + 20.0);
        assert!((costs.between(&record, 1) - two - 6.0 * read).abs() < 1e-9, "six reads more");
    }

    #[test]
    fn datagrams_of_one_packet_share_the_probes_before_the_cut() {
        let mut costs = costs();
        costs.probes.insert(Probe::Ready, ProbeCost { body_ns: 5.0, per_packet: 1.0 });
        let mut record =
            record(&[(Point::SendEnter, 0), (Point::Queue, 100), (Point::Receive, 500), (Point::Ready, 900)]);
        record.flow.protocol = 17;
        record.piece = 1;
        let (first, whole) = (costs.between(&record, 2), costs.whole(&record));
        record.piece = 5;
        assert!(
            (costs.between(&record, 2) - first - 4.0 * (100.0 + 20.0)).abs() < 1e-9,
            "four others were cut before it"
        );
        assert!((costs.whole(&record) - (20.0 + 5.0 + 200.0)).abs() < 1e-9 && whole > 300.0, "its own stamp");
    }

    #[test]
    fn a_reader_on_the_senders_cpu_waits_for_its_calls() {
        let costs = costs();
        let mut record = record(&[(Point::SendEnter, 0), (Point::Ready, 1_000), (Point::Copy, 9_000)]);
        let alone = costs.between(&Record { stamps: with_cpu(&record, 2, 1), ..record.clone() }, 1);
        let (enter, exit) = (30.0 + 80.0, 40.0 + 80.0);
        assert!((costs.between(&record, 1) - alone - enter - exit).abs() < 1e-9, "the sender's two");
        record.stamps[2].point = Point::ReceiveEnter;
        let alone = costs.between(&Record { stamps: with_cpu(&record, 2, 1), ..record.clone() }, 1);
        assert!((costs.between(&record, 1) - alone - exit).abs() < 1e-9, "the reader's own");
    }

    fn with_cpu(record: &Record, n: usize, cpu: u16) -> Vec<crate::record::Stamp> {
        let mut stamps = record.stamps.clone();
        stamps[n].cpu = cpu;
        stamps
    }

    #[test]
    fn uncalibrated_probes_cost_nothing() {
        let record = record(&[(Point::SendEnter, 0), (Point::Queue, 1_000)]);
        assert!(Costs::default().between(&record, 0).abs() < 1e-12);
    }
}

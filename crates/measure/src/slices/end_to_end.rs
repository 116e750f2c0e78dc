//! Path of packets from program to program, through kernels and a pipeline between them.

use super::column::{Part, Times};
use super::{FIRST, SliceFigures, SlicePart, SliceTimes, SlicedPackets, waterfall};
use crate::figures::{brief, share, thousands};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write;
use units::PS_PER_NS;

/// Path of packets from program to program, in slices of the kernels and of the pipeline between them.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct EndToEnd {
    /// The direction, if this covers only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Outcome of the packets that the pipeline traced; matched packets were seen at both ends.
    pub packets: SlicedPackets,
    /// The slices in order of the path, with the cost of the probes subtracted from kernel slices. They do not overlap,
    /// and sum to the total.
    pub slices: Vec<SliceFigures>,
    /// Time from the sender's system call to the receiver's.
    pub total: SliceTimes,
    /// Which points of the kernel were probed.
    pub probes: String,
    /// Of the first packets, the one whose path is closest to the median.
    pub typical: Vec<SlicePart>,
    /// Each direction separately, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directions: Vec<EndToEnd>,
}

/// Collects complete paths of packets.
#[derive(Default)]
pub struct EndToEndMeter {
    all: PathCollection,
    directions: Vec<(String, PathCollection)>,
}

/// Complete paths of packets, in one direction or all.
#[derive(Clone, Default)]
struct PathCollection {
    seen: u64,
    /// By name, in order of the path; a packet may lack some of them.
    slices: Vec<(String, Times)>,
    total: Times,
    first: Vec<Vec<(String, f64)>>,
}

impl EndToEndMeter {
    /// A meter for directions with these names.
    #[must_use]
    pub fn new(directions: &[String]) -> EndToEndMeter {
        let directions = directions.iter().map(|name| (name.clone(), PathCollection::default())).collect();
        EndToEndMeter { all: PathCollection::default(), directions }
    }

    /// Records a packet of the direction with this index that passed the pipeline. `slices` are its slices by name and
    /// length in ns, if both ends were seen.
    pub fn add(&mut self, direction: usize, slices: Option<&[(String, f64)]>) {
        self.all.add(slices);
        if let Some((_, paths)) = self.directions.get_mut(direction) {
            paths.add(slices);
        }
    }

    /// The figures; `probes` states which points of the kernel were probed.
    #[must_use]
    pub fn report(&self, probes: &str) -> EndToEnd {
        let of =
            |(name, paths): &(String, PathCollection)| EndToEnd { name: Some(name.clone()), ..paths.report(probes) };
        let used = self.directions.iter().filter(|(_, paths)| paths.seen > 0);
        let directions = if used.clone().count() > 1 { used.map(of).collect() } else { Vec::new() };
        EndToEnd { directions, ..self.all.report(probes) }
    }
}

impl PathCollection {
    fn add(&mut self, slices: Option<&[(String, f64)]>) {
        self.seen += 1;
        let Some(slices) = slices else { return };
        let part = |ns: f64| {
            let ps = (ns * PS_PER_NS as f64).round() as i64;
            Part { raw: ps, net: ps, intended: ps }
        };
        let mut next = 0;
        for (name, ns) in slices {
            let known = self.slices.iter().position(|(known, _)| known == name);
            let place = known.unwrap_or_else(|| {
                // After the slice that it followed.
                self.slices.insert(next, (name.clone(), Times::default()));
                next
            });
            self.slices[place].1.count(&[part(*ns)]);
            next = place + 1;
        }
        self.total.count(&[part(slices.iter().map(|(_, ns)| ns).sum())]);
        if self.first.len() < FIRST {
            self.first.push(slices.to_vec());
        }
    }

    fn report(&self, probes: &str) -> EndToEnd {
        let total = self.total.figures();
        let slices = self.slices.iter().map(|(name, times)| times.figures().slice(name, true, &total)).collect();
        let whole = |parts: &[(String, f64)]| parts.iter().map(|(_, ns)| ns).sum::<f64>();
        let off = |parts: &[(String, f64)]| (whole(parts) - total.p50_ns).abs();
        let typical = self.first.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
        let mut start_ns = 0.0;
        let mut part = |(name, ns): &(String, f64)| {
            let part = SlicePart { name: name.clone(), start_ns, length_ns: *ns, intended_ns: *ns };
            start_ns += ns;
            part
        };
        EndToEnd {
            name: None,
            directions: Vec::new(),
            packets: SlicedPackets { seen: self.seen, matched: total.count, lost: self.seen - total.count },
            slices,
            total,
            probes: probes.to_owned(),
            typical: typical.map_or_else(Vec::new, |parts| parts.iter().map(&mut part).collect()),
        }
    }
}

impl EndToEnd {
    /// Tables for people, with one packet's path; one per direction if there are several.
    #[must_use]
    pub fn table(&self) -> String {
        if !self.directions.is_empty() {
            return self.directions.iter().map(EndToEnd::table).collect();
        }
        let SlicedPackets { seen, matched, lost } = self.packets;
        let mut out = String::new();
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(", {name}"));
        let _ = writeln!(
            out,
            "end to end{name}\n  packets   {} carried, of {} both ends were seen, of {} not",
            thousands(seen),
            thousands(matched),
            thousands(lost)
        );
        let _ = writeln!(
            out,
            "  {:<24} {:>11} {:>11} {:>11} {:>8} {:>10}",
            "slice", "mean", "median", "p99", "share", "per packet"
        );
        for slice in &self.slices {
            let _ = writeln!(
                out,
                "  {:<24} {:>11} {:>11} {:>11} {:>8} {:>10.3}",
                slice.name,
                brief(slice.mean_ns),
                brief(slice.p50_ns),
                brief(slice.p99_ns),
                share(slice.total_ratio),
                slice.per_packet
            );
        }
        let total = &self.total;
        let _ = writeln!(
            out,
            "  {:<24} {:>11} {:>11} {:>11}",
            "total",
            brief(total.mean_ns),
            brief(total.p50_ns),
            brief(total.p99_ns)
        );
        if !self.typical.is_empty() {
            let _ = write!(out, "one packet, near the median\n{}", waterfall(&self.typical));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_paths_are_in_order() {
        let mut meter = EndToEndMeter::default();
        let path = |hold: f64| {
            [("client syscall", 300.0), ("netlathe netem", hold), ("server copy", 50.0)]
                .map(|(n, ns)| (n.to_owned(), ns))
        };
        for hold in [200_000.0, 200_010.0, 200_020.0] {
            meter.add(0, Some(&path(hold)));
        }
        meter.add(0, None);
        let report = meter.report("tp_btf");
        assert_eq!(report.packets, SlicedPackets { seen: 4, matched: 3, lost: 1 });
        let names: Vec<&str> = report.slices.iter().map(|slice| slice.name.as_str()).collect();
        assert_eq!(names, ["client syscall", "netlathe netem", "server copy"]);
        let sum: f64 = report.slices.iter().map(|slice| slice.mean_ns * slice.per_packet).sum();
        assert!((sum - report.total.mean_ns).abs() < 1e-6 && (sum - 200_360.0).abs() < 1e-6);
        assert!((report.typical[2].start_ns - 200_310.0).abs() < 300.0, "near the median");
        assert!(report.table().contains("4 carried, of 3 both ends were seen, of 1 not"));
    }

    /// Paths with different slices are merged in path order, not in order of appearance.
    #[test]
    fn slices_missing_in_some_packets_are_in_path_order() {
        let mut meter = EndToEndMeter::default();
        let path = |parts: &[(&str, f64)]| parts.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect::<Vec<_>>();
        meter.add(0, Some(&path(&[("netem", 700.0), ("queueing", 1.0), ("copy", 1.0)])));
        meter.add(0, Some(&path(&[("netem", 1.0), ("queueing", 1.0), ("wake-up", 5.0), ("copy", 1.0)])));
        meter.add(0, Some(&path(&[("syscall", 1.0), ("netem", 1.0), ("copy", 1.0)])));
        let names: Vec<String> = meter.report("").slices.into_iter().map(|slice| slice.name).collect();
        assert_eq!(names, ["syscall", "netem", "queueing", "wake-up", "copy"]);
    }

    #[test]
    fn directions_are_also_counted_separately() {
        let mut meter = EndToEndMeter::new(&["there".to_owned(), "back".to_owned()]);
        for (direction, hold) in [(0, 700.0), (1, 100.0), (0, 700.0), (1, 100.0)] {
            meter.add(direction, Some(&[("netem".to_owned(), hold)]));
        }
        let report = meter.report("");
        let figure = |of: &EndToEnd| (of.packets.seen, of.total.mean_ns.round() as u64);
        assert_eq!(figure(&report), (4, 400));
        assert_eq!(report.directions.iter().map(figure).collect::<Vec<_>>(), [(2, 700), (2, 100)]);
        let table = report.table();
        assert!(table.contains("end to end, there") && table.contains("end to end, back"), "{table}");
        meter = EndToEndMeter::new(&["there".to_owned(), "back".to_owned()]);
        meter.add(0, Some(&[("netem".to_owned(), 1.0)]));
        assert!(meter.report("").directions.is_empty(), "one direction is all");
    }
}

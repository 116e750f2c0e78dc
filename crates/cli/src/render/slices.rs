//! The report of kernel slices, as a JSON object and as a table.

use crate::output::{self, brief, thousands};
use crate::render::report_text;
use measure::slices::SliceTimes;
use measure::{Caveat, CaveatKind, ClockSource, Report, SharedEvent};
use serde::Serialize;
use slice::{Costs, Counted, Counters, EventTotal, Kernel, Loop, Packets, Probe, SliceBook, SliceReport, Unsupported};
use std::fmt::Write;

/// The object of `--json`. Scripts depend on the names of its fields.
#[derive(Serialize)]
pub(crate) struct SlicesReport {
    schema: u32,
    command: &'static str,
    /// Caveats in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    packets: Packets,
    slices: Vec<SliceReport>,
    total: SliceTimes,
    /// Round trips, if frames went in both directions.
    #[serde(rename = "loop")]
    rounds: Option<Loop>,
    overhead: OverheadReport,
    /// The windows of `--windows`.
    #[serde(skip_serializing_if = "Option::is_none")]
    windows: Option<WindowsReport>,
    /// The events of `--counters`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counters: Vec<EventReport>,
    /// `tp_btf`, or `fentry` if functions were traced as well.
    probes: String,
    /// Why this set of probes was used, and which probes this kernel lacks.
    probes_why: Vec<String>,
    /// The exit status of COMMAND; 128 + n if signal n ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    caveats: Vec<Caveat>,
}

/// The cost of measuring, in nanoseconds.
#[derive(Serialize)]
struct OverheadReport {
    /// Mean time subtracted from a frame's total.
    per_packet_ns: f64,
    /// How much longer the probes took than in the calibration, as a mean over the frames.
    pace_ratio: f64,
    /// The mean time subtracted, as a share of the stamped total.
    total_ratio: f64,
    tau_alpha_ns: f64,
    tau_beta_ns: f64,
    tau_o_ns: f64,
    tau_gamma_ns: f64,
    /// Time to enter and leave a probe, and the same for a probe at a system call.
    way_ns: f64,
    call_way_ns: f64,
    probes: Vec<ProbeReport>,
}

#[derive(Serialize)]
struct ProbeReport {
    name: &'static str,
    /// Runs during the measurement, for any frame. Absent if records were read from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    runs: Option<u64>,
    /// Duration of a whole run of the probe.
    run_ns: f64,
}

/// An event of `--counters`.
#[derive(Serialize)]
#[serde(untagged)]
enum EventReport {
    Counted {
        event: String,
        /// Counts in each slice, on the CPU of its two stamps.
        slices: Vec<Counted>,
        /// Count on all CPUs during the measurement, for any program. Absent if records were read from a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        run: Option<u64>,
        /// Events added by the probes, and the part that was subtracted: n(β,e), n(o,e), n(γ,e).
        overhead: EventOverhead,
    },
    Unsupported(Unsupported),
}

#[derive(Serialize)]
struct EventOverhead {
    n_beta: f64,
    n_o: f64,
    n_gamma: f64,
}

/// The windows during which the probes were attached, if they were not attached all the time.
#[derive(Serialize)]
pub(crate) struct WindowsReport {
    /// Number of windows.
    pub(crate) count: u64,
    /// Duration of a window in which new packets were traced, and its period.
    pub(crate) open_ns: f64,
    pub(crate) every_ns: f64,
    /// Share of the run during which probes were attached.
    pub(crate) in_place_ratio: f64,
}

/// The probes used, and why.
#[derive(Default)]
pub(crate) struct ProbeSet {
    pub(crate) probes: String,
    pub(crate) why: Vec<String>,
    pub(crate) counters: Option<Counters>,
    /// The count of each event during the measurement.
    pub(crate) totals: Vec<EventTotal>,
    /// Events that this machine does not count.
    pub(crate) unsupported: Vec<Unsupported>,
    /// The windows of `--windows`.
    pub(crate) windows: Option<WindowsReport>,
}

impl ProbeSet {
    pub(crate) fn of(kernel: &Kernel) -> ProbeSet {
        let mut why = Vec::new();
        match kernel.why_no_functions() {
            Some(_) if kernel.points() == slice::Points::Few => {
                why.push("few points are used, as requested: no system calls, and no details".to_owned());
            }
            Some(reason) => why.push(format!("fentry is not used because the kernel refuses it: {reason}")),
            None => why.push("fentry is used: this kernel can trace functions".to_owned()),
        }
        let missing = kernel.missing().iter();
        why.extend(missing.map(|(probe, reason)| format!("{probe} is not used: {reason}")));
        let unsupported = kernel.events().unsupported().to_vec();
        ProbeSet { probes: kernel.probes().to_owned(), why, unsupported, ..ProbeSet::default() }
    }
}

impl WindowsReport {
    fn note(&self) -> String {
        let WindowsReport { count, open_ns, every_ns, in_place_ratio: in_place } = self;
        let (open, every) = (brief(*open_ns), brief(*every_ns));
        let many = if *count == 1 { "window" } else { "windows" };
        format!(
            "{} {many}, {open} in each {every}; probes were in place for {}",
            thousands(*count),
            output::share(*in_place)
        )
    }
}

impl EventReport {
    /// Returns a sentence for the page.
    fn note(&self) -> String {
        match self {
            EventReport::Unsupported(Unsupported { event, unsupported }) => {
                format!("{event} is not counted: {unsupported}")
            }
            EventReport::Counted { event, slices, .. } => {
                let each: Vec<String> =
                    slices.iter().map(|slice| format!("{} {:.3}", slice.name, slice.mean)).collect();
                format!("{event} in each slice, mean: {}", each.join(", "))
            }
        }
    }
}

impl SlicesReport {
    pub(crate) fn new(book: &SliceBook, set: ProbeSet, status: Option<i32>) -> SlicesReport {
        let costs = book.calibrated();
        let counters = set.counters;
        let total = book.total();
        let caveats = caveats(costs, counters.as_ref(), &set.totals);
        let is_clock = |caveat: &&Caveat| matches!(caveat.kind, CaveatKind::Clock { .. });
        let mut warnings: Vec<String> = caveats.iter().filter(|caveat| !is_clock(caveat)).map(Caveat::line).collect();
        warnings.extend(output::warnings());
        let counted = costs.events.iter().enumerate().map(|(n, cost)| EventReport::Counted {
            event: cost.event.clone(),
            slices: book.counted(n),
            run: set.totals.get(n).map(|total| total.count),
            overhead: EventOverhead { n_beta: cost.beta, n_o: cost.inside, n_gamma: cost.gamma },
        });
        let events = counted.chain(set.unsupported.into_iter().map(EventReport::Unsupported)).collect();
        let runs = |probe: Probe| counters.as_ref().map(|counters| counters.hits_of(probe));
        let probes = Probe::ALL
            .iter()
            .filter(|probe| costs.probes.contains_key(probe) || runs(**probe).is_some_and(|runs| runs > 0))
            .map(|&probe| ProbeReport { name: probe.name(), runs: runs(probe), run_ns: costs.probe(probe) })
            .collect();
        SlicesReport {
            schema: Report::SCHEMA,
            command: "slice kernel",
            warnings,
            packets: book.packets().clone(),
            slices: book.slices(),
            overhead: OverheadReport {
                per_packet_ns: book.added_ns(),
                pace_ratio: book.pace(),
                total_ratio: if total.raw_mean_ns > 0.0 { book.added_ns() / total.raw_mean_ns } else { 0.0 },
                tau_alpha_ns: costs.overhead.alpha,
                tau_beta_ns: costs.overhead.beta,
                tau_o_ns: costs.overhead.inside,
                tau_gamma_ns: costs.overhead.gamma,
                way_ns: costs.way_ns,
                call_way_ns: costs.call_way_ns,
                probes,
            },
            counters: events,
            total,
            rounds: book.rounds(),
            windows: set.windows,
            probes: set.probes,
            probes_why: set.why,
            status,
            caveats,
        }
    }

    /// The content of the page.
    pub(crate) fn page(&self, packet: Option<(String, Vec<(&'static str, f64)>)>) -> page::Slices {
        let meaning =
            |name: &str| slice::Slice::ALL.iter().find(|slice| slice.name() == name).map(|slice| slice.meaning());
        let top = self.slices.iter().map(|slice| &slice.figures).filter(|slice| slice.top);
        let row = |SliceReport { figures, raw_mean_ns }: &SliceReport| {
            vec![
                figures.shown(),
                brief(figures.mean_ns),
                brief(figures.p50_ns),
                brief(figures.p99_ns),
                format!("{:.2}", figures.cv),
                output::share(figures.total_ratio),
                format!("{:.3}", figures.per_packet),
                brief(*raw_mean_ns),
            ]
        };
        let packets = &self.packets;
        let mut notes = vec![
            format!(
                "{} packets seen, {} matched, {} lost ({} reused, {} of them after they arrived, {} evicted, {} unfinished)",
                thousands(packets.seen),
                thousands(packets.matched),
                thousands(packets.lost),
                thousands(packets.reused),
                thousands(packets.arrived),
                thousands(packets.evicted),
                thousands(packets.unfinished)
            ),
            format!("subtracted {}", self.subtracted()),
            format!("probes: {}; {}", self.probes, self.probes_why.join("; ")),
        ];
        notes.extend(self.windows.as_ref().map(WindowsReport::note));
        notes.extend(self.counters.iter().map(EventReport::note));
        if let Some(rounds) = &self.rounds {
            let (mean, raw) = (brief(rounds.mean_ns), brief(rounds.raw_mean_ns));
            notes.push(format!(
                "{} rounds, send call to send call: mean {mean}, as stamped {raw}",
                thousands(rounds.count)
            ));
        }
        page::Slices {
            warnings: self.warnings.clone(),
            means: top
                .map(|slice| {
                    let each = slice.mean_ns * slice.per_packet;
                    (slice.name.clone(), each, meaning(&slice.name).unwrap_or_default().to_owned())
                })
                .collect(),
            packet: packet
                .map(|(what, parts)| (what, parts.into_iter().map(|(name, ns)| (name.to_owned(), ns)).collect())),
            head: vec!["slice", "mean", "median", "p99", "cv", "share", "per packet", "mean as stamped"],
            rows: self.slices.iter().map(row).collect(),
            notes,
        }
    }

    /// The cost of the probes per packet and per operation.
    fn subtracted(&self) -> String {
        let cost = &self.overhead;
        format!(
            "{} per packet ({}); init {}, start+stop {}, inside {}, exit {}",
            brief(cost.per_packet_ns),
            output::share(cost.total_ratio),
            brief(cost.tau_alpha_ns),
            brief(cost.tau_beta_ns),
            brief(cost.tau_o_ns),
            brief(cost.tau_gamma_ns)
        )
    }

    /// Appends the times of the traced packets, and the cost of the probes that was subtracted.
    fn figures(&self, out: &mut String, book: &SliceBook, raw: bool) {
        out.push_str(&slice::packet_table(book, raw));
        let _ = writeln!(out, "  subtracted {}", self.subtracted());
        if !book.costs().events.is_empty() {
            out.push_str(&slice::counter_table(book));
        }
    }

    /// The text report.
    pub(crate) fn text(&self, book: &SliceBook, raw: bool) -> String {
        let mut out = report_text::warnings(&self.warnings) + "slice kernel\n";
        self.packet_lines(&mut out);
        if let Some(windows) = &self.windows {
            let _ = writeln!(out, "  windows   {}", windows.note());
        }
        if self.packets.matched == 0 {
            let _ = writeln!(out, "  no frame was traced to its end: check the filter, and that a program sends");
        } else {
            self.figures(&mut out, book, raw);
        }
        self.unsupported_lines(&mut out);
        let _ = writeln!(out, "  probes    {}; {}", self.probes, self.probes_why.join("; "));
        self.note_lines(&mut out);
        out
    }

    /// Appends what became of the packets.
    fn packet_lines(&self, out: &mut String) {
        let packets = &self.packets;
        let _ = write!(
            out,
            "  packets   {} seen, {} matched, {} lost",
            thousands(packets.seen),
            thousands(packets.matched),
            thousands(packets.lost)
        );
        if packets.lost > 0 {
            let _ = write!(
                out,
                ": {} dropped, merged or never read{}, {} for lack of space, {} still in flight",
                thousands(packets.reused),
                match packets.arrived {
                    0 => String::new(),
                    arrived => format!(
                        " ({} of them arrived: merged with others in the receiver's queue, or unread)",
                        thousands(arrived)
                    ),
                },
                thousands(packets.evicted),
                thousands(packets.unfinished)
            );
        }
        out.push('\n');
    }

    /// Events that this machine does not count.
    fn unsupported_lines(&self, out: &mut String) {
        for event in &self.counters {
            if let EventReport::Unsupported(Unsupported { event, unsupported }) = event {
                let _ = writeln!(out, "  counted   not {event}: {unsupported}");
            }
        }
    }

    /// Packets with an unknown part of the path.
    fn note_lines(&self, out: &mut String) {
        let packets = &self.packets;
        if packets.without_call > 0 {
            let _ = writeln!(
                out,
                "  note      {} packets left outside of a traced send call; their sender is unknown, and their path begins at the device's queue",
                thousands(packets.without_call)
            );
        }
        // If all packets do, this was requested.
        if (1..packets.matched).contains(&packets.without_sender) {
            let _ = writeln!(
                out,
                "  note      {} packets begin at the receiver's queue: they arrived from outside, or a queueing discipline split a longer packet into them; in that case their wait in the discipline is not in the figures",
                thousands(packets.without_sender)
            );
        }
    }
}

/// Share of the calibration time that other programs may take on its CPU without a warning.
const OTHERS: f64 = 0.1;

/// Caveats of the run. All except that of the clock are warnings.
fn caveats(costs: &Costs, counters: Option<&Counters>, totals: &[EventTotal]) -> Vec<Caveat> {
    let mut kinds = vec![CaveatKind::Clock { source: ClockSource::Monotonic }];
    let counted = |of: fn(&Counters) -> u64| counters.map(of).filter(|n| *n > 0);
    kinds.extend(counted(|counters| counters.crowded).map(|frames| CaveatKind::CrowdedFrames { frames }));
    kinds.extend(counted(|counters| counters.evicted).map(|frames| CaveatKind::EvictedFrames { frames }));
    kinds.extend(counted(|counters| counters.missed).map(|runs| CaveatKind::MissedProbes { runs }));
    if costs.others > OTHERS {
        kinds.push(CaveatKind::Calibration { others_ratio: costs.others });
    }
    let shared = costs.events.iter().zip(totals).filter(|(_, total)| total.counted < 0.999);
    let events: Vec<SharedEvent> =
        shared.map(|(event, total)| SharedEvent { event: event.event.clone(), counted_ratio: total.counted }).collect();
    if !events.is_empty() {
        kinds.push(CaveatKind::SharedCounters { events });
    }
    kinds.into_iter().map(Caveat::new).collect()
}

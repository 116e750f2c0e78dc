//! The text report: every figure with its unit.

use crate::options::start_at::Utc;
use crate::output::{bits, counted, share, thousands, time};
use measure::figures::frames_per_second;
use measure::{
    ArrivalsReport, CaveatKind, FitReport, FrameFate, LimitReport, PipelineReport, ProgramEnd, ReplayReport, Report,
    StartReport, StreamReport, Tally, Unit,
};
use std::fmt::{self, Write};

/// Formats the whole report.
pub(crate) fn table(report: &Report) -> String {
    let mut text = warnings(&report.warnings);
    for pipeline in &report.pipelines {
        // Writing to a string cannot fail.
        let _ = pipeline_table(&mut text, pipeline);
        for class in &pipeline.classes {
            let mut lines = String::new();
            let _ = pipeline_table(&mut lines, class);
            for line in lines.lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
        for caveat in report.caveats.iter().filter(|caveat| caveat.pipeline.as_ref() == Some(&pipeline.name)) {
            let _ = match &caveat.kind {
                CaveatKind::Planned { .. } => writeln!(text, "  planned   {}", caveat.text),
                CaveatKind::Floor { p50_ns, p99_ns, within_1us_ratio, .. } => writeln!(
                    text,
                    "  floor     median {}, p99 {}, within 1 µs {}: a loop that only waits, before the run",
                    time(*p50_ns),
                    time(*p99_ns),
                    share(*within_1us_ratio)
                ),
                _ => Ok(()),
            };
        }
    }
    for clock in &report.clocks {
        let sign = if clock.offset_ns < 0.0 { "−" } else { "+" };
        let _ = writeln!(
            text,
            "clock of {}: {sign}{} ± {} from this host's at the end, at most {} during the run; stamps by the {}",
            clock.peer,
            time(clock.offset_ns.abs()),
            time(clock.error_ns),
            time(clock.worst_ns),
            clock.stamps.name()
        );
    }
    for program in &report.programs {
        let ran = program.duration_ns.map_or(String::new(), |duration| format!(" after {}", time(duration)));
        let ended = match (program.end, program.status) {
            (ProgramEnd::NotStarted, _) => "did not start".to_owned(),
            (ProgramEnd::WithTheRun, _) => format!("ended with the run{ran}"),
            (ProgramEnd::ByItself, status) => {
                format!("status {}{ran}", status.map_or("unknown".to_owned(), |status| status.to_string()))
            }
        };
        let ready = program.ready_ns.map_or(String::new(), |ready| format!(", ready after {}", time(ready)));
        let _ = writeln!(text, "{}\n  program   {ended}{ready}", program.name);
    }
    if let Some(end_to_end) = &report.end_to_end {
        text.push_str(&end_to_end.table());
    }
    text
}

/// Formats the warnings, one per line. They come before all figures.
pub(crate) fn warnings(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("warning: {warning}\n")).collect()
}

/// Formats times in ns, each after its name.
fn times(named: &[(&str, f64)]) -> String {
    let each: Vec<String> = named.iter().map(|(name, ns)| format!("{name} {}", time(*ns))).collect();
    each.join(", ")
}

/// Returns the quantiles of a line, with the same names in every line.
fn quantiles(p50: f64, p99: f64, max: f64) -> [(&'static str, f64); 3] {
    [("median", p50), ("p99", p99), ("max", max)]
}

/// One pipeline or class.
fn pipeline_table(out: &mut String, report: &PipelineReport) -> fmt::Result {
    match &report.rule {
        Some(rule) => writeln!(out, "{}: {rule}", report.name)?,
        None => writeln!(out, "{}", report.name)?,
    }
    start_lines(out, report)?;
    frame_lines(out, report)?;
    gap_lines(out, report)?;
    lateness_lines(out, report)?;
    figure_rows(out, report)?;
    readiness_lines(out, report)?;
    line_lines(out, report)?;
    if let Some(limit) = &report.limit {
        limit_lines(out, limit)?;
    }
    // A single stream without a receiver has only the number sent, which is the same as `out`.
    let shown = report.streams.len() > 1 || report.streams.iter().any(|stream| stream.received.is_some());
    for stream in report.streams.iter().filter(|_| shown) {
        stream_lines(out, stream)?;
    }
    change_lines(out, report)?;
    if let Some(slices) = &report.slices {
        out.push_str(&slices.table(false));
    }
    let at_in = report.flow.as_ref().and_then(|flow| flow.answers.as_ref());
    for (answers, port) in [(report.answers.as_ref(), "the port"), (at_in, "--in beside the streams")] {
        let Some(answers) = answers.filter(|answers| answers.arrived.frames > 0) else { continue };
        writeln!(
            out,
            "  answered  {} ARP, {} neighbour and {} echo requests of {} that arrived on {port}; {} dropped, {} held",
            thousands(answers.answered.arp),
            thousands(answers.answered.ndp),
            thousands(answers.answered.echo),
            counted(answers.arrived.frames, "frame"),
            thousands(answers.drops.total()),
            thousands(answers.held)
        )?;
    }
    if let Some(replay) = &report.replay {
        replay_lines(out, replay)?;
    }
    if let Some(flow) = &report.flow {
        writeln!(
            out,
            "  receiver  {} lost by the {}, {} with unfinished checksums, {} longer than the MTU",
            counted(flow.kernel_drops, "frame"),
            if flow.queues.is_empty() { "kernel" } else { "port" },
            thousands(flow.partial_checksums),
            thousands(flow.super_frames)
        )?;
        if flow.queues.len() > 1 {
            let queues = flow.queues.iter().map(|queue| format!("{} on {}", thousands(queue.frames), queue.queue));
            writeln!(out, "  queues    frames received: {}", queues.collect::<Vec<_>>().join(", "))?;
        }
    }
    Ok(())
}

/// Changes during the run, and the figures between them.
fn change_lines(out: &mut String, report: &PipelineReport) -> fmt::Result {
    const MOST: usize = 20;
    for change in report.changes.iter().take(MOST) {
        write!(out, "  changed   {} = {} at {} by {}", change.path, change.value, time(change.asked_at_ns), change.by)?;
        match change.took_effect_at_ns {
            Some(at) => writeln!(out, ", took effect {} later", time(at - change.asked_at_ns))?,
            None => writeln!(out, ", not reached")?,
        }
    }
    for segment in report.segments.iter().take(MOST) {
        write!(out, "  segment   {} to {}: ", time(segment.from_ns), time(segment.to_ns))?;
        write!(out, "{} in, {} out", counted(segment.arrived.frames, "frame"), thousands(segment.left.frames))?;
        if segment.drops.total() > 0 {
            write!(out, ", {} dropped", thousands(segment.drops.total()))?;
        }
        if let Some(rate) = &segment.rate {
            write!(out, ", rate {}", bits(rate.mean_bps))?;
        }
        if let Some(gap) = &segment.gap {
            write!(out, ", gap {}", time(gap.mean_ns))?;
        }
        if let Some(delay) = &segment.delay {
            write!(out, ", delay {}", time(delay.mean_ns))?;
        }
        writeln!(out)?;
    }
    let more = report.changes.len().max(report.segments.len()).saturating_sub(MOST);
    if more > 0 {
        writeln!(out, "  segment   {} more changes and segments are in the JSON report", thousands(more as u64))?;
    }
    Ok(())
}

/// The start, compared with the asked instant.
fn start_lines(out: &mut String, report: &PipelineReport) -> fmt::Result {
    let Some(start) = &report.start else { return Ok(()) };
    let first = if report.left.frames == 0 { "first frame" } else { "first departure" };
    writeln!(out, "  start     {}", self::start(start, first))
}

/// Describes a start in words. `first` names the frame.
pub(crate) fn start(start: &StartReport, first: &str) -> String {
    let asked = Utc(start.asked_unix_ns);
    match start.miss_ns {
        Some(miss) if miss < 0 => format!("asked {asked}, {first} {} early", time(miss.unsigned_abs() as f64)),
        Some(miss) => format!("asked {asked}, {first} {} late", time(miss.unsigned_abs() as f64)),
        None => format!("asked {asked}, no frame"),
    }
}

/// The outcome of the frames of a capture.
fn replay_lines(out: &mut String, replay: &ReplayReport) -> fmt::Result {
    writeln!(
        out,
        "  replay    {} of {} received as sent, {} changed, {} lost, {} duplicates, {} reordered; {} foreign",
        thousands(replay.received),
        counted(replay.sent, "frame"),
        thousands(replay.changed),
        thousands(replay.lost),
        thousands(replay.duplicates),
        thousands(replay.reordered),
        thousands(replay.foreign)
    )?;
    let repeats = replay.frames.iter().any(|frame| frame.round > 1);
    for (fate, word) in [(FrameFate::Lost, "lost"), (FrameFate::Changed, "changed")] {
        let of_fate = replay.frames.iter().filter(|frame| frame.fate == fate);
        let names: Vec<String> = of_fate
            .clone()
            .take(NAMED)
            .map(|frame| if repeats { format!("{}:{}", frame.round, frame.frame) } else { frame.frame.to_string() })
            .collect();
        let total = if fate == FrameFate::Lost { replay.lost } else { replay.changed };
        let more = total.saturating_sub(names.len() as u64);
        let more = if more > 0 { format!(" and {} more", thousands(more)) } else { String::new() };
        if !names.is_empty() {
            let what = if repeats { "round:frame" } else { "frame" };
            writeln!(out, "    {word}  {what} {}{more}", names.join(", "))?;
        }
    }
    Ok(())
}

/// Limit on the frames that the text names. The JSON report has more.
const NAMED: usize = 20;

/// Counters: received, sent, dropped, and effects of stages.
fn frame_lines(out: &mut String, report: &PipelineReport) -> fmt::Result {
    let tally = |tally: &Tally| format!("{}, {} B with FCS", counted(tally.frames, "frame"), thousands(tally.bytes));
    writeln!(out, "  in        {}", tally(&report.arrived))?;
    if let Some(left_out) = &report.left_out {
        writeln!(out, "  left out  {}: not in any other figure", tally(left_out))?;
    }
    for (reason, records) in &report.skipped {
        writeln!(out, "  skipped   {}: {reason}", counted(*records, "record"))?;
    }
    writeln!(out, "  out       {}", tally(&report.left))?;
    for (reason, frames) in report.drops.iter() {
        writeln!(out, "  dropped   {}: {} ({})", counted(frames, "frame"), reason.name(), reason.meaning())?;
    }
    if report.copies > 0 {
        writeln!(out, "  copies    {} made by duplication", counted(report.copies, "frame"))?;
    }
    for (effect, frames) in report.effects.iter() {
        writeln!(out, "  {:<9} {}: {}", effect.name(), counted(frames, "frame"), effect.meaning())?;
    }
    if let Some(delay) = &report.delay {
        for (name, of) in [("delay", &delay.got), ("asked", &delay.asked)] {
            let spread = [("mean", of.mean_ns), ("sd", of.std_ns), ("min", of.min_ns)];
            writeln!(out, "  {name:<9} {}, {}", times(&spread), times(&quantiles(of.p50_ns, of.p99_ns, of.max_ns)))?;
        }
    }
    if let Some(reorder) = report.reorder.as_ref().filter(|reorder| reorder.reordered > 0) {
        writeln!(
            out,
            "  reordered {} of {}, {} (RFC 4737); largest extent {}",
            thousands(reorder.reordered),
            counted(reorder.frames, "frame"),
            share(reorder.ratio),
            thousands(reorder.max_extent)
        )?;
    }
    if report.held > 0 {
        let held = counted(report.held, "frame");
        writeln!(out, "  held      {held} when the run ended: received, and due to leave after the end")?;
    }
    if let Some(back) = &report.back {
        write!(out, "  return    {} in, {} out", tally(&back.arrived), tally(&back.left))?;
        writeln!(out, ", {} dropped, {} held", thousands(back.drops.total()), thousands(back.held))?;
    }
    if let Some(fillers) = &report.fillers {
        writeln!(out, "  fillers   {}", tally(fillers))?;
    }
    Ok(())
}

/// Departures: gaps and rates, compared with the targets.
fn gap_lines(out: &mut String, report: &PipelineReport) -> fmt::Result {
    if let Some(gap) = &report.gap {
        let spread = [("mean", gap.mean_ns), ("sd", gap.std_ns), ("min", gap.min_ns)];
        writeln!(out, "  gap       {}, {}", times(&spread), times(&quantiles(gap.p50_ns, gap.p99_ns, gap.max_ns)))?;
        if let Some(error) = &gap.error {
            let spread = times(&quantiles(error.p50_ns, error.p99_ns, error.max_ns));
            writeln!(out, "  asked     {}: mean error {}, {spread}", time(error.asked_ns), time(error.mean_ns))?;
        }
    }
    if let Some(fit) = &report.fit {
        fit_lines(out, fit)?;
    }
    if let Some(conformance) = &report.conformance {
        write!(out, "  kept      within")?;
        if let Some(within) = conformance.shares.within_1_byte_time_ratio {
            write!(out, " 1 byte time {},", share(within))?;
        }
        writeln!(
            out,
            " 64 ns {}, 256 ns {}, 1 µs {}; back to back {}",
            share(conformance.shares.within_64ns_ratio),
            share(conformance.shares.within_256ns_ratio),
            share(conformance.shares.within_1us_ratio),
            share(conformance.back_to_back_ratio)
        )?;
    }
    if let Some(rate) = &report.rate {
        write!(out, "  rate      mean {}", bits(rate.mean_bps))?;
        if let Some(fps) = rate.mean_fps {
            write!(out, ", {}", frames_per_second(fps))?;
        }
        if let (Some(min), Some(max)) = (rate.min_bps, rate.max_bps) {
            let windows = counted(rate.windows, "window");
            write!(out, ", {} to {} in {windows} of {}", bits(min), bits(max), time(rate.window_ns))?;
        }
        writeln!(out, " (frames with FCS)")?;
        if let Some(asked) = &rate.asked {
            let got = if asked.planned { "planned" } else { "got" };
            writeln!(out, "  asked     {}, {got} {}", asked.text, asked.got)?;
        }
        for step in &rate.steps {
            write!(out, "  step {:<4} asked {} for {}, ", step.step, step.asked, time(step.length_ns))?;
            write!(out, "got {} and {}", bits(step.mean_bps), frames_per_second(step.mean_fps))?;
            if step.times > 1 {
                write!(out, ", {} to {} in {} times", bits(step.min_bps), bits(step.max_bps), thousands(step.times))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Lateness of departures.
fn lateness_lines(out: &mut String, report: &PipelineReport) -> fmt::Result {
    if let Some(late) = report.lateness.as_ref().filter(|_| report.says_when()) {
        writeln!(
            out,
            "  late      {}; earliest {} early; pacer {}",
            times(&quantiles(late.p50_ns, late.p99_ns, late.max_ns)),
            time(late.early_max_ns),
            report.pacer.unwrap_or("none")
        )?;
        if let Some(hiccups) = late.hiccups.filter(|hiccups| hiccups.count > 0) {
            writeln!(
                out,
                "  hiccups   {}, in which {} were later than {}, at most {}",
                thousands(hiccups.count),
                counted(hiccups.frames, "departure"),
                time(hiccups.above_ns),
                time(hiccups.longest_ns)
            )?;
        }
    }
    Ok(())
}

/// Figures that have their own row, as the list of figures words it. Rows of figures that are 0 or absent are left out.
fn figure_rows(out: &mut String, report: &PipelineReport) -> fmt::Result {
    // A report contains only figures and names, so serialization does not fail.
    let Ok(values) = serde_json::to_value(report) else { return Ok(()) };
    for figure in measure::all_figures() {
        let value = values.pointer(&format!("/{}", figure.path.join("/"))).and_then(serde_json::Value::as_f64);
        let Some((row, value)) = figure.row.as_ref().zip(value.filter(|value| *value != 0.0)) else { continue };
        let Some((noun, rest)) = row.strip_prefix('{').and_then(|row| row.split_once('}')) else { continue };
        let shown = match figure.unit {
            Unit::Time => time(value),
            Unit::BitRate => bits(value),
            Unit::FrameRate => frames_per_second(value),
            Unit::Ratio => share(value),
            _ => counted(value as u64, noun),
        };
        writeln!(out, "  {:<9} {shown}{rest}", figure.path.join(" "))?;
    }
    Ok(())
}

/// Sources as a receiver saw them.
fn arrival_lines(out: &mut String, arrivals: &ArrivalsReport) -> fmt::Result {
    for source in &arrivals.sources {
        let (Some(first), Some(last)) = (source.first_after_ns, source.last_after_ns) else {
            writeln!(out, "  source    {}: no frame", source.source)?;
            continue;
        };
        writeln!(
            out,
            "  source    {}: {}, the first after {}, the last after {}; {}, {} out of turn",
            source.source,
            counted(source.arrived.frames, "frame"),
            time(first),
            time(last),
            counted(source.crests, "crest"),
            thousands(source.out_of_turn)
        )?;
    }
    if let Some(spread) = arrivals.spread_ns {
        writeln!(out, "  starts    within {} of each other, by the stamps of this receiver", time(spread))?;
    }
    let apart = arrivals.apart.map_or_else(String::new, |apart| {
        format!(
            "; {} between those of different sources: min {}, median {}, max {}",
            counted(apart.count, "pause"),
            time(apart.min_ns),
            time(apart.p50_ns),
            time(apart.max_ns)
        )
    });
    writeln!(
        out,
        "  crests    {}, {} overlapping, {} out of turn{apart}",
        thousands(arrivals.crests),
        thousands(arrivals.overlapping),
        thousands(arrivals.out_of_turn)
    )
}

/// Whether frames were ready when they were due, and what was done if they were not.
fn readiness_lines(out: &mut String, report: &PipelineReport) -> fmt::Result {
    if let Some(buffer) = report.buffer.filter(|buffer| buffer.asked_ns > 0.0 || !buffer.enough) {
        let enough = if buffer.enough { "enough" } else { "too little" };
        writeln!(
            out,
            "  buffer    {}, {enough}: the wave is {} wide; a --buffer of that length starves no departure",
            time(buffer.asked_ns),
            time(buffer.width_ns)
        )?;
    }
    for source in &report.sources {
        writeln!(
            out,
            "  source    {}: {} in, {} out; {}, {} missed; skew mean {}, max {}; overlap {} in, {} out",
            source.source,
            counted(source.arrived.frames, "frame"),
            thousands(source.left.frames),
            counted(source.crests, "crest"),
            thousands(source.missed),
            time(source.skew.mean_ns),
            time(source.skew.max_ns),
            time(source.overlap.in_ns),
            time(source.overlap.out_ns)
        )?;
    }
    if let Some(arrivals) = &report.arrivals {
        arrival_lines(out, arrivals)?;
    }
    if let Some(gap) = &report.crest_gap {
        writeln!(
            out,
            "  crest gap {}got min {}, median {}, max {}; {} between crests of a round",
            gap.asked_ns.map_or_else(String::new, |asked| format!("asked {}; ", time(asked))),
            time(gap.min_ns),
            time(gap.p50_ns),
            time(gap.max_ns),
            counted(gap.count, "gap")
        )?;
    }
    if let Some(forgiven) = report.forgiven.as_ref().filter(|forgiven| forgiven.times > 0) {
        writeln!(
            out,
            "  forgiven  {} in all, {}: the rest of the schedule moved by it",
            time(forgiven.total_ns),
            counted(forgiven.times, "time")
        )?;
    }
    Ok(())
}

/// Effects of the line, and of contention for it, on departures.
fn line_lines(out: &mut String, report: &PipelineReport) -> fmt::Result {
    if let Some(contended) = report.contended.filter(|contended| contended.frames > 0) {
        writeln!(
            out,
            "  contended {} waited for a frame of another class, at most {}",
            counted(contended.frames, "departure"),
            time(contended.max_ns)
        )?;
    }
    if let Some(line) = &report.line {
        writeln!(
            out,
            "  line      {}, {} data and {}; {} of {} not where planned, by up to {}; idle {}",
            counted(line.slots.into(), "slot"),
            thousands(line.data.frames),
            counted(line.fillers.frames, "filler"),
            thousands(line.displaced),
            thousands(line.compared),
            time(line.max_off_ns),
            time(line.idle_ns)
        )?;
    }
    if let Some(shortfall) = &report.shortfall {
        // Only live runs have hiccups.
        let why = match report.lateness.as_ref().is_some_and(|lateness| lateness.hiccups.is_some()) {
            true => "this machine or the port is at its limit",
            false => "the frames do not fit in what was asked",
        };
        writeln!(
            out,
            "  shortfall {:.4} % of the ask was obtained: {} behind at the end; {why}",
            shortfall.obtained_ratio * 100.0,
            time(shortfall.behind_ns)
        )?;
    }
    Ok(())
}

/// The figures of a limit, and the load of its workers.
fn limit_lines(out: &mut String, limit: &LimitReport) -> fmt::Result {
    writeln!(
        out,
        "  limit     {} of {} B for each {}, {}, {}: {} frames conform, {} exceed",
        bits(limit.rate_bps as f64),
        thousands(limit.burst_bytes),
        limit.key,
        limit.mode,
        limit.algorithm,
        thousands(limit.conforming.frames),
        thousands(limit.exceeding.frames)
    )?;
    let more = [
        ("yellow", limit.yellow.map(|yellow| yellow.frames)),
        ("marked", limit.marked),
        ("delayed", limit.delayed),
        ("without a key", Some(limit.without_key)),
        ("unmetered", Some(limit.unmetered)),
    ];
    let more: Vec<String> = more
        .iter()
        .filter_map(|(name, n)| Some((name, (*n)?)))
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{} {name}", thousands(n)))
        .collect();
    if !more.is_empty() {
        writeln!(out, "            {}", more.join(", "))?;
    }
    let users = &limit.users;
    writeln!(
        out,
        "  users     {} present, room for {}, {} B each; {} added, {} removed, {} frames without room",
        thousands(users.present),
        thousands(users.capacity as u64),
        users.user_bytes,
        thousands(users.created),
        thousands(users.reclaimed),
        thousands(users.refused)
    )?;
    user_lines(out, limit)?;
    let loads = limit.workers.iter().map(|worker| worker.frames);
    if let (Some(least), Some(most)) = (loads.clone().min(), loads.max()) {
        writeln!(
            out,
            "  workers   {}, {} to {} frames each; {} frames found a worker too busy",
            limit.workers.len(),
            thousands(least),
            thousands(most),
            thousands(limit.workers.iter().map(|worker| worker.overrun).sum::<u64>() + limit.undealt.unwrap_or(0))
        )?;
    }
    Ok(())
}

/// The accuracy of users' rates, and the users with the most traffic.
fn user_lines(out: &mut String, limit: &LimitReport) -> fmt::Result {
    for length in ["10ms", "100ms", "1s"] {
        let Some(window) = limit.error.get(length) else { continue };
        writeln!(
            out,
            "  obtained  ÷ asked over {length}: {:.4} to {:.4}, median {:.4}; error p99 {}, worst {} ({}; one frame is up to {} of a window)",
            window.min_ratio,
            window.max_ratio,
            window.p50_ratio,
            share(window.p99_error_ratio),
            share(window.worst_error_ratio),
            counted(window.windows, "window"),
            share(window.one_frame_ratio)
        )?;
    }
    for talker in limit.talkers.iter().take(3) {
        writeln!(
            out,
            "  talker    {}: asked {}, {} B passed, {} B exceeded",
            talker.user,
            bits(talker.rate_bps as f64),
            thousands(talker.passed_bytes),
            thousands(talker.exceeded_bytes)
        )?;
    }
    Ok(())
}

/// The figures of a stream at its receiver.
fn stream_lines(out: &mut String, report: &StreamReport) -> fmt::Result {
    write!(out, "  stream {:<2} ", report.stream)?;
    if let Some(sent) = report.sent {
        write!(out, "{} sent", thousands(sent))?;
    }
    let Some(received) = &report.received else { return writeln!(out) };
    if report.sent.is_some() {
        write!(out, ", ")?;
    }
    write!(
        out,
        "{} received, {} lost ({})",
        thousands(received.received),
        thousands(received.lost),
        share(received.loss_ratio)
    )?;
    writeln!(
        out,
        ", {}, {} reordered ({}, extent {})",
        counted(received.duplicates, "duplicate"),
        thousands(received.reordered),
        share(received.reorder_ratio),
        thousands(received.reorder_max_extent)
    )?;
    let (Some(delay), Some(pdv)) = (&received.delay, &received.pdv) else { return Ok(()) };
    let least = times(&[("mean", delay.mean_ns), ("min", delay.min_ns)]);
    writeln!(out, "            delay {least}, {}", times(&quantiles(delay.p50_ns, delay.p99_ns, delay.max_ns)))?;
    write!(out, "            PDV {}", times(&quantiles(pdv.p50_ns, pdv.p99_ns, pdv.max_ns)))?;
    if let Some(ipdv) = &received.ipdv {
        write!(out, "; IPDV {}", times(&[("mean", ipdv.mean_ns), ("p99", ipdv.p99_ns), ("max", ipdv.max_ns)]))?;
    }
    writeln!(out)
}

/// Gaps compared with the asked law.
fn fit_lines(out: &mut String, fit: &FitReport) -> fmt::Result {
    write!(out, "  law       {}", fit.distribution)?;
    if let (Some(mean), Some(std)) = (fit.law_mean_ns, fit.law_std_ns) {
        write!(out, ": mean {}, sd {}", time(mean), time(std))?;
    }
    write!(out, "\n  fit       ")?;
    if let (Some(d), Some(critical), Some(p)) = (fit.ks_d, fit.ks_critical_05, fit.ks_p) {
        write!(out, "KS D {d:.6} (5 %: {critical:.6}), p {p:.4}")?;
    }
    if let (Some(chi2), Some(df), Some(p)) = (fit.chi2, fit.chi2_df, fit.chi2_p) {
        write!(out, "chi2 {chi2:.3} of {df} degrees of freedom, p {p:.4}")?;
    }
    let kl = fit.kl_nats.map_or("infinite".to_owned(), |kl| format!("{kl:.2e}"));
    write!(out, "; MSE {:.2e}, KL {kl} in {} bins; lag-1 correlation {:.4}", fit.mse, fit.bins, fit.lag1)?;
    if fit.outside_ratio > 0.0 {
        write!(out, "; {:.4} % outside of the law", fit.outside_ratio * 100.0)?;
    }
    writeln!(out)
}

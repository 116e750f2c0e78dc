//! What people and scripts see: reports, notes and failures.

pub(crate) use measure::figures::{bits, brief, counted, digits, share, thousands, time};
use measure::{FitReport, LimitReport, PipelineReport, Report, StreamReport, Tally};
use std::fmt::{self, Write as _};
use std::io::{ErrorKind, Write as _};

/// Why a command ended with status 2: one line for each problem.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// The exit status of usage, configuration and system errors.
    pub(crate) const STATUS: u8 = 2;
    /// The exit status of a run that missed an expectation.
    pub(crate) const MISSED: u8 = 1;

    pub(crate) fn new(problem: impl fmt::Display) -> Self {
        Failure(problem.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All that failed of several things, a line each.
pub(crate) fn all(done: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let problems: Vec<String> = done.into_iter().filter_map(Result::err).map(|failure| failure.0).collect();
    if problems.is_empty() { Ok(()) } else { Err(Failure(problems.join("\n"))) }
}

/// Prints on stdout. A reader that went away is no error, as everywhere on UNIX.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    is_read(text).map(drop)
}

/// Prints one of many things on stdout; false when its reader went away, so that there is nobody to go on for.
pub(crate) fn is_read(text: &str) -> Result<bool, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Failure::new(format!("cannot write to stdout: {cause}"))),
    }
}

/// Says a line on stderr. There is nobody to tell when that fails.
pub(crate) fn say(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "netlathe: {text}");
}

/// Says a line on stderr as it is, of a run that goes on.
pub(crate) fn line(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Says something on stderr that is not an error.
pub(crate) fn note(text: impl fmt::Display) {
    say(format_args!("note: {text}"));
}

/// The report as JSON.
pub(crate) fn json(report: &Report) -> Result<String, Failure> {
    let text =
        serde_json::to_string(report).map_err(|error| Failure::new(format!("cannot write the report: {error}")))?;
    Ok(text + "\n")
}

/// The report for people: every figure with its unit.
pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
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
        let planned = report.limits.get("planned").and_then(|planned| planned.get(&pipeline.name));
        if let Some(why) = planned.and_then(serde_json::Value::as_str) {
            let _ = writeln!(text, "  planned   {why}");
        }
        let floor = report.limits.get("floor").and_then(|floors| floors.get(&pipeline.name));
        let figure = |name| floor.and_then(|floor| floor.get(name)).and_then(serde_json::Value::as_f64);
        if let (Some(p50), Some(p99), Some(near)) = (figure("p50"), figure("p99"), figure("within_1us")) {
            let _ = writeln!(
                text,
                "  floor     median {}, p99 {}, within 1 µs {}: a loop that only waits, before the run",
                time(p50),
                time(p99),
                share(near)
            );
        }
    }
    if let Some(end_to_end) = &report.end_to_end {
        text.push_str(&end_to_end.table());
    }
    text
}

fn pipeline_table(out: &mut String, report: &PipelineReport) -> fmt::Result {
    match &report.rule {
        Some(rule) => writeln!(out, "{}: {rule}", report.name)?,
        None => writeln!(out, "{}", report.name)?,
    }
    let tally = |tally: &Tally| format!("{}, {} B with FCS", counted(tally.frames, "frame"), thousands(tally.bytes));
    writeln!(out, "  in        {}", tally(&report.came))?;
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
        writeln!(
            out,
            "  delay     mean {}, sd {}, min {}, median {}, p99 {}, max {}",
            time(delay.mean_ns),
            time(delay.std_ns),
            time(delay.min_ns),
            time(delay.p50),
            time(delay.p99),
            time(delay.max_ns)
        )?;
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
        writeln!(out, "  held      {} when the run ended", counted(report.held, "frame"))?;
    }
    if let Some(back) = &report.back {
        write!(out, "  return    {} in, {} out", tally(&back.came), tally(&back.left))?;
        writeln!(out, ", {} dropped, {} held", thousands(back.drops.total()), thousands(back.held))?;
    }
    if let Some(fillers) = &report.fillers {
        writeln!(out, "  fillers   {}", tally(fillers))?;
    }
    if let Some(gap) = &report.gap {
        writeln!(
            out,
            "  gap       mean {}, sd {}, min {}, median {}, p99 {}, max {}",
            time(gap.mean_ns),
            time(gap.std_ns),
            time(gap.min_ns),
            time(gap.p50),
            time(gap.p99),
            time(gap.max_ns)
        )?;
        if let Some(error) = &gap.error {
            writeln!(
                out,
                "  asked     {}: mean error {}, median {}, p99 {}, max {}",
                time(error.ask_ns),
                time(error.mean_ns),
                time(error.p50),
                time(error.p99),
                time(error.max_ns)
            )?;
        }
    }
    if let Some(fit) = &report.fit {
        fit_lines(out, fit)?;
    }
    if let Some(conformance) = &report.conformance {
        write!(out, "  kept      within")?;
        if let Some(within) = conformance.within_1_byte_time {
            write!(out, " 1 byte time {},", share(within))?;
        }
        writeln!(
            out,
            " 64 ns {}, 256 ns {}, 1 µs {}; back to back {}",
            share(conformance.within_64ns),
            share(conformance.within_256ns),
            share(conformance.within_1us),
            share(conformance.back_to_back)
        )?;
    }
    if let Some(rate) = &report.rate {
        write!(out, "  rate      mean {}", bits(rate.mean_bps))?;
        if let (Some(min), Some(max)) = (rate.min_bps, rate.max_bps) {
            let windows = counted(rate.windows, "window");
            write!(out, ", {} to {} in {windows} of {}", bits(min), bits(max), time(rate.window_ns))?;
        }
        writeln!(out, " (frames with FCS)")?;
    }
    if let Some(late) = report.lateness.as_ref().filter(|_| report.says_when()) {
        writeln!(
            out,
            "  late      median {}, p99 {}, max {}; earliest {} early; pacer {}",
            time(late.p50),
            time(late.p99),
            time(late.max),
            time(late.early_max),
            report.pacer.unwrap_or("none")
        )?;
        if let Some(hiccups) = late.hiccups.filter(|hiccups| hiccups.count > 0) {
            writeln!(
                out,
                "  hiccups   {}, in which {} came later than {}, at most {}",
                thousands(hiccups.count),
                counted(hiccups.frames, "departure"),
                time(hiccups.above_ns),
                time(hiccups.longest_ns)
            )?;
        }
    }
    if let Some(starved) = report.starved.filter(|starved| *starved > 0) {
        writeln!(out, "  starved   {}: no frame was ready when one was due", counted(starved, "time"))?;
    }
    if let Some(buffer) = report.buffer.filter(|buffer| buffer.asked_ns > 0.0 || !buffer.enough) {
        let enough = if buffer.enough { "enough" } else { "too little" };
        writeln!(
            out,
            "  buffer    {}, {enough}: the wave is {} wide, which is the --buffer that starves no departure",
            time(buffer.asked_ns),
            time(buffer.width_ns)
        )?;
    }
    for source in &report.sources {
        writeln!(
            out,
            "  source    {}: {} in, {} out; {}, {} missed; skew mean {}, max {}; overlap {} in, {} out",
            source.source,
            counted(source.came.frames, "frame"),
            thousands(source.left.frames),
            counted(source.crests, "crest"),
            thousands(source.missed),
            time(source.skew.mean_ns),
            time(source.skew.max_ns),
            time(source.overlap.in_ns),
            time(source.overlap.out_ns)
        )?;
    }
    if let Some(forgiven) = report.forgiven.as_ref().filter(|forgiven| forgiven.times > 0) {
        writeln!(
            out,
            "  forgiven  {} in all, {}: the rest of the schedule moved by it",
            time(forgiven.ns),
            counted(forgiven.times, "time")
        )?;
    }
    if let Some(crowded) = report.crowded.filter(|crowded| *crowded > 0) {
        writeln!(out, "  crowded   {} waited for the frame before to leave the line", counted(crowded, "departure"))?;
    }
    if let Some(contended) = report.contended.filter(|contended| contended.frames > 0) {
        writeln!(
            out,
            "  contended {} waited for a frame of another class, at most {}",
            counted(contended.frames, "departure"),
            time(contended.max_ns)
        )?;
    }
    if let Some(carried) = report.carried.filter(|carried| *carried > 0) {
        writeln!(
            out,
            "  carried   {} less than a smallest filler apart, made good by the next",
            counted(carried, "departure")
        )?;
    }
    if let Some(underruns) = report.underruns.filter(|underruns| *underruns > 0) {
        writeln!(out, "  underruns {}: the queue was empty while the line could have sent", thousands(underruns))?;
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
        writeln!(
            out,
            "  shortfall {:.4} % of the ask was obtained: {} behind at the end; the frames do not fit in what was asked",
            shortfall.obtained_share * 100.0,
            time(shortfall.behind_ns)
        )?;
    }
    if let Some(limit) = &report.limit {
        limit_lines(out, limit)?;
    }
    // One stream that is sent is all that is out.
    let told = report.streams.len() > 1 || report.streams.iter().any(|stream| stream.received.is_some());
    for stream in report.streams.iter().filter(|_| told) {
        stream_lines(out, stream)?;
    }
    if let Some(slices) = &report.slices {
        out.push_str(&slices.table(false));
    }
    if let Some(answers) = report.answers.as_ref().filter(|answers| answers.came.frames > 0) {
        writeln!(
            out,
            "  answered  {} ARP, {} neighbour and {} echo requests of {} that arrived on the port; {} dropped, {} held",
            thousands(answers.answered.arp),
            thousands(answers.answered.ndp),
            thousands(answers.answered.echo),
            counted(answers.came.frames, "frame"),
            thousands(answers.drops.total()),
            thousands(answers.held)
        )?;
    }
    if let Some(flow) = &report.flow {
        writeln!(
            out,
            "  receiver  {} lost by the kernel, {} with unfinished checksums, {} longer than the MTU",
            counted(flow.kernel_drops, "frame"),
            thousands(flow.partial_checksums),
            thousands(flow.super_frames)
        )?;
    }
    Ok(())
}

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
        "  users     {} present, room for {}, {} B each; {} came, {} made room, {} frames found none",
        thousands(users.present),
        thousands(users.capacity as u64),
        users.bytes_per_user,
        thousands(users.created),
        thousands(users.reclaimed),
        thousands(users.refused)
    )?;
    for length in ["10ms", "100ms", "1s"] {
        let Some(window) = limit.error.get(length) else { continue };
        writeln!(
            out,
            "  obtained  ÷ asked over {length}: {:.4} to {:.4}, median {:.4}; error p99 {}, worst {} ({})",
            window.min,
            window.max,
            window.p50,
            share(window.p99_error),
            share(window.worst_error),
            counted(window.windows, "window")
        )?;
    }
    for talker in limit.talkers.iter().take(3) {
        writeln!(
            out,
            "  talker    {}: {} B passed, {} B exceeded, rate {}",
            talker.user,
            thousands(talker.passed_bytes),
            thousands(talker.exceeded_bytes),
            bits(talker.rate_bps as f64)
        )?;
    }
    let loads = limit.workers.iter().map(|worker| worker.frames);
    if let (Some(least), Some(most)) = (loads.clone().min(), loads.max()) {
        writeln!(
            out,
            "  workers   {}, {} to {} frames each; {} frames found one too busy",
            limit.workers.len(),
            thousands(least),
            thousands(most),
            thousands(limit.workers.iter().map(|worker| worker.overrun).sum::<u64>() + limit.undealt.unwrap_or(0))
        )?;
    }
    Ok(())
}

fn stream_lines(out: &mut String, report: &StreamReport) -> fmt::Result {
    write!(out, "  stream {:<2} ", report.stream)?;
    if let Some(sent) = report.sent {
        write!(out, "{} sent", thousands(sent))?;
    }
    let Some(received) = &report.received else { return writeln!(out) };
    if report.sent.is_some() {
        write!(out, ", ")?;
    }
    write!(out, "{} came, {} lost ({})", thousands(received.received), thousands(received.lost), share(received.loss))?;
    writeln!(
        out,
        ", {}, {} reordered ({}, extent {})",
        counted(received.duplicates, "duplicate"),
        thousands(received.reordered),
        share(received.reorder_ratio),
        thousands(received.reorder_max_extent)
    )?;
    if received.received == 0 {
        return Ok(());
    }
    let delay = &received.delay;
    write!(
        out,
        "            delay mean {}, min {}, median {}",
        time(delay.mean_ns),
        time(delay.min_ns),
        time(delay.p50)
    )?;
    writeln!(out, ", p99 {}, max {}", time(delay.p99), time(delay.max_ns))?;
    let pdv = &received.pdv;
    write!(out, "            PDV median {}, p99 {}, max {}", time(pdv.p50), time(pdv.p99), time(pdv.max_ns))?;
    match &received.ipdv {
        Some(ipdv) => {
            writeln!(out, "; IPDV mean {}, p99 {}, max {}", time(ipdv.mean_ns), time(ipdv.p99), time(ipdv.max_ns))
        }
        None => writeln!(out),
    }
}

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
    let kl = fit.kl.map_or("infinite".to_owned(), |kl| format!("{kl:.2e}"));
    write!(out, "; MSE {:.2e}, KL {kl} in {} bins; lag-1 correlation {:.4}", fit.mse, fit.bins, fit.lag1)?;
    if fit.outside > 0.0 {
        write!(out, "; {:.4} % outside of the law", fit.outside * 100.0)?;
    }
    writeln!(out)
}

//! The text report, and a line for each interval.

use super::Interval;
use crate::output;
use measure::host::{HostReport, InterfaceReport, LossPoint};
use std::fmt::{self, Write};
use std::time::Duration;

/// An interval on one line: frames received, and where frames were lost.
pub(super) fn line(passed: Duration, report: &HostReport) -> String {
    let mut text = format!("{:>5.1} s", passed.as_secs_f64());
    for of in &report.interfaces {
        let _ = write!(text, "  {} {} frames/s, {}", of.name, whole(of.fps), rate(of.bps));
    }
    let lost: Vec<String> = report
        .lost
        .places()
        .into_iter()
        .filter_map(|(place, lost)| Some(format!("{} {}", place.name(), output::thousands(lost.filter(|n| *n > 0)?))))
        .collect();
    text.push_str(if lost.is_empty() { "  no counted loss" } else { "  lost at " });
    text.push_str(&lost.join(", "));
    text
}

/// The report.
pub(super) fn table(report: &HostReport, intervals: &[Interval], interval: Duration) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut text, report, intervals, interval);
    text
}

fn write_table(out: &mut String, report: &HostReport, intervals: &[Interval], interval: Duration) -> fmt::Result {
    writeln!(out, "measure")?;
    writeln!(
        out,
        "  watched   {}, {} CPUs",
        output::time((report.observed_s * 1e3).round() * 1e6),
        report.settings.cpus
    )?;
    for of in &report.interfaces {
        interface_lines(out, of, intervals, interval)?;
    }
    for (nth, (place, lost)) in report.lost.places().into_iter().enumerate() {
        let label = if nth == 0 { "lost at" } else { "" };
        let count = lost.map_or_else(|| format!("not known: {}", unknown(place)), output::thousands);
        let grown: Vec<String> = by_name(report, place);
        let names = if grown.is_empty() { String::new() } else { format!("  ({})", grown.join(", ")) };
        writeln!(out, "  {label:<8}  {:<9} {count}{names}", place.name())?;
    }
    cpu_lines(out, report)?;
    socket_lines(out, report)?;
    for advice in &report.advice {
        let interface = advice.interface.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        writeln!(out, "  advice    {}{interface}: {}", advice.place.name(), advice.seen)?;
        for command in &advice.commands {
            writeln!(out, "            {command}")?;
        }
    }
    Ok(())
}

/// Received frames of an interface, their rate, and its driver.
fn interface_lines(out: &mut String, of: &InterfaceReport, intervals: &[Interval], interval: Duration) -> fmt::Result {
    let settings = &of.settings;
    let name = &of.name;
    writeln!(out, "  {name:<8}  {} frames, {} B with FCS", output::thousands(of.frames), output::thousands(of.bytes))?;
    write!(out, "  rate      mean {} frames/s, {}", whole(of.fps), rate(of.bps))?;
    let highest = intervals.iter().filter_map(|part| part.interfaces.get(name)).map(|speed| speed.fps);
    if let (Some(highest), true) = (highest.reduce(f64::max), intervals.len() > 1) {
        write!(out, "; highest {} frames/s in {}", whole(highest), output::time(interval.as_nanos() as f64))?;
    }
    let driver = settings.driver.as_deref().unwrap_or("not known");
    let ring = match of.ring {
        Some(ring) => match ring.max {
            Some(max) => format!("ring of {} descriptors, at most {max}", ring.now),
            None => format!("ring of {} descriptors", ring.now),
        },
        None => "ring not known".to_owned(),
    };
    writeln!(out, "\n  driver    {driver}, {ring}, {}", queues(of))
}

/// How the CPUs shared the work.
fn cpu_lines(out: &mut String, report: &HostReport) -> fmt::Result {
    for cpu in &report.cpus {
        let count = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), output::thousands);
        let part = |part: Option<f64>| part.map_or_else(|| "?".to_owned(), |part| format!("{:.0} %", part * 100.0));
        writeln!(
            out,
            "  {:<8}  {} frames through the stack, {} dropped, {} squeezed; {} busy, {} in interrupts",
            format!("CPU {}", cpu.cpu),
            count(cpu.processed),
            count(cpu.dropped),
            count(cpu.time_squeeze),
            part(cpu.busy_ratio),
            part(cpu.interrupts_ratio)
        )?;
    }
    Ok(())
}

/// The sockets with the largest losses.
fn socket_lines(out: &mut String, report: &HostReport) -> fmt::Result {
    for socket in report.sockets.iter().flatten().take(8) {
        write!(out, "  socket    {} lost {}", socket.local, output::thousands(socket.drops))?;
        if let Some(bytes) = socket.buffer_bytes {
            write!(out, ", buffer {} B", output::thousands(bytes))?;
        }
        writeln!(out, "{}", socket.program.as_ref().map_or(String::new(), |program| format!(", {program}")))?;
    }
    Ok(())
}

fn whole(value: f64) -> String {
    output::thousands(value.round() as u64)
}

fn rate(bps: f64) -> String {
    output::bits(output::digits(bps, 4))
}

fn queues(of: &InterfaceReport) -> String {
    let Some(queues) = &of.queues else {
        return match of.settings.queues {
            Some(1) => "one queue".to_owned(),
            Some(count) => format!("{count} queues without frame counts"),
            None => "queues not known".to_owned(),
        };
    };
    if let [_] = queues.as_slice() {
        return "one queue".to_owned();
    }
    let all = queues.iter().map(|queue| queue.frames).sum::<u64>().max(1) as f64;
    let mut busiest = queues.clone();
    busiest.sort_by_key(|queue| std::cmp::Reverse(queue.frames));
    let shares: Vec<String> = busiest
        .iter()
        .take(8)
        .map(|queue| format!("{}: {:.1} %", queue.queue, queue.frames as f64 / all * 100.0))
        .collect();
    format!("{} queues, busiest {}", queues.len(), shares.join(", "))
}

/// The counters of a loss point that increased.
fn by_name(report: &HostReport, place: LossPoint) -> Vec<String> {
    let of_interfaces = report.interfaces.iter().flat_map(|of| &of.drops).filter(|drop| drop.place == place);
    let mut found: Vec<String> = of_interfaces
        .filter(|drop| drop.frames > 0 && place != LossPoint::Interface)
        .map(|drop| format!("{} {}", drop.counter, output::thousands(drop.frames)))
        .collect();
    let named = report.protocol_losses(place).into_iter();
    found.extend(named.map(|(name, count)| format!("{name} {}", output::thousands(count))));
    found
}

/// Why the losses at a loss point are unknown.
fn unknown(place: LossPoint) -> &'static str {
    match place {
        LossPoint::Wire => "the interface has no NIC behind it",
        LossPoint::Ring => "the driver counts no losses there",
        LossPoint::Queue => "frames are not lost here",
        LossPoint::Softnet => "/proc/net/softnet_stat cannot be read",
        LossPoint::Interface => "the counter was reset",
        LossPoint::Protocol | LossPoint::Socket => "/proc/net/snmp cannot be read",
    }
}

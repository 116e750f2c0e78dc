use crate::error::SimError;
use crate::sink::Sink;
use crate::source::Source;
use engine::{Departure, Pipeline};
use measure::{Forgiven, PipelineReport, SentStreams};
use packet::{Frame, HeapFrame, Stamp};
use units::{Span, Time, WireLen};

/// When a run ends before its input does, and how its rate is measured.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nothing arrives or departs from this much virtual time on.
    pub duration: Option<Span>,
    /// Windows of the rate.
    pub window: Span,
    /// The fixed gap that was asked, to measure against.
    pub asked_gap: Option<Span>,
}

/// Looks at a run from time to time; may end it.
pub trait Watch {
    /// `frames` have left and virtual time reads `now`. False ends the run as SIGINT does: cleanly.
    fn go_on(&mut self, frames: u64, now: Time) -> bool;

    /// More than [`MANY`] frames are held in memory; told once.
    fn holds_many(&mut self) {}
}

/// So many frames a live run holds at most: the memory for more is no matter of course.
pub const MANY: u64 = 1 << 18;

/// What came of a run.
pub struct Run {
    /// The figures.
    pub report: PipelineReport,
    /// What ended it early, if anything did; outputs are whole up to there.
    pub failure: Option<SimError>,
}

/// Arrivals and departures between two looks of the watch.
const WATCH_EVERY: u64 = 4_096;

/// Frames of a backlog that stages hold at one time: as many as there are would be too many.
const MOST_OF_BACKLOG: u64 = 65_536;

/// No frame departs later: an hour before instants end, so that sums of what is due stay within them.
const LAST: Time = Time::from_ps(u64::MAX - 3_600 * units::PS_PER_S);

/// Moves frames from `source` through `pipeline` to `sink` until the input has ended and nothing is
/// held, or a limit is reached.
///
/// A frame is read only when the one before it has departed and the stages need it: a backlog stays
/// in the source. Stages run at the time of arrivals, departures at the time of the schedule; both
/// clocks only go forward. Of several classes one may be idle while another has a backlog: then all is
/// read that came before the next departure, and the backlog waits in memory.
pub fn run(
    source: &mut dyn Source,
    pipeline: &mut Pipeline<HeapFrame>,
    sink: &mut dyn Sink,
    limits: Limits,
    watch: &mut dyn Watch,
) -> Run {
    let stamped = source.stamped();
    let mut sent = SentStreams::default();
    if stamped {
        sink.stamp_departures();
    }
    let line = sink.line();
    let byte_time = line.map(|line| line.byte_time());
    let mut meter = pipeline.meter(limits.asked_gap, byte_time, limits.window);
    let end = limits.duration.map_or(LAST, |duration| Time::from_ps(duration.as_ps()).min(LAST));
    let mut spare: Vec<HeapFrame> = Vec::new();
    let mut failure = None;
    let mut after_end: Option<Departure<HeapFrame>> = None;
    let mut left: u64 = 0;
    let mut until_look = WATCH_EVERY;
    let mut clock = Time::ZERO;
    let mut many = false;

    'run: loop {
        // What comes by then may be due earlier, unless every class has its next departure.
        loop {
            let due = pipeline.due();
            if due.is_some() && pipeline.is_settled() {
                break;
            }
            if due.is_none() && pipeline.ended() {
                break 'run;
            }
            until_look -= 1;
            if until_look == 0 {
                until_look = WATCH_EVERY;
                if !watch.go_on(left, clock) {
                    break 'run;
                }
                if !many && pipeline.held() > MANY {
                    many = true;
                    watch.holds_many();
                }
            }
            let deadline = pipeline.deadline();
            let waits = deadline.is_some() || due.is_some();
            let full = source.is_backlog() && waits && pipeline.held() >= MOST_OF_BACKLOG;
            let in_time = |at: &Time| due.is_none_or(|due| *at <= due);
            let arrival = source.arrival().filter(|arrival| *arrival < end && !full).filter(in_time);
            let deadline = deadline.filter(in_time);
            if arrival.is_none() && deadline.is_none() && due.is_some() {
                break;
            }
            match (arrival, deadline) {
                (Some(arrival), deadline) if deadline.is_none_or(|deadline| arrival <= deadline) => {
                    let mut frame = spare.pop().unwrap_or_default();
                    source.take(&mut frame);
                    clock = clock.max(arrival);
                    pipeline.push(clock, arrival, frame);
                }
                (_, Some(deadline)) if deadline < end => {
                    clock = clock.max(deadline);
                    pipeline.wake(clock);
                }
                (_, Some(_)) if end == LAST => {
                    failure.get_or_insert(SimError::TooLong);
                    break 'run;
                }
                // Nothing waits: what is left of the input comes after the end.
                (None, None) if end == LAST && source.arrival().is_some() => {
                    failure.get_or_insert(SimError::TooLong);
                    break 'run;
                }
                _ => break 'run,
            }
        }
        let Some(mut departure) = pipeline.next_departure() else { continue };
        if departure.at.max(sink.free()) >= end {
            // A schedule that has ended is no run that is too long.
            let over = pipeline.ended();
            after_end = Some(departure);
            if end == LAST && !over {
                failure.get_or_insert(SimError::TooLong);
            }
            break;
        }
        match sink.send(&mut departure) {
            Ok(start) => {
                let Departure { class, source, length, at, tag, .. } = departure;
                if let Some(stamp) = stamped.then(|| Stamp::of(departure.frame.bytes())).flatten() {
                    sent.add(stamp.stream);
                }
                pipeline.sent(class, length);
                pipeline.departed(class, source, length, at, start);
                if tag != 0 {
                    pipeline.sliced(class, tag, at, start);
                }
                meter.record_of(class, at, start, length);
            }
            Err(error) => {
                failure = Some(error);
                after_end = Some(departure);
                break;
            }
        }
        spare.push(departure.frame);
        left += 1;
        until_look -= 1;
        if until_look == 0 {
            until_look = WATCH_EVERY;
            if !watch.go_on(left, departure.at) {
                break;
            }
        }
    }
    failure = failure.or_else(|| source.failure());
    if let Err(error) = sink.finish() {
        failure.get_or_insert(error);
    }
    let held = pipeline.held() + u64::from(after_end.is_some());
    let mut report = meter.report(pipeline.books(), held);
    report.streams = sent.report();
    report.starved = Some(pipeline.starved());
    pipeline.report_effects(&mut report);
    pipeline.report_classes(&meter, &mut report);
    report.forfeited_share = pipeline.forfeited();
    report.forgiven = pipeline.forgiven().map(Forgiven::from);
    // A few large frames in a row are late without harm.
    let excused = line.map(|line| line.span(10 * u64::from(WireLen::MAX_STANDARD.bytes())));
    report.shortfall = excused.and_then(|excused| meter.shortfall(excused));
    sink.report(&mut report);
    Run { report, failure }
}

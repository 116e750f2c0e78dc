use crate::error::SimError;
use crate::sink::Sink;
use crate::source::Source;
use engine::{Departure, Pipeline, Placed, Token};
use measure::{DropReason, PipelineReport};
use packet::{Frame, HeapFrame, Stamp};
use std::collections::VecDeque;
use units::{Span, Time, WireLen};

/// Limits of a run, and parameters of its measurement.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Virtual time at which arrivals and departures end.
    pub duration: Option<Span>,
    /// Length of the windows of the rate.
    pub window: Span,
    /// The configured fixed gap, as a reference for measured gaps.
    pub asked_gap: Option<Span>,
}

/// Called periodically during a run; may end it.
pub trait Observer {
    /// Called when `frames` have left and virtual time reads `now`. Returns false to end the run cleanly, as SIGINT
    /// does.
    fn go_on(&mut self, frames: u64, now: Time) -> bool;

    /// Called once when more than [`MANY`] frames are held in memory.
    fn holds_many(&mut self) {}
}

/// Number of frames that a live run could not hold, and that is therefore unusual.
pub const MANY: u64 = 1 << 18;

/// Result of a run.
pub struct RunResult {
    /// The figures.
    pub report: PipelineReport,
    /// The error that ended it early, if any. Outputs are complete up to that point.
    pub failure: Option<SimError>,
    /// A class that departed late because only frames of other classes were read from a backlog.
    pub outpaced: Option<u32>,
}

/// Number of arrivals and departures between two calls of the observer.
const WATCH_EVERY: u64 = 4_096;

/// Number of departures between two checks of the sink's file.
const SETTLE_EVERY: u64 = 1_024;

/// Maximum number of frames of a backlog in the stages.
const MOST_OF_BACKLOG: u64 = 65_536;

/// Latest departure: an hour before the end of instants, so that sums of due times do not overflow.
const LAST: Time = Time::from_ps(u64::MAX - 3_600 * units::PS_PER_S);

/// Moves frames from `source` through `pipeline` to `sink` until the input has ended and no frame is held, or a limit
/// is reached.
///
/// A frame is read only when the preceding one has departed and the stages need it, so a backlog stays in the source.
/// Stages run at arrival times, departures at schedule times; both clocks only move forward. With several classes, one
/// may be idle while another has a backlog. In that case everything that arrived before the next departure is read, and
/// the backlog waits in memory.
pub fn run(
    source: &mut dyn Source,
    pipeline: &mut Pipeline<HeapFrame>,
    sink: &mut dyn Sink,
    limits: Limits,
    watch: &mut dyn Observer,
) -> RunResult {
    let stamped = source.stamped();
    if stamped {
        sink.stamp_departures();
    }
    let byte_time = sink.line().map(|line| line.byte_time());
    pipeline.measure(limits.asked_gap, byte_time, limits.window);
    let end = limits.duration.map_or(LAST, |duration| Time::from_ps(duration.as_ps()).min(LAST));
    let mut driver = Driver {
        epoch_ns: source.epoch_ns(),
        source,
        pipeline,
        sink,
        end,
        stamped,
        sent: 0,
        uncertain: VecDeque::new(),
        refused: None,
        clock: Time::ZERO,
        last: (Time::ZERO, 0),
        unread: false,
        outpaced: None,
        spare: Vec::new(),
        looks: ObserverCalls { watch, left: 0, until: WATCH_EVERY, many: false },
    };
    let ended = driver.run();
    driver.finish(ended)
}

/// The next event in virtual time.
enum NextEvent {
    /// A frame arrives.
    Arrival(Time),
    /// A stage releases frames.
    Wake(Time),
    /// The first frame in the queue departs.
    Departure,
    /// Stages reach a change.
    StageChange(Time),
    /// Schedules reach a change.
    DepartureChange(Time),
    /// No event before the end.
    End,
    /// No event before the last representable instant, and no other end was requested.
    TooLong,
}

/// How a run ended.
#[derive(Default)]
struct RunEnd {
    failure: Option<SimError>,
}

struct Driver<'a> {
    source: &'a mut dyn Source,
    pipeline: &'a mut Pipeline<HeapFrame>,
    sink: &'a mut dyn Sink,
    end: Time,
    stamped: bool,
    /// Number of frames sent to the sink.
    sent: u64,
    /// Departures of frames that may not reach the sink's file, with their starts.
    uncertain: VecDeque<(Placed, Time)>,
    /// The token of the frame that the sink failed to send.
    refused: Option<Token>,
    /// The clock of the stages.
    clock: Time,
    /// UNIX time of the start of the run.
    epoch_ns: u64,
    /// Start and class of the last departure.
    last: (Time, u32),
    /// Whether a class had no frame to send while the backlog was not read further.
    unread: bool,
    outpaced: Option<u32>,
    /// Buffers of departed frames, for reuse.
    spare: Vec<HeapFrame>,
    looks: ObserverCalls<'a>,
}

/// When to call the observer, and what to report to it.
struct ObserverCalls<'a> {
    watch: &'a mut dyn Observer,
    left: u64,
    until: u64,
    many: bool,
}

impl Driver<'_> {
    fn run(&mut self) -> RunEnd {
        loop {
            let now = match self.next() {
                NextEvent::Arrival(at) => {
                    let mut frame = self.spare.pop().unwrap_or_default();
                    self.clock = self.clock.max(at);
                    let epoch_ns = self.source.epoch_ns();
                    if epoch_ns != self.epoch_ns {
                        self.epoch_ns = epoch_ns;
                        self.sink.rebase(self.clock, epoch_ns);
                    }
                    self.source.take(&mut frame);
                    self.pipeline.push(self.clock, at, frame);
                    self.clock
                }
                NextEvent::Wake(at) => {
                    self.clock = self.clock.max(at);
                    self.pipeline.wake(self.clock);
                    self.clock
                }
                NextEvent::Departure => match self.pipeline.next_departure().map(|departure| self.depart(departure)) {
                    Some(Ok(at)) => at,
                    Some(Err(ended)) => return ended,
                    None => self.clock,
                },
                NextEvent::StageChange(at) => {
                    self.pipeline.change_stages(at);
                    self.clock
                }
                NextEvent::DepartureChange(at) => {
                    self.pipeline.change_departures(at);
                    // Frames that are present from the start enter the stages only when departures need them.
                    if self.source.is_backlog() && self.pipeline.next_stage_change().is_some_and(|change| change <= at)
                    {
                        self.pipeline.change_stages(at);
                    }
                    at
                }
                NextEvent::End => return RunEnd::default(),
                NextEvent::TooLong => return RunEnd { failure: Some(SimError::TooLong) },
            };
            if !self.looks.go_on(now, self.pipeline) {
                self.end = self.end.min(self.last());
                return RunEnd::default();
            }
        }
    }

    /// Determines the next event. A frame that arrives before the next departure may be due earlier, unless every class
    /// has a settled departure. Stages and schedules reach changes on their own clocks, before anything else at that
    /// instant.
    fn next(&mut self) -> NextEvent {
        let event = self.next_without_stage_changes();
        let (NextEvent::Arrival(at) | NextEvent::Wake(at)) = event else { return event };
        match self.pipeline.next_stage_change().filter(|change| *change <= at) {
            Some(change) => NextEvent::StageChange(change),
            None => event,
        }
    }

    fn next_without_stage_changes(&mut self) -> NextEvent {
        let Driver { source, pipeline, end, clock, unread, .. } = self;
        let due = pipeline.due();
        let change = pipeline.next_departure_change().filter(|change| change < end);
        if let Some(due) = due
            && pipeline.is_settled()
        {
            return match change.filter(|change| *change <= due) {
                Some(change) => NextEvent::DepartureChange(change),
                None => NextEvent::Departure,
            };
        }
        if due.is_none() && pipeline.ended() && change.is_none() {
            return NextEvent::End;
        }
        if source.arrival().is_none_or(|arrival| arrival >= *end) {
            pipeline.arrivals_end(*clock);
        }
        let deadline = pipeline.deadline();
        let paused = pipeline.is_paused();
        let waits = deadline.is_some() || due.is_some() || paused;
        let full = source.is_backlog() && waits && pipeline.held() >= MOST_OF_BACKLOG;
        let idle = paused && source.is_backlog() && pipeline.is_full_of_all();
        let enough = full || idle || waits && !source.wanted(&|class| pipeline.is_full(class));
        let in_time = |at: &Time| due.is_none_or(|due| *at <= due) && change.is_none_or(|change| *at < change);
        let arrives = source.arrival().filter(|arrival| arrival < end);
        let arrival = arrives.filter(|_| !enough).filter(in_time);
        // A change after the last frame is left to the end of the run.
        let change = change.filter(|change| due.is_none_or(|due| *change <= due));
        let change = change.filter(|_| waits && pipeline.held() > 0 || arrives.is_some());
        match (arrival, deadline.filter(in_time)) {
            (Some(arrival), deadline) if deadline.is_none_or(|deadline| arrival <= deadline) => {
                NextEvent::Arrival(arrival)
            }
            (_, Some(deadline)) if deadline < *end => NextEvent::Wake(deadline),
            (None, None) if change.is_some() => NextEvent::DepartureChange(change.unwrap_or(Time::MAX)),
            (None, None) if due.is_some() => {
                *unread |= full;
                NextEvent::Departure
            }
            (_, Some(_)) if *end == LAST => NextEvent::TooLong,
            // If departures are paused and no change resumes them, the rest of the input is not read.
            (None, None) if paused => NextEvent::End,
            // No frame waits: the rest of the input arrives after the end.
            (None, None) if *end == LAST && source.arrival().is_some() => NextEvent::TooLong,
            _ => NextEvent::End,
        }
    }

    /// Sends a frame and returns its target.
    fn depart(&mut self, departure: Departure<HeapFrame>) -> Result<Time, RunEnd> {
        let Departure { mut frame, mut token } = departure;
        let (at, class) = (token.at(), token.class());
        if at.max(self.sink.free()) >= self.end {
            token.hold();
            // If the schedule has ended, the run is not too long.
            let failure = (self.end == LAST && !self.pipeline.ended()).then_some(SimError::TooLong);
            return Err(RunEnd { failure });
        }
        // Time does not go back, so a class whose frames were not read in time is late, as in a live run.
        let from = at.max(self.last.0);
        if self.unread && at < from && class != self.last.1 {
            self.outpaced.get_or_insert(class);
        }
        let start = match self.sink.send(&mut frame, &token, from) {
            Ok(start) => start,
            Err(failure) => {
                self.refused = Some(token);
                return Err(RunEnd { failure: Some(failure) });
            }
        };
        self.last = (start, class);
        if let Some(stamp) = self.stamped.then(|| Stamp::of(frame.bytes())).flatten() {
            token.is_of_stream(stamp.stream);
        }
        self.sent += 1;
        if self.sink.certain().is_none() {
            token.complete(self.pipeline, start);
        } else {
            self.uncertain.push_back((token.place(self.pipeline, start), start));
            if self.sent.is_multiple_of(SETTLE_EVERY) {
                self.settle();
            }
        }
        self.spare.push(frame);
        self.looks.left += 1;
        Ok(at)
    }

    /// Completes the departures of frames that have reached the sink's file.
    fn settle(&mut self) {
        let certain = self.sink.certain().unwrap_or(self.sent);
        while self.sent - (self.uncertain.len() as u64) < certain
            && let Some((placed, start)) = self.uncertain.pop_front()
        {
            placed.complete(self.pipeline, start);
        }
    }

    /// The instant just after the last event.
    fn last(&self) -> Time {
        self.clock.max(self.last.0) + Span::from_ps(1)
    }

    fn finish(mut self, RunEnd { failure }: RunEnd) -> RunResult {
        let mut failure = failure.or_else(|| self.source.failure());
        if let Err(error) = self.sink.finish() {
            failure.get_or_insert(error);
        }
        self.settle();
        for (placed, _) in self.uncertain.drain(..) {
            placed.discard(self.pipeline, DropReason::Unwritten);
        }
        match self.refused.take() {
            Some(token) if self.sink.unwritten().frames > 0 => token.discard(self.pipeline, DropReason::Unwritten),
            // Another output failed; the frame has not left.
            Some(token) => token.hold(),
            None => {}
        }
        // Without a time limit, the run ends with its last event.
        let end = if self.end == LAST || failure.is_some() { self.last() } else { self.end };
        let Driver { pipeline, sink, outpaced, .. } = self;
        pipeline.end_changes(end);
        let mut report = pipeline.report();
        // A few large frames in a row may be late without being a shortfall.
        let excused = sink.line().map(|line| line.span(10 * u64::from(WireLen::MAX_STANDARD.bytes())));
        report.shortfall = excused.and_then(|excused| pipeline.shortfall(excused));
        sink.report(&mut report);
        RunResult { report, failure, outpaced }
    }
}

impl ObserverCalls<'_> {
    /// Calls the observer if it is time. Returns whether the run continues.
    #[inline]
    fn go_on(&mut self, now: Time, pipeline: &Pipeline<HeapFrame>) -> bool {
        self.until -= 1;
        if self.until > 0 {
            return true;
        }
        self.until = WATCH_EVERY;
        if !self.many && pipeline.held() > MANY {
            self.many = true;
            self.watch.holds_many();
        }
        self.watch.go_on(self.left, now)
    }
}

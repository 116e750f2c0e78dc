use super::end_to_end;
use crate::options::Arguments;
use crate::options::Command;
use crate::options::slice::PipelineSlices;
use crate::output::{self, Failure};
use crate::plan::request::{ListenerFactory, SliceListener};
use crate::plan::{self, Plan};
use crate::render::progress::Progress;
use crate::render::report_printer::PATIENCE;
use crate::run::pipelines;
use clap::Parser;
use measure::slices::{SlicePart, waterfall};
use packet::Identity;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TrySendError};
use std::thread;
use std::time::Duration;
use units::Time;

/// A frame that departed.
pub(super) struct Departed {
    pub(super) at: Time,
    pub(super) identity: Option<Identity>,
    pub(super) length: u32,
    pub(super) parts: Vec<SlicePart>,
}

impl PipelineSlices {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        #[cfg(feature = "live")]
        dpdk::name_less_memory(
            "trace fewer frames with --every 1/N, or use shorter delays or smaller tables in the command",
        );
        let Plan::Pipelines(mut request) = plan::plan(self.inner()?)? else {
            return Err(Failure::new(
                "slice pipeline traces frames of shape, emulate, limit, gen and run: write one of them after --",
            ));
        };
        let common = &mut request.common;
        if common.json && self.each.is_some() {
            return Err(Failure::new("--each and --json both print on stdout: leave one of them out"));
        }
        if common.slices.is_some() {
            return Err(Failure::new("--slices after --: write --every 1/N before -- instead"));
        }
        common.slices = Some(self.every);
        if self.kernel {
            if self.each.is_some() {
                return Err(Failure::new("--kernel combines the records only after the run: leave --each out"));
            }
            // Loading the probes and measuring their cost takes seconds.
            let starting = Progress::starting(common.shows_progress(), "slice pipeline");
            request.listener = end_to_end::listener(self.port)?;
            drop(starting);
            return pipelines::run(&request);
        }
        let Some(form) = self.each else { return pipelines::run(&request) };
        let (listener, frames, left_out) = listener();
        request.listener = listener;
        let printing = thread::Builder::new()
            .spawn(move || print_all(&form, &frames))
            .map_err(|cause| Failure::new(format!("cannot start a thread: {cause}: raise ulimit -v and ulimit -u")))?;
        let status = pipelines::run(&request)?;
        // The printing thread ends when the last sender is dropped. The request holds one.
        drop(request);
        // Waits for a stalled reader until the user ends the run.
        while !printing.is_finished() {
            if sim::ended_for().is_some_and(|ended| ended > PATIENCE) {
                output::warn("stdout is not read: some frames were not printed");
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
        printing.join().map_err(|_| Failure::new("the thread that prints frames failed"))??;
        match left_out.load(Ordering::Relaxed) {
            0 => {}
            some => output::warn(format!(
                "{} frames were not printed because they arrived too fast: trace fewer with --every 1/N",
                output::thousands(some)
            )),
        }
        Ok(status)
    }

    /// The command after `--`.
    fn inner(&self) -> Result<Command, Failure> {
        if self.command.first().is_some_and(|word| word.as_encoded_bytes().starts_with(b"-")) {
            let option = self.command[0].to_string_lossy();
            return Err(Failure::new(format!(
                "'{option}' is not a command: write shape, emulate, limit, gen or run before its options, as in 'slice pipeline -- emulate {option} …'"
            )));
        }
        let words = [OsString::from("netlathe")].into_iter().chain(self.command.iter().cloned());
        match Arguments::try_parse_from(words) {
            Ok(arguments) => Ok(arguments.command),
            Err(error) => Err(Failure::new(format!("after --: {}", crate::options::usage_errors::in_one_line(&error)))),
        }
    }
}

/// Interval between checks for space in the queue and for the end of the run.
const LOOK: Duration = Duration::from_millis(1);
/// Limit on frames that wait to be printed.
const WAITING: usize = 1 << 16;

/// Creates a trace listener that queues frames for printing: all of them in virtual time, and live only as many as the
/// printer can handle. The counter holds the number of frames left out.
fn listener() -> (SliceListener, mpsc::Receiver<Departed>, Arc<AtomicU64>) {
    let (frames, received) = mpsc::sync_channel(WAITING);
    let left_out = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&left_out);
    let listener: engine::slices::Listener = Arc::new(move |trace, meter, _| {
        let frame = Departed {
            at: trace.marks.first().map_or(Time::ZERO, |mark| mark.at),
            identity: trace.identity,
            length: trace.length,
            parts: meter.parts(&trace.marks),
        };
        let mut next = frame;
        // If the thread that prints has ended, the run ends as well.
        while let Err(TrySendError::Full(frame)) = frames.try_send(next) {
            if meter.is_real_time() || sim::ended_for().is_some() {
                count.fetch_add(1, Ordering::Relaxed);
                break;
            }
            next = frame;
            thread::sleep(LOOK);
        }
    });
    let hears: ListenerFactory = Arc::new(move |_| Arc::clone(&listener));
    (SliceListener { hears: Some(hears), concludes: None }, received, left_out)
}

/// Prints frames until there are no more. Ends the run if stdout is closed.
fn print_all(form: &str, frames: &mpsc::Receiver<Departed>) -> Result<(), Failure> {
    for frame in frames {
        if !print(form, &frame)? {
            // Ends the run as with Ctrl-C, so that captures are completed and interfaces restored.
            return signal_hook::low_level::raise(signal_hook::consts::SIGINT).map_err(Failure::new);
        }
    }
    Ok(())
}

/// Describes a frame.
pub(super) fn frame_label(identity: Option<&Identity>, length: u32) -> String {
    match identity {
        None => format!("frame of {} B", length),
        Some(identity) => format!(
            "{} {}:{} > {}:{} {} B",
            if identity.protocol == 6 { "tcp" } else { "udp" },
            identity.source,
            identity.source_port,
            identity.destination,
            identity.destination_port,
            identity.payload
        ),
    }
}

/// Returns false if stdout is closed.
fn print(form: &str, frame: &Departed) -> Result<bool, Failure> {
    let seconds = frame.at.as_ps() / units::PS_PER_S;
    let rest = frame.at.as_ps() % units::PS_PER_S / units::PS_PER_NS;
    let what = frame_label(frame.identity.as_ref(), frame.length);
    match form {
        "json" => {
            let object = serde_json::json!({ "at_ns": frame.at.as_ps() / units::PS_PER_NS, "packet": what, "slices": frame.parts });
            output::is_read(&format!("{object}\n"))
        }
        "waterfall" => output::is_read(&format!("{seconds}.{rest:09} {what}\n{}\n", waterfall(&frame.parts))),
        _ => {
            let total: f64 = frame.parts.iter().map(|part| part.length_ns).sum();
            let parts: Vec<String> =
                frame.parts.iter().map(|part| format!("{} {}", part.name, output::brief(part.length_ns))).collect();
            let total = output::brief(total);
            output::is_read(&format!("{seconds}.{rest:09} {what}: {}, total {total}\n", parts.join(", ")))
        }
    }
}

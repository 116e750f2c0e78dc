//! Compares the asked rate, as typed, with the measured one, and reports the share that went unused for lack of frames.

use crate::output;
use crate::run::changes;
use engine::schedules::Target;
use measure::figures::{frames_per_second, frames_unit};
use measure::{AskedRate, PipelineReport};
use scenario::{Pacer, PipelinePlan, PortSpec};
use units::{BitRate, FrameRate, Layer, Rate, Share, Span};

/// Warns about the share of a waveform for which no frame was ready.
pub(crate) fn say_what_was_forfeited(report: &PipelineReport) {
    let classes = report.classes.iter().map(|class| (format!("{}.{}", report.name, class.name), class));
    for (name, part) in std::iter::once((report.name.clone(), report)).chain(classes) {
        if let Some(share) = part.forfeited_ratio.filter(|share| *share > 0.0) {
            output::warn(format!("{name}: {:.4} % of the waveform was lost because no frame was ready", share * 100.0));
        }
    }
}

/// Adds the asked rate to the report. Plots show the typed rate, not the targets of the frames that arrived.
pub(crate) fn put_beside(plan: &PipelinePlan, report: &mut PipelineReport) {
    // The target changed during the run, so no single rate was asked. Plots show the target of each departure.
    if changes::changed_target(report) {
        return plan_only(plan, report);
    }
    if plan.classes.is_empty() {
        draw(&plan.target, plan, report);
        compare(&plan.target, plan, report);
        forget_buffer(&plan.target, report);
        plan_only(plan, report);
        return;
    }
    let asks = plan.classes.iter().map(|class| &class.target).chain([&plan.target]);
    for (ask, class) in asks.zip(&mut report.classes) {
        draw(ask, plan, class);
        compare(ask, plan, class);
        forget_buffer(ask, class);
    }
    if let Some(sum) = sum(plan, report) {
        compare(&Target::Rate(sum), plan, report);
    }
    plan_only(plan, report);
}

/// The rate asked of the whole pipeline: the sum over its classes, if each class with frames has one, and all use the
/// same unit.
fn sum(plan: &PipelinePlan, report: &PipelineReport) -> Option<Rate> {
    let asks = plan.classes.iter().map(|class| &class.target).chain([&plan.target]);
    let mut rates = asks
        .zip(&report.classes)
        .filter(|(ask, class)| **ask != Target::Nothing || class.arrived.frames > 0)
        .map(|(ask, _)| if let Target::Rate(rate) = ask { Some(*rate) } else { None });
    let first = rates.next()??;
    rates.try_fold(first, |sum, rate| match (sum, rate?) {
        (Rate::Frames(sum), Rate::Frames(one)) => {
            Some(Rate::Frames(FrameRate::from_millis(sum.millis().checked_add(one.millis())?)))
        }
        (Rate::Bits(sum, layer), Rate::Bits(one, same)) if layer == same => {
            Some(Rate::Bits(BitRate::from_bps(sum.bps().checked_add(one.bps())?), layer))
        }
        (Rate::Line(sum), Rate::Line(one)) => Some(Rate::Line(Share::from_ppb(sum.ppb().checked_add(one.ppb())?))),
        _ => None,
    })
}

/// Removes the buffer figures of a gap or a rate, whose schedule restarts at the next arrival. Keeps them if the user
/// asked for a buffer or if one would have helped.
fn forget_buffer(ask: &Target, report: &mut PipelineReport) {
    let restarts = matches!(ask, Target::Gap(_) | Target::IdleGap(_) | Target::Rate(_));
    report.buffer = report.buffer.filter(|buffer| !restarts || buffer.asked_ns > 0.0 || buffer.width_ns > 0.0);
}

/// Whether the reported departures are planned instead of measured, as with fillers on a real port.
fn is_planned(plan: &PipelinePlan) -> bool {
    plan.pacer == Pacer::Filler && !matches!(plan.output, PortSpec::Line(_) | PortSpec::Wire(_))
}

/// Marks the plots as planned if they are.
fn plan_only(plan: &PipelinePlan, report: &mut PipelineReport) {
    for part in report.classes.iter_mut().map(|class| class.plots.as_mut()).chain([report.plots.as_mut()]).flatten() {
        part.planned = is_planned(plan);
    }
}

/// Bytes on the wire beyond a frame with FCS: preamble and inter-frame gap.
const ON_WIRE: f64 = 20.0;
/// Bytes of the Ethernet header and the FCS.
const ETHERNET: f64 = 18.0;

fn mean_length(report: &PipelineReport) -> f64 {
    report.left.bytes as f64 / report.left.frames.max(1) as f64
}

fn compare(ask: &Target, plan: &PipelinePlan, report: &mut PipelineReport) {
    let length = mean_length(report);
    let line = plan.line.map(|line| line.rate().bps() as f64);
    let Some(rate) = report.rate.as_mut() else { return };
    let frames = rate.mean_fps.unwrap_or_default();
    let on_wire = rate.mean_bps * (length + ON_WIRE) / length;
    let planned = is_planned(plan);
    let none = AskedRate { text: String::new(), fps: None, bps: None, line_ratio: None, planned, got: String::new() };
    let also_frames = frames_per_second(frames);
    rate.asked = match ask {
        Target::Rate(asked) => {
            let text = asked.to_string();
            Some(match asked {
                Rate::Frames(of) => {
                    let fps = of.millis() as f64 / 1_000.0;
                    let (scale, unit) = frames_unit(fps);
                    let got = format!("{:.6} {unit} and {}", frames / scale, output::bits(rate.mean_bps));
                    AskedRate { text, fps: Some(fps), got, ..none }
                }
                Rate::Bits(of, layer) => {
                    let (bps, of_layer, name) = match layer {
                        Layer::Frame => (rate.mean_bps, of.bps(), ""),
                        Layer::Wire => (on_wire, of.bps(), " wire"),
                        Layer::Ip => (rate.mean_bps * (length - ETHERNET) / length, of.bps(), " ip"),
                    };
                    let got = format!("{}{name} and {also_frames}", output::bits(bps));
                    AskedRate { text, bps: Some(of_layer as f64), got, ..none }
                }
                Rate::Line(share) => {
                    let got = line.map_or(0.0, |line| on_wire / line);
                    let got = format!("{:.4} % of the line and {also_frames}", got * 100.0);
                    AskedRate { text, line_ratio: Some(share.as_f64()), got, ..none }
                }
            })
        }
        Target::Wave(wave) => {
            let got = format!("{} and {also_frames} in the mean", output::bits(rate.mean_bps));
            Some(AskedRate { text: wave.to_string(), got, ..none })
        }
        Target::Nothing | Target::Gap(_) | Target::IdleGap(_) | Target::Law(_) | Target::Depth(_) => None,
    };
}

fn draw(ask: &Target, plan: &PipelinePlan, report: &mut PipelineReport) {
    // With a rate or a gap, each departure follows the typed value unless the schedule restarted.
    if !matches!(ask, Target::Wave(_)) && report.starved.is_none_or(|starved| starved == 0) {
        return;
    }
    let length = mean_length(report);
    let Some(rate) = report.plots.as_mut().and_then(|plots| plots.rate.as_mut()) else { return };
    let window = Span::from_ps((rate.window_ns * units::PS_PER_NS as f64) as u64);
    if let Some(typed) = ask.typed(plan.line, length, window, rate.got_bps.len()) {
        rate.asked_bps = Some(typed);
    }
}

//! What was asked, beside what was got: the rate as it was typed, and what of it was forfeited.

use crate::output;
use engine::schedules::Ask;
use measure::PipelineReport;
use scenario::PipelinePlan;
use units::Span;

/// Says for which share of a waveform no frame was there.
pub(crate) fn say_what_was_forfeited(report: &PipelineReport) {
    let classes = report.classes.iter().map(|class| (format!("{}.{}", report.name, class.name), class));
    for (name, part) in std::iter::once((report.name.clone(), report)).chain(classes) {
        if let Some(share) = part.forfeited_share.filter(|share| *share > 0.0) {
            output::warn(format!(
                "{name}: {:.4} % of the waveform was forfeited, since no frame was ready for it",
                share * 100.0
            ));
        }
    }
}

/// Draws the rate as it was typed instead of what was asked of the frames that came.
pub(crate) fn draw_as_typed(plan: &PipelinePlan, report: &mut PipelineReport) {
    if plan.classes.is_empty() {
        return draw(&plan.ask, plan, report);
    }
    let asks = plan.classes.iter().map(|class| &class.ask).chain([&plan.ask]);
    for (ask, class) in asks.zip(&mut report.classes) {
        draw(ask, plan, class);
    }
}

fn draw(ask: &Ask, plan: &PipelinePlan, report: &mut PipelineReport) {
    // Of a rate or a gap each departure was asked as typed, unless the schedule began anew.
    if !matches!(ask, Ask::Wave(_)) && report.starved.is_none_or(|starved| starved == 0) {
        return;
    }
    let length = report.left.bytes as f64 / report.left.frames.max(1) as f64;
    let Some(rate) = report.plots.as_mut().and_then(|plots| plots.rate.as_mut()) else { return };
    let window = Span::from_ps((rate.window_ns * units::PS_PER_NS as f64) as u64);
    if let Some(typed) = ask.typed(plan.line, length, window, rate.got_bps.len()) {
        rate.asked_bps = Some(typed);
    }
}

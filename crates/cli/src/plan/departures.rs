use crate::options::common::Departures;
use scenario::{ClassOptions, PipelineText, Text};

/// Returns a pipeline with only the options of departures.
pub(super) fn departures(options: Departures, name: &str) -> PipelineText {
    let Departures { rates, gaps, pacer, filler, catch_up, line_rate } = options;
    PipelineText {
        name: name.to_owned(),
        options: ClassOptions { rates, gaps, ..ClassOptions::default() },
        pacer: Some(Text::option("--pacer", pacer)),
        filler: filler.map(|filler| Text::option("--filler", filler)),
        catch_up: Some(Text::option("--catch-up", catch_up)),
        line_rate: line_rate.map(|rate| Text::option("--line-rate", rate)),
        ..PipelineText::default()
    }
}

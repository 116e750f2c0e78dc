use super::departures::departures;
use super::request::Request;
use crate::options::shape::Shape;
use crate::output::Failure;
use scenario::{ClassOptions, PipelineText, Text};

impl Shape {
    /// The plan of `shape`.
    pub(crate) fn plan(self) -> Result<Request, Failure> {
        let departures = departures(self.departures, "shape");
        let delays = self.delays.into_iter().map(|delay| ("--delay", "delay", delay));
        let reorders = self.reorders.into_iter().map(|reorder| ("--reorder", "reorder", reorder));
        let mut inputs = self.inputs.into_iter().map(|port| Text::option("--in", port));
        let pipeline = PipelineText {
            input: inputs.next(),
            more_inputs: inputs.collect(),
            output: Some(Text::option("--out", self.output)),
            options: ClassOptions {
                classes: self.classes,
                stages: self.stages,
                named_stages: delays.chain(reorders).collect(),
                syncs: self.syncs,
                buffers: self.buffers,
                ..departures.options
            },
            one_way: self.one_way,
            ..departures
        };
        Request::of_pipeline("shape", &pipeline, self.common)
    }
}

use super::request::Request;
use crate::options::limit::Limit;
use crate::output::Failure;
use scenario::{PipelineText, Text};
use units::Rate;

impl Limit {
    /// The plan of `limit`.
    pub(crate) fn plan(self) -> Result<Request, Failure> {
        let stage = self.stage()?;
        let by_user = self.by_user;
        let pipeline = PipelineText {
            name: "limit".to_owned(),
            input: Some(Text::option("--in", self.input)),
            output: Some(Text::option("--out", self.output)),
            stages: vec![Text::option("limit", stage)],
            one_way: self.one_way,
            ..PipelineText::default()
        };
        let request = Request::of_pipeline("limit", &pipeline, self.common)?;
        Ok(Request { by_user, ..request })
    }

    /// Returns the stage as a scenario would write it.
    fn stage(&self) -> Result<String, Failure> {
        let Rate::Bits(rate, layer) = self.rate else {
            let problem = format!("'{}' is not a bit rate", self.rate);
            return Err(Failure::new(format!("--rate: {problem}: write 1Mbps, '1Mbps wire' or '1Mbps ip'")));
        };
        let mut limit = engine::stages::Limit::new(self.key, rate, layer);
        limit.algorithm = self.algorithm;
        let texts = [
            ("burst", self.burst.as_deref()),
            ("mode", self.mode.as_deref()),
            ("mark", self.mark.as_deref()),
            ("colours", self.colours.as_deref()),
            ("unknown", Some(self.unknown.as_str())),
            ("users", Some(self.users.as_str())),
            ("full", Some(self.full.as_str())),
            ("device", self.device.as_deref()),
            ("workers", Some(self.workers.as_str())),
        ];
        for (word, text) in texts {
            if let Some(text) = text {
                limit.set(word, text).map_err(|error| Failure::new(format!("--{word}: {error}")))?;
            }
        }
        for (word, time) in [("queue", self.queue), ("idle", Some(self.idle)), ("service", self.service)] {
            if let Some(time) = time {
                limit.set(word, &time.to_string()).map_err(|error| Failure::new(format!("--{word}: {error}")))?;
            }
        }
        if self.mode.is_none() {
            return Err(Failure::new(
                "--mode is missing: write --mode police to drop the excess, --mode shape to queue it (TCP then gets its rate), or --mode mark",
            ));
        }
        if let Some(file) = &self.rates {
            if file.is_empty() {
                return Err(Failure::new("--rates: the file has no name: write --rates users.txt"));
            }
            if file.contains('"') || file.contains("  ") {
                return Err(Failure::new(format!(
                    "--rates: the name '{file}' cannot be written in a stage: give the file a name without quotes and double spaces"
                )));
            }
            limit.rates = Some(file.into());
        }
        Ok(limit.to_string())
    }
}

use super::files::beside;
use super::request::Request;
use crate::options::emulate::Emulate;
use crate::output::Failure;
use crate::plan::detour::DetourPlan;
use scenario::{ClassOptions, PipelineText, Text};
use std::path::Path;

const FORWARD: &str = "forward";
const BACKWARD: &str = "backward";

impl Emulate {
    /// The plan of `emulate`.
    pub(crate) fn plan(self) -> Result<Request, Failure> {
        let two_ways = self.between.is_some() || self.on.is_some() || self.backward.is_some();
        self.check(two_ways)?;
        let on = self.on.as_deref().map(DetourPlan::check).transpose()?;
        if let Some(peer) =
            on.as_ref().filter(|_| !self.yes && self.common.duration.is_none()).and_then(DetourPlan::carries_session)
        {
            return Err(Failure::new(format!(
                "--on: the SSH session with {peer} would be impaired too, and may break before you can stop the run: give --duration, or --yes"
            )));
        }
        let (input, output) = match (self.between, &on) {
            (_, Some(on)) => {
                let port = |tap: &String| Some(Text::option("--on", format!("tap:{tap}")));
                (port(&on.host), port(&on.wire))
            }
            (Some(ports), None) => {
                let mut ports = ports.into_iter().map(|port| Text::option("--between", port));
                (ports.next(), ports.next())
            }
            (None, None) => {
                (self.input.map(|port| Text::option("--in", port)), self.output.map(|port| Text::option("--out", port)))
            }
        };
        let again = |file: &Path, direction| {
            let file = if two_ways { beside(file, direction) } else { file.to_owned() };
            format!("{}", file.display())
        };
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        forward.extend(self.forward.into_iter().map(|spec| ("--forward", "netem", spec)));
        backward.extend(self.backward.map(|spec| ("--backward", "netem", spec)));
        for (direction, stages) in [(FORWARD, &mut forward), (BACKWARD, &mut backward)] {
            stages.extend(self.both.iter().map(|spec| ("--both", "netem", spec.clone())));
            stages.extend(self.replay.iter().map(|file| ("--replay", "replay", again(file, direction))));
        }
        // Each class has a separate log.
        if let Some(file) = &self.replay {
            for class in &self.classes {
                let name = class.split_once('=').map_or(class.as_str(), |(name, _)| name).trim();
                let of_class = beside(Path::new(&again(file, FORWARD)), name);
                forward.push(("--replay", "replay", format!("{name}={}", of_class.display())));
            }
        }
        let text =
            |(option, stage, value): (&'static str, &str, String)| Text::option(option, format!("{stage} {value}"));
        let pipeline = PipelineText {
            name: FORWARD.to_owned(),
            input,
            output,
            options: ClassOptions { classes: self.classes, named_stages: forward, ..ClassOptions::default() },
            back: two_ways.then(|| (BACKWARD.to_owned(), backward.into_iter().map(text).collect())),
            one_way: self.one_way,
            ..PipelineText::default()
        };
        let request = Request::of_pipeline("emulate", &pipeline, self.common)?;
        Ok(Request { decisions: self.decisions, on, ..request })
    }

    /// Refuses options that have no effect or do not fit one direction.
    fn check(&self, two_ways: bool) -> Result<(), Failure> {
        if self.forward.is_empty() && self.backward.is_none() && self.both.is_none() && self.replay.is_none() {
            return Err(Failure::new(
                "no impairment is given: write --forward, --backward or --both, such as --forward 'loss 1%'",
            ));
        }
        if !self.classes.is_empty() && self.forward.is_empty() && self.replay.is_none() {
            return Err(Failure::new("--class: no impairment of forward frames is given: write --forward CLASS=SPEC"));
        }
        if self.both.is_some() && !two_ways {
            return Err(Failure::new(
                "--both: there is only one direction: write --forward, or --between A B, or --on INTERFACE",
            ));
        }
        // Each stage numbers its frames, so two stages in one log would be ambiguous.
        let whose = |spec: &String| spec.split_once('=').map_or(String::new(), |(class, _)| class.trim().to_owned());
        let mut whoses: Vec<String> = self.forward.iter().map(whose).collect();
        whoses.sort();
        let twice = whoses.windows(2).any(|two| two[0] == two[1])
            || self.both.is_some() && !(self.forward.is_empty() && self.backward.is_none());
        if self.decisions.is_some() && twice {
            return Err(Failure::new(
                "--decisions: a log covers one SPEC per direction: join --both with --forward and --backward into one SPEC each",
            ));
        }
        Ok(())
    }
}

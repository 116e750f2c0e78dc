use super::departures::departures;
use super::files;
use super::request::{Arrivals, Request};
use crate::options::generate::Generate;
use crate::options::values::Cores;
use crate::output::Failure;
use scenario::{ClassOptions, PipelineText, PortSpec, Problems, SourcePlan, Text};

impl Generate {
    /// The plan of `gen`.
    pub(crate) fn plan(self) -> Result<Request, Failure> {
        let departures = departures(self.departures, "gen");
        let pipeline = PipelineText {
            streams: self.streams.into_iter().map(|stream| Text::option("--stream", stream)).collect(),
            gateway: self.gateways.into_iter().map(|gateway| Text::option("--gateway", gateway)).collect(),
            first_stream: self.first_stream,
            count: self.count,
            replay: self.pcap.map(|file| Text::option("--pcap", file)),
            speed: self.speed.map(|speed| Text::option("--speed", speed)),
            times: self.times,
            loop_gap: self.loop_gap.map(|gap| Text::option("--loop-gap", gap)),
            max_gap: self.max_gap.map(|gap| Text::option("--max-gap", gap)),
            rewrite: self.rewrite.into_iter().map(|rule| Text::option("--rewrite", rule)).collect(),
            output: Some(Text::option("--out", self.output)),
            options: ClassOptions { classes: self.classes, ..departures.options },
            ..departures
        };
        let request = Request::of_pipeline("gen", &pipeline, self.common)?;
        let receiver = match self.input {
            Some(input) => {
                let port = receiver(&Text::option("--in", input), &request)?;
                let cpus = self.in_cores.map_or_else(Vec::new, |Cores(cpus)| cpus);
                Some(Arrivals { port, cpus, wait: self.wait, missing: self.write_missing })
            }
            None => None,
        };
        Ok(Request { receiver, ..request })
    }
}

/// Reads the port of `--in`. It can count stamped streams and replays, which must be sent live.
fn receiver(text: &Text, request: &Request) -> Result<PortSpec, Failure> {
    let mut problems = Problems::default();
    let port = problems.read(text, PortSpec::parse);
    if let Some(port) = port.as_ref().filter(|port| !port.can_receive()) {
        problems.add(&text.origin, format!("nothing can be received from {port} while sending: name a live port"));
    }
    for plan in &request.pipelines {
        match &plan.source {
            SourcePlan::Streams { specs, .. } => {
                for (number, spec) in specs.iter().enumerate() {
                    if !spec.is_stamped().map_err(Failure::new)? {
                        let what = format!("frames of stream {number} carry no stamp, so --in cannot recognise them");
                        problems.add(&text.origin, format!("{what}: write larger sizes, and leave out 'stamp off'"));
                    }
                }
            }
            SourcePlan::Replay(replay) if !files::is_read_again(&replay.path) => {
                problems.add(
                    &text.origin,
                    "a pipe can be read only once, so its frames are not known: write it to a file first",
                );
            }
            SourcePlan::Replay(_) if !plan.classes.is_empty() => {
                let why = "frames of classes leave in a different order from the capture";
                problems.add(&text.origin, format!("{why}: leave out --class"));
            }
            SourcePlan::Replay(_) => {}
            SourcePlan::Port(_) => {
                problems.add(&text.origin, "only counts frames of streams and captures: leave it out");
            }
        }
        if plan.output.is_virtual() {
            let how = "write the frames to a capture and read it with measure --pcap";
            problems.add(&text.origin, format!("nothing arrives from '{}' while it is written: {how}", plan.output));
        }
    }
    problems.unless_any(port).map_err(Failure::new)
}

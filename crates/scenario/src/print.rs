//! Prints plans in the form that users write. Parsing the output gives the same plan.

use crate::document::Scenario;
use crate::plan::{Pacer, PipelinePlan, SourcePlan};
use crate::timeline::TimelineChange;
use engine::CatchUp;
use engine::schedules::Target;
use engine::stages::StageConfig;
use engine::sync::SyncSpec;
use std::fmt;
use units::Span;

/// Prints a text as a TOML string: quoted, with TOML's escapes (Rust's differ).
pub(crate) struct Quoted<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.to_string().chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

impl fmt::Display for PipelinePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[[pipeline]]")?;
        writeln!(f, "name = {}", Quoted(&self.name))?;
        match &self.source {
            SourcePlan::Port(port) if self.more_inputs.is_empty() => writeln!(f, "in = {}", Quoted(port))?,
            SourcePlan::Port(port) => {
                let all: Vec<String> =
                    std::iter::once(port).chain(&self.more_inputs).map(|port| Quoted(port).to_string()).collect();
                writeln!(f, "in = [{}]", all.join(", "))?;
            }
            SourcePlan::Streams { specs, count, gateway, .. } => {
                match &specs[..] {
                    [spec] => writeln!(f, "stream = {}", Quoted(spec))?,
                    specs => {
                        let specs: Vec<String> = specs.iter().map(|spec| Quoted(spec).to_string()).collect();
                        writeln!(f, "stream = [{}]", specs.join(", "))?;
                    }
                }
                if !gateway.is_empty() {
                    let all: Vec<String> = gateway.iter().map(|gateway| Quoted(gateway).to_string()).collect();
                    writeln!(f, "gateway = [{}]", all.join(", "))?;
                }
                if let Some(count) = count {
                    writeln!(f, "count = {count}")?;
                }
            }
            SourcePlan::Replay(replay) => {
                writeln!(f, "replay = {}", Quoted(replay.path.display()))?;
                if self.target == Target::Nothing {
                    writeln!(f, "speed = {}", Quoted(replay.speed))?;
                }
                writeln!(f, "times = {}", replay.times)?;
                for (key, time) in [("loop-gap", replay.loop_gap), ("max-gap", replay.max_gap)] {
                    if let Some(time) = time {
                        writeln!(f, "{key} = {}", Quoted(time))?;
                    }
                }
                if let Some(count) = replay.count {
                    writeln!(f, "count = {count}")?;
                }
                let rules: Vec<String> = replay.rewrite.iter().map(|rule| Quoted(rule).to_string()).collect();
                writeln!(f, "rewrite = [{}]", rules.join(", "))?;
            }
        }
        writeln!(f, "out = {}", Quoted(&self.output))?;
        if self.classes.is_empty() {
            departures(f, &self.target, &self.stages, self.sync.as_ref(), self.buffer)?;
        }
        if self.pacer != Pacer::Stamps {
            writeln!(f, "pacer = {}", Quoted(self.pacer.name()))?;
        }
        if self.pacer == Pacer::Filler {
            writeln!(f, "filler = {}", Quoted(self.filler))?;
        }
        if let Some(line) = self.line.filter(|_| self.output.line().is_none()) {
            writeln!(f, "line-rate = {}", Quoted(line.rate()))?;
        }
        if self.catch_up != CatchUp::All {
            writeln!(f, "catch-up = {}", Quoted(self.catch_up))?;
        }
        if let Some(back) = &self.back {
            let stages: Vec<String> = back.stages.iter().map(|stage| Quoted(stage).to_string()).collect();
            writeln!(f, "return = [{}]", stages.join(", "))?;
        }
        if self.one_way {
            writeln!(f, "one-way = true")?;
        }
        for class in &self.classes {
            writeln!(f, "\n[[pipeline.class]]\nname = {}", Quoted(&class.name))?;
            writeln!(f, "match = {}", Quoted(&class.rule))?;
            departures(f, &class.target, &class.stages, class.sync.as_ref(), class.buffer)?;
        }
        if !self.classes.is_empty() {
            writeln!(f, "\n[[pipeline.class]]\nname = {}", Quoted(&self.default_class))?;
            departures(f, &self.target, &self.stages, self.sync.as_ref(), self.buffer)?;
        }
        Ok(())
    }
}

/// Prints the target and schedule settings of a class.
fn departures(
    f: &mut fmt::Formatter<'_>,
    target: &Target,
    stages: &[StageConfig],
    sync: Option<&SyncSpec>,
    buffer: Span,
) -> fmt::Result {
    match target {
        Target::Nothing => {}
        Target::Gap(gap) => writeln!(f, "gap = \"fixed {gap}\"")?,
        Target::IdleGap(gap) => writeln!(f, "gap = \"fixed {gap} idle\"")?,
        Target::Law(law) => writeln!(f, "gap = {}", Quoted(law))?,
        Target::Depth(follow) => writeln!(f, "rate = {}", Quoted(follow))?,
        Target::Wave(wave) => writeln!(f, "rate = {}", Quoted(wave))?,
        Target::Rate(rate) => writeln!(f, "rate = \"const {rate}\"")?,
    }
    if !stages.is_empty() {
        let stages: Vec<String> = stages.iter().map(|stage| Quoted(stage).to_string()).collect();
        writeln!(f, "stages = [{}]", stages.join(", "))?;
    }
    if let Some(sync) = sync {
        writeln!(f, "sync = {}", Quoted(sync))?;
    }
    if buffer > Span::ZERO {
        writeln!(f, "buffer = {}", Quoted(buffer))?;
    }
    Ok(())
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "schema = 1")?;
        if let Some(seed) = self.seed {
            writeln!(f, "seed = {seed}")?;
        }
        if let Some(duration) = self.duration {
            writeln!(f, "duration = \"{duration}\"")?;
        }
        if !self.timeline.is_empty() {
            writeln!(f, "timeline = [")?;
            for TimelineChange { at, change } in &self.timeline {
                writeln!(f, "  {},", Quoted(format!("at {at}: {} = {}", change.path, change.value)))?;
            }
            writeln!(f, "]")?;
        }
        if let Some(until) = &self.until {
            writeln!(f, "until = {}", Quoted(until))?;
        }
        if let Some(sweep) = &self.sweep {
            write!(f, "\n{sweep}")?;
        }
        if let Some(lab) = &self.lab {
            write!(f, "\n{lab}")?;
        }
        for program in &self.programs {
            write!(f, "\n{program}")?;
        }
        for pipeline in &self.pipelines {
            write!(f, "\n{pipeline}")?;
        }
        for expectation in &self.expectations {
            write!(f, "\n[[expect]]\nthat = {}\n", Quoted(&expectation.text))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::document::read;

    #[test]
    fn plans_survive_printing_and_parsing() {
        let text = r#"
            schema = 1
            seed = 18446744073709551615
            duration = "1.5s"
            [[pipeline]]
            stream = ['udp random 10.0.0.1-10.0.0.9:1-9 > 10.0.0.2:2000 size 64B..128B ttl 3', 'tcp [::1]:1 > [::2]:2']
            count = 5
            out = 'wire:2.5G,pcap=a b.pcap,frames=f.csv,fillers=keep,dic=on'
            rate = '37.5%'
            filler = 'blackhole=02:00:00:00:00:ff,align=4'
            stages = ['delay 1.5ms', 'loss 0.1%']
            [[pipeline]]
            name = 'live "quoted"'
            in = 'c0,driver=af_xdp'
            out = 'tap:t0'
            gap = '0.5us'
            one-way = true
            [[pipeline]]
            name = 'law'
            in = 'pcap:a.pcap'
            out = 'null'
            gap = 'chi2 df 6 mean 100us in 80us..120us corr 50%'
            [[pipeline]]
            name = 'wave'
            in = 'pcap:a.pcap'
            out = 'null'
            rate = 'burst 8Gbps for 2ms every 10ms count 3 + burst 1Gbps for 1us every 2us'
            [[pipeline]]
            name = 'table'
            in = 'pcap:a.pcap'
            out = 'null'
            gap = 'table "a table.dist" mean 10us sd 1us'
            [[pipeline]]
            name = 'classes'
            in = 'pcap:a.pcap'
            out = 'wire:10G'
            [[pipeline.class]]
            name = 'api'
            match = 'tcp dport 8080 src 10.0.0.0/8 payload "GET /v1" at 0'
            rate = '1Gbps'
            stages = ['delay 1ms']
            [[pipeline.class]]
            match = 'not ip or flags syn,!ack'
            rate = 'follow-depth 1Gbps..9Gbps'
            buffer = '5ms'
            [[pipeline.class]]
            name = 'rest'
            gap = '10us'
            sync = 'order 10.0.0.1,10.0.0.2 gap 5ms'
            [[pipeline]]
            name = 'again'
            replay = 'a.pcap'
            speed = '0.5'
            times = 0
            count = 7
            loop-gap = '1s'
            max-gap = '20ms'
            rewrite = ['dst 10.0.0.0/8 > 20.0.0.0/8', 'vlan 5']
            out = 'null'
            [[expect]]
            that = 'pipeline1.held == 0'
        "#;
        let scenario = read("a.toml", text, None).expect("a scenario");
        let printed = scenario.to_string();
        assert_eq!(read("b.toml", &printed, None).as_ref(), Ok(&scenario), "{printed}");
    }
}

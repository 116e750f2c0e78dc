//! The figures of all runs for Prometheus, in the text format of OpenMetrics. Counters are those of the report. There
//! are few labels, which limits the number of series: run, pipeline, direction, and reason of a drop.

use crate::answers::RunView;
use crate::control::{FrameCount, PipelineFigures, RunState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;

/// The content type of [`write`].
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// All figures as text.
pub(crate) fn write(runs: Vec<RunView>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register("netlathe_build", "The program", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
    registry.register_collector(Box::new(AllRuns(runs)));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(written)
}

#[derive(Debug)]
struct AllRuns(Vec<RunView>);

impl AllRuns {
    /// Every pipeline with its labels, and its way back, whose directions have separate names.
    fn lines(&self) -> impl Iterator<Item = (Labels, &PipelineFigures, [&'static str; 2])> {
        self.0.iter().flat_map(|run| {
            run.figures.pipelines.iter().flat_map(|pipeline| {
                let labels = vec![("run", run.id.to_string()), ("pipeline", pipeline.name.clone())];
                let back = pipeline.back.as_deref().map(|back| (labels.clone(), back, ["return-in", "return-out"]));
                [Some((labels, pipeline, ["in", "out"])), back].into_iter().flatten()
            })
        })
    }

    fn counts(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        of: impl Fn(&FrameCount) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, figures, [came, left]) in self.lines() {
            for (direction, count) in [(came, &figures.came), (left, &figures.left)] {
                let labels = with(&labels, "direction", direction);
                ConstCounter::new(of(count)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn counter(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        of: impl Fn(&PipelineFigures) -> Option<u64>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, figures, way) in self.lines() {
            if let Some(count) = of(figures) {
                let labels = with(&labels, "direction", way[1]);
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        of: impl Fn(&PipelineFigures) -> Option<f64>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, figures, way) in self.lines() {
            if let Some(value) = of(figures) {
                let labels = with(&labels, "direction", way[1]);
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut all = labels.clone();
    all.push((name, value.to_owned()));
    all
}

impl Collector for AllRuns {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        self.counts(encoder, "netlathe_frames", "Frames received and sent, without fillers", |count| count.frames)?;
        self.counts(encoder, "netlathe_bytes", "Bytes of frames received and sent, layer 2 with FCS", |count| {
            count.bytes
        })?;
        self.counter(encoder, "netlathe_copied_frames", "Frames made by duplication", |figures| Some(figures.copies))?;
        self.counter(
            encoder,
            "netlathe_starved",
            "Times that a departure was due and no frame was ready",
            |figures| figures.starved,
        )?;
        self.counter(
            encoder,
            "netlathe_kernel_dropped_frames",
            "Frames that the kernel dropped before they were read",
            |figures| figures.kernel_drops,
        )?;
        let mut drops = encoder.encode_descriptor(
            "netlathe_dropped_frames",
            "Frames dropped, by reason",
            None,
            MetricType::Counter,
        )?;
        for (labels, figures, way) in self.lines() {
            let labels = with(&labels, "direction", way[1]);
            for (reason, frames) in &figures.drops {
                ConstCounter::new(*frames).encode(drops.encode_family(&with(&labels, "reason", reason))?)?;
            }
        }
        self.gauge(encoder, "netlathe_held_frames", "Frames in the pipeline", |figures| Some(figures.held as f64))?;
        let seconds = |ns: f64| ns / 1e9;
        self.gauge(
            encoder,
            "netlathe_lateness_median_seconds",
            "Median lateness of departures since the run began",
            |figures| figures.lateness.map(|lateness| seconds(lateness.p50_ns)),
        )?;
        self.gauge(
            encoder,
            "netlathe_lateness_max_seconds",
            "Largest lateness of a departure since the run began",
            |figures| figures.lateness.map(|lateness| seconds(lateness.max_ns)),
        )?;
        let mut info = encoder.encode_descriptor("netlathe_run", "A run", None, MetricType::Info)?;
        for run in &self.0 {
            let labels = vec![("run", run.id.to_string()), ("command", run.command.clone())];
            Info::new(labels).encode(info.encode_family(&Labels::new())?)?;
        }
        let mut states = encoder.encode_descriptor(
            "netlathe_run_state",
            "1 for the state in which the run is",
            None,
            MetricType::Gauge,
        )?;
        for run in &self.0 {
            for state in RunState::ALL {
                let labels: Labels = vec![("run", run.id.to_string()), ("state", state.name().to_owned())];
                ConstGauge::new(u64::from(run.state == state)).encode(states.encode_family(&labels)?)?;
            }
        }
        let mut passed = encoder.encode_descriptor(
            "netlathe_run_duration_seconds",
            "Time since the run began",
            None,
            MetricType::Gauge,
        )?;
        for run in &self.0 {
            let labels: Labels = vec![("run", run.id.to_string())];
            ConstGauge::new(seconds(run.figures.passed_ns as f64)).encode(passed.encode_family(&labels)?)?;
        }
        let mut changes = encoder.encode_descriptor(
            "netlathe_changes",
            "Changes that have taken effect",
            None,
            MetricType::Counter,
        )?;
        for run in &self.0 {
            let labels: Labels = vec![("run", run.id.to_string())];
            ConstCounter::new(run.changes).encode(changes.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_figures_and_labels_are_escaped() {
        let mut pipeline = PipelineFigures { name: "a\"b".to_owned(), ..PipelineFigures::default() };
        pipeline.left = FrameCount { frames: 7, bytes: 448 };
        pipeline.drops.insert("loss".to_owned(), 3);
        let mut run = RunView { id: 2, ..RunView::default() };
        run.figures.pipelines.push(pipeline);
        let text = write(vec![run]).expect("text");
        for line in [
            r#"netlathe_frames_total{run="2",pipeline="a\"b",direction="out"} 7"#,
            r#"netlathe_bytes_total{run="2",pipeline="a\"b",direction="out"} 448"#,
            r#"netlathe_dropped_frames_total{run="2",pipeline="a\"b",direction="out",reason="loss"} 3"#,
            r#"netlathe_run_state{run="2",state="starting"} 1"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}

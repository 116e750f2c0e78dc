//! The figures of all runs for Prometheus, in the text format of OpenMetrics. Counters are those of the report. There
//! are only a few labels, which limits the number of series: run, pipeline, direction, and drop reason.

use crate::answers::RunView;
use crate::control::{FrameCount, Octaves, PipelineFigures, RunState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric as _, NativeHistogram, NativeHistogramBuckets, prometheus_protobuf, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;

/// A format of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics.
    Text,
    /// Prometheus's protobuf format, which has native histograms.
    Protobuf,
}

impl Format {
    /// The format that the client prefers according to its `Accept` header: text, unless it prefers protobuf.
    pub(crate) fn accepted(accept: &str) -> Format {
        let quality = |wanted: &[&str]| {
            let ranges = accept.split(',').filter(|range| wanted.iter().all(|part| range.contains(part)));
            let qualities = ranges.map(|range| {
                let of = range.split(';').find_map(|part| part.trim().strip_prefix("q="));
                of.map_or(1.0, |quality| quality.parse().unwrap_or(0.0))
            });
            qualities.fold(0.0, f64::max)
        };
        let protobuf = quality(&["application/vnd.google.protobuf", "io.prometheus.client.MetricFamily", "delimited"]);
        if protobuf > quality(&["application/openmetrics-text"]) { Format::Protobuf } else { Format::Text }
    }

    /// The content type of the format.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

type Labels = Vec<(&'static str, String)>;

/// Encodes all figures.
pub(crate) fn write(runs: Vec<RunView>, format: Format) -> Result<Vec<u8>, prometheus_protobuf::EncodeError> {
    let registry = registry(runs);
    match format {
        Format::Text => {
            let mut written = String::new();
            text::encode(&mut written, &registry)?;
            Ok(written.into_bytes())
        }
        Format::Protobuf => prometheus_protobuf::encode_to_vec(&registry),
    }
}

fn registry(runs: Vec<RunView>) -> Registry {
    let mut registry = Registry::default();
    registry.register("netlathe_build", "The program", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
    registry.register_collector(Box::new(AllRuns(runs)));
    registry
}

#[derive(Debug)]
struct AllRuns(Vec<RunView>);

impl AllRuns {
    /// Every pipeline with its labels and the names of its directions, and every return path.
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
        for (labels, figures, [arrived, left]) in self.lines() {
            for (direction, count) in [(arrived, &figures.arrived), (left, &figures.left)] {
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
        for (labels, figures, directions) in self.lines() {
            if let Some(count) = of(figures) {
                let labels = with(&labels, "direction", directions[1]);
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// A histogram. Its classic buckets are those of schema 0 of native histograms; the protobuf format has both.
    fn histogram(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        of: impl Fn(&Octaves) -> (&[(i32, u64)], u64),
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, figures, directions) in self.lines() {
            let Some((pairs, total_ns)) = figures.octaves.as_ref().map(&of).filter(|(pairs, _)| !pairs.is_empty())
            else {
                continue;
            };
            let count = |power: i32| pairs.iter().find(|(at, _)| *at == power).map_or(0, |(_, count)| *count);
            let bound = |power: i32| if power > 8 { f64::INFINITY } else { f64::from(power).exp2() };
            let buckets: Vec<(f64, u64)> = (-30..=9).map(|power| (bound(power), count(power))).collect();
            let above: Vec<i64> = (-29..=9).map(|power| count(power).cast_signed()).collect();
            let deltas: Vec<i64> =
                above.iter().scan(0, |before, now| Some(now - std::mem::replace(before, *now))).collect();
            let native = NativeHistogram {
                schema: 0,
                zero_threshold: bound(-30),
                zero_count: count(-30),
                negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
                // Times above 256 s are in the bucket of up to 512 s.
                positive: NativeHistogramBuckets { spans: &[(-29, above.len() as u32)], deltas: &deltas },
                created: None,
            };
            let all = pairs.iter().map(|(_, count)| count).sum();
            let labels = with(&labels, "direction", directions[1]);
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram_with_native::<Labels>(total_ns as f64 / 1e9, all, &buckets, None, native)?;
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
        for (labels, figures, directions) in self.lines() {
            if let Some(value) = of(figures) {
                let labels = with(&labels, "direction", directions[1]);
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
        for (labels, figures, directions) in self.lines() {
            let labels = with(&labels, "direction", directions[1]);
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
        self.histogram(encoder, "netlathe_lateness_seconds", "Lateness of departures", |octaves| {
            (&octaves.lateness, octaves.lateness_total_ns)
        })?;
        self.histogram(
            encoder,
            "netlathe_gap_error_seconds",
            "Difference between each inter-departure time and the asked one",
            |octaves| (&octaves.gap_error, octaves.gap_error_total_ns),
        )?;
        self.histogram(encoder, "netlathe_delay_seconds", "Measured delays by stages", |octaves| {
            (&octaves.delay, octaves.delay_total_ns)
        })?;
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
        pipeline.octaves = Some(Octaves {
            lateness: vec![(-30, 2), (-20, 4), (9, 1)],
            lateness_total_ns: 2_000_000_000,
            ..Octaves::default()
        });
        let mut run = RunView { id: 2, ..RunView::default() };
        run.figures.pipelines.push(pipeline);
        let text = write(vec![run.clone()], Format::Text).expect("text");
        let text = String::from_utf8(text).expect("text");
        for line in [
            r#"netlathe_frames_total{run="2",pipeline="a\"b",direction="out"} 7"#,
            r#"netlathe_bytes_total{run="2",pipeline="a\"b",direction="out"} 448"#,
            r#"netlathe_dropped_frames_total{run="2",pipeline="a\"b",direction="out",reason="loss"} 3"#,
            r#"netlathe_run_state{run="2",state="starting"} 1"#,
            r#"netlathe_lateness_seconds_bucket{le="9.313225746154786e-10",run="2",pipeline="a\"b",direction="out"} 2"#,
            r#"netlathe_lateness_seconds_bucket{le="9.5367431640625e-7",run="2",pipeline="a\"b",direction="out"} 6"#,
            r#"netlathe_lateness_seconds_bucket{le="256.0",run="2",pipeline="a\"b",direction="out"} 6"#,
            r#"netlathe_lateness_seconds_bucket{le="+Inf",run="2",pipeline="a\"b",direction="out"} 7"#,
            r#"netlathe_lateness_seconds_count{run="2",pipeline="a\"b",direction="out"} 7"#,
            r#"netlathe_lateness_seconds_sum{run="2",pipeline="a\"b",direction="out"} 2.0"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        let families = prometheus_protobuf::encode(&registry(vec![run])).expect("families");
        let lateness = families.iter().find(|family| family.name == "netlathe_lateness_seconds").expect("it is there");
        let histogram = lateness.metric[0].histogram.as_ref().expect("a histogram");
        assert_eq!((histogram.schema, histogram.zero_count, histogram.sample_count), (0, 2, 7));
        let counts = histogram.positive_delta.iter().scan(0, |sum, delta| {
            *sum += delta;
            Some(*sum)
        });
        let first = histogram.positive_span[0].offset;
        let counted: Vec<_> = (first..).zip(counts).filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(-20, 4), (9, 1)]);
    }

    #[test]
    fn prometheus_gets_the_format_it_prefers() {
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let text = "application/openmetrics-text;version=1.0.0";
        for (accept, format) in [
            (String::new(), Format::Text),
            ("*/*".to_owned(), Format::Text),
            (protobuf.to_owned(), Format::Protobuf),
            (format!("{protobuf};q=0.6,{text};q=0.5,text/plain;q=0.3,*/*;q=0.2"), Format::Protobuf),
            (format!("{text};q=0.6,{protobuf};q=0.5"), Format::Text),
            ("application/vnd.google.protobuf;proto=other;encoding=delimited".to_owned(), Format::Text),
        ] {
            assert_eq!(Format::accepted(&accept), format, "{accept}");
        }
    }
}

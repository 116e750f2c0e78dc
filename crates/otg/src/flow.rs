//! A flow: its ends, frame sizes and departures.

use crate::frame::{self, FrameMaker, Payload};
use crate::pattern::mixed;
use crate::reader::{Node, Object, Problem, Read};
use packet::Stamp;

/// Length of the FCS in bytes. Sizes of the model include it; frames of netlathe do not.
pub(crate) const FCS: usize = 4;
/// Preamble and minimum inter-frame gap, in bytes.
const AROUND: u64 = 20;
/// Maximum number of pairs of a sending and a receiving device in one flow.
const MOST_PAIRS: usize = 4_096;
/// Maximum length of a sent frame, with FCS.
const LONGEST: u64 = 9_216;
const SECOND_PS: u128 = 1_000_000_000_000;

/// Lengths of frames, with FCS.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sizes {
    Fixed(u32),
    Steps {
        start: u32,
        end: u32,
        step: u32,
    },
    Random {
        least: u32,
        most: u32,
    },
    /// Sizes with their cumulative shares; the last share is 1.
    Weighted(Vec<(u32, f64)>),
}

impl Sizes {
    /// The size of frame number `n`.
    pub(crate) fn at(&self, n: u64) -> u32 {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Steps { start, end, step } => start + (n % u64::from((end - start) / step + 1)) as u32 * step,
            Sizes::Random { least, most } => least + (mixed(n) % u64::from(most - least + 1)) as u32,
            Sizes::Weighted(pairs) => {
                // The multiples of the golden ratio cover the unit interval evenly, so the shares are accurate after a
                // few frames.
                let share = (n as f64 * 0.618_033_988_749_895).fract();
                pairs.iter().find(|(_, upto)| share < *upto).or(pairs.last()).map_or(64, |(size, _)| *size)
            }
        }
    }

    pub(crate) fn least(&self) -> u32 {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Steps { start, .. } => *start,
            Sizes::Random { least, .. } => *least,
            Sizes::Weighted(pairs) => pairs.iter().map(|(size, _)| *size).min().unwrap_or(64),
        }
    }

    pub(crate) fn most(&self) -> u32 {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Steps { end, .. } => *end,
            Sizes::Random { most, .. } => *most,
            Sizes::Weighted(pairs) => pairs.iter().map(|(size, _)| *size).max().unwrap_or(64),
        }
    }

    /// The mean, in bytes.
    pub(crate) fn mean(&self) -> f64 {
        match self {
            Sizes::Fixed(size) => f64::from(*size),
            Sizes::Steps { start, end, step } => f64::from(*start) + f64::from((end - start) / step * step) / 2.0,
            Sizes::Random { least, most } => f64::from(least + most) / 2.0,
            Sizes::Weighted(pairs) => {
                let mut before = 0.0;
                pairs.iter().map(|(size, upto)| f64::from(*size) * (upto - std::mem::replace(&mut before, *upto))).sum()
            }
        }
    }
}

/// A rate, as a budget that grows by `per_second`; each frame has a cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// Frames per second.
    Frames(u64),
    /// Bits per second of frames with FCS.
    Bits(u64),
    /// Bits per second of frames with preamble and gap.
    Wire(f64),
}

impl Rate {
    /// The time in picoseconds that a frame of this size, with FCS, takes from the budget. `rest` is the remainder of
    /// the division for the preceding frame.
    pub(crate) fn interval_ps(self, size: u32, rest: &mut u128) -> u64 {
        let (cost, per_second) = match self {
            Rate::Frames(pps) => (1, u128::from(pps)),
            Rate::Bits(bps) => (u128::from(size) * 8, u128::from(bps)),
            Rate::Wire(bps) => return ((u64::from(size) + AROUND) as f64 * 8e12 / bps) as u64,
        };
        let whole = cost * SECOND_PS + *rest;
        *rest = whole % per_second;
        (whole / per_second) as u64
    }

    /// The rate in frames per second, for frames with this mean size.
    pub(crate) fn frames_per_second(self, mean: f64) -> f64 {
        match self {
            Rate::Frames(pps) => pps as f64,
            Rate::Bits(bps) => bps as f64 / (mean * 8.0),
            Rate::Wire(bps) => bps / ((mean + AROUND as f64) * 8.0),
        }
    }
}

/// The end of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Never,
    After(u64),
    /// Picoseconds since its start.
    Time(u64),
}

/// Settings of departures other than the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Duration {
    pub(crate) end: End,
    /// Delay of the first frame in picoseconds.
    pub(crate) delay_ps: u64,
    /// Number of frames in a burst, and the pause after it in picoseconds.
    pub(crate) burst: Option<(u64, u64)>,
}

/// The metrics of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metrics {
    pub(crate) enable: bool,
    pub(crate) loss: bool,
    pub(crate) timestamps: bool,
    pub(crate) latency: bool,
    /// Whether the port of arrival is a tag.
    pub(crate) rx_name: bool,
}

/// Source and destination of frames, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Ports. If there is no receiver, all other ports receive.
    Ports { tx: String, rx: Vec<String> },
    /// Addresses or Ethernet interfaces of devices: pairs of a sender and a receiver, used in turn.
    Devices { pairs: Vec<(String, String)> },
}

/// A parsed flow. Ports and devices are still names.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) ends: Ends,
    pub(crate) maker: FrameMaker,
    pub(crate) sizes: Sizes,
    pub(crate) rate: Asked,
    pub(crate) duration: Duration,
    pub(crate) metrics: Metrics,
}

/// A rate that may refer to the line rate, which is not known yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Asked {
    Rate(Rate),
    /// Percent of the line rate.
    Percent(f64),
}

/// Whether frames have space for stamps.
impl Flow {
    /// Whether every frame has space for a stamp.
    pub(crate) fn is_stamped(&self) -> bool {
        self.maker.has_room((self.sizes.least() as usize).saturating_sub(FCS))
    }
}

/// Reads a flow.
pub(crate) fn read(node: &Node<'_>) -> Read<Flow> {
    let mut object = node.object()?;
    let name = object.required("name")?.name()?;
    let ends = ends(&object.required("tx_rx")?)?;
    let payload = object.get("payload").map_or(Ok(Payload::Fixed(vec![0], true)), |node| frame::payload(&node))?;
    let packet = object.get("packet");
    let headers = packet.as_ref().map_or(Ok(Vec::new()), Node::list)?;
    let maker = FrameMaker::read(&headers, payload).map_err(|problem| match problem.path.is_empty() {
        true => Problem::new(&format!("{}.packet", node.path), problem.what),
        false => problem,
    })?;
    let needed = (maker.header_length() + FCS) as u32;
    let size = object.get("size");
    let sizes = match &size {
        // The default of 64 B was not requested explicitly, so longer headers make longer frames.
        None => Sizes::Fixed(needed.max(64)),
        Some(size) => sizes(size, needed)?,
    };
    let least = sizes.least();
    if least < needed
        && let Some(size) = &size
    {
        return size
            .wrong(format!("frames of {least} B are shorter than their headers and FCS: write {needed} or more"));
    }
    let rate = object.get("rate").map_or(Ok(Asked::Rate(Rate::Frames(1_000))), |node| rate(&node))?;
    let duration = match object.get("duration") {
        Some(node) => duration(&node)?,
        None => Duration { end: End::Never, delay_ps: 0, burst: None },
    };
    let metrics_node = object.get("metrics");
    let metrics = metrics_node.as_ref().map_or(Ok(Metrics::default()), metrics)?;
    object.finish()?;
    let flow = Flow { name, path: node.path.clone(), ends, maker, sizes, rate, duration, metrics };
    if metrics.latency && !flow.is_stamped() {
        let wanted = flow.maker.header_length() + Stamp::LENGTH + FCS;
        let path = format!("{}.metrics.latency", node.path);
        return Err(Problem::new(
            &path,
            format!(
                "frames of {least} B have no room for a stamp of {} B after their headers: write sizes from {wanted} B on",
                Stamp::LENGTH
            ),
        ));
    }
    Ok(flow)
}

fn ends(node: &Node<'_>) -> Read<Ends> {
    let mut object = node.object()?;
    let choice = object.choice(&["port", "device"], Some("port"))?;
    let content = object.chosen(choice)?;
    object.finish()?;
    let mut object = content.object()?;
    let ends = if choice == "port" {
        let tx = object.required("tx_name")?.name()?;
        let mut rx = object.get("rx_names").map_or(Ok(Vec::new()), |node| node.texts())?;
        if let Some(one) = object.get("rx_name") {
            rx.push(one.name()?);
        }
        Ends::Ports { tx, rx }
    } else {
        let mode = object.get("mode").map_or(Ok("mesh"), |node| node.word(&["mesh", "one_to_one"]))?;
        object.only("bidirectional", &serde_json::Value::Bool(false), "write a second flow for the other direction")?;
        let (tx, rx) = (object.required("tx_names")?, object.required("rx_names")?);
        let (senders, receivers) = (tx.texts()?, rx.texts()?);
        for (node, names) in [(&tx, &senders), (&rx, &receivers)] {
            if names.is_empty() {
                return node.wrong("the list has no names");
            }
        }
        let pairs: Vec<(String, String)> = if mode == "one_to_one" {
            if receivers.len() != senders.len() {
                return rx.wrong("one_to_one needs as many rx_names as tx_names");
            }
            senders.into_iter().zip(receivers).collect()
        } else {
            if senders.len() * receivers.len() > MOST_PAIRS {
                return tx.wrong(format!("a flow has {MOST_PAIRS} pairs of devices at most"));
            }
            let all = |from: String| receivers.iter().map(move |to| (from.clone(), to.clone()));
            senders.into_iter().flat_map(all).collect()
        };
        if let Some((name, _)) = pairs.iter().find(|(from, to)| from == to) {
            return rx.wrong(format!("'{name}' would send to itself"));
        }
        Ends::Devices { pairs }
    };
    object.finish()?;
    Ok(ends)
}

fn sizes(node: &Node<'_>, needed: u32) -> Read<Sizes> {
    let mut object = node.object()?;
    let choice = object.choice(&["fixed", "increment", "random", "weight_pairs"], Some("fixed"))?;
    let content = object.get(choice);
    object.finish()?;
    let size = |object: &mut Object<'_>, key, default: u32| match object.get(key) {
        Some(node) => node.integer(12, LONGEST).map(|size| size as u32),
        None => Ok(default),
    };
    Ok(match (choice, content) {
        ("fixed", Some(content)) => Sizes::Fixed(content.integer(12, LONGEST)? as u32),
        ("increment", Some(content)) => {
            let mut object = content.object()?;
            let (start, end) = (size(&mut object, "start", 64)?, size(&mut object, "end", 1_518)?);
            let step = object.get("step").map_or(Ok(1), |node| node.integer(1, LONGEST))? as u32;
            object.finish()?;
            if start > end {
                return content.wrong("start is above end");
            }
            Sizes::Steps { start, end, step }
        }
        ("random", Some(content)) => {
            let mut object = content.object()?;
            let (least, most) = (size(&mut object, "min", 64)?, size(&mut object, "max", 1_518)?);
            object.finish()?;
            if least > most {
                return content.wrong("min is above max");
            }
            Sizes::Random { least, most }
        }
        ("weight_pairs", Some(content)) => weighted(&content, needed)?,
        ("increment", None) => Sizes::Steps { start: 64, end: 1_518, step: 1 },
        ("random", None) => Sizes::Random { least: 64, most: 1_518 },
        ("weight_pairs", None) => shares(&mix("imix", needed)),
        _ => Sizes::Fixed(needed.max(64)),
    })
}

/// The predefined mixes of the model, as sizes and weights. Sizes below `needed` are increased to it.
fn mix(name: &str, needed: u32) -> Vec<(u32, f64)> {
    let pairs: &[(u32, f64)] = match name {
        "ipsec_imix" => &[(90, 58.67), (92, 2.0), (594, 23.66), (1_418, 15.67)],
        "ipv6_imix" => &[(60, 58.67), (496, 2.0), (594, 23.66), (1_518, 15.67)],
        "standard_imix" => &[(58, 58.67), (62, 2.0), (594, 23.66), (1_518, 15.67)],
        "tcp_imix" => &[(90, 58.67), (92, 2.0), (594, 23.66), (1_518, 15.67)],
        _ => &[(64, 7.0), (570, 4.0), (1_518, 1.0)],
    };
    // A mix assumes the shortest headers. Longer headers increase the length of its short frames.
    pairs.iter().map(|(size, weight)| ((*size).max(needed), *weight)).collect()
}

fn weighted(node: &Node<'_>, needed: u32) -> Read<Sizes> {
    const MIXES: [&str; 5] = ["imix", "ipsec_imix", "ipv6_imix", "standard_imix", "tcp_imix"];
    let mut object = node.object()?;
    let choice = object.choice(&["predefined", "custom"], Some("predefined"))?;
    let pairs = match (choice, object.get(choice)) {
        ("custom", Some(list)) => {
            let mut pairs = Vec::new();
            for item in list.list()? {
                let mut pair = item.object()?;
                let size = pair.get("size").map_or(Ok(64), |node| node.integer(12, LONGEST))? as u32;
                let weight = pair.get("weight").map_or(Ok(1.0), |node| node.float(0.0, 1e9))?;
                pair.finish()?;
                if weight > 0.0 {
                    pairs.push((size, weight));
                }
            }
            if pairs.is_empty() {
                return list.wrong("it needs a pair with a weight above 0");
            }
            pairs
        }
        ("custom", None) => return node.wrong("it needs the field custom"),
        (_, Some(word)) => mix(word.word(&MIXES)?, needed),
        (_, None) => mix("imix", needed),
    };
    object.finish()?;
    Ok(shares(&pairs))
}

fn shares(pairs: &[(u32, f64)]) -> Sizes {
    let all: f64 = pairs.iter().map(|(_, weight)| weight).sum();
    let mut upto = 0.0;
    let mut shares: Vec<(u32, f64)> = pairs
        .iter()
        .map(|(size, weight)| {
            upto += weight / all;
            (*size, upto)
        })
        .collect();
    if let Some(last) = shares.last_mut() {
        last.1 = 1.0;
    }
    Sizes::Weighted(shares)
}

/// Reads a rate.
fn rate(node: &Node<'_>) -> Read<Asked> {
    let mut object = node.object()?;
    let choice = object.choice(&["pps", "bps", "kbps", "mbps", "gbps", "percentage"], Some("pps"))?;
    let content = object.get(choice);
    object.finish()?;
    let bits = |unit: u64, default: u64, least: u64| {
        let most = 1_000_000_000_000 / unit;
        content
            .as_ref()
            .map_or(Ok(default), |node| node.integer(least, most))
            .map(|number| Asked::Rate(Rate::Bits(number * unit)))
    };
    match choice {
        "pps" => {
            let pps = content.map_or(Ok(1_000), |node| node.integer(1, 1_000_000_000))?;
            Ok(Asked::Rate(Rate::Frames(pps)))
        }
        "bps" => bits(1, 1_000_000_000, 672),
        "kbps" => bits(1_000, 1_000_000, 1),
        "mbps" => bits(1_000_000, 1_000, 1),
        "gbps" => bits(1_000_000_000, 1, 1),
        _ => {
            let percent = content.as_ref().map_or(Ok(100.0), |node| node.float(0.0, 100.0))?;
            match (percent > 0.0, &content) {
                (false, Some(node)) => node.wrong("at 0 % no frame would depart"),
                _ => Ok(Asked::Percent(percent)),
            }
        }
    }
}

/// Only the minimum gap is supported, because the rate determines the gaps.
fn gap(object: &mut Object<'_>) -> Read<()> {
    object.only("gap", &serde_json::json!(12), "the rate decides the gaps")
}

fn duration(node: &Node<'_>) -> Read<Duration> {
    let mut object = node.object()?;
    let choice = object.choice(&["fixed_packets", "fixed_seconds", "burst", "continuous"], Some("continuous"))?;
    let content = object.get(choice);
    object.finish()?;
    let mut duration = Duration { end: End::Never, delay_ps: 0, burst: None };
    let Some(content) = content else {
        duration.end = match choice {
            "fixed_packets" => End::After(1),
            "fixed_seconds" => End::Time(1_000_000_000_000),
            _ => End::Never,
        };
        return Ok(duration);
    };
    let mut object = content.object()?;
    match choice {
        "fixed_packets" => {
            duration.end = End::After(object.get("packets").map_or(Ok(1), |node| node.integer(1, u32::MAX.into()))?);
        }
        "fixed_seconds" => {
            let seconds = object.get("seconds").map_or(Ok(1.0), |node| node.float(0.0, 1e6))?;
            duration.end = End::Time((seconds * 1e12) as u64);
        }
        "burst" => {
            let bursts = object.get("bursts").map_or(Ok(0), |node| node.integer(0, u32::MAX.into()))?;
            let packets = object.get("packets").map_or(Ok(1), |node| node.integer(1, u32::MAX.into()))?;
            let pause = object.get("inter_burst_gap").map_or(Ok(0), |node| time(&node, 12.0))?;
            duration.burst = Some((packets, pause));
            if bursts > 0 {
                duration.end = End::After(bursts * packets);
            }
        }
        _ => {}
    }
    gap(&mut object)?;
    if choice != "burst"
        && let Some(delay) = object.get("delay")
    {
        duration.delay_ps = time(&delay, 0.0)?;
    }
    object.finish()?;
    Ok(duration)
}

/// A time in picoseconds. `nothing` is the number of bytes that stands for zero.
fn time(node: &Node<'_>, nothing: f64) -> Read<u64> {
    let mut object = node.object()?;
    let choice = object.choice(&["bytes", "nanoseconds", "microseconds"], Some("bytes"))?;
    let content = object.get(choice);
    object.finish()?;
    let Some(content) = content else { return Ok(0) };
    // At most a week.
    match choice {
        "nanoseconds" => Ok((content.float(0.0, 6e14)? * 1e3) as u64),
        "microseconds" => Ok((content.float(0.0, 6e11)? * 1e6) as u64),
        _ if content.float(0.0, 1e12)? <= nothing => Ok(0),
        _ => content.wrong("a time in bytes is not served, since it differs from line to line: write nanoseconds"),
    }
}

fn metrics(node: &Node<'_>) -> Read<Metrics> {
    let mut object = node.object()?;
    let flag = |object: &mut Object<'_>, key| object.get(key).map_or(Ok(false), |node| node.boolean());
    let mut metrics = Metrics {
        enable: flag(&mut object, "enable")?,
        loss: flag(&mut object, "loss")?,
        timestamps: flag(&mut object, "timestamps")?,
        ..Metrics::default()
    };
    if let Some(latency) = object.get("latency") {
        let mut latency = latency.object()?;
        metrics.latency = flag(&mut latency, "enable")?;
        if let Some(mode) = latency.get("mode") {
            mode.word(&["store_forward", "cut_through"])?;
        }
        latency.finish()?;
    }
    if let Some(tags) = object.get("predefined_metric_tags") {
        let mut tags = tags.object()?;
        metrics.rx_name = flag(&mut tags, "rx_name")?;
        tags.finish()?;
    }
    object.finish()?;
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, reason = "values are written where they are passed")]
    use super::*;
    use serde_json::{Value, json};

    fn flow(change: Value) -> Read<Flow> {
        let mut value = json!({ "name": "f", "tx_rx": { "port": { "tx_name": "p1" } }, "packet": [{ "ethernet": {} }, { "ipv4": {} }, { "udp": {} }] });
        let object = value.as_object_mut().expect("an object");
        object.extend(change.as_object().expect("an object").clone());
        read(&Node::root(&value))
    }

    fn sizes_of(size: Value, frames: u64) -> Vec<u32> {
        let flow = flow(json!({ "size": size })).expect("a flow");
        (0..frames).map(|n| flow.sizes.at(n)).collect()
    }

    #[test]
    fn sizes_are_as_asked() {
        assert_eq!(sizes_of(json!({ "fixed": 128 }), 2), [128, 128]);
        assert_eq!(sizes_of(json!({ "increment": { "start": 64, "end": 70, "step": 3 } }), 4), [64, 67, 70, 64]);
        let random = sizes_of(json!({ "random": { "min": 100, "max": 109 } }), 10_000);
        for size in 100..110 {
            let share = random.iter().filter(|one| **one == size).count();
            assert!((800..1_200).contains(&share), "{size}: {share}");
        }
        let mixed = sizes_of(json!({ "weight_pairs": { "predefined": "imix" } }), 12_000);
        for (size, wanted) in [(64, 7_000_usize), (570, 4_000), (1_518, 1_000)] {
            let share = mixed.iter().filter(|one| **one == size).count();
            assert!(share.abs_diff(wanted) < 20, "{size}: {share}");
        }
        let custom =
            sizes_of(json!({ "weight_pairs": { "custom": [{ "size": 100, "weight": 3.0 }, { "size": 200 }] } }), 400);
        assert!(custom.iter().filter(|one| **one == 100).count().abs_diff(300) < 5);
    }

    #[test]
    fn rates_have_no_drift() {
        for (rate, size, frames, seconds) in
            [(Rate::Frames(3), 64, 3_000_000, 1_000_000), (Rate::Bits(1_000_003), 125, 1_000_003, 1_000)]
        {
            let mut rest = 0;
            let all: u128 = (0..frames).map(|_| u128::from(rate.interval_ps(size, &mut rest))).sum();
            assert_eq!(all, seconds * SECOND_PS);
        }
        assert_eq!(Rate::Wire(1e9).interval_ps(64, &mut 0), 672_000);
    }

    #[test]
    fn durations_bursts_and_delays_are_read() {
        let of = |value: Value| flow(json!({ "duration": value })).expect("a flow").duration;
        assert_eq!(of(json!({ "fixed_packets": { "packets": 5, "gap": 12 } })).end, End::After(5));
        assert_eq!(of(json!({ "fixed_seconds": { "seconds": 2.5 } })).end, End::Time(2_500_000_000_000));
        let burst = of(json!({ "burst": { "bursts": 3, "packets": 10, "inter_burst_gap": { "microseconds": 5.0 } } }));
        assert_eq!((burst.end, burst.burst), (End::After(30), Some((10, 5_000_000))));
        let delay = of(json!({ "continuous": { "delay": { "choice": "nanoseconds", "nanoseconds": 7 } } }));
        assert_eq!((delay.end, delay.delay_ps), (End::Never, 7_000));
    }

    #[test]
    fn unsupported_flows_are_refused_by_path() {
        for (change, path) in [
            (json!({ "size": { "fixed": 45 } }), "size"),
            (json!({ "size": { "increment": { "start": 200, "end": 100 } } }), "size.increment"),
            (
                json!({ "size": { "fixed": 62 }, "metrics": { "enable": true, "latency": { "enable": true } } }),
                ".metrics.latency",
            ),
            (json!({ "rate": { "percentage": 0 } }), "rate.percentage"),
            (json!({ "rate": { "pps": 0 } }), "rate.pps"),
            (json!({ "duration": { "fixed_packets": { "gap": 13 } } }), "duration.fixed_packets.gap"),
            (json!({ "duration": { "continuous": { "delay": { "bytes": 100 } } } }), "duration.continuous.delay.bytes"),
            (json!({ "metrics": { "rx_tx_ratio": {} } }), "metrics.rx_tx_ratio"),
            (json!({ "tx_rx": { "device": { "tx_names": [], "rx_names": ["c"] } } }), "tx_rx.device.tx_names"),
            (json!({ "tx_rx": { "device": { "tx_names": ["a", "b"], "rx_names": ["b"] } } }), "tx_rx.device.rx_names"),
            (
                json!({ "tx_rx": { "device": { "mode": "one_to_one", "tx_names": ["a", "b"], "rx_names": ["c"] } } }),
                "tx_rx.device.rx_names",
            ),
            (json!({ "egress_packet": [] }), "egress_packet"),
        ] {
            let problem = flow(change.clone()).expect_err("refused");
            assert_eq!(problem.path, path, "{change}: {problem}");
        }
    }
}

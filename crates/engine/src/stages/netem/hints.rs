//! Our spelling for words of other tools that are not part of a SPEC.

use crate::schedules::laws::{Distribution, Law};

/// Our spelling for a word of tbf, htb, mininet or comcast, or of a tc command line before its netem part.
pub(super) fn meant_by(word: &str) -> Option<&'static str> {
    Some(match word {
        "tc" | "qdisc" | "root" | "netem" | "handle" | "parent" => "leave it out: a SPEC is what follows netem in tc",
        "tbf" | "htb" | "burst" | "buffer" | "maxburst" | "ceil" | "peakrate" | "max_queue_size" => {
            "a rate has no bucket here, but a queue of frames, bytes or time: write rate 10mbit limit 50ms"
        }
        "bw" | "bandwidth" | "target-bw" => "write rate 10mbit",
        "jitter" | "±" | "+-" | "+/-" => "the jitter follows the delay: write delay 100ms 10ms",
        "packet-loss" => "write loss 1%",
        "ber" | "bit-error" | "biterror" => "write corrupt 0.1%, the share of frames in which a bit is turned over",
        "flap" | "unplug" | "blackout" | "outage" | "disconnect" => "write down 1s every 10s",
        "police" | "policer" => "netlathe limit polices; a rate here has a queue: write rate 10mbit limit 50ms",
        "codel" => "it follows queue: write rate 10mbit queue codel",
        "fq_codel" | "sfq" | "fq_pie" | "cake" | "fq" => {
            "write rate 10mbit queue fq_codel: each flow has its own queue"
        }
        "pie" => "it follows queue: write rate 10mbit queue pie",
        "red" => "it follows queue: write rate 10mbit queue red min 30KiB max 90KiB",
        "aqm" => "write rate 10mbit queue codel",
        _ if Distribution::NAMES.contains(&word) => "write delay 100ms 10ms distribution normal",
        _ if is_law(word) => LAW,
        _ => return None,
    })
}

/// Hint for a law of gaps that is not a tc distribution.
pub(super) const LAW: &str = "a law is for shape, --delay 'exp mean 5ms', and for stages of a scenario; here write delay 100ms 10ms \
                   distribution normal, pareto, paretonormal or FILE.dist";

pub(super) fn is_law(word: &str) -> bool {
    let names: Vec<&str> = Law::KINDS.iter().map(|kind| kind.name).collect();
    names.contains(&word) || word == "exponential"
}

/// Our loss model for a word of another tool.
pub(super) fn model_meant_by(word: &str) -> Option<&'static str> {
    // In the bad state every frame is lost, and the state ends after a frame with probability 0.2: 0.2 in 20.2 are
    // lost.
    let runs = ["burst", "bursts", "bursty", "gilbert", "gilbert-elliott", "markov"];
    runs.contains(&word).then_some("write loss gemodel 0.2% 20%: 1 % in all, in runs of 5 frames on average")
}

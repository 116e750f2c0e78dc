//! Names of the figures in a pipeline's report, for checking expectations.

use crate::DropReason;
use crate::effects::Effect;

/// What a path into a report refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A figure.
    Figure,
    /// A group of figures with these names.
    Several(Vec<&'static str>),
    /// Nothing: the name at this index of the path is not one of these names.
    Nothing(usize, Vec<&'static str>),
}

/// Groups of a report by path, and the figures in them. The last name of a group's path also counts as a name of the
/// group above.
const PARTS: &[(&str, &[&str])] = &[
    ("", &["copies", "held", "forfeited_share", "starved", "carried", "crowded", "underruns"]),
    ("in", TALLY),
    ("left_out", TALLY),
    ("out", TALLY),
    ("fillers", TALLY),
    ("return", &["held"]),
    ("return.in", TALLY),
    ("return.out", TALLY),
    ("answers", &["ignored", "held"]),
    ("answers.in", TALLY),
    ("answers.answered", &["arp", "ndp", "echo"]),
    ("answers.unanswered", &["requests"]),
    ("answers.refused", &["packets"]),
    ("choices.loss", CHOICE),
    ("choices.corrupt", CHOICE),
    ("choices.duplicate", CHOICE),
    ("choices.reorder", CHOICE),
    ("delay", &["count", "mean_ns", "std_ns", "min_ns", "max_ns", "p50", "p99"]),
    ("delay.asked", &["mean_ns", "std_ns", "min_ns", "max_ns", "p50", "p99"]),
    ("rate.asked", &["fps", "bps", "share"]),
    ("reorder", &["frames", "reordered", "ratio", "max_extent"]),
    ("gap", &["count", "mean_ns", "std_ns", "min_ns", "max_ns", "p1", "p50", "p99", "p999"]),
    ("gap.error", &["ask_ns", "mean_ns", "max_ns", "p50", "p99", W64, W256, W1US, WBYTE]),
    (
        "fit",
        &[
            "count", "sampled_from", "ks_d", "ks_critical_05", "ks_p", "ks2_d", "ks2_critical_05", "chi2", "chi2_df",
            "chi2_p", "mse", "kl", "bins", "outside", "lag1", "strata", "law_mean_ns", "law_std_ns",
        ],
    ),
    (
        "conformance",
        &[
            "count", "asked_mean_ns", "asked_min_ns", "asked_max_ns", "p50", "p99", "max_ns", W64, W256, W1US, WBYTE,
            "back_to_back",
        ],
    ),
    ("rate", &["window_ns", "windows", "mean_bps", "min_bps", "max_bps", "range_Bps", "std_bps", "mean_fps"]),
    ("lateness", &["p50", "p99", "max", "early_max"]),
    ("lateness.hiccups", &["above_ns", "count", "frames", "longest_ns"]),
    ("buffer", &["asked_ns", "width_ns"]),
    ("forgiven", &["times", "ns"]),
    ("contended", &["frames", "max"]),
    ("shortfall", &["behind_ns", "obtained_share"]),
    ("line", &["slots", "underruns", "idle_ns", "compared", "displaced", "max_off_ns"]),
    ("line.data", TALLY),
    ("line.fillers", TALLY),
    ("pace", &["wire_ns", "elapsed_ns"]),
    ("depth", &["max"]),
    ("flow", &["kernel_drops", "partial_checksums", "super_frames", "earlier"]),
    ("limit", &["rate_bps", "burst_bytes", "marked", "delayed", "without_key", "unmetered", "watched"]),
    ("limit.conforming", TALLY),
    ("limit.exceeding", TALLY),
    ("limit.yellow", TALLY),
    ("limit.users", &["capacity", "present", "created", "reclaimed", "refused", "bytes_per_user", "reloads"]),
    ("limit.error.10ms", WINDOW),
    ("limit.error.100ms", WINDOW),
    ("limit.error.1s", WINDOW),
];

/// Groups whose names depend on the input or on the stages.
const OPEN: [&str; 3] = ["skipped", "slices", "streams_beyond"];

const TALLY: &[&str] = &["frames", "bytes"];
const CHOICE: &[&str] = &["asked", "frames", "hits", "share"];
const WINDOW: &[&str] = &["windows", "min", "p50", "max", "p99_error", "worst_error"];
const W64: &str = "within_64ns";
const W256: &str = "within_256ns";
const W1US: &str = "within_1us";
const WBYTE: &str = "within_1_byte_time";

/// Looks up a path in the report of a pipeline or a class.
#[must_use]
pub fn named(path: &[String]) -> Named {
    if path.len() > 1 && OPEN.contains(&path[0].as_str()) {
        return Named::Figure;
    }
    for place in 0..path.len() {
        let below = below(&path[..place]);
        if !below.contains(&path[place].as_str()) {
            return Named::Nothing(place, below);
        }
    }
    match below(path) {
        none if none.is_empty() => Named::Figure,
        several => Named::Several(several),
    }
}

/// The names that may follow a path.
fn below(path: &[String]) -> Vec<&'static str> {
    let path = path.join(".");
    if path == "drops" || path == "return.drops" || path == "answers.drops" {
        return DropReason::ALL.iter().map(|reason| reason.name()).collect();
    }
    if path == "effects" {
        return Effect::ALL.iter().map(|effect| effect.name()).collect();
    }
    let mut names: Vec<&'static str> = match path.as_str() {
        "" => [&["drops", "effects"], &OPEN[..]].concat(),
        "return" | "answers" => vec!["drops"],
        _ => Vec::new(),
    };
    for (part, figures) in PARTS {
        if *part == path {
            names.extend(figures.iter());
        }
        let inside = if path.is_empty() { Some(*part) } else { part.strip_prefix(&format!("{path}.")) };
        if let Some(name) = inside.and_then(|inside| inside.split('.').next()).filter(|name| !name.is_empty())
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(path: &str) -> Named {
        named(&path.split('.').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn distinguishes_figures_groups_and_unknown_names() {
        for figure in [
            "held", "out.frames", "gap.error.max_ns", "drops.loss", "limit.error.1s.p50", "return.drops.pool",
            "skipped.cut",
        ] {
            assert_eq!(look(figure), Named::Figure, "{figure}");
        }
        assert!(matches!(look("rate"), Named::Several(names) if names.contains(&"mean_bps")));
        assert!(matches!(look("gap"), Named::Several(names) if names.contains(&"error") && names.contains(&"p99")));
        assert!(matches!(look("limit.error"), Named::Several(names) if names == ["10ms", "100ms", "1s"]));
        assert!(matches!(look("gapp.mean_ns"), Named::Nothing(0, names) if names.contains(&"gap")));
        assert!(matches!(look("gap.error.max"), Named::Nothing(2, names) if names.contains(&"max_ns")));
        assert!(matches!(look("drops.los"), Named::Nothing(1, names) if names.contains(&"loss")));
        assert_eq!(look("held.mean_ns"), Named::Nothing(1, Vec::new()));
    }
}

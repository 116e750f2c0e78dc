//! Bytes from the network: requests of the service and of the Open Traffic Generator API, clock messages, reports of
//! hosts.

use crate::Outcome;
use measure::{ClockExchange, ClockMeter, ClockStamps, HostReportFile};
use serde_json::Value;

#[path = "../../cli/src/run/clock/message.rs"]
mod clock_message;

/// Scenarios that clients of the service send as JSON.
pub(crate) fn json_scenario(input: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else { return Outcome::Refused };
    match service::scenario_from_json(text) {
        Err(error) => {
            assert!(!error.message.is_empty() && !error.remedy.is_empty(), "{error:?}");
            Outcome::Refused
        }
        Ok(scenario) => {
            let table: toml::Table = scenario.parse().unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
            let read = scenario::read("a.toml", &scenario, None);
            Outcome::of(&(table.to_string(), read.map(|read| read.to_string()).ok()))
        }
    }
}

/// Flow configurations, and the frames of the accepted ones.
pub(crate) fn otg_config(input: &[u8]) -> Outcome {
    let Ok(config) = serde_json::from_slice::<Value>(input) else { return Outcome::Refused };
    match otg::untrusted::frames(&config) {
        Ok(frames) => Outcome::of(&frames),
        Err(problems) => {
            assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.what.is_empty()), "{problems:?}");
            Outcome::Refused
        }
    }
}

/// gRPC messages. The first byte selects the call.
pub(crate) fn grpc(input: &[u8]) -> Outcome {
    let Some((call, message)) = input.split_first() else { return Outcome::Refused };
    match otg::untrusted::message(usize::from(*call), message) {
        Some(value) => Outcome::of(&value.to_string()),
        None => Outcome::Refused,
    }
}

/// Clock messages: 64 bytes that are a request, or 24 bytes per exchange with the values of a peer.
pub(crate) fn clock(input: &[u8]) -> Outcome {
    if let Some(nonce) = clock_message::read_request(input) {
        let answer = clock_message::answer(nonce, clock_message::Answer { received_at: 1, sent: 2 });
        assert_eq!(clock_message::read_request(&answer), None, "an answer is answered");
        assert!(clock_message::read_answer(&answer, nonce).is_some() && answer.len() <= input.len());
        return Outcome::of(&nonce);
    }
    let mut meter = ClockMeter::default();
    let word = |bytes: &[u8]| bytes.iter().fold(0_i64, |word, byte| word << 8 | i64::from(*byte));
    let mut now = 1_700_000_000_000_000_000_i64;
    let mut added = 0;
    for stamps in input.chunks_exact(24) {
        // Our own timestamps are plausible; those of the peer may have any value.
        let way = word(&stamps[..8]).rem_euclid(1_000_000_000);
        if let Some(exchange) = ClockExchange::of(now, word(&stamps[8..16]), word(&stamps[16..]), now + way) {
            meter.add(exchange, ClockStamps::Kernel);
            added += 1;
        }
        now += way + 1;
    }
    match meter.report("a", added, 1.0) {
        None => Outcome::Refused,
        Some(report) => {
            assert_eq!(report.answered, added);
            assert!(report.error_ns > 0.0 && report.worst_ns.is_finite(), "{report:?}");
            Outcome::of(&format!("{report:?}"))
        }
    }
}

/// Reports of hosts, as a list of JSON values.
pub(crate) fn merge(input: &[u8]) -> Outcome {
    let Ok(Value::Array(reports)) = serde_json::from_slice(input) else { return Outcome::Refused };
    let file = |(n, report)| HostReportFile { host: format!("h{n}"), report, offset_ns: None };
    let files: Vec<HostReportFile> = reports.into_iter().enumerate().map(file).collect();
    match measure::merge(&files) {
        Ok(merged) => Outcome::of(&merged.to_string()),
        Err(why) => {
            assert!(!why.why.is_empty());
            Outcome::Refused
        }
    }
}

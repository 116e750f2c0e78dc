//! The readers of client data, without ports. The fuzz targets run them.

use crate::config::{self, Available};
use crate::flow::FCS;
use crate::proto::SCHEMA;
use crate::reader::{Node, Problem};
use serde_json::Value;

/// Calls whose requests are messages.
const CALLS: [&str; 6] =
    ["SetConfig", "UpdateConfig", "SetControlState", "SetControlAction", "GetMetrics", "GetCapture"];

/// Reads a configuration of two ports, `p1` and `p2`, and creates the first frames of each flow and a late one.
///
/// # Errors
/// All problems, each with its path.
pub fn frames(config: &Value) -> Result<Vec<Vec<u8>>, Vec<Problem>> {
    let port = |name: &str| Available { name: name.into(), text: format!("if:{name}"), mtu: 9_000, line_bps: None };
    let config = config::read(&Node::root(config), &["p1", "p2"].map(port))?;
    let mut frames = Vec::new();
    for planned in config.flows.iter().take(64) {
        let flow = &planned.flow;
        for n in [0, 1, 2, u64::from(u32::MAX)] {
            let mut frame = Vec::new();
            flow.maker.make(n, (flow.sizes.at(n) as usize).saturating_sub(FCS), None, &mut frame);
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Reads the message of the call with this number, modulo the number of calls. The message is encoded and decoded
/// again.
///
/// # Panics
/// If the second decoding fails, or encodes to other bytes.
pub fn message(call: usize, bytes: &[u8]) -> Option<Value> {
    let (asks, _) = SCHEMA.call(CALLS[call % CALLS.len()])?;
    let value = SCHEMA.decode(asks, bytes, "").ok()?;
    let mut written = Vec::new();
    SCHEMA.encode(asks, &value, &mut written);
    let again = SCHEMA.decode(asks, &written, "").unwrap_or_else(|problem| panic!("{value}: {problem}"));
    let mut twice = Vec::new();
    SCHEMA.encode(asks, &again, &mut twice);
    assert_eq!(written, twice, "{value}");
    Some(value)
}

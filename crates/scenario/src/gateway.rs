//! Neighbours whose MAC addresses a generator requests.

use crate::plan::SourcePlan;
use crate::ports::PortSpec;
use crate::problem::{Problems, Text};
use engine::sources::StreamSpec;
use std::net::IpAddr;
use units::ParseError;

/// Parses the address of a gateway.
///
/// # Errors
/// Any other text, also an address with a zone: the port determines the link.
pub fn parse_gateway(text: &str) -> Result<IpAddr, ParseError> {
    let bare = text.trim_start_matches('[').split(['%', ']']).next().unwrap_or_default();
    let remedy = match bare.parse::<IpAddr>() {
        Ok(address) => format!("write {address} alone, which is looked for on the link of the sending port"),
        Err(_) => "write 10.0.0.1 or fd00::1".to_owned(),
    };
    text.parse().map_err(|_| ParseError::new(format!("'{text}' is not an IP address"), remedy))
}

/// Parses gateways: at most one per IP version, each used by at least one stream.
pub(crate) fn read(texts: &[Text], specs: &[StreamSpec], problems: &mut Problems) -> Vec<IpAddr> {
    let mut gateways: Vec<IpAddr> = Vec::new();
    for text in texts {
        let Some(gateway) = problems.read(text, parse_gateway) else { continue };
        let version = if gateway.is_ipv4() { "IPv4" } else { "IPv6" };
        let goes = |spec: &StreamSpec| spec.is_v6() == gateway.is_ipv6() && spec.wants_neighbour();
        if gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
            let how = "name one, and write dmac MAC in the streams that go elsewhere";
            problems.add(&text.origin, format!("a second neighbour for {version}: {how}"));
        } else if !specs.is_empty() && !specs.iter().any(goes) {
            let why = format!("no stream of {version} leaves its dmac open");
            problems.add(
                &text.origin,
                format!("no stream uses {gateway}, since {why}: leave it out, or write in eth dmac MAC in tunnels"),
            );
            return gateways;
        }
        gateways.push(gateway);
    }
    let has = |spec: &StreamSpec| gateways.iter().any(|gateway| gateway.is_ipv6() == spec.is_v6());
    if let (Some(text), false) = (texts.first(), gateways.is_empty())
        && let Some(number) = specs.iter().position(|spec| spec.wants_neighbour() && !has(spec))
    {
        let version = if specs[number].is_v6() { "IPv6" } else { "IPv4" };
        let how = format!("name one of {version}, too, or write dmac MAC in the stream");
        problems.add(&text.origin, format!("stream {number} is of {version} and has no gateway: {how}"));
    }
    gateways
}

/// Checks that a gateway can be resolved: frames are generated, and they leave through a port with a neighbour.
pub(crate) fn check(texts: &[Text], source: &SourcePlan, output: &PortSpec, problems: &mut Problems) {
    let Some(text) = texts.first() else { return };
    if !matches!(source, SourcePlan::Streams { .. }) {
        let how = "leave it out, or for a capture write --rewrite 'dmac MAC'";
        problems.add(&text.origin, format!("a gateway is only for streams: {how}"));
    } else if output.is_virtual() || matches!(output, PortSpec::Line(_)) {
        let how = "write dmac MAC in the streams";
        problems.add(&text.origin, format!("'{output}' has no neighbour to ask: {how}"));
    }
}

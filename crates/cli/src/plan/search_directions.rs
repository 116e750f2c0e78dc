//! The directions of a search between ports: which port sends what, and where it should arrive.

use super::search::Direction;
use crate::options::search::Search;
use crate::output;
use scenario::{Driver, PortSpec, Problems, Text, parse_gateway};
use units::ParseError;

/// The streams of the first pair of ports: UDP between the test networks of RFC 2544, appendix C.2.2.
pub(super) const DEFAULT_STREAM: &str = "udp 198.18.0.1:1024 > 198.19.0.1:9";

/// The same for another pair, whose frames must not have the same addresses.
fn default_stream(pair: usize) -> String {
    format!("udp 198.18.{pair}.1:1024 > 198.19.{pair}.1:9")
}

/// More pairs than this would need a third network of RFC 2544.
const MOST_PAIRS: usize = 256;

/// A direction before its streams are known.
struct AskedDirection {
    out: PortSpec,
    input: PortSpec,
    /// Both as written.
    names: [String; 2],
    /// The number of its pair of ports.
    pair: usize,
    /// From `--in` to `--out`.
    is_reverse: bool,
}

impl Search {
    /// The directions, which all carry the load at the same time.
    pub(super) fn directions(&self, problems: &mut Problems) -> Vec<Direction> {
        let mut ways = self.ways(problems);
        self.share_ports(&mut ways, problems);
        self.check_senders(&ways, problems);
        let mut directions: Vec<Direction> = Vec::new();
        for way in &ways {
            let first = directions.last().map_or(0, |last| usize::from(last.first_stream) + last.streams.len());
            let mut streams = self.streams_of(way, &ways, problems);
            let gateways = self.gateways_of(way, &ways);
            if ways.len() > 1 {
                streams.iter_mut().for_each(|stream| give_addresses(stream, way, gateways.is_empty()));
            }
            let [out, input] = way.names.clone();
            directions.push(Direction {
                out,
                input,
                ports: [way.out.to_string(), way.input.to_string()],
                streams,
                gateways,
                // Too many streams are refused when their sizes are read.
                first_stream: u16::try_from(first).unwrap_or(u16::MAX),
            });
        }
        directions
    }

    /// The directions of all pairs of ports.
    fn ways(&self, problems: &mut Problems) -> Vec<AskedDirection> {
        let mut read = |option: &'static str, texts: &[String]| {
            let mut ports: Vec<Option<PortSpec>> = Vec::new();
            for text in texts {
                let text = Text::option(option, text.clone());
                let port = problems.read(&text, PortSpec::parse);
                let not_live = port.as_ref().filter(|port| port.is_virtual() || **port == PortSpec::Null);
                if let Some(port) = not_live {
                    let what = format!("'{port}' is not a live port: name an interface, or use --dut");
                    problems.add(&text.origin, what);
                } else if port.is_some() && ports.contains(&port) {
                    problems.add(&text.origin, format!("'{}' is there twice: name each port once", text.value));
                }
                ports.push(port);
            }
            ports
        };
        let (outs, inputs) = (read("--out", &self.output), read("--in", &self.input));
        if outs.len() != inputs.len() {
            let text = Text::option("--in", "");
            let count = |ports: &[Option<PortSpec>]| output::counted(ports.len() as u64, "port");
            let what = format!("{} for --out and {} for --in", count(&outs), count(&inputs));
            problems.add(&text.origin, format!("{what}: write an --in for each --out, in the same order"));
        }
        if self.both && outs.iter().any(|out| out.is_some() && inputs.contains(out)) {
            let text = Text::option("--both", "");
            problems.add(&text.origin, "a port is an --out and an --in: name each pair once, in one order");
        }
        if outs.len() > MOST_PAIRS {
            let text = Text::option("--out", "");
            problems.add(&text.origin, format!("a search has at most {MOST_PAIRS} pairs of ports: leave some out"));
        }
        let pairs = outs.into_iter().zip(inputs).enumerate();
        let pairs = pairs.filter_map(|(pair, (out, input))| Some((pair, out?, input?)));
        let mut ways = Vec::new();
        for (pair, out, input) in pairs {
            let names = [self.output[pair].clone(), self.input[pair].clone()];
            let [name, other] = names.clone();
            ways.push(AskedDirection { out: out.clone(), input: input.clone(), names, pair, is_reverse: false });
            if self.both {
                ways.push(AskedDirection { out: input, input: out, names: [other, name], pair, is_reverse: true });
            }
        }
        ways
    }

    /// A port that sends in one direction and receives in another is used by two processes. Packet sockets allow that;
    /// other drivers take a port for one process.
    fn share_ports(&self, ways: &mut [AskedDirection], problems: &mut Problems) {
        if ways.len() < 2 {
            return;
        }
        let senders: Vec<PortSpec> = ways.iter().map(|way| way.out.clone()).collect();
        let receivers: Vec<PortSpec> = ways.iter().map(|way| way.input.clone()).collect();
        for way in ways {
            let shared = [(&mut way.out, &receivers), (&mut way.input, &senders)];
            for (port, others) in shared {
                if !others.iter().any(|other| is_same(other, port)) {
                    continue;
                }
                match port {
                    PortSpec::Interface { driver: driver @ (None | Some(Driver::AfPacket)), .. } => {
                        *driver = Some(Driver::AfPacket);
                    }
                    port => {
                        let text = Text::option(if self.both { "--both" } else { "--in" }, "");
                        problems.add(
                            &text.origin,
                            format!(
                                "'{port}' would have to send in one direction and receive in another, and only \
                                 driver=af_packet can do both in a search: search one direction after the other, or name \
                                 interfaces of Linux"
                            ),
                        );
                        return;
                    }
                }
            }
        }
    }

    /// Refuses streams and gateways that no port uses.
    fn check_senders(&self, ways: &[AskedDirection], problems: &mut Problems) {
        if ways.is_empty() {
            return;
        }
        let mut check = |option: &'static str, text: &str| {
            let (sender, rest) = split(text, ways);
            let receiver = ways
                .iter()
                .find(|way| text.strip_prefix(way.names[1].as_str()).is_some_and(|rest| rest.starts_with('=')));
            if let Some(receiver) = receiver.filter(|_| sender.is_none()) {
                let port = &receiver.names[1];
                problems.add(
                    &Text::option(option, "").origin,
                    format!("{port} sends nothing: add --both, or name an --out"),
                );
                return None;
            }
            Some((sender.is_some(), rest.to_owned()))
        };
        let mut streams = Vec::new();
        for text in &self.streams {
            streams.extend(check("--stream", text));
        }
        let mut gateways = Vec::new();
        for text in &self.gateways {
            gateways.extend(check("--gateway", text));
        }
        let named = |way: &&AskedDirection| {
            let of_pair = ways.iter().filter(|other| other.pair == way.pair && !other.is_reverse);
            of_pair.chain([*way]).any(|sender| {
                self.streams.iter().any(|text| split(text, ways).0.is_some_and(|way| way.names == sender.names))
            })
        };
        if let Some((_, text)) =
            streams.iter().find(|(has_port, _)| !has_port).filter(|_| ways.iter().all(|way| named(&way)))
        {
            let text = Text::option("--stream", text.clone());
            problems.add(
                &text.origin,
                format!("no port sends '{}', since each has streams of its own: leave it out", text.value),
            );
        }
        for (_, gateway) in gateways {
            problems.read(&Text::option("--gateway", gateway), parse_gateway);
        }
    }

    /// The streams that a direction sends: its own; or else those of the other end, turned round; or else those without a
    /// port.
    fn streams_of(&self, way: &AskedDirection, ways: &[AskedDirection], problems: &mut Problems) -> Vec<String> {
        let of = |sender: Option<&AskedDirection>| -> Vec<String> {
            let streams = self.streams.iter().map(|text| split(text, ways));
            streams
                .filter(|(named, _)| named.map(|way| &way.names) == sender.map(|way| &way.names))
                .map(|(_, stream)| stream.to_owned())
                .collect()
        };
        let own = of(Some(way));
        if !own.is_empty() {
            return own;
        }
        let forward = ways.iter().find(|other| other.pair == way.pair && !other.is_reverse);
        let named = forward.map_or_else(Vec::new, |forward| of(Some(forward)));
        let mut streams = if named.is_empty() { of(None) } else { named };
        if streams.is_empty() {
            streams = vec![default_stream(way.pair)];
        }
        if way.is_reverse {
            let port = way.names[0].as_str();
            let turned = |text: String| problems.read(&Text::option("--stream", text), |text| turned_round(text, port));
            streams = streams.into_iter().filter_map(turned).collect();
        }
        streams
    }

    /// The gateways of a direction: its own, and for `--out` those of all.
    fn gateways_of(&self, way: &AskedDirection, ways: &[AskedDirection]) -> Vec<String> {
        let mut gateways = Vec::new();
        for text in &self.gateways {
            let (sender, gateway) = split(text, ways);
            let applies = match sender {
                Some(sender) => sender.names == way.names,
                None => !way.is_reverse,
            };
            if applies {
                gateways.push(gateway.to_owned());
            }
        }
        gateways
    }
}

/// Splits `PORT=TEXT` if the port sends in one of the directions. Other texts may contain '=', too.
fn split<'a, 'w>(text: &'a str, ways: &'w [AskedDirection]) -> (Option<&'w AskedDirection>, &'a str) {
    let own = |way: &&AskedDirection| {
        // As written, or by the name of the interface alone.
        let names = [Some(way.names[0].as_str()), way.out.interface()];
        names.into_iter().flatten().find_map(|name| text.strip_prefix(name)?.strip_prefix('='))
    };
    ways.iter().find_map(|way| Some((Some(way), own(&way)?.trim_start()))).unwrap_or((None, text))
}

/// Gives a stream hardware addresses of its direction, unless it names some: a switch learns at which port an address is.
/// With a gateway, the destination is left to it.
fn give_addresses(stream: &mut String, way: &AskedDirection, with_destination: bool) {
    let words: Vec<&str> = stream.split_whitespace().collect();
    let is_simple = words.first().is_some_and(|word| ["udp", "tcp", "icmp", "ip"].contains(word));
    if !is_simple || ["in", "payload", "smac", "dmac"].iter().any(|word| words.contains(word)) {
        return;
    }
    let (own, other) = if way.is_reverse { (2, 1) } else { (1, 2) };
    let address = |end: u8| format!("02:00:00:00:{:02x}:{end:02x}", way.pair);
    *stream += &format!(" smac {}", address(own));
    if with_destination {
        *stream += &format!(" dmac {}", address(other));
    }
}

/// Whether two ports are the same device.
fn is_same(one: &PortSpec, other: &PortSpec) -> bool {
    match (one.interface(), other.interface()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// A stream with source and destination exchanged.
///
/// # Errors
/// Whole frames, which have no endpoints to exchange, and tunnels, whose layers are not all symmetric.
fn turned_round(text: &str, port: &str) -> Result<String, ParseError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let asymmetric =
        ["hex", "pcap"].contains(words.first().unwrap_or(&"")) || words.contains(&"in") || text.contains('"');
    if asymmetric {
        return Err(ParseError::new(
            format!("'{text}' cannot be turned round for --both"),
            format!("write what {port} sends as --stream '{port}=SPEC'"),
        ));
    }
    let exchanged = |word: &&str| {
        match *word {
            "src" => "dst",
            "dst" => "src",
            "sport" => "dport",
            "dport" => "sport",
            "smac" => "dmac",
            "dmac" => "smac",
            "sha" => "tha",
            "tha" => "sha",
            other => other,
        }
        .to_owned()
    };
    let Some(arrow) = words.iter().position(|word| *word == ">") else {
        return Ok(words.iter().map(exchanged).collect::<Vec<_>>().join(" "));
    };
    // An endpoint may begin with 'random' and end with 'step N'.
    let mut end = arrow + 1;
    end += usize::from(words.get(end) == Some(&"random")) + 1;
    end += if words.get(end) == Some(&"step") { 2 } else { 0 };
    let end = end.min(words.len());
    let (source, destination) = (&words[1..arrow.max(1)], &words[(arrow + 1).min(end)..end]);
    let mut turned: Vec<String> = words[..1].iter().map(|word| (*word).to_owned()).collect();
    turned.extend(destination.iter().chain(&[">"]).chain(source).map(|word| (*word).to_owned()));
    turned.extend(words[end..].iter().map(exchanged));
    Ok(turned.join(" "))
}

#[cfg(test)]
mod tests {
    use super::turned_round;

    #[test]
    fn source_and_destination_are_exchanged() {
        for (stream, turned) in [
            ("udp 198.18.0.1:1024 > 198.19.0.1:9", "udp 198.19.0.1:9 > 198.18.0.1:1024"),
            (
                "tcp 10.0.0.1-10.0.0.9:1 step 2 > random 10.1.0.0/24:80 dscp ef sport 5 weight 3",
                "tcp random 10.1.0.0/24:80 > 10.0.0.1-10.0.0.9:1 step 2 dscp ef dport 5 weight 3",
            ),
            ("udp src fd00::1 sport 1 dst fd00::2 dport 2", "udp dst fd00::1 dport 1 src fd00::2 sport 2"),
            ("eth smac 02:00:00:00:00:07 vlan 5", "eth dmac 02:00:00:00:00:07 vlan 5"),
            ("ip 10.0.0.1 > 10.0.0.2", "ip 10.0.0.2 > 10.0.0.1"),
        ] {
            assert_eq!(turned_round(stream, "b0").as_deref(), Ok(turned), "{stream}");
            let twice = turned_round(turned, "b0").expect("it has endpoints");
            assert_eq!(twice, stream);
        }
        for stream in ["hex 0011", "pcap f.pcap frame 1", "udp 10.0.0.1:1 > 10.0.0.2:2 in vlan id 7"] {
            let error = turned_round(stream, "b0").expect_err(stream).to_string();
            assert!(error.contains("--stream 'b0=SPEC'"), "{error}");
        }
        // Incomplete streams are refused by the parser, so nothing may fail here.
        for stream in ["", ">", "udp >", "udp > random", "udp > 10.0.0.1 step"] {
            let _refused_later = turned_round(stream, "b0");
        }
    }
}

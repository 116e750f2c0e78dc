//! The frames of a flow as a function of their number.

use crate::flow::FCS;
use crate::headers::{self, Header, Over, Role, TAGS};
use crate::pattern::{self, Asked, Pattern, Tag};
use crate::reader::{Node, Object, Problem, Read};
use packet::{MacAddr, Stamp, internet_checksum};

/// The value of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SumPolicy {
    Good,
    Bad,
    Custom(u16),
}

/// A header from the configuration.
struct Parsed {
    header: Option<&'static Header>,
    path: String,
    fields: Vec<(headers::Row, Asked)>,
    sum: SumPolicy,
    /// The bytes of a `custom` header.
    bytes: Vec<u8>,
    custom_tags: Vec<Tag>,
}

impl Parsed {
    fn constant(&self, name: &str) -> Option<u128> {
        let (_, asked) = self.fields.iter().find(|(row, _)| row.name == name)?;
        asked.pattern.as_ref().filter(|pattern| pattern.is_constant()).map(|pattern| pattern.at(0))
    }

    fn is_given(&self, name: &str) -> bool {
        self.fields.iter().any(|(row, _)| row.name == name)
    }

    fn is(&self, name: &str) -> bool {
        self.header.is_some_and(|header| header.name == name)
    }

    /// Length of the header in bytes.
    fn length(&self) -> Read<usize> {
        let Some(header) = self.header else { return Ok(self.bytes.len()) };
        let flag = |name: &'static str, default: u128| {
            if self.is_given(name) {
                self.constant(name).map(|value| value == 1).ok_or_else(|| {
                    Problem::new(
                        &format!("{}.{name}", self.path),
                        "it decides the length of the header, so it must be one value",
                    )
                })
            } else {
                Ok(default == 1)
            }
        };
        let (short, long) = match header.name {
            "gre" => (4, flag("checksum_present", 0)?),
            "gtpv1" => (8, flag("e_flag", 0)? | flag("s_flag", 0)? | flag("pn_flag", 0)?),
            "gtpv2" => (12, flag("teid_flag", 1)?),
            _ => return Ok(header.length),
        };
        if header.name == "gtpv2" && !long {
            return Err(Problem::new(&format!("{}.teid_flag", self.path), "only 1 is served"));
        }
        let length = if long { header.length } else { short };
        match self.fields.iter().find(|(row, _)| usize::from(row.at) >= length * 8) {
            Some((row, _)) => Err(Problem::new(
                &format!("{}.{}", self.path, row.name),
                "its flag is 0, so the header does not have it",
            )),
            None => Ok(length),
        }
    }
}

/// A field that varies from frame to frame.
#[derive(Clone, Debug)]
struct Varying {
    bit: usize,
    width: usize,
    pattern: Pattern,
}

/// The bytes that all frames of a flow share, and the possible values of their other fields.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    /// Offsets of bytes that are the same in all frames, in order.
    pub(crate) places: Vec<usize>,
    /// These bytes.
    pub(crate) bytes: Vec<u8>,
    varying: Vec<Varying>,
}

impl Signature {
    /// Whether a frame with the common bytes of this flow also has possible values in its other fields.
    pub(crate) fn fits(&self, frame: &[u8]) -> bool {
        let fits =
            |field: &Varying| read_bits(frame, field.bit, field.width).is_some_and(|it| field.pattern.may_be(it));
        self.varying.iter().all(fits)
    }

    /// The byte at an offset, if all frames have the same byte there.
    fn byte(&self, at: usize) -> Option<u8> {
        self.places.binary_search(&at).ok().map(|n| self.bytes[n])
    }

    /// Whether a frame may belong to both flows, judging by single bytes and fields.
    pub(crate) fn is_like(&self, other: &Signature) -> bool {
        let differs = |at: &usize| other.byte(*at).is_some_and(|byte| Some(byte) != self.byte(*at));
        let is_apart = |field: &Varying, of: &Signature| {
            let mut fields = of.varying.iter();
            if let Some(same) = fields.find(|one| (one.bit, one.width) == (field.bit, field.width)) {
                return field.pattern.is_apart(&same.pattern);
            }
            let mut bytes = vec![0; (field.bit + field.width).div_ceil(8)];
            for (at, byte) in bytes.iter_mut().enumerate().skip(field.bit / 8) {
                let Some(steady) = of.byte(at) else { return false };
                *byte = steady;
            }
            read_bits(&bytes, field.bit, field.width).is_some_and(|value| !field.pattern.may_be(value))
        };
        !self.places.iter().any(differs)
            && !self.varying.iter().any(|field| is_apart(field, other))
            && !other.varying.iter().any(|field| is_apart(field, self))
    }
}

/// A 16-bit length field.
#[derive(Clone, Copy, Debug)]
struct LengthField {
    at: usize,
    /// Offset of the first byte that it counts.
    from: usize,
    /// Number of trailing bytes that it does not count.
    trailer: usize,
}

/// A 16-bit checksum field.
#[derive(Clone, Copy, Debug)]
struct SumField {
    at: usize,
    from: usize,
    /// End of the covered bytes; `None` if they extend to the trailer.
    to: Option<usize>,
    trailer: usize,
    /// Start of the IP header, whether it is IPv6, and the protocol number of the pseudo header.
    pseudo: Option<(usize, bool, u8)>,
    bad: bool,
    /// Whether 0 means that there is no checksum (RFC 768).
    of_udp: bool,
}

/// The payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// These bytes, repeated if true.
    Fixed(Vec<u8>, bool),
    /// Each byte is one more than the preceding one if true, else one less.
    Bytes(bool),
    /// The same for 16-bit words.
    Words(bool),
}

/// Creates the frames of a flow. Lengths are without FCS.
#[derive(Clone, Debug)]
pub(crate) struct FrameMaker {
    headers: Vec<u8>,
    varying: Vec<Varying>,
    lengths: Vec<LengthField>,
    /// Checksums, of the innermost packet first.
    sums: Vec<SumField>,
    payload: Payload,
    /// Bytes after the innermost packet. The model counts an FCS for every Ethernet header, including those in tunnels.
    trailer: usize,
    /// Offsets of destination addresses that are set to the next hop.
    next_hops: Vec<usize>,
    /// Offsets of bytes that the receiver sees unchanged: they neither vary nor are changed by routers.
    steady: Vec<usize>,
    /// Offsets of bytes that routers change.
    changed: Vec<usize>,
    pub(crate) tags: Vec<Tag>,
}

impl FrameMaker {
    /// Parses the headers of a flow. The default is an Ethernet header.
    pub(crate) fn read(packet: &[Node<'_>], payload: Payload) -> Read<FrameMaker> {
        let mut parsed = packet.iter().map(header).collect::<Read<Vec<Parsed>>>()?;
        if parsed.is_empty() {
            parsed.push(of_header(&headers::ETHERNET, String::new()));
        }
        let mut maker = FrameMaker {
            headers: Vec::new(),
            varying: Vec::new(),
            lengths: Vec::new(),
            sums: Vec::new(),
            payload,
            trailer: 0,
            next_hops: Vec::new(),
            steady: Vec::new(),
            changed: Vec::new(),
            tags: Vec::new(),
        };
        let mut unsteady: Vec<usize> = (0..12).collect();
        let mut packet_around = None;
        for n in 0..parsed.len() {
            let (this, next) = (&parsed[n], parsed.get(n + 1));
            maker.add(this, next, &mut packet_around, &mut unsteady)?;
        }
        maker.changed = unsteady.clone();
        maker.sums.reverse();
        let sums = maker.sums.iter().flat_map(|sum| [sum.at, sum.at + 1]);
        let lengths = maker.lengths.iter().flat_map(|length| [length.at, length.at + 1]);
        let varying =
            maker.varying.iter().flat_map(|varying| varying.bit / 8..(varying.bit + varying.width).div_ceil(8));
        unsteady.extend(sums.chain(lengths).chain(varying));
        maker.steady = (0..maker.headers.len()).filter(|byte| !unsteady.contains(byte)).collect();
        if maker.headers.len() > 9_000 {
            return Err(Problem::new("", format!("headers of {} B do not fit into a frame", maker.headers.len())));
        }
        Ok(maker)
    }

    fn add(
        &mut self,
        this: &Parsed,
        next: Option<&Parsed>,
        packet_around: &mut Option<(usize, bool)>,
        unsteady: &mut Vec<usize>,
    ) -> Read<()> {
        let start = self.headers.len();
        let length = this.length()?;
        let Some(header) = this.header else {
            self.headers.extend(&this.bytes);
            self.tags.extend(this.custom_tags.iter().map(|tag| Tag { at: start * 8 + tag.at, ..tag.clone() }));
            return Ok(());
        };
        self.headers.resize(start + length, 0);
        if header.name == "ethernet" && start > 0 {
            self.trailer += FCS;
        }
        let given =
            |row: &headers::Row| this.fields.iter().find(|(field, _)| field.name == row.name && field.at == row.at);
        for row in header.rows.iter().filter(|row| usize::from(row.at) < length * 8) {
            if given(row).is_none_or(|(_, asked)| asked.pattern.is_none()) {
                self.set_default(this, next, row, start);
            }
        }
        for (row, asked) in &this.fields {
            let (bit, width) = (start * 8 + usize::from(row.at), usize::from(row.kind.width()));
            self.tags.extend(asked.tags.iter().map(|tag| Tag { at: bit + tag.at, ..tag.clone() }));
            let Some(pattern) = &asked.pattern else { continue };
            let value = pattern.at(0);
            if this.is("vlan") && row.name == "tpid" && pattern.is_constant() && TAGS.contains(&value) {
                // The identifier of this tag is in the preceding header, see `announced`.
                self.set_default(this, next, row, start);
            } else if pattern.is_constant() {
                write_bits(&mut self.headers, bit, width, value);
            } else {
                self.varying.push(Varying { bit, width, pattern: pattern.clone() });
            }
        }
        match header.name {
            "ipv4" => {
                *packet_around = Some((start, false));
                unsteady.push(start + 8);
            }
            "ipv6" => {
                *packet_around = Some((start, true));
                unsteady.push(start + 7);
            }
            _ => {}
        }
        let Some(sum) = header.sum.filter(|sum| sum.at < length) else { return Ok(()) };
        let at = start + sum.at;
        let (to, pseudo) = match (sum.over, *packet_around) {
            (Over::Header, _) => (Some(start + length), None),
            (Over::Content, _) => (None, None),
            (Over::Pseudo(protocol), Some((ip, six))) => (None, Some((ip, six, protocol))),
            // Without an IP packet around it there is no pseudo header, and therefore no checksum.
            (Over::Pseudo(_), None) => return Ok(()),
        };
        match this.sum {
            SumPolicy::Custom(value) => self.headers[at..at + 2].copy_from_slice(&value.to_be_bytes()),
            policy => {
                let bad = policy == SumPolicy::Bad;
                self.sums.push(SumField {
                    at,
                    from: start,
                    to,
                    trailer: self.trailer,
                    pseudo,
                    bad,
                    of_udp: header.name == "udp",
                });
            }
        }
        Ok(())
    }

    /// Sets a field that the configuration omits.
    fn set_default(&mut self, this: &Parsed, next: Option<&Parsed>, row: &headers::Row, start: usize) {
        let value = match row.role {
            Role::Plain(value) | Role::Auto(value) => value,
            Role::Next(otherwise) => next.and_then(|next| announced(this, next)).unwrap_or(otherwise),
            Role::Port => next.and_then(|next| next.header?.port()).unwrap_or(0),
            Role::Bottom => u128::from(!next.is_some_and(|next| next.is("mpls"))),
            Role::Carries => {
                if next.is_some() {
                    255
                } else {
                    0
                }
            }
            Role::NextHop => {
                self.next_hops.push(start);
                0
            }
            Role::Length(less) => {
                let trailer = self.trailer;
                self.lengths.push(LengthField { at: start + usize::from(row.at) / 8, from: start + less, trailer });
                0
            }
        };
        write_bits(&mut self.headers, start * 8 + usize::from(row.at), row.kind.width().into(), value);
    }

    /// Bytes after the stamp.
    pub(crate) fn trailer(&self) -> usize {
        self.trailer
    }

    /// Bytes of all headers and trailers.
    pub(crate) fn header_length(&self) -> usize {
        self.headers.len() + self.trailer
    }

    /// Bytes before the packet: the Ethernet header and its first tag.
    pub(crate) fn link_header(&self) -> usize {
        let is_tagged = self
            .headers
            .get(12..14)
            .is_some_and(|two| TAGS[..2].contains(&(u128::from(two[0]) << 8 | u128::from(two[1]))));
        if is_tagged { 18 } else { 14 }
    }

    /// Sets the departure time in the stamp of a frame.
    pub(crate) fn set_time(&self, frame: &mut [u8], time_ns: u64) {
        let end = frame.len() - self.trailer;
        Stamp::set_first_time(&mut frame[..end], time_ns);
    }

    /// Whether frames of this length have space for a stamp after the headers.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        length >= self.header_length() + Stamp::LENGTH
    }

    /// Whether frames need the hardware address of a next hop.
    pub(crate) fn wants_next_hop(&self) -> bool {
        self.next_hops.contains(&0)
    }

    /// Sets the hardware address of the next hop. Inner headers do not have one.
    pub(crate) fn set_next_hop(&mut self, mac: MacAddr) {
        if self.wants_next_hop() {
            self.headers[..6].copy_from_slice(&mac.0);
        }
    }

    /// Sets the source address to `mac`, if it is zero in all frames.
    pub(crate) fn set_source_if_zero(&mut self, mac: MacAddr) {
        let varies = self.varying.iter().any(|varying| varying.bit == 48);
        if !varies && self.headers.get(6..12) == Some(&[0; 6]) {
            self.headers[6..12].copy_from_slice(&mac.0);
        }
    }

    /// The signature by which the receiver recognises frames without a stamp.
    pub(crate) fn signature(&self) -> Signature {
        let arrives = |field: &&Varying| {
            let bytes = field.bit / 8..(field.bit + field.width).div_ceil(8);
            !self.changed.iter().any(|at| bytes.contains(at))
        };
        Signature {
            places: self.steady.clone(),
            bytes: self.steady.iter().map(|at| self.headers[*at]).collect(),
            varying: self.varying.iter().filter(arrives).cloned().collect(),
        }
    }

    /// Creates frame number `n` of `length` bytes. The time of its stamp is not set yet.
    pub(crate) fn make(&self, n: u64, length: usize, stamp: Option<Stamp>, frame: &mut Vec<u8>) {
        frame.clear();
        frame.extend(&self.headers);
        for varying in &self.varying {
            write_bits(frame, varying.bit, varying.width, varying.pattern.at(n));
        }
        let room = length.saturating_sub(self.header_length());
        match &self.payload {
            Payload::Fixed(pattern, repeats) if !pattern.is_empty() && *repeats => {
                frame.extend(pattern.iter().cycle().take(room));
            }
            Payload::Fixed(pattern, _) => frame.extend(pattern.iter().take(room)),
            Payload::Bytes(up) => frame.extend((0..room).map(|n| if *up { n as u8 } else { 255 - n as u8 })),
            Payload::Words(up) => frame.extend((0..room).map(|n| {
                let word = if *up { (n / 2) as u16 } else { u16::MAX - (n / 2) as u16 };
                word.to_be_bytes()[n % 2]
            })),
        }
        frame.resize(length.max(self.header_length()) - self.trailer, 0);
        if let Some(stamp) = stamp {
            // The stamp does not change a checksum, whatever its time is, so checksums can be computed before the time
            // is known.
            Stamp { time_ns: 0, ..stamp }.write(frame);
        }
        frame.resize(frame.len() + self.trailer, 0);
        for field in &self.lengths {
            let counted = (frame.len() - field.trailer).saturating_sub(field.from).min(usize::from(u16::MAX)) as u16;
            frame[field.at..field.at + 2].copy_from_slice(&counted.to_be_bytes());
        }
        for field in &self.sums {
            frame[field.at..field.at + 2].fill(0);
            let to = field.to.unwrap_or(frame.len() - field.trailer);
            let content = &frame[field.from..to];
            let sum = match field.pseudo {
                None => internet_checksum(&[content]),
                Some((ip, six, protocol)) => {
                    let addresses = if six { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
                    let length = (content.len() as u32).to_be_bytes();
                    internet_checksum(&[&frame[addresses], &length, &[0, 0, 0, protocol], content])
                }
            };
            // 0 and all ones are the same sum in ones' complement, so a bad checksum must differ by more than that.
            let sum = if field.bad { sum.wrapping_add(0x5555) } else { sum };
            let sum = if sum == 0 && field.of_udp { 0xffff } else { sum };
            frame[field.at..field.at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// The value by which header `this` announces header `next`.
fn announced(this: &Parsed, next: &Parsed) -> Option<u128> {
    let (this, header) = (this.header?, next.header?);
    match this.name {
        "ethernet" | "vlan" | "gre" if header.name == "vlan" => {
            next.constant("tpid").filter(|tpid| TAGS.contains(tpid)).or_else(|| header.ether_type())
        }
        // Transparent Ethernet bridging (RFC 1701).
        "gre" if header.name == "ethernet" => Some(0x6558),
        "ethernet" | "vlan" | "gre" => header.ether_type(),
        "ppp" => match header.name {
            "ipv4" => Some(0x21),
            "ipv6" => Some(0x57),
            _ => None,
        },
        _ => header.protocol(),
    }
}

fn of_header(header: &'static Header, path: String) -> Parsed {
    Parsed {
        header: Some(header),
        path,
        fields: Vec::new(),
        sum: SumPolicy::Good,
        bytes: Vec::new(),
        custom_tags: Vec::new(),
    }
}

fn header(node: &Node<'_>) -> Read<Parsed> {
    let mut object = node.object()?;
    let choice = object.choice(&headers::NAMES, Some("ethernet"))?;
    let content = object.get(choice);
    let path = object.path_of(choice);
    object.finish()?;
    let Some(header) = headers::named(choice) else { return custom(content, path) };
    let mut parsed = of_header(header, path);
    let Some(content) = content else { return Ok(parsed) };
    let mut object = content.object()?;
    if matches!(choice, "icmp" | "icmpv6") {
        object.choice(&["echo"], Some("echo"))?;
        let echo = object.get("echo");
        object.finish()?;
        let Some(echo) = echo else { return Ok(parsed) };
        object = echo.object()?;
        parsed.path.clone_from(&echo.path);
    }
    rows(&mut object, header.rows, &mut parsed.fields)?;
    if choice == "ipv4"
        && let Some(priority) = object.get("priority")
    {
        self::priority(&priority, &mut parsed.fields)?;
    }
    if let Some(sum) = header.sum
        && let Some(node) = object.get(sum.name)
    {
        parsed.sum = checksum(&node)?;
        if parsed.length()? <= sum.at {
            return node.wrong("its flag is 0, so the header does not have it");
        }
    }
    object.finish()?;
    Ok(parsed)
}

fn custom(content: Option<Node<'_>>, path: String) -> Read<Parsed> {
    let Some(content) = content else { return Err(Problem::new(&path, "this field is required")) };
    let mut object = content.object()?;
    let node = object.required("bytes")?;
    let bytes = node.hex()?;
    if bytes.is_empty() || bytes.len() > 9_000 {
        return node.wrong("1 to 9000 bytes are served");
    }
    let tags = object.items("metric_tags")?;
    // Offsets and lengths in a custom header are in bits from its start.
    let custom_tags = if tags.is_empty() { Vec::new() } else { custom_tags(&tags, bytes.len() * 8)? };
    object.finish()?;
    Ok(Parsed { header: None, path, fields: Vec::new(), sum: SumPolicy::Good, bytes, custom_tags })
}

fn custom_tags(nodes: &[Node<'_>], width: usize) -> Read<Vec<Tag>> {
    let read = |node: &Node<'_>| {
        let mut tag = node.object()?;
        let name = tag.required("name")?.name()?;
        let at = tag.get("offset").map_or(Ok(0), |node| node.integer(0, width as u64 - 1))? as usize;
        let length = tag.get("length").map_or(Ok(1), |node| node.integer(1, width as u64))? as usize;
        tag.finish()?;
        if at + length > width { node.wrong("it is not in these bytes") } else { Ok(Tag { name, at, length }) }
    };
    nodes.iter().map(read).collect()
}

fn rows(object: &mut Object<'_>, rows: &'static [headers::Row], into: &mut Vec<(headers::Row, Asked)>) -> Read<()> {
    for row in rows {
        if let Some(node) = object.get(row.name) {
            let default = match row.role {
                Role::Plain(value) | Role::Auto(value) | Role::Next(value) => value,
                _ => 0,
            };
            into.push((*row, pattern::read(&node, row.kind, default, row.automatic)?));
        }
    }
    Ok(())
}

/// Reads the type of service of IPv4 in one of its three forms.
fn priority(node: &Node<'_>, into: &mut Vec<(headers::Row, Asked)>) -> Read<()> {
    let mut object = node.object()?;
    let choice = object.choice(&["raw", "tos", "dscp"], Some("dscp"))?;
    if let Some(content) = object.get(choice) {
        if choice == "raw" {
            into.push((headers::RAW, pattern::read(&content, headers::RAW.kind, 0, false)?));
        } else {
            let mut inner = content.object()?;
            let table: &'static [headers::Row] = if choice == "tos" { &headers::TOS } else { &headers::DSCP };
            rows(&mut inner, table, into)?;
            inner.finish()?;
        }
    }
    object.finish()
}

fn checksum(node: &Node<'_>) -> Read<SumPolicy> {
    let mut object = node.object()?;
    let choice = object.choice(&["generated", "custom"], Some("generated"))?;
    let policy = match (choice, object.get(choice)) {
        ("custom", Some(value)) => SumPolicy::Custom(value.integer(0, 0xffff)? as u16),
        ("custom", None) => return node.wrong("it needs the field custom"),
        (_, Some(word)) if word.word(&["good", "bad"])? == "bad" => SumPolicy::Bad,
        _ => SumPolicy::Good,
    };
    object.finish()?;
    Ok(policy)
}

/// Parses the payload.
pub(crate) fn payload(node: &Node<'_>) -> Read<Payload> {
    let mut object = node.object()?;
    const CHOICES: [&str; 5] = ["fixed", "increment_byte", "decrement_byte", "increment_word", "decrement_word"];
    let choice = object.choice(&CHOICES, Some("fixed"))?;
    let payload = match choice {
        "increment_byte" => Payload::Bytes(true),
        "decrement_byte" => Payload::Bytes(false),
        "increment_word" => Payload::Words(true),
        "decrement_word" => Payload::Words(false),
        _ => match object.get("fixed") {
            Some(fixed) => {
                let mut fixed = fixed.object()?;
                let pattern = fixed.get("pattern").map_or(Ok(vec![0]), |node| node.hex())?;
                let repeats = fixed.get("repeat").map_or(Ok(true), |node| node.boolean())?;
                fixed.finish()?;
                Payload::Fixed(pattern, repeats)
            }
            None => Payload::Fixed(vec![0], true),
        },
    };
    object.finish()?;
    Ok(payload)
}

/// Writes a number into `width` bits from bit `at` on.
fn write_bits(bytes: &mut [u8], at: usize, width: usize, value: u128) {
    if at.is_multiple_of(8) && width.is_multiple_of(8) {
        let (first, count) = (at / 8, width / 8);
        bytes[first..first + count].copy_from_slice(&value.to_be_bytes()[16 - count..]);
        return;
    }
    for bit in 0..width {
        let (byte, mask) = ((at + bit) / 8, 0x80 >> ((at + bit) % 8));
        if value >> (width - 1 - bit) & 1 == 1 { bytes[byte] |= mask } else { bytes[byte] &= !mask }
    }
}

/// Reads a number from `width` bits from bit `at` on; `None` if the frame is too short.
pub(crate) fn read_bits(bytes: &[u8], at: usize, width: usize) -> Option<u128> {
    let all = bytes.get(at / 8..(at + width).div_ceil(8))?;
    let take = |all: u128, bit: usize| all << 1 | u128::from(bytes[bit / 8] >> (7 - bit % 8) & 1);
    if all.len() > 17 { None } else { Some((at..at + width).fold(0, take)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::layers::{LayerKind, Layers, checksum_is_right};
    use serde_json::{Value, json};

    fn maker(packet: &Value) -> FrameMaker {
        let nodes = Node::root(packet).list().expect("a list");
        FrameMaker::read(&nodes, Payload::Fixed(vec![0], true)).expect("headers")
    }

    fn frame(packet: &Value, n: u64, length: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        let stamp = Stamp { stream: 3, sequence: 9, time_ns: 0 };
        let maker = maker(packet);
        maker.make(n, length, Some(stamp), &mut frame);
        maker.set_time(&mut frame, 123_456_789);
        frame
    }

    /// The parser of `packet` must find the same layers, with correct checksums and lengths.
    #[test]
    fn frames_have_correct_layers_lengths_and_checksums() {
        use LayerKind::{Ethernet, Gre, Gtpu, Icmp, Icmp6, Ipv4, Ipv6, Mpls, Tcp, Udp, Vlan, Vxlan};
        for (packet, kinds) in [
            (json!([{ "choice": "ethernet" }, { "choice": "ipv4" }, { "choice": "udp" }]), vec![Ethernet, Ipv4, Udp]),
            (
                json!([{ "ethernet": {} }, { "vlan": { "id": { "value": 7 } } }, { "ipv6": {} }, { "tcp": {} }]),
                vec![Ethernet, Vlan, Ipv6, Tcp],
            ),
            (json!([{ "ethernet": {} }, { "ipv4": {} }, { "icmp": {} }]), vec![Ethernet, Ipv4, Icmp]),
            (json!([{ "ethernet": {} }, { "ipv6": {} }, { "icmpv6": {} }]), vec![Ethernet, Ipv6, Icmp6]),
            (
                json!([{ "ethernet": {} }, { "ipv4": {} }, { "udp": {} }, { "vxlan": {} }, { "ethernet": {} }, { "ipv6": {} }, { "tcp": {} }]),
                vec![Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv6, Tcp],
            ),
            (
                json!([{ "ethernet": {} }, { "mpls": {} }, { "mpls": {} }, { "ipv4": {} }, { "udp": {} }]),
                vec![Ethernet, Mpls, Mpls, Ipv4, Udp],
            ),
            (
                json!([{ "ethernet": {} }, { "ipv4": {} }, { "gre": { "checksum_present": { "value": 1 } } }, { "ipv4": {} }, { "udp": {} }]),
                vec![Ethernet, Ipv4, Gre, Ipv4, Udp],
            ),
            (
                json!([{ "ethernet": {} }, { "ipv4": {} }, { "udp": {} }, { "gtpv1": { "s_flag": { "value": 1 } } }, { "ipv4": {} }, { "udp": {} }]),
                vec![Ethernet, Ipv4, Udp, Gtpu, Ipv4, Udp],
            ),
        ] {
            let bytes = frame(&packet, 5, 200);
            assert_eq!(bytes.len(), 200);
            let layers = Layers::of(&bytes);
            let found: Vec<LayerKind> = layers.all().iter().map(|layer| layer.kind).collect();
            assert_eq!(found, kinds, "{packet}");
            for (n, layer) in layers.all().iter().enumerate() {
                // In a tunnel, Ethernet has no length field, and IP ends before the trailer.
                let trailer = if kinds.contains(&Vxlan) && n > 4 { 4 } else { 0 };
                assert!(layer.complete && layer.end == 200 - trailer, "{packet}: length of layer {n}");
                assert_ne!(checksum_is_right(&bytes, &layers, n), Some(false), "{packet}: checksum of layer {n}");
            }
            let stamp = Stamp::of(&bytes).expect("a stamp");
            assert_eq!((stamp.stream, stamp.sequence, stamp.time_ns), (3, 9, 123_456_789));
        }
    }

    #[test]
    fn checksums_are_bad_or_custom_where_the_flow_says_so() {
        let with = |sum: Value| json!([{ "ethernet": {} }, { "ipv4": { "header_checksum": sum } }, { "udp": { "checksum": sum } }]);
        let bad = frame(&with(json!({ "generated": "bad" })), 0, 100);
        let layers = Layers::of(&bad);
        assert_eq!(
            (checksum_is_right(&bad, &layers, 1), checksum_is_right(&bad, &layers, 2)),
            (Some(false), Some(false))
        );
        let custom = frame(&with(json!({ "custom": 0xabcd })), 0, 100);
        assert_eq!((&custom[24..26], &custom[40..42]), (&[0xab, 0xcd][..], &[0xab, 0xcd][..]));
    }

    #[test]
    fn fields_follow_their_patterns() {
        let packet = json!([
            { "ethernet": { "src": { "value": "02:00:00:00:00:01" } } },
            { "ipv4": { "priority": { "dscp": { "phb": { "values": [10, 46] } } }, "dst": { "increment": { "start": "10.0.0.255", "step": "0.0.0.1", "count": 2 } } } },
            { "udp": { "src_port": { "decrement": { "start": 5000, "step": 2, "count": 3 } } } },
            { "custom": { "bytes": "c0ffee" } },
        ]);
        for n in 0..6_u64 {
            let frame = frame(&packet, n, 100);
            assert_eq!(frame[15] >> 2, [10, 46][n as usize % 2]);
            assert_eq!(frame[30..34], if n % 2 == 0 { [10, 0, 0, 255] } else { [10, 0, 1, 0] });
            assert_eq!(u16::from_be_bytes([frame[34], frame[35]]), 5000 - 2 * (n % 3) as u16);
            assert_eq!(frame[42..45], [0xc0, 0xff, 0xee]);
        }
    }

    #[test]
    fn tag_protocol_identifier_precedes_its_tag() {
        let packet =
            json!([{ "ethernet": {} }, { "vlan": { "tpid": { "value": 0x88a8 } } }, { "vlan": {} }, { "ipv4": {} }]);
        let bytes = frame(&packet, 0, 100);
        assert_eq!((&bytes[12..14], &bytes[16..18], &bytes[20..22]), (&[0x88, 0xa8][..], &[0x81, 0][..], &[8, 0][..]));
    }

    #[test]
    fn headers_that_are_not_served_are_named() {
        for (packet, path) in [
            (json!([{ "choice": "rsvp", "rsvp": {} }]), "[0].choice"),
            (json!([{ "rsvp": {} }]), "[0].rsvp"),
            (json!([{ "ipv4": { "options": [] } }]), "[0].ipv4.options"),
            (json!([{ "ethernet": {} }, { "gre": { "checksum": {} } }]), "[1].gre.checksum"),
            (json!([{ "custom": { "bytes": "abc" } }]), "[0].custom.bytes"),
            (json!([{ "ipv4": { "src": { "choice": "auto" } } }]), "[0].ipv4.src.choice"),
        ] {
            let nodes = Node::root(&packet).list().expect("a list");
            let problem = FrameMaker::read(&nodes, Payload::Bytes(true)).expect_err("refused");
            assert_eq!(problem.path, path, "{problem}");
        }
    }

    #[test]
    fn bits_survive_writing_and_reading() {
        for (at, width, value) in [(3, 13, 0x1abc_u128), (8, 16, 0xbeef), (4, 20, 0xfffff), (0, 128, u128::MAX - 5)] {
            let mut bytes = [0x55; 20];
            write_bits(&mut bytes, at, width, value);
            assert_eq!(read_bits(&bytes, at, width), Some(value & u128::MAX >> (128 - width)));
        }
        assert_eq!(read_bits(&[0; 2], 8, 16), None);
    }
}

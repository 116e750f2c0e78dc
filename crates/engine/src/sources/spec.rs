use super::mix::SizeSpec;
use super::values::Values;
use crate::random::Random;
use packet::layers::{Field, LayerKind, NoStack, with_ethernet};
use packet::{Key, Protocol, Site, Stamp, Template};
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use units::{FrameLen, ParseError};

/// Description of a stream of frames.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// The headers, or the given frame.
    pub stack: Stack,
    /// Fields and their values, in the order written.
    pub fields: Vec<(Key, Values)>,
    /// Tunnels around the stack, innermost first.
    pub tunnels: Vec<Tunnel>,
    /// Frame sizes. By default the length that the stack requires, but at least 64 B.
    pub size: Option<SizeSpec>,
    /// The payload. By default zeros, or the payload of the given frame.
    pub payload: Option<Payload>,
    /// Frames per round over all streams of a source.
    pub weight: u32,
    /// Whether frames carry a stamp. By default they do if each frame has space for it.
    pub stamp: Option<bool>,
}

/// The structure of a stream's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Headers of a protocol.
    Made {
        /// The protocol.
        protocol: Protocol,
        /// Over IPv6, if the protocol is over IP.
        v6: bool,
    },
    /// The bytes of a frame without FCS: `hex 0200…`.
    Hex(Vec<u8>),
    /// A frame of a capture: `pcap FILE frame N`.
    Captured {
        /// The capture.
        path: PathBuf,
        /// Number of the frame, from 1.
        frame: u64,
        /// The bytes without FCS, once the capture has been read.
        bytes: Option<Vec<u8>>,
    },
}

/// A tunnel around a stream's packets: `in vxlan vni 7`, `in udp 192.0.2.1 > 192.0.2.2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Its layers, outermost first; `in udp` also adds an IP header. Empty for `in hex`.
    pub layers: Vec<LayerKind>,
    /// Raw bytes instead of a protocol: `in hex de:ad:be:ef`.
    pub bytes: Vec<u8>,
    /// Fields of these layers and their values.
    pub fields: Vec<(LayerKind, &'static str, Values)>,
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(last) = self.layers.last() else {
            f.write_str(" in hex ")?;
            return self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
        };
        write!(f, " in {}", last.name())?;
        let v6 = self.layers.contains(&LayerKind::Ipv6);
        for (kind, name, values) in &self.fields {
            write!(f, " {name} ")?;
            let kind = kind.field(name).map_or(packet::Kind::Number(0), |field| field.kind);
            values.print(f, kind, v6)?;
        }
        Ok(())
    }
}

/// Payload of a frame. It is repeated to fill the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Zeros.
    Zeros,
    /// 00 01 02 … ff.
    Increment,
    /// Random bytes, the same in every frame of the stream.
    Random,
    /// Random bytes, drawn for each frame.
    RandomEach,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Longer than any payload.
const LONGEST: usize = FrameLen::MAX.without_fcs() as usize;

impl StreamSpec {
    /// A stream of a protocol with default settings.
    #[must_use]
    pub fn made(protocol: Protocol, v6: bool) -> Self {
        let stack = Stack::Made { protocol, v6 };
        StreamSpec { stack, fields: Vec::new(), tunnels: Vec::new(), size: None, payload: None, weight: 1, stamp: None }
    }

    /// Whether the addresses are IPv6.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        match &self.stack {
            Stack::Made { v6, .. } => *v6,
            Stack::Hex(bytes) | Stack::Captured { bytes: Some(bytes), .. } => given_v6(bytes),
            Stack::Captured { bytes: None, .. } => false,
        }
    }

    /// True if neighbour discovery must find the destination's MAC address: the frames have IP addresses, and no
    /// destination MAC address is set.
    #[must_use]
    pub fn wants_neighbour(&self) -> bool {
        let Stack::Made { protocol, .. } = self.stack else { return false };
        // The addresses of a tunnel are not addresses of the stream.
        !matches!(protocol, Protocol::Arp | Protocol::Ethernet | Protocol::Nothing)
            && self.tunnels.is_empty()
            && self.fields.iter().all(|(key, _)| *key != Key::Dmac)
    }

    /// Checks that the frames can be created.
    ///
    /// # Errors
    /// A field that the stack does not have, or frames that are too short for their contents. Frames of captures that
    /// have not been read yet are not checked.
    pub fn check(&self) -> Result<(), ParseError> {
        match &self.stack {
            Stack::Captured { bytes: None, .. } => Ok(()),
            _ => self.template(&mut Random::stream(0, ""), 0).map(drop),
        }
    }

    /// Whether frames are stamped.
    ///
    /// # Errors
    /// As [`StreamSpec::check`].
    pub fn is_stamped(&self) -> Result<bool, ParseError> {
        self.template(&mut Random::stream(0, ""), 0).map(|(template, ..)| template.is_stamped())
    }

    /// The shortest frames with room for the stamp, in bytes with FCS.
    ///
    /// # Errors
    /// As [`StreamSpec::check`], whatever the size.
    pub fn least_stamped(&self) -> Result<u32, ParseError> {
        let natural = StreamSpec { size: None, ..self.clone() };
        let (template, ..) = natural.template(&mut Random::stream(0, ""), 0)?;
        Ok((template.least() + Stamp::LENGTH) as u32 + 4)
    }

    /// The template with all constant fields, the sizes, and the sites of the fields in the order of
    /// [`drawn`](StreamSpec::drawn).
    pub(super) fn template(
        &self,
        random: &mut Random,
        stream: u16,
    ) -> Result<(Template, SizeSpec, Vec<Site>), ParseError> {
        let pattern = match &self.payload {
            None => None,
            Some(Payload::Zeros | Payload::RandomEach) => Some(vec![0]),
            Some(Payload::Increment) => Some((0..=255).collect()),
            Some(Payload::Random) => Some((0..LONGEST).map(|_| random.below(256) as u8).collect()),
            Some(Payload::Bytes(bytes)) => Some(bytes.clone()),
        };
        let longest = self.size.as_ref().map(|size| size.largest().without_fcs() as usize);
        let mut template = match &self.stack {
            Stack::Made { protocol, v6 } if !self.tunnels.is_empty() => {
                let (kinds, bytes) = self.layers(*protocol, *v6);
                let pattern = pattern.unwrap_or_else(|| vec![0]);
                let room = |headers: usize| headers + if self.stamp == Some(false) { 0 } else { Stamp::LENGTH };
                let with: Vec<(usize, &Field)> =
                    self.outer_fields().iter().map(|(of, field, ..)| (*of, *field)).collect();
                let least = Template::layered(&kinds, &with, &bytes, &[], 0).map_err(no_stack)?.least();
                let longest = longest.unwrap_or(room(least)).max(FrameLen::MIN.without_fcs() as usize);
                let mut template =
                    Template::layered(&kinds, &with, &bytes, &pattern, longest.max(least)).map_err(no_stack)?;
                // The defaults of streams without tunnels.
                let default = match protocol {
                    Protocol::Ip => Some((Key::Proto, 253)),
                    Protocol::Arp => Some((Key::Dmac, (1 << 48) - 1)),
                    _ => None,
                };
                if let Some((key, value)) = default
                    && let Some(site) = template.site(key)
                {
                    template.fix(&site, value);
                }
                template
            }
            Stack::Made { protocol, v6 } => {
                let has = |keys: &[Key]| self.fields.iter().any(|(key, _)| keys.contains(key));
                let tags = match (has(&[Key::Svlan, Key::Spcp]), has(&[Key::Vlan, Key::Pcp])) {
                    (true, _) => 2,
                    (false, tag) => usize::from(tag),
                };
                let headers = protocol.headers(*v6, tags);
                // By default as long as the headers and a stamp require.
                let room = headers.len() + if self.stamp == Some(false) { 0 } else { Stamp::LENGTH };
                let longest = longest.unwrap_or(room).max(FrameLen::MIN.without_fcs() as usize);
                Template::made(headers, &pattern.unwrap_or_else(|| vec![0]), longest)
            }
            Stack::Hex(bytes) | Stack::Captured { bytes: Some(bytes), .. } => {
                Template::given(bytes, pattern.as_deref(), longest)?
            }
            Stack::Captured { path, .. } => {
                return Err(ParseError::new(format!("{} was not read", path.display()), "read it first"));
            }
        };
        let sizes = match &self.size {
            Some(size) => size.clone(),
            None => SizeSpec::Fixed(FrameLen::of_captured(template.given_length() as u32)),
        };
        let smallest = sizes.smallest();
        if smallest.without_fcs() < template.least() as u32 {
            return Err(ParseError::new(
                format!("a frame of {smallest} has no room for {} B of headers and 4 B of FCS", template.least()),
                format!("write size {}B or more", template.least() + 4),
            ));
        }
        let sites = self.put_fields(&mut template)?;
        let fits = template.has_room(smallest.without_fcs() as usize);
        if self.stamp == Some(true) && !fits {
            let least = template.least() + Stamp::LENGTH + 4;
            return Err(ParseError::new(
                format!("a frame of {smallest} has no room for the stamp of {} B after its headers", Stamp::LENGTH),
                format!("write size {least}B or more, or stamp off"),
            ));
        }
        if self.stamp.unwrap_or(fits) {
            template.stamp(stream);
        }
        Ok((template, sizes, sites))
    }

    /// The layers of a stream in tunnels, outermost first, and raw bytes, each with the number of the layer after it.
    fn layers(&self, protocol: Protocol, v6: bool) -> (Vec<LayerKind>, Vec<(usize, Vec<u8>)>) {
        let has = |keys: &[Key]| self.fields.iter().any(|(key, _)| keys.contains(key));
        let tags = match (has(&[Key::Svlan, Key::Spcp]), has(&[Key::Vlan, Key::Pcp])) {
            (true, _) => 2,
            (false, tag) => usize::from(tag),
        };
        let ip = if v6 { LayerKind::Ipv6 } else { LayerKind::Ipv4 };
        let rest: &[LayerKind] = match (protocol, v6) {
            (Protocol::Udp, _) => &[ip, LayerKind::Udp],
            (Protocol::Tcp, _) => &[ip, LayerKind::Tcp],
            (Protocol::Icmp, false) => &[ip, LayerKind::Icmp],
            (Protocol::Icmp, true) => &[ip, LayerKind::Icmp6],
            (Protocol::Ip, _) => &[ip],
            (Protocol::Arp, _) => &[LayerKind::Arp],
            (Protocol::Ethernet, _) => &[LayerKind::Ethernet],
            (Protocol::Nothing, _) => &[],
        };
        let mut last: Vec<LayerKind> = Vec::new();
        let asks = tags > 0 || has(&[Key::Smac, Key::Dmac]);
        if protocol == Protocol::Arp || asks && protocol != Protocol::Nothing {
            last.push(LayerKind::Ethernet);
        }
        if protocol != Protocol::Nothing {
            last.extend(std::iter::repeat_n(LayerKind::Vlan, tags));
        }
        last.extend(rest);
        let (mut kinds, mut bytes) = (Vec::new(), Vec::new());
        let mut part: Vec<LayerKind> = Vec::new();
        let add = |part: &mut Vec<LayerKind>, kinds: &mut Vec<LayerKind>, is_first: bool, is_last: bool| {
            let (first, last) = (part.first().copied(), part.last().copied());
            let mut whole = with_ethernet(part);
            whole.dedup_by(|a, b| a == b && *a == LayerKind::Ethernet);
            // Next to raw bytes, there is an Ethernet header only if it was requested.
            if !is_last && whole.len() > 1 && last != Some(LayerKind::Ethernet) {
                whole.pop_if(|kind| *kind == LayerKind::Ethernet);
            }
            let added = usize::from(!is_first && first != Some(LayerKind::Ethernet));
            kinds.extend(&whole[added..]);
            part.clear();
        };
        for tunnel in self.tunnels.iter().rev() {
            if tunnel.bytes.is_empty() {
                part.extend(&tunnel.layers);
            } else {
                add(&mut part, &mut kinds, bytes.is_empty(), false);
                bytes.push((kinds.len(), tunnel.bytes.clone()));
            }
        }
        part.extend(last);
        add(&mut part, &mut kinds, bytes.is_empty(), true);
        (kinds, bytes)
    }

    /// The fields of all tunnels, each with the number of its layer.
    fn outer_fields(&self) -> Vec<(usize, &'static Field, &Values, String)> {
        let Stack::Made { protocol, v6 } = self.stack else { return Vec::new() };
        let (kinds, _) = self.layers(protocol, v6);
        let mut fields = Vec::new();
        let mut at = 0;
        for (number, tunnel) in self.tunnels.iter().enumerate().rev() {
            for kind in &tunnel.layers {
                at += kinds.get(at..).into_iter().flatten().take_while(|other| *other != kind).count();
                for (of, field, values) in &tunnel.fields {
                    if let Some(field) = kind.field(field).filter(|_| of == kind) {
                        fields.push((at, field, values, format!("tunnel{number}/{}-{}", kind.name(), field.name)));
                    }
                }
                at += 1;
            }
        }
        fields
    }

    /// Every field of the stack with its values and the name of its random stream. The sender in an ARP packet is the
    /// sender of the frame, unless set otherwise.
    pub(super) fn drawn(&self) -> Vec<(Key, &Values, &'static str)> {
        let mut drawn: Vec<_> = self.fields.iter().map(|(key, values)| (*key, values, key.name())).collect();
        if let Stack::Made { protocol: Protocol::Arp, .. } = self.stack
            && let Some((_, values)) = self.fields.iter().find(|(key, _)| *key == Key::Smac)
            && self.fields.iter().all(|(key, _)| *key != Key::Sha)
        {
            drawn.push((Key::Sha, values, Key::Smac.name()));
        }
        drawn
    }

    /// The values of all fields, in the order of their sites, with the names of their random streams.
    pub(super) fn varied(&self) -> Vec<(&Values, String)> {
        let inner = self.drawn().into_iter().map(|(_, values, name)| (values, name.to_owned()));
        inner.chain(self.outer_fields().into_iter().map(|(_, _, values, name)| (values, name))).collect()
    }

    /// Writes the constant fields and the first value of the others. Returns the site of each field.
    fn put_fields(&self, template: &mut Template) -> Result<Vec<Site>, ParseError> {
        let drawn = self.drawn();
        // Finds all fields before writing any, because a protocol or EtherType changes how the following bytes are
        // parsed.
        let sites = drawn.iter().map(|(key, values, _)| self.find_field(template, *key, values));
        let mut sites = sites.collect::<Result<Vec<_>, _>>()?;
        for (site, (_, values, _)) in sites.iter().zip(&drawn) {
            // The first value. A walk starts with it; a random draw replaces it.
            template.fix(site, values.parts[0].0);
        }
        for (of, field, values, _) in self.outer_fields() {
            let site = template
                .site_of(of, field)
                .ok_or_else(|| ParseError::new(format!("the header has no field '{}'", field.name), "leave it out"))?;
            template.fix(&site, values.parts[0].0);
            sites.push(site);
        }
        Ok(sites)
    }

    fn find_field(&self, template: &Template, key: Key, values: &Values) -> Result<Site, ParseError> {
        let Some(site) = template.site(key) else {
            let has = Key::ALL.iter().filter(|key| template.site(**key).is_some()).map(|key| key.name());
            return Err(ParseError::new(
                format!("{} has no field '{}' ({})", self.stack_name(), key.name(), key.meaning()),
                format!("write one of {}", has.collect::<Vec<_>>().join(", ")),
            ));
        };
        if key == Key::Source || key == Key::Destination {
            let wide = values.parts.iter().any(|(first, last)| *first.max(last) > u128::from(u32::MAX));
            if wide && site.width == 4 {
                return Err(ParseError::new(
                    format!("'{}' is an IPv6 address, and the frame has IPv4 ones", key.name()),
                    "write an IPv4 address",
                ));
            }
        }
        Ok(site)
    }

    fn stack_name(&self) -> String {
        match &self.stack {
            Stack::Made { protocol, v6 } => {
                let over = matches!(protocol, Protocol::Udp | Protocol::Tcp | Protocol::Icmp | Protocol::Ip);
                let tags = if self.fields.iter().any(|(key, _)| matches!(key, Key::Vlan | Key::Pcp | Key::Svlan)) {
                    " with tags"
                } else {
                    ""
                };
                let ip = if *v6 { " over IPv6" } else { " over IPv4" };
                format!("'{}'{}{tags}", protocol.name(), if over { ip } else { "" })
            }
            Stack::Hex(_) => "the frame in hex".to_owned(),
            Stack::Captured { path, frame, .. } => format!("frame {frame} of {}", path.display()),
        }
    }
}

fn no_stack(error: NoStack) -> ParseError {
    let how = match error.above.description().binds.first() {
        Some(packet::layers::Bind::Port(_)) => format!("write in {} in udp 192.0.2.1 > 192.0.2.2", error.above.name()),
        Some(packet::layers::Bind::Protocol(_)) => {
            format!("write in {} in ip 192.0.2.1 > 192.0.2.2", error.above.name())
        }
        _ => "write another tunnel between them".to_owned(),
    };
    ParseError::new(error.to_string(), how)
}

fn given_v6(bytes: &[u8]) -> bool {
    packet::Headers::of(bytes).and_then(|headers| headers.ip).is_some_and(|ip| ip.version == 6)
}

impl fmt::Display for StreamSpec {
    /// Prints the form that can be parsed, with every keyword.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stack {
            Stack::Made { protocol, .. } => f.write_str(protocol.name())?,
            Stack::Hex(bytes) => {
                f.write_str("hex ")?;
                hex(f, bytes)?;
            }
            Stack::Captured { path, frame, .. } => write!(f, "pcap {} frame {frame}", quoted(&path.to_string_lossy()))?,
        }
        let v6 = self.is_v6()
            || self.fields.iter().any(|(key, values)| {
                matches!(key, Key::Source | Key::Destination)
                    && values.parts.iter().any(|(first, last)| *first.max(last) > u128::from(u32::MAX))
            });
        for (key, values) in &self.fields {
            write!(f, " {} ", key.name())?;
            values.print(f, key.kind(), v6)?;
        }
        for tunnel in &self.tunnels {
            tunnel.fmt(f)?;
        }
        if let Some(size) = &self.size {
            write!(f, " size {size}")?;
        }
        match &self.payload {
            None => {}
            Some(Payload::Zeros) => f.write_str(" payload zeros")?,
            Some(Payload::Increment) => f.write_str(" payload increment")?,
            Some(Payload::Random) => f.write_str(" payload random")?,
            Some(Payload::RandomEach) => f.write_str(" payload random each")?,
            Some(Payload::Bytes(bytes)) => {
                f.write_str(" payload 0x")?;
                hex(f, bytes)?;
            }
        }
        if self.weight != 1 {
            write!(f, " weight {}", self.weight)?;
        }
        match self.stamp {
            None => Ok(()),
            Some(true) => f.write_str(" stamp on"),
            Some(false) => f.write_str(" stamp off"),
        }
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    if text.contains(char::is_whitespace) {
        let _ = write!(out, "\"{text}\"");
        return out;
    }
    text.to_owned()
}

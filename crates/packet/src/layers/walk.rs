use super::kind::{Bind, Header, Next};
use super::{Field, LayerKind};

/// Limit on layers that a walk finds; further ones stay unknown.
pub const MOST_LAYERS: usize = 32;

/// One layer of a frame. Offsets count from the first byte of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The protocol.
    pub kind: LayerKind,
    /// Number of tunnels around it. A level begins at each Ethernet header but the first, and at each IP header after
    /// another one.
    pub level: u8,
    /// Whether all of it is in the frame, by its own length and those of the layers around it.
    pub complete: bool,
    /// It is in a fragment of a larger packet.
    pub fragment: bool,
    /// Offset of its header.
    pub start: u32,
    /// Offset of its content.
    pub content: u32,
    /// Offset of the end of its content. Padding and trailers of outer layers may follow.
    pub end: u32,
}

impl Layer {
    /// Its header.
    #[must_use]
    pub fn header<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        frame.get(self.start as usize..self.content as usize).unwrap_or_default()
    }

    /// Its content.
    #[must_use]
    pub fn content<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        frame.get(self.content as usize..self.end as usize).unwrap_or_default()
    }

    /// The value of a field of its header.
    #[must_use]
    pub fn value(&self, field: &Field, frame: &[u8]) -> Option<u128> {
        field.read(self.header(frame))
    }
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Application data follows, or nothing.
    Payload,
    /// The rest of a fragmented packet follows.
    Fragment,
    /// An unknown protocol follows, or bytes that are not a header of the announced one.
    Unknown,
    /// There are more layers than [`MOST_LAYERS`].
    TooDeep,
}

/// The layers of a frame, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    layers: [Layer; MOST_LAYERS],
    count: u8,
    rest: Rest,
}

const NONE: Layer =
    Layer { kind: LayerKind::Ethernet, level: 0, complete: false, fragment: false, start: 0, content: 0, end: 0 };

impl Layers {
    /// Finds the layers of a frame without FCS. Time is proportional to their number. Does not allocate.
    #[must_use]
    pub fn of(frame: &[u8]) -> Layers {
        Layers::from(frame, LayerKind::Ethernet)
    }

    /// As [`of`](Layers::of), for bytes that start with this protocol.
    #[must_use]
    pub fn from(frame: &[u8], first: LayerKind) -> Layers {
        let mut found = Layers { layers: [NONE; MOST_LAYERS], count: 0, rest: Rest::Payload };
        let mut next = Next::Layer(first);
        let (mut at, mut end, mut complete, mut fragment) = (0, frame.len(), true, false);
        let (mut level, mut has_packet) = (0, false);
        while let Some(bytes) = frame.get(at..end) {
            let Some((kind, header)) = read(next, bytes) else {
                found.rest = match next {
                    Next::Payload | Next::Ports(..) => Rest::Payload,
                    Next::Fragment => Rest::Fragment,
                    _ => Rest::Unknown,
                };
                break;
            };
            if usize::from(found.count) == MOST_LAYERS {
                found.rest = Rest::TooDeep;
                break;
            }
            let is_packet = matches!(kind, LayerKind::Ipv4 | LayerKind::Ipv6);
            if kind == LayerKind::Ethernet && found.count > 0 || is_packet && has_packet {
                level += 1;
                has_packet = false;
            }
            has_packet |= is_packet;
            if let Some(whole) = header.whole {
                complete &= whole <= bytes.len();
                end = end.min(at + whole.max(header.length));
            }
            fragment |= header.fragment;
            let content = at + header.length;
            found.layers[usize::from(found.count)] =
                Layer { kind, level, complete, fragment, start: at as u32, content: content as u32, end: end as u32 };
            found.count += 1;
            (at, next) = (content, header.next);
        }
        found
    }

    /// The layers, outermost first.
    #[must_use]
    pub fn all(&self) -> &[Layer] {
        &self.layers[..usize::from(self.count)]
    }

    /// The outermost layers, at most `count`.
    #[must_use]
    pub fn first(self, count: usize) -> Layers {
        Layers { count: self.count.min(count.min(MOST_LAYERS) as u8), ..self }
    }

    /// Layers of these kinds, header offsets and content offsets. [`resized`](Layers::resized) sets their ends.
    pub(crate) fn placed(places: &[(LayerKind, usize, usize)]) -> Layers {
        let mut found = Layers { layers: [NONE; MOST_LAYERS], count: 0, rest: Rest::Payload };
        let (mut level, mut has_packet) = (0, false);
        for (place, (kind, start, content)) in found.layers.iter_mut().zip(places) {
            let is_packet = matches!(kind, LayerKind::Ipv4 | LayerKind::Ipv6);
            if *kind == LayerKind::Ethernet && found.count > 0 || is_packet && has_packet {
                level += 1;
                has_packet = false;
            }
            has_packet |= is_packet;
            *place = Layer { kind: *kind, level, start: *start as u32, content: *content as u32, ..NONE };
            found.count += 1;
        }
        found
    }

    /// The same layers in a frame of `length` bytes: each of them now ends where the frame ends.
    pub(crate) fn resized(self, length: usize) -> Layers {
        let mut layers = self;
        for layer in &mut layers.layers[..usize::from(self.count)] {
            (layer.end, layer.complete) = (length as u32, true);
        }
        layers
    }

    /// Why the walk ended.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.rest
    }

    /// The innermost layer.
    #[must_use]
    pub fn last(&self) -> Option<&Layer> {
        self.all().last()
    }

    /// Number of tunnels around the innermost layer.
    #[must_use]
    pub fn deepest(&self) -> u8 {
        self.last().map_or(0, |layer| layer.level)
    }

    /// The layers of one level, outermost first.
    pub fn level(&self, level: u8) -> impl Iterator<Item = &Layer> {
        self.all().iter().filter(move |layer| layer.level == level)
    }
}

/// The protocol that `next` announces, if these bytes begin with a header of it.
fn read(next: Next, bytes: &[u8]) -> Option<(LayerKind, Header)> {
    let by = |wanted: Bind| {
        let wanted = wanted.number();
        let first = BINDS.partition_point(|(number, _)| *number < wanted);
        let announced = BINDS[first..].iter().take_while(|(number, _)| *number == wanted);
        announced.into_iter().find_map(|(_, kind)| Some((*kind, (kind.description().read)(bytes)?)))
    };
    match next {
        // Values below 0x0600 are lengths (IEEE 802.3).
        Next::EtherType(length) if length < 0x0600 => {
            Some((LayerKind::Llc, (LayerKind::Llc.description().read)(bytes)?.whole(length.into())))
        }
        Next::EtherType(value) => by(Bind::EtherType(value)),
        Next::Protocol(value) => by(Bind::Protocol(value)),
        Next::Ports(destination, source) => by(Bind::Port(destination)).or_else(|| by(Bind::Port(source))),
        Next::Layer(kind) => Some((kind, (kind.description().read)(bytes)?)),
        Next::Payload | Next::Fragment => None,
    }
}

/// All numbers in ascending order, each with a protocol that it announces, in the order of the list of protocols.
const BINDS: [(u32, LayerKind); count_binds()] = {
    let mut all = [(0, LayerKind::Ethernet); count_binds()];
    let (mut count, mut k) = (0, 0);
    while k < LayerKind::ALL.len() {
        let binds = LayerKind::ALL[k].description().binds;
        let mut b = 0;
        while b < binds.len() {
            let bind = (binds[b].number(), LayerKind::ALL[k]);
            let mut at = count;
            while at > 0 && all[at - 1].0 > bind.0 {
                all[at] = all[at - 1];
                at -= 1;
            }
            all[at] = bind;
            count += 1;
            b += 1;
        }
        k += 1;
    }
    all
};

/// Whether this UDP port, at either end, announces a protocol. Called for every datagram, so it looks at ports only.
#[inline]
pub(crate) fn is_announced_port(port: u16) -> bool {
    PORTS.contains(&port)
}

/// The UDP ports in [`BINDS`].
const PORTS: [u16; count_ports()] = {
    let mut ports = [0; count_ports()];
    let (mut count, mut b) = (0, 0);
    while b < BINDS.len() {
        if BINDS[b].0 >> 16 == 2 {
            ports[count] = BINDS[b].0 as u16;
            count += 1;
        }
        b += 1;
    }
    ports
};

const fn count_ports() -> usize {
    let (mut count, mut b) = (0, 0);
    while b < BINDS.len() {
        count += (BINDS[b].0 >> 16 == 2) as usize;
        b += 1;
    }
    count
}

const fn count_binds() -> usize {
    let (mut count, mut k) = (0, 0);
    while k < LayerKind::ALL.len() {
        count += LayerKind::ALL[k].description().binds.len();
        k += 1;
    }
    count
}

/// Whether any protocol has this number.
pub(super) fn announces(wanted: Bind) -> bool {
    BINDS.iter().any(|(number, _)| *number == wanted.number())
}

//! Layers and layer fields that rules test.

use super::set::Set;
use packet::layers::{Bind, FieldFinder, FieldPath, LayerKind, Layers, Level};
use packet::{SCTP, TCP, UDP};

/// A property that rules test: the presence of a layer, or a field of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Presence of a layer: the value is 0 if it is present, else absent.
    Layer(Level, LayerKind, u8),
    /// A masked field. With a width, only a field of this width counts: addresses of one IP version.
    Field { path: FieldPath, mask: u128, width: Option<u16> },
}

impl Probe {
    /// A field with all its bits.
    pub(super) fn of(path: FieldPath) -> Probe {
        Probe::Field { path, mask: u128::MAX, width: None }
    }

    /// An address field, for one IP version only.
    pub(super) fn of_addresses(path: FieldPath, v4: bool) -> Probe {
        Probe::Field { path, mask: u128::MAX, width: Some(if v4 { 32 } else { 128 }) }
    }

    /// The largest value.
    pub(super) fn most(&self) -> u128 {
        match self {
            Probe::Layer(..) => 0,
            Probe::Field { path, width, .. } => {
                let width = width.unwrap_or_else(|| path.width());
                if width >= 128 { u128::MAX } else { (1 << width) - 1 }
            }
        }
    }

    /// The layer whose presence a value implies; `None` if several protocols may have the field.
    fn layer(&self) -> Option<(Level, LayerKind, u8)> {
        match self {
            Probe::Layer(level, kind, number) => Some((*level, *kind, *number)),
            Probe::Field { path, .. } => {
                let (kind, number) = path.layer()?;
                Some((path.level(), kind, number))
            }
        }
    }

    /// Given that this probe has a value in `set`, the values that `other` may have. `None` if all are possible.
    pub(super) fn implies(&self, set: &Set, other: &Probe) -> Option<Set> {
        if set.absent {
            return None;
        }
        if let (Some((level, kind, number)), Probe::Layer(at, wanted, which)) = (self.layer(), other)
            && level == *at
        {
            if kind == *wanted && *which <= number {
                return Some(Set::of([(0, 0)]));
            }
            // A packet has at most one protocol of each group.
            if kind != *wanted && ONE_OF.iter().any(|group| group.contains(&kind) && group.contains(wanted)) {
                return Some(Set { ranges: Vec::new(), absent: true });
            }
        }
        let (Probe::Field { path, mask: u128::MAX, width }, Probe::Field { path: same, mask: part, width: same_width }) =
            (self, other)
        else {
            return None;
        };
        match set.ranges[..] {
            [(value, last)] if path == same && width == same_width && value == last => {
                Some(Set::of([(value & part, value & part)]))
            }
            _ => None,
        }
    }

    /// What a value implies about the outermost packet: its possible EtherTypes or protocols. Both are empty if it
    /// implies nothing.
    pub(super) fn outermost(&self) -> (Vec<u16>, Vec<u8>) {
        let Some((Level::Nth(0), kind, _)) = self.layer() else { return (Vec::new(), Vec::new()) };
        match kind {
            LayerKind::Ipv4 => (vec![0x0800], Vec::new()),
            LayerKind::Ipv6 => (vec![0x86dd], Vec::new()),
            LayerKind::Arp => (vec![0x0806], Vec::new()),
            LayerKind::Tcp => (Vec::new(), vec![TCP]),
            LayerKind::Udp => (Vec::new(), vec![UDP]),
            LayerKind::Sctp => (Vec::new(), vec![SCTP]),
            kind => {
                let binds = kind.description().binds;
                let in_udp = !binds.is_empty() && binds.iter().all(|bind| matches!(bind, Bind::Port(_)));
                (Vec::new(), if in_udp { vec![UDP] } else { Vec::new() })
            }
        }
    }
}

/// Groups of mutually exclusive protocols of one packet.
const ONE_OF: [&[LayerKind]; 2] = [
    &[LayerKind::Ipv4, LayerKind::Ipv6, LayerKind::Arp],
    &[LayerKind::Tcp, LayerKind::Udp, LayerKind::Sctp, LayerKind::Icmp, LayerKind::Icmp6],
];

/// A compiled probe, which reads its value from each frame.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    Layer(Level, LayerKind, u8),
    Field { finder: Box<FieldFinder>, mask: u128, width: Option<u16> },
}

impl Reader {
    pub(super) fn new(probe: &Probe) -> Reader {
        match probe {
            Probe::Layer(level, kind, number) => Reader::Layer(*level, *kind, *number),
            Probe::Field { path, mask, width } => {
                Reader::Field { finder: Box::new(FieldFinder::new(path)), mask: *mask, width: *width }
            }
        }
    }

    /// The value in this frame.
    pub(super) fn read(&self, frame: &[u8], layers: &Layers) -> Option<u128> {
        match self {
            Reader::Layer(level, kind, number) => {
                let level = level.of(layers)?;
                let found = layers.level(level).filter(|layer| layer.kind == *kind);
                (found.take(usize::from(*number)).count() == usize::from(*number)).then_some(0)
            }
            Reader::Field { finder, mask, width } => {
                let (layer, field) = finder.find(frame, layers)?;
                if width.is_some_and(|width| width != field.width()) {
                    return None;
                }
                layer.value(field, frame).map(|value| value & mask)
            }
        }
    }
}

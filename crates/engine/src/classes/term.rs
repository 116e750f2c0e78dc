//! Rules as sets. Each alternative is a product of one set per field. Lookups use this form, and so does the check
//! whether a rule matches any frame that earlier rules leave.

use super::probe::Probe;
use super::rule::OUTERMOST;
use super::set::Set;
use super::{Condition, FieldValues, Prefix, Rule, Side, Test};
use packet::layers::{LayerKind, Layers, Level};
use packet::{SCTP, TCP, UDP};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A header field. Its value is in the range of the field, or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    EtherType,
    Protocol,
    Source4,
    Source6,
    Destination4,
    Destination6,
    SourcePort,
    DestinationPort,
    Vlan,
    Dscp,
    Flags,
}

impl Field {
    pub(super) const ALL: [Field; 11] = [
        Field::EtherType,
        Field::Protocol,
        Field::Source4,
        Field::Source6,
        Field::Destination4,
        Field::Destination6,
        Field::SourcePort,
        Field::DestinationPort,
        Field::Vlan,
        Field::Dscp,
        Field::Flags,
    ];

    /// The largest value.
    pub(super) fn most(self) -> u128 {
        match self {
            Field::EtherType | Field::SourcePort | Field::DestinationPort => 0xffff,
            Field::Protocol | Field::Flags => 0xff,
            Field::Source4 | Field::Destination4 => u128::from(u32::MAX),
            Field::Source6 | Field::Destination6 => u128::MAX,
            Field::Vlan => 0xfff,
            Field::Dscp => 0x3f,
        }
    }
}

const IP4: u16 = 0x0800;
const IP6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;

/// If a frame has the first field, its second field has one of these values. Implications come in derivation order.
const IMPLIED: [(Field, Field, &[u16]); 9] = [
    (Field::Flags, Field::Protocol, &[TCP as u16]),
    (Field::SourcePort, Field::Protocol, &[TCP as u16, UDP as u16, SCTP as u16]),
    (Field::DestinationPort, Field::Protocol, &[TCP as u16, UDP as u16, SCTP as u16]),
    (Field::Protocol, Field::EtherType, &[IP4, IP6]),
    (Field::Dscp, Field::EtherType, &[IP4, IP6]),
    (Field::Source4, Field::EtherType, &[IP4, ARP, RARP]),
    (Field::Destination4, Field::EtherType, &[IP4, ARP, RARP]),
    (Field::Source6, Field::EtherType, &[IP6]),
    (Field::Destination6, Field::EtherType, &[IP6]),
];

/// Bytes at one offset, under a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The payload that the offset counts from; the start of the frame if `None`.
    pub(super) payload: Option<Level>,
    pub(super) at: usize,
    pub(super) mask: Vec<u8>,
}

impl Shape {
    /// Reads the masked bytes into `bytes`. `outermost` is the payload of the outermost packet, already located.
    /// Returns false if the frame is too short.
    pub(super) fn read(&self, frame: &[u8], outermost: Option<&[u8]>, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        let part = match self.payload {
            Some(level) => payload(level, frame, outermost),
            None => Some(frame),
        };
        let Some(found) = part.and_then(|part| part.get(self.at..self.at + self.mask.len())) else { return false };
        bytes.extend(found.iter().zip(&self.mask).map(|(byte, mask)| byte & mask));
        true
    }

    /// The bytes of `part` that a value of this shape implies; `None` if it does not imply all of them.
    fn implies(&self, value: &[u8], part: &Shape) -> Option<Vec<u8>> {
        let skip = part.at.checked_sub(self.at).filter(|_| self.payload == part.payload)?;
        let (value, mask) = (value.get(skip..)?, self.mask.get(skip..)?);
        let mask = mask.get(..part.mask.len())?;
        let known = mask.iter().zip(&part.mask).all(|(mine, asked)| mine & asked == *asked);
        known.then(|| value.iter().zip(&part.mask).map(|(byte, mask)| byte & mask).collect())
    }
}

/// The TCP or UDP payload of the packet at this level. `outermost` is the payload of the outermost packet, already
/// located.
pub(super) fn payload<'f>(level: Level, frame: &'f [u8], outermost: Option<&'f [u8]>) -> Option<&'f [u8]> {
    if level == OUTERMOST {
        return outermost;
    }
    let layers = Layers::of(frame);
    let mut carriers = layers.level(level.of(&layers)?);
    carriers.find(|layer| matches!(layer.kind, LayerKind::Tcp | LayerKind::Udp)).map(|layer| layer.content(frame))
}

/// All probes, shapes and texts that the rules use.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocabulary {
    pub(super) probes: Vec<Probe>,
    pub(super) shapes: Vec<Shape>,
    /// Each text, with the packet whose payload is searched.
    pub(super) texts: Vec<(Level, Vec<u8>)>,
}

impl Vocabulary {
    fn shape(&mut self, shape: Shape) -> usize {
        position(&mut self.shapes, shape)
    }

    fn text(&mut self, level: Level, text: &[u8]) -> usize {
        position(&mut self.texts, (level, text.to_vec()))
    }

    /// A limit on the value of a probe.
    fn probe(&mut self, probe: Probe, set: Set) -> Limit {
        let most = probe.most();
        Limit::Probe(position(&mut self.probes, probe), set, most)
    }
}

fn position<T: PartialEq>(known: &mut Vec<T>, wanted: T) -> usize {
    known.iter().position(|one| *one == wanted).unwrap_or_else(|| {
        known.push(wanted);
        known.len() - 1
    })
}

/// The values that the bytes of a shape may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) values: BTreeSet<Vec<u8>>,
    /// Matches every value except these.
    pub(super) others: bool,
    /// Matches frames that are too short for these bytes.
    pub(super) absent: bool,
}

impl Bytes {
    fn is_empty(&self) -> bool {
        self.values.is_empty() && !self.others && !self.absent
    }

    fn complement(&self) -> Self {
        Bytes { values: self.values.clone(), others: !self.others, absent: !self.absent }
    }

    fn and(&self, other: &Bytes) -> Self {
        let (a, b) = (&self.values, &other.values);
        let values = match (self.others, other.others) {
            (false, false) => a.intersection(b).cloned().collect(),
            (false, true) => a.difference(b).cloned().collect(),
            (true, false) => b.difference(a).cloned().collect(),
            (true, true) => a.union(b).cloned().collect(),
        };
        Bytes { values, others: self.others && other.others, absent: self.absent && other.absent }
    }

    pub(super) fn allows(&self, value: &[u8]) -> bool {
        self.values.contains(value) != self.others
    }
}

/// The frames whose every field is in its set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    sets: [Set; Field::ALL.len()],
    /// Allowed values of each probe, and its largest value. A probe that is not in the map may have any value.
    pub(super) probes: BTreeMap<usize, (Set, u128)>,
    pub(super) bytes: BTreeMap<usize, Bytes>,
    /// Texts that must (true) or must not (false) occur in the payload.
    pub(super) texts: BTreeMap<usize, bool>,
}

impl Term {
    pub(super) fn everything() -> Self {
        Term {
            sets: Field::ALL.map(|field| Set::all(field.most())),
            probes: BTreeMap::new(),
            bytes: BTreeMap::new(),
            texts: BTreeMap::new(),
        }
    }

    pub(super) fn set(&self, field: Field) -> &Set {
        &self.sets[field as usize]
    }

    /// Sets the field, replacing earlier limits.
    pub(super) fn replace(&mut self, field: Field, to: Set) {
        self.sets[field as usize] = to;
    }

    pub(super) fn limit(&mut self, field: Field, to: &Set) {
        let set = &mut self.sets[field as usize];
        *set = set.and(to);
    }

    fn limit_probe(&mut self, probe: usize, to: &Set, most: u128) {
        let known = self.probes.get(&probe).map_or_else(|| to.clone(), |(known, _)| known.and(to));
        self.probes.insert(probe, (known, most));
    }

    fn limit_bytes(&mut self, shape: usize, to: &Bytes) {
        let known = self.bytes.get(&shape).map_or_else(|| to.clone(), |known| known.and(to));
        self.bytes.insert(shape, known);
    }

    /// Requires or excludes a text. A text both required and excluded empties the term, since the map cannot hold both.
    fn limit_text(&mut self, text: usize, present: bool) {
        if *self.texts.entry(text).or_insert(present) != present {
            self.sets[0] = Set { ranges: Vec::new(), absent: false };
        }
    }

    /// Whether the term restricts this field.
    pub(super) fn asks(&self, field: Field) -> bool {
        let set = self.set(field);
        !set.is_all(field.most())
            && !IMPLIED.iter().any(|(given, implied, values)| {
                *implied == field && !self.set(*given).absent && one_of(values).without(set, field.most()).is_empty()
            })
    }

    /// True if no frame can match.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.iter().any(Set::is_empty)
            || self.probes.values().any(|(set, _)| set.is_empty())
            || self.bytes.values().any(Bytes::is_empty)
    }

    /// Derives limits of one field from another: a frame with a port has a protocol with ports, for example.
    fn conclude(&mut self, vocabulary: &Vocabulary) {
        self.conclude_probes(vocabulary);
        let carried = self.texts.iter().any(|(text, present)| *present && vocabulary.texts[*text].0 == OUTERMOST)
            || self
                .bytes
                .iter()
                .any(|(shape, bytes)| vocabulary.shapes[*shape].payload == Some(OUTERMOST) && !bytes.absent);
        if carried {
            self.limit(Field::Protocol, &one_of(&[TCP, UDP]));
        }
        for (given, field, values) in IMPLIED {
            if !self.set(given).absent {
                self.limit(field, &one_of(values));
            }
        }
        self.conclude_bytes(vocabulary);
    }

    /// Derives the presence of a layer from a field of it, and the lower layers from a layer.
    fn conclude_probes(&mut self, vocabulary: &Vocabulary) {
        let known: Vec<(usize, Set)> = self
            .probes
            .iter()
            .filter(|(_, (set, _))| !set.absent)
            .map(|(probe, (set, _))| (*probe, set.clone()))
            .collect();
        for (probe, set) in known {
            let probe = &vocabulary.probes[probe];
            for (other, wanted) in vocabulary.probes.iter().enumerate().filter(|(_, wanted)| *wanted != probe) {
                if let Some(implied) = probe.implies(&set, wanted) {
                    self.limit_probe(other, &implied, wanted.most());
                }
            }
            let (types, protocols) = probe.outermost();
            if !types.is_empty() {
                self.limit(Field::EtherType, &one_of(&types));
            }
            if !protocols.is_empty() {
                self.limit(Field::Protocol, &one_of(&protocols));
            }
        }
    }

    /// Derives limits of shorter byte strings and texts from longer ones that contain them.
    fn conclude_bytes(&mut self, vocabulary: &Vocabulary) {
        let certain = |bytes: &Bytes| {
            let one = bytes.values.len() == 1 && !bytes.others && !bytes.absent;
            bytes.values.first().filter(|_| one).cloned()
        };
        let known: Vec<_> = self.bytes.iter().filter_map(|(shape, bytes)| Some((*shape, certain(bytes)?))).collect();
        for (shape, value) in known {
            let shape = &vocabulary.shapes[shape];
            for (part, asked) in vocabulary.shapes.iter().enumerate() {
                if let Some(implied) = shape.implies(&value, asked) {
                    let implied = Bytes { values: [implied].into(), others: false, absent: false };
                    self.limit_bytes(part, &implied);
                }
            }
            if let Some(level) = shape.payload {
                self.texts_within(level, &value, vocabulary);
            }
        }
        let present: Vec<usize> = self.texts.iter().filter(|(_, present)| **present).map(|(text, _)| *text).collect();
        for text in present {
            let (level, text) = &vocabulary.texts[text];
            self.texts_within(*level, text, vocabulary);
        }
    }

    fn texts_within(&mut self, level: Level, bytes: &[u8], vocabulary: &Vocabulary) {
        for (text, (_, wanted)) in vocabulary.texts.iter().enumerate().filter(|(_, (at, _))| *at == level) {
            if bytes.windows(wanted.len()).any(|window| window == wanted) {
                self.limit_text(text, true);
            }
        }
    }

    /// True if some frame may match both.
    pub(super) fn meets(&self, other: &Term) -> bool {
        self.sets.iter().zip(&other.sets).all(|(a, b)| a.meets(b))
            && self.probes.iter().all(|(probe, (a, _))| other.probes.get(probe).is_none_or(|(b, _)| a.meets(b)))
            && self.bytes.iter().all(|(shape, a)| other.bytes.get(shape).is_none_or(|b| !a.and(b).is_empty()))
            && self.texts.iter().all(|(text, a)| other.texts.get(text).is_none_or(|b| a == b))
    }

    /// The frames that are not in `other`, as disjoint terms.
    pub(super) fn without(&self, other: &Term) -> Vec<Term> {
        let mut rest = self.clone();
        let mut parts = Vec::new();
        for field in Field::ALL {
            let outside = rest.set(field).without(other.set(field), field.most());
            if !outside.is_empty() {
                let mut part = rest.clone();
                part.sets[field as usize] = outside;
                parts.push(part);
                rest.limit(field, other.set(field));
            }
        }
        for (probe, (theirs, most)) in &other.probes {
            let mut part = rest.clone();
            part.limit_probe(*probe, &theirs.complement(*most), *most);
            parts.push(part);
            rest.limit_probe(*probe, theirs, *most);
        }
        for (shape, theirs) in &other.bytes {
            let mut part = rest.clone();
            part.limit_bytes(*shape, &theirs.complement());
            parts.push(part);
            rest.limit_bytes(*shape, theirs);
        }
        for (text, present) in &other.texts {
            let mut part = rest.clone();
            part.limit_text(*text, !present);
            parts.push(part);
            rest.limit_text(*text, *present);
        }
        parts.retain(|part| !part.is_empty());
        parts
    }
}

/// The set of these values.
fn one_of<T: Copy + Into<u128>>(values: &[T]) -> Set {
    Set::of(values.iter().map(|value| ((*value).into(), (*value).into())))
}

/// The terms of each rule, in order, without those that match no frame. `None` if there are more than `most`.
pub(super) fn terms(rules: &[&Rule], most: usize) -> Option<(Vec<Vec<Term>>, Vocabulary)> {
    let mut vocabulary = Vocabulary::default();
    let mut all = Vec::new();
    let mut count = 0;
    for rule in rules {
        let mut terms = Vec::new();
        for alternative in &rule.alternatives {
            let mut products = vec![Term::everything()];
            for condition in alternative {
                let options = options(condition, &mut vocabulary);
                let combined = products.iter().flat_map(|term| {
                    options.iter().map(move |option| {
                        let mut term = term.clone();
                        for limit in option {
                            limit.apply(&mut term);
                        }
                        term
                    })
                });
                products = combined.filter(|term| !term.is_empty()).take(most + 1).collect();
            }
            terms.append(&mut products);
            if count + terms.len() > most {
                return None;
            }
        }
        count += terms.len();
        all.push(terms);
    }
    // Derivation needs the complete vocabulary.
    for terms in &mut all {
        for term in terms.iter_mut() {
            term.conclude(&vocabulary);
        }
        terms.retain(|term| !term.is_empty());
    }
    Some((all, vocabulary))
}

/// A limit that a condition sets on one field.
enum Limit {
    Field(Field, Set),
    /// The number of a probe, its allowed values and its largest value.
    Probe(usize, Set, u128),
    Bytes(usize, Bytes),
    Text(usize, bool),
}

impl Limit {
    fn apply(&self, term: &mut Term) {
        match self {
            Limit::Field(field, set) => term.limit(*field, set),
            Limit::Probe(probe, set, most) => term.limit_probe(*probe, set, *most),
            Limit::Bytes(shape, bytes) => term.limit_bytes(*shape, bytes),
            Limit::Text(text, present) => term.limit_text(*text, *present),
        }
    }

    fn opposite(&self) -> Limit {
        match self {
            Limit::Field(field, set) => Limit::Field(*field, set.complement(field.most())),
            Limit::Probe(probe, set, most) => Limit::Probe(*probe, set.complement(*most), *most),
            Limit::Bytes(shape, bytes) => Limit::Bytes(*shape, bytes.complement()),
            Limit::Text(text, present) => Limit::Text(*text, !present),
        }
    }
}

/// The ways to meet a condition. Each is a list of limits that must all hold.
fn options(condition: &Condition, vocabulary: &mut Vocabulary) -> Vec<Vec<Limit>> {
    let alternatives = alternatives(&condition.test, vocabulary);
    if condition.not {
        // The negation requires the opposite of every limit.
        vec![alternatives.iter().map(Limit::opposite).collect()]
    } else {
        alternatives.into_iter().map(|limit| vec![limit]).collect()
    }
}

/// The ways to meet a test, each a limit on one field.
fn alternatives(test: &Test, vocabulary: &mut Vocabulary) -> Vec<Limit> {
    let field = |field, set| vec![Limit::Field(field, set)];
    let wide = |ranges: &[(u16, u16)]| Set::of(ranges.iter().map(|(a, b)| (u128::from(*a), u128::from(*b))));
    match test {
        Test::EtherType(value) => field(Field::EtherType, one_of(&[*value])),
        Test::Protocol(value) => field(Field::Protocol, Set::of([(u128::from(*value), u128::from(*value))])),
        Test::Address(side, prefixes) => {
            let (four, six): (Vec<&Prefix>, Vec<&Prefix>) =
                prefixes.iter().partition(|prefix| prefix.address.is_ipv4());
            let mut alternatives = Vec::new();
            for (prefixes, source, destination) in
                [(four, Field::Source4, Field::Destination4), (six, Field::Source6, Field::Destination6)]
            {
                if !prefixes.is_empty() {
                    let set = Set::of(prefixes.into_iter().map(span));
                    alternatives
                        .extend(sides(*side, source, destination).map(|field| Limit::Field(field, set.clone())));
                }
            }
            alternatives
        }
        Test::Port(side, ranges) => {
            let set = wide(ranges);
            let sides = sides(*side, Field::SourcePort, Field::DestinationPort);
            sides.map(|field| Limit::Field(field, set.clone())).collect()
        }
        Test::Vlan(ranges) if ranges.is_empty() => field(Field::Vlan, Set::of([(0, Field::Vlan.most())])),
        Test::Vlan(ranges) => field(Field::Vlan, wide(ranges)),
        Test::Dscp(ranges) => field(Field::Dscp, Set::of(ranges.iter().map(|(a, b)| (u128::from(*a), u128::from(*b))))),
        Test::Flags { set, clear } => {
            let good = (0..=u8::MAX).filter(|flags| flags & set == *set && flags & clear == 0);
            field(Field::Flags, Set::of(good.map(|flags| (u128::from(flags), u128::from(flags)))))
        }
        Test::Bytes { value, mask, at } => {
            let shape = Shape { payload: None, at: *at as usize, mask: mask.clone() };
            vec![Limit::Bytes(vocabulary.shape(shape), only(value))]
        }
        Test::Payload { level, value, at: Some(at) } => {
            let shape = Shape { payload: Some(*level), at: *at as usize, mask: vec![0xff; value.len()] };
            vec![Limit::Bytes(vocabulary.shape(shape), only(value))]
        }
        Test::Payload { level, value, at: None } => vec![Limit::Text(vocabulary.text(*level, value), true)],
        Test::Layer(level, kind, number) => {
            vec![vocabulary.probe(Probe::Layer(*level, *kind, *number), Set::of([(0, 0)]))]
        }
        Test::Field(fields, values) => {
            let mut alternatives = Vec::new();
            for path in fields.paths() {
                match values {
                    FieldValues::Ranges(ranges) => {
                        alternatives.push(vocabulary.probe(Probe::of(path), Set::of(ranges.iter().copied())));
                    }
                    FieldValues::Masked(value, mask) => {
                        let probe = Probe::Field { path, mask: *mask, width: None };
                        alternatives.push(vocabulary.probe(probe, Set::of([(*value, *value)])));
                    }
                    FieldValues::Prefixes(prefixes) => {
                        for v4 in [true, false] {
                            let of_version = prefixes.iter().filter(|prefix| prefix.address.is_ipv4() == v4);
                            let set = Set::of(of_version.map(span));
                            if !set.is_empty() {
                                alternatives.push(vocabulary.probe(Probe::of_addresses(path, v4), set));
                            }
                        }
                    }
                }
            }
            alternatives
        }
    }
}

fn only(value: &[u8]) -> Bytes {
    Bytes { values: [value.to_vec()].into(), others: false, absent: false }
}

fn sides(side: Side, source: Field, destination: Field) -> impl Iterator<Item = Field> {
    let fields = match side {
        Side::Source => [Some(source), None],
        Side::Destination => [Some(destination), None],
        Side::Either => [Some(source), Some(destination)],
    };
    fields.into_iter().flatten()
}

/// The first and the last address of a prefix.
fn span(prefix: &Prefix) -> (u128, u128) {
    let length = u32::from(prefix.length);
    match prefix.address {
        IpAddr::V4(address) => {
            let first = u32::from(address);
            (u128::from(first), u128::from(first | u32::MAX.checked_shr(length).unwrap_or(0)))
        }
        IpAddr::V6(address) => {
            let first = u128::from(address);
            (first, first | u128::MAX.checked_shr(length).unwrap_or(0))
        }
    }
}

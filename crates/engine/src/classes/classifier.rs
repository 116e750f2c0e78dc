use super::Rule;
use super::probe::{Probe, Reader};
use super::reach::{Unreachable, unreachable};
use super::search::Search;
use super::set::Set;
use super::term::{Field, Shape, Term, terms};
use packet::layers::Layers;
use packet::{Headers, IpHeader};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Maximum number of alternatives of all rules together. Each address family, and each direction of `host` and `port`,
/// counts as one.
pub(super) const MOST_TERMS: usize = 16_384;

/// Finds the class of a frame: the first class whose rule matches, else the last class, which has no rule.
///
/// Rules about the outermost packet read headers at known offsets. The layers of a frame are parsed only if a rule
/// needs them. Each field that any rule uses is looked up once: in a table, in a sorted list of addresses or in a hash
/// table of bytes. The lookup yields a bit set: the alternatives that this value allows. The first bit that is set in
/// all of them is the answer. A summary with one bit per 64 alternatives says which words of the sets to read
/// (aggregated bit vectors: Baboescu and Varghese 2001). One pass searches for all payload texts at once, and only in
/// frames whose headers match a rule with such a text.
#[derive(Clone, Debug)]
pub struct Classifier {
    fields: Vec<(Field, Lookup)>,
    probes: Vec<(Reader, Lookup)>,
    lookups: Vec<BytesLookup>,
    /// All sets. Each is stored as `summary` words of summary, then its words.
    sets: Vec<u64>,
    summary: usize,
    /// Class of each alternative.
    classes: Vec<u32>,
    texts: Option<Texts>,
    default: usize,
    /// Lookup results of the current frame: the position of each set.
    found: Vec<u32>,
    bytes: Vec<u8>,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The conditions of this rule exclude each other.
    Contradiction(usize),
    /// Earlier rules match all frames of this one. Holds the rule and the earlier rules.
    Taken(usize, Vec<usize>),
    /// The rules have too many alternatives in total.
    TooMany,
}

/// How the value of a field maps to its set.
#[derive(Clone, Debug)]
enum Lookup {
    Table { sets: Vec<u32>, absent: u32 },
    Narrow { starts: Vec<u32>, sets: Vec<u32>, absent: u32 },
    Wide { starts: Vec<u128>, sets: Vec<u32>, absent: u32 },
}

/// How bytes at an offset map to their set.
#[derive(Clone, Debug)]
struct BytesLookup {
    shape: Shape,
    sets: HashMap<Vec<u8>, u32, BuildHasherDefault<Fnv>>,
    others: u32,
    absent: u32,
}

/// Alternatives with payload texts.
#[derive(Clone, Debug)]
struct Texts {
    search: Search,
    /// Bit sets of the alternatives: first those that require a text, then those that only exclude texts.
    asking: Vec<u64>,
    excluding: Vec<u64>,
    /// Per text: the alternatives whose first required text this is.
    first: Vec<Vec<u32>>,
    /// Per alternative: its texts, and whether each is required or excluded.
    wanted: HashMap<u32, Vec<(usize, bool)>, BuildHasherDefault<Fnv>>,
    possible: Vec<u64>,
}

impl Classifier {
    /// Builds a classifier for classes with these rules, in this order, and one more class without a rule.
    ///
    /// # Errors
    /// Returns every rule that no frame can reach.
    pub fn new(rules: &[&Rule]) -> Result<Self, Vec<Unusable>> {
        let (terms, vocabulary) = terms(rules, MOST_TERMS).ok_or_else(|| vec![Unusable::TooMany])?;
        let bad: Vec<Unusable> = (0..rules.len())
            .filter_map(|number| match unreachable(&terms, number)? {
                Unreachable::Contradiction => Some(Unusable::Contradiction(number)),
                Unreachable::Taken(by) => Some(Unusable::Taken(number, by)),
            })
            .collect();
        if !bad.is_empty() {
            return Err(bad);
        }
        let classes = terms.iter().enumerate().flat_map(|(class, terms)| terms.iter().map(move |_| class as u32));
        let classes: Vec<u32> = classes.collect();
        let terms: Vec<Term> = terms.into_iter().flatten().collect();
        let mut sets = Sets::new(terms.len());
        let mut fields = Vec::new();
        for field in Field::ALL {
            if terms.iter().any(|term| term.asks(field)) {
                fields.push((field, lookup(field.most(), &terms, |term| Some(term.set(field)), &mut sets)));
            }
        }
        let probes = vocabulary.probes.iter().enumerate();
        let probes = probes.map(|(i, probe)| (Reader::new(probe), lookup_of_probe(i, probe, &terms, &mut sets)));
        let probes: Vec<_> = probes.collect();
        if fields.is_empty() && probes.is_empty() && vocabulary.shapes.is_empty() && !vocabulary.texts.is_empty() {
            // With rules of payload texts only, the intersection starts from a set of all alternatives.
            let field = Field::EtherType;
            fields.push((field, lookup(field.most(), &terms, |term| Some(term.set(field)), &mut sets)));
        }
        let lookups =
            vocabulary.shapes.into_iter().enumerate().map(|(i, shape)| bytes_lookup(i, shape, &terms, &mut sets));
        let lookups = lookups.collect();
        let texts = Search::new(&vocabulary.texts).map(|search| Texts::new(search, vocabulary.texts.len(), &terms));
        let Sets { data, summary, .. } = sets;
        Ok(Classifier {
            fields,
            probes,
            lookups,
            sets: data,
            summary,
            classes,
            texts,
            default: rules.len(),
            found: Vec::new(),
            bytes: Vec::new(),
        })
    }

    /// Whether any rule uses this field.
    pub(super) fn asks(&self, field: Field) -> bool {
        self.fields.iter().any(|(asked, _)| *asked == field)
    }

    /// The class of a frame: the index of its rule, or the number of rules if none matches.
    pub fn class(&mut self, frame: &[u8]) -> usize {
        let headers = Headers::outermost(frame);
        self.found.clear();
        let values = Values::of(headers.as_ref());
        for (field, lookup) in &self.fields {
            self.found.push(lookup.find(values.of_field(*field, frame)));
        }
        if !self.probes.is_empty() {
            self.look_into_layers(frame);
        }
        // Not a reference to the headers: it would keep them out of registers.
        let wanted = !self.lookups.is_empty() || self.texts.is_some();
        let payload = headers.as_ref().filter(|_| wanted).and_then(|headers| frame.get(headers.payload(frame)?));
        for lookup in &self.lookups {
            let set = if lookup.shape.read(frame, payload, &mut self.bytes) {
                lookup.sets.get(self.bytes.as_slice()).copied().unwrap_or(lookup.others)
            } else {
                lookup.absent
            };
            self.found.push(set);
        }
        let Some((first, rest)) = self.found.split_first() else { return self.default };
        let mut searched = false;
        for part in 0..self.summary {
            let bits = |offset: usize| {
                rest.iter()
                    .fold(self.sets[*first as usize + offset], |all, set| all & self.sets[*set as usize + offset])
            };
            let mut summary = bits(part);
            while summary != 0 {
                let word = part * 64 + summary.trailing_zeros() as usize;
                summary &= summary - 1;
                let mut terms = bits(self.summary + word);
                if let Some(texts) = &mut self.texts {
                    if !searched && terms & texts.asking[word] != 0 {
                        searched = true;
                        texts.look(frame, payload);
                    }
                    terms = texts.met(word, terms);
                }
                if terms != 0 {
                    return self.classes[word * 64 + terms.trailing_zeros() as usize] as usize;
                }
            }
        }
        self.default
    }

    /// Looks up the layers and fields of layers that rules test. A separate function, so that [`class`](Self::class)
    /// needs no stack space for the layers of a frame.
    #[inline(never)]
    fn look_into_layers(&mut self, frame: &[u8]) {
        let layers = Layers::of(frame);
        for (reader, lookup) in &self.probes {
            self.found.push(lookup.find(reader.read(frame, &layers)));
        }
    }
}

/// The field values of a frame.
pub(super) struct Values<'h> {
    headers: Option<&'h Headers>,
    ip: Option<&'h IpHeader>,
}

impl<'h> Values<'h> {
    pub(super) fn of(headers: Option<&'h Headers>) -> Self {
        Values { headers, ip: headers.and_then(|headers| headers.ip.as_ref()) }
    }

    pub(super) fn of_field(&self, field: Field, frame: &[u8]) -> Option<u128> {
        let address = |version, source: bool| {
            let Some(ip) = self.ip else {
                let (sender, target) = self.headers.filter(|_| version == 4)?.arp_addresses(frame)?;
                return Some(u128::from(if source { sender } else { target }));
            };
            if ip.version != version {
                return None;
            }
            let (from, to) = ip.addresses(frame)?;
            let bytes = if source { from } else { to };
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
        };
        let ports = || self.headers?.ports(frame);
        match field {
            Field::EtherType => self.headers.map(|headers| headers.ether_type.into()),
            Field::Protocol => self.ip.map(|ip| ip.protocol.into()),
            Field::Source4 => address(4, true),
            Field::Source6 => address(6, true),
            Field::Destination4 => address(4, false),
            Field::Destination6 => address(6, false),
            Field::SourcePort => ports().map(|(source, _)| source.into()),
            Field::DestinationPort => ports().map(|(_, destination)| destination.into()),
            Field::Vlan => self.headers.and_then(Headers::vlan).map(Into::into),
            Field::Dscp => self.ip.map(|ip| (ip.traffic_class >> 2).into()),
            Field::Flags => self.headers.and_then(|headers| headers.tcp_flags(frame)).map(Into::into),
        }
    }
}

impl Lookup {
    // The compiler does not inline this by itself: it has two call sites and runs once per field.
    #[inline(always)]
    fn find(&self, value: Option<u128>) -> u32 {
        match (self, value) {
            (Lookup::Table { absent, .. } | Lookup::Narrow { absent, .. } | Lookup::Wide { absent, .. }, None) => {
                *absent
            }
            (Lookup::Table { sets, .. }, Some(value)) => sets[value as usize],
            // The first start is 0, so the search always finds one.
            (Lookup::Narrow { starts, sets, .. }, Some(value)) => {
                sets[starts.partition_point(|start| *start <= value as u32) - 1]
            }
            (Lookup::Wide { starts, sets, .. }, Some(value)) => {
                sets[starts.partition_point(|start| *start <= value) - 1]
            }
        }
    }
}

/// Sets of alternatives during construction. Equal sets are stored once.
struct Sets {
    data: Vec<u64>,
    summary: usize,
    words: usize,
    known: HashMap<Vec<u64>, u32>,
}

impl Sets {
    fn new(terms: usize) -> Self {
        let words = terms.div_ceil(64).max(1);
        Sets { data: Vec::new(), summary: words.div_ceil(64), words, known: HashMap::new() }
    }

    fn empty(&self) -> Vec<u64> {
        vec![0; self.words]
    }

    /// Stores the set with these bits if it is new, and returns its position.
    fn keep(&mut self, bits: &[u64]) -> u32 {
        if let Some(at) = self.known.get(bits) {
            return *at;
        }
        let at = self.data.len() as u32;
        for part in bits.chunks(64) {
            let summary = part.iter().enumerate().map(|(i, word)| u64::from(*word != 0) << i);
            self.data.push(summary.fold(0, |all, bit| all | bit));
        }
        self.data.extend(bits);
        self.known.insert(bits.to_vec(), at);
        at
    }
}

/// The bits of all alternatives that satisfy `allows`.
fn bits<'t>(terms: &'t [Term], sets: &Sets, allows: impl Fn(&'t Term) -> bool) -> Vec<u64> {
    let mut bits = sets.empty();
    for (i, _) in terms.iter().enumerate().filter(|(_, term)| allows(term)) {
        bits[i / 64] |= 1 << (i % 64);
    }
    bits
}

fn lookup_of_probe(number: usize, probe: &Probe, terms: &[Term], sets: &mut Sets) -> Lookup {
    lookup(probe.most(), terms, |term| term.probes.get(&number).map(|(set, _)| set), sets)
}

/// Builds the lookup of a field with values up to `most`. `set` returns the values that a term allows; `None` allows
/// all.
fn lookup<'t>(most: u128, terms: &'t [Term], set: impl Fn(&'t Term) -> Option<&'t Set>, sets: &mut Sets) -> Lookup {
    let all = Set::all(most);
    let absent = bits(terms, sets, |term| set(term).is_none_or(|set| set.absent));
    let absent = sets.keep(&absent);
    // The values at which an alternative becomes allowed or forbidden, in ascending order.
    let mut changes: Vec<(u128, usize, bool)> = Vec::new();
    for (i, term) in terms.iter().enumerate() {
        let Set { ranges, .. } = set(term).unwrap_or(&all);
        for (from, to) in ranges {
            changes.push((*from, i, true));
            if *to < most {
                changes.push((to + 1, i, false));
            }
        }
    }
    changes.sort_unstable();
    let mut now = sets.empty();
    let mut starts = vec![0];
    let mut found = Vec::new();
    for (at, i, begins) in changes {
        if at != starts[starts.len() - 1] {
            found.push(sets.keep(&now));
            starts.push(at);
        }
        if begins {
            now[i / 64] |= 1 << (i % 64);
        } else {
            now[i / 64] &= !(1 << (i % 64));
        }
    }
    found.push(sets.keep(&now));
    if most <= 0xffff {
        let ends = starts[1..].iter().copied().chain([most + 1]);
        let lengths = starts.iter().zip(ends).map(|(start, end)| (end - start) as usize);
        let table = found.iter().zip(lengths).flat_map(|(set, length)| std::iter::repeat_n(*set, length));
        Lookup::Table { sets: table.collect(), absent }
    } else if most <= u128::from(u32::MAX) {
        Lookup::Narrow { starts: starts.into_iter().map(|start| start as u32).collect(), sets: found, absent }
    } else {
        Lookup::Wide { starts, sets: found, absent }
    }
}

fn bytes_lookup(number: usize, shape: Shape, terms: &[Term], sets: &mut Sets) -> BytesLookup {
    let allowed = |term: &Term, ask: &dyn Fn(&super::term::Bytes) -> bool| term.bytes.get(&number).is_none_or(ask);
    let absent = bits(terms, sets, |term| allowed(term, &|bytes| bytes.absent));
    let others = bits(terms, sets, |term| allowed(term, &|bytes| bytes.others));
    // The set of a single value differs from the default set by only a few bits.
    let mut asking: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (i, bytes) in terms.iter().enumerate().filter_map(|(i, term)| Some((i, term.bytes.get(&number)?))) {
        for value in &bytes.values {
            asking.entry(value).or_default().push(i);
        }
    }
    let mut found = HashMap::default();
    for (value, asking) in asking {
        let mut set = others.clone();
        for i in asking {
            let bit = 1 << (i % 64);
            let allows = terms[i].bytes.get(&number).is_none_or(|bytes| bytes.allows(value));
            if allows { set[i / 64] |= bit } else { set[i / 64] &= !bit }
        }
        found.insert(value.to_vec(), sets.keep(&set));
    }
    BytesLookup { shape, sets: found, others: sets.keep(&others), absent: sets.keep(&absent) }
}

impl Texts {
    fn new(search: Search, texts: usize, terms: &[Term]) -> Self {
        let words = terms.len().div_ceil(64).max(1);
        let (mut asking, mut excluding) = (vec![0; words], vec![0; words]);
        let mut first = vec![Vec::new(); texts];
        let mut wanted = HashMap::default();
        for (i, term) in terms.iter().enumerate().filter(|(_, term)| !term.texts.is_empty()) {
            asking[i / 64] |= 1 << (i % 64);
            match term.texts.iter().find(|(_, present)| **present) {
                Some((text, _)) => first[*text].push(i as u32),
                None => excluding[i / 64] |= 1 << (i % 64),
            }
            wanted.insert(i as u32, term.texts.iter().map(|(text, present)| (*text, *present)).collect());
        }
        Texts { search, asking, excluding, first, wanted, possible: Vec::new() }
    }

    /// Searches the payloads of a frame. `outermost` is the payload of the outermost packet, already located.
    fn look(&mut self, frame: &[u8], outermost: Option<&[u8]>) {
        self.search.run(frame, outermost);
        self.possible.clone_from(&self.excluding);
        for text in self.search.found() {
            for i in &self.first[*text] {
                self.possible[*i as usize / 64] |= 1 << (i % 64);
            }
        }
    }

    /// Returns the alternatives of `terms` whose texts match.
    fn met(&self, word: usize, terms: u64) -> u64 {
        let mut met = terms & !self.asking[word];
        if terms == met {
            return met;
        }
        let mut possible = terms & self.asking[word] & self.possible[word];
        while possible != 0 {
            let i = word * 64 + possible.trailing_zeros() as usize;
            let bit = possible & possible.wrapping_neg();
            possible ^= bit;
            // Only the first match counts.
            if met != 0 && met & (bit - 1) != 0 {
                break;
            }
            if self.wanted[&(i as u32)].iter().all(|(text, present)| self.search.has(*text) == *present) {
                met |= bit;
            }
        }
        met
    }
}

/// FNV-1a. The keys come from the rules and frames only look them up, so traffic cannot force collisions.
#[derive(Clone, Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let start = if self.0 == 0 { 0xcbf2_9ce4_8422_2325 } else { self.0 };
        self.0 = bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    }
}

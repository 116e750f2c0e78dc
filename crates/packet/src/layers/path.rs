use super::{Field, Layer, LayerKind, Layers};
use crate::key::Kind;
use std::fmt;
use units::{ParseError, nearest};

/// A field by name, and which of several with this name: `dport`, `vxlan vni`, `inner src`, `mpls#2 label`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath {
    level: Level,
    /// A protocol, and its number among layers of the same kind in this level, from 1.
    layer: Option<(LayerKind, u8)>,
    name: &'static str,
}

/// Which packet in nested tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Depth in tunnels; 0 is outermost.
    Nth(u8),
    /// The innermost packet.
    Innermost,
}

impl Level {
    /// The level in the walk; `None` if the frame has fewer levels.
    #[must_use]
    pub fn of(self, layers: &Layers) -> Option<u8> {
        match self {
            Level::Nth(level) => (level <= layers.deepest()).then_some(level),
            Level::Innermost => Some(layers.deepest()),
        }
    }

    /// Parses `inner` (repeated), `innermost` or `outer` at the start of the words. Also returns the number of words
    /// used.
    #[must_use]
    pub fn read(words: &[&str]) -> (Level, usize) {
        match words.first() {
            Some(&"innermost") => return (Level::Innermost, 1),
            Some(&"outer") => return (Level::Nth(0), 1),
            _ => {}
        }
        let inner = words.iter().take_while(|word| **word == "inner").count();
        (Level::Nth(inner.min(usize::from(u8::MAX)) as u8), inner)
    }
}

impl fmt::Display for Level {
    /// Ends with a space unless empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Nth(level) => (0..*level).try_for_each(|_| f.write_str("inner ")),
            Level::Innermost => f.write_str("innermost "),
        }
    }
}

/// A protocol, and its number among layers of the same kind, from 1: `mpls`, `mpls#2`. `None` for other words.
#[must_use]
pub fn read_layer(word: &str) -> Option<(LayerKind, u8)> {
    let (name, number) = match word.split_once('#') {
        Some((name, number)) => (name, number.parse().ok().filter(|number| *number > 0)?),
        None => (word, 1),
    };
    Some((LayerKind::named(name)?, number))
}

/// Refuses a number above 1 for a protocol that a packet has only once: the second one is in a tunnel.
///
/// # Errors
/// The number is not possible; the error names the spelling for the packet in the tunnel.
pub fn can_be((kind, number): (LayerKind, u8)) -> Result<(), ParseError> {
    if number == 1 || recurs(kind) {
        return Ok(());
    }
    let name = kind.name();
    Err(ParseError::new(
        format!("'{name}#{number}' is nowhere: a packet has one {name}"),
        format!("write '{}{name}' for that of the packet in a tunnel", "inner ".repeat(usize::from(number) - 1)),
    ))
}

/// Whether a protocol can occur twice in one packet, adjacent or not.
fn recurs(kind: LayerKind) -> bool {
    let is_packet = |kind: LayerKind| matches!(kind, LayerKind::Ethernet | LayerKind::Ipv4 | LayerKind::Ipv6);
    let (mut seen, mut open) = (Vec::new(), vec![kind]);
    while let Some(below) = open.pop() {
        for above in LayerKind::ALL.iter().copied().filter(|above| !is_packet(*above)) {
            let description = below.description();
            if !seen.contains(&above) && (description.announce)(&mut description.header.to_vec(), above) {
                seen.push(above);
                open.push(above);
            }
        }
    }
    seen.contains(&kind)
}

impl FieldPath {
    /// The field with this name in the outermost layer of the level that has one.
    #[must_use]
    pub fn bare(level: Level, name: &str) -> Option<FieldPath> {
        let fields = LayerKind::ALL.iter().flat_map(|kind| kind.description().fields);
        let field = fields.into_iter().find(|field| field.bare && field.name == name)?;
        Some(FieldPath { level, layer: None, name: field.name })
    }

    /// A field of this protocol, in the `number`-th layer of its kind.
    #[must_use]
    pub fn of_layer(level: Level, (kind, number): (LayerKind, u8), name: &str) -> Option<FieldPath> {
        kind.field(name).map(|field| FieldPath { level, layer: Some((kind, number)), name: field.name })
    }

    /// Parses a path at the start of the words of `text`. Also returns the number of words used.
    ///
    /// # Errors
    /// There is no such field; the error names the column of the word.
    pub fn read(text: &str, words: &[&str]) -> Result<(FieldPath, usize), ParseError> {
        let (level, mut used) = Level::read(words);
        let Some(word) = words.get(used) else {
            return Err(ParseError::new(format!("'{text}' names no field"), "write a field, as in vxlan vni"));
        };
        used += 1;
        let Some(layer) = read_layer(word) else {
            return match FieldPath::bare(level, word) {
                Some(path) => Ok((path, used)),
                None => Err(unknown(text, word)),
            };
        };
        can_be(layer)?;
        let fields = layer.0.description().fields;
        let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        let Some(word) = words.get(used) else {
            let how = format!("write {word} and one of {}", names.join(", "));
            return Err(ParseError::new(
                format!("'{word}' has no field after it (column {})", end_of(text, word)),
                how,
            ));
        };
        match FieldPath::of_layer(level, layer, word) {
            Some(path) => Ok((path, used + 1)),
            None => {
                let what = format!("{} has no field '{word}' (column {})", layer.0.name(), column(text, word));
                let how = match nearest(word, &names) {
                    Some(name) => format!("write {name}"),
                    None => format!("write one of {}", names.join(", ")),
                };
                Err(ParseError::new(what, how))
            }
        }
    }

    /// The fields that this path can mean: one for each protocol with a field of this name.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> + '_ {
        let kinds = LayerKind::ALL.iter().filter(|kind| self.layer.is_none_or(|(wanted, _)| wanted == **kind));
        let fields = kinds.flat_map(|kind| kind.description().fields);
        fields.filter(|field| field.name == self.name && (field.bare || self.layer.is_some()))
    }

    /// How its values are written.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.fields().next().map_or(Kind::Number(0), |field| field.kind)
    }

    /// Width in bits of the widest field that this path can mean.
    #[must_use]
    pub fn width(&self) -> u16 {
        self.fields().map(Field::width).max().unwrap_or(0)
    }

    /// Which packet in nested tunnels.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The protocol in the path, and its number among layers of the same kind, from 1.
    #[must_use]
    pub fn layer(&self) -> Option<(LayerKind, u8)> {
        self.layer
    }

    /// The same field in another packet.
    #[must_use]
    pub fn in_level(self, level: Level) -> FieldPath {
        FieldPath { level, ..self }
    }

    /// The name of the field.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The number of the layer that has the field, and the field; `None` if the frame has no such field.
    #[must_use]
    pub fn find(&self, frame: &[u8], layers: &Layers) -> Option<(usize, &'static Field)> {
        let level = self.level.of(layers)?;
        let mut number = 0;
        layers.all().iter().enumerate().filter(|(_, layer)| layer.level == level).find_map(|(of, layer)| {
            if let Some((kind, wanted)) = self.layer {
                number += u8::from(layer.kind == kind);
                if layer.kind != kind || number != wanted {
                    return None;
                }
            }
            let field = layer.kind.field(self.name).filter(|field| field.bare || self.layer.is_some())?;
            field.offset(layer.header(frame)).map(|_| (of, field))
        })
    }
}

/// Finds a field in many frames: resolves the names of the path once, on creation.
#[derive(Clone, Debug)]
pub struct FieldFinder {
    level: Level,
    /// The number among layers of the same kind, if the path names a protocol.
    number: Option<u8>,
    /// The field of each protocol, in the order of [`LayerKind::ALL`].
    fields: [Option<&'static Field>; LayerKind::ALL.len()],
}

impl FieldFinder {
    /// Prepares to find the field of this path.
    #[must_use]
    pub fn new(path: &FieldPath) -> FieldFinder {
        let mut fields = [None; LayerKind::ALL.len()];
        for kind in LayerKind::ALL {
            let named = path.layer.is_none_or(|(wanted, _)| wanted == *kind);
            fields[*kind as usize] =
                kind.field(path.name).filter(|field| named && (field.bare || path.layer.is_some()));
        }
        FieldFinder { level: path.level, number: path.layer.map(|(_, number)| number), fields }
    }

    /// As [`FieldPath::find`], with the layer itself.
    #[must_use]
    pub fn find<'l>(&self, frame: &[u8], layers: &'l Layers) -> Option<(&'l Layer, &'static Field)> {
        let level = self.level.of(layers)?;
        let mut number = 0;
        layers.level(level).find_map(|layer| {
            let field = self.fields[layer.kind as usize]?;
            number += 1;
            if self.number.is_some_and(|wanted| wanted != number) {
                return None;
            }
            field.offset(layer.header(frame)).map(|_| (layer, field))
        })
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)?;
        match self.layer {
            Some((kind, 1)) => write!(f, "{} ", kind.name())?,
            Some((kind, number)) => write!(f, "{}#{number} ", kind.name())?,
            None => {}
        }
        f.write_str(self.name)
    }
}

fn unknown(text: &str, word: &str) -> ParseError {
    let what = format!("'{word}' is neither a field nor a protocol (column {})", column(text, word));
    let bare = LayerKind::ALL.iter().flat_map(|kind| kind.description().fields).filter(|field| field.bare);
    let names: Vec<&str> = bare.map(|field| field.name).chain(LayerKind::ALL.iter().map(|kind| kind.name())).collect();
    let how = match nearest(word, &names) {
        Some(name) => format!("write {name}"),
        None => "write a field, or a protocol and its field: 'netlathe help layers' lists them".to_owned(),
    };
    ParseError::new(what, how)
}

/// The column of a word in a text, from 1.
fn column(text: &str, word: &str) -> usize {
    let starts = text.match_indices(word).map(|(at, _)| at);
    let whole = |at: &usize| {
        let before = text[..*at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        before.is_none_or(char::is_whitespace) && behind.is_none_or(|c| c.is_whitespace() || c == '>')
    };
    starts.into_iter().find(whole).map_or(1, |at| text[..at].chars().count() + 1)
}

fn end_of(text: &str, word: &str) -> usize {
    column(text, word) + word.chars().count()
}

#[cfg(test)]
mod tests {
    use super::super::stack;
    use super::*;
    use LayerKind::{Ethernet, Ipv4, Mpls, Tcp, Udp, Vxlan};

    fn read(text: &str) -> Result<FieldPath, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        FieldPath::read(text, &words).map(|(path, used)| {
            assert_eq!(used, words.len(), "{text}");
            path
        })
    }

    #[test]
    fn paths_find_their_layers_and_print_as_they_read() {
        let frame = stack(&[Ethernet, Mpls, Mpls, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Tcp], b"x").expect("a stack");
        let layers = Layers::of(&frame);
        for (text, of) in [
            ("dmac", Some(0)),
            ("mpls label", Some(1)),
            ("mpls#2 label", Some(2)),
            ("mpls#3 label", None),
            ("src", Some(3)),
            ("ip ttl", Some(3)),
            ("ttl", Some(3)),
            ("dport", Some(4)),
            ("udp length", Some(4)),
            ("vni", Some(5)),
            ("vxlan vni", Some(5)),
            ("inner dmac", Some(6)),
            ("inner src", Some(7)),
            ("inner dport", Some(8)),
            ("innermost tcp flags", Some(8)),
            ("inner inner dport", None),
            ("tcp flags", None),
            ("inner vni", None),
            ("outer src", Some(3)),
            ("outer vxlan vni", Some(5)),
        ] {
            let path = read(text).expect(text);
            assert_eq!(path.find(&frame, &layers).map(|(of, _)| of), of, "{text}");
            let found = FieldFinder::new(&path).find(&frame, &layers);
            assert_eq!(found.map(|(layer, _)| layer), of.map(|of| &layers.all()[of]), "{text}");
            assert_eq!(path.to_string(), text.trim_start_matches("outer "));
        }
    }

    /// A rule with a number for any other protocol would silently match no frame.
    #[test]
    fn numbers_are_of_protocols_that_follow_themselves() {
        let numbered = |kind: &LayerKind| can_be((*kind, 2)).is_ok();
        let names: Vec<&str> = LayerKind::ALL.iter().filter(|kind| numbered(kind)).map(|kind| kind.name()).collect();
        assert_eq!(names.join(" "), "vlan mpls hop-by-hop routing srv6 fragment dest-options ah");
    }

    #[test]
    fn bad_paths_say_where() {
        for (text, what) in [
            ("inner vxlan vnl", "vxlan has no field 'vnl' (column 13): write vni"),
            ("vxlan", "'vxlan' has no field after it (column 6): write vxlan and one of flags, group, vni"),
            ("inner dprot", "'dprot' is neither a field nor a protocol (column 7): write dport"),
            ("inner", "'inner' names no field: write a field, as in vxlan vni"),
            ("ip#2 ttl", "'ip#2' is nowhere: a packet has one ip: write 'inner ip' for that of the packet in a tunnel"),
            (
                "udp#3 dport",
                "'udp#3' is nowhere: a packet has one udp: write 'inner inner udp' for that of the packet in a tunnel",
            ),
        ] {
            assert_eq!(read(text).map_err(|error| error.to_string()), Err(what.to_owned()));
        }
    }
}

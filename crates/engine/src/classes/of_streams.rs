//! Which class the frames of a stream are of.

use super::Rule;
use super::classifier::{Classifier, MOST_TERMS, Values as Found};
use super::reach::PARTS;
use super::set::Set;
use super::term::{Field, Term, terms};
use crate::sources::{StreamSpec, Streams, Values};
use packet::{Frame, Headers, HeapFrame, Key};

/// The class of each stream's frames by `rules`, counted as [`Classifier::class`] counts. `None` if it cannot be told, or
/// if frames of one stream are of several.
#[must_use]
pub fn classes_of_streams(specs: &[StreamSpec], rules: &[&Rule]) -> Option<Vec<usize>> {
    let (terms, vocabulary) = terms(rules, MOST_TERMS)?;
    // What is at a place of a frame, or carried, may be the stamp's.
    if !vocabulary.shapes.is_empty() || !vocabulary.texts.is_empty() {
        return None;
    }
    let mut classifier = Classifier::new(rules).ok()?;
    let mut frame = HeapFrame::default();
    let class = |spec: &StreamSpec| {
        Streams::new(std::slice::from_ref(spec), 0, 0).ok()?.fill(&mut frame);
        let first = classifier.class(frame.bytes());
        let stays = !varying(spec).any(|(key, _)| fields(key).iter().any(|field| classifier.asks(*field)));
        if stays { Some(first) } else { only_class(&term(spec, frame.bytes())?, &terms) }
    };
    specs.iter().map(class).collect()
}

/// The fields that take several values.
fn varying(spec: &StreamSpec) -> impl Iterator<Item = (Key, &Values)> {
    spec.fields.iter().filter(|(_, values)| values.only().is_none()).map(|(key, values)| (*key, values))
}

/// What rules may see of a field.
fn fields(key: Key) -> &'static [Field] {
    match key {
        Key::Source => &[Field::Source4, Field::Source6],
        Key::Destination => &[Field::Destination4, Field::Destination6],
        Key::Sport => &[Field::SourcePort],
        Key::Dport => &[Field::DestinationPort],
        Key::Vlan | Key::Svlan => &[Field::Vlan],
        Key::Dscp => &[Field::Dscp],
        Key::Flags => &[Field::Flags],
        // What follows is another header.
        Key::EtherType | Key::Proto => &Field::ALL,
        _ => &[],
    }
}

/// The frames of a stream, of which `frame` is one. `None` if they differ in more than values.
fn term(spec: &StreamSpec, frame: &[u8]) -> Option<Term> {
    let headers = Headers::of(frame);
    let found = Found::of(frame, headers.as_ref());
    let mut term = Term::everything();
    for field in Field::ALL {
        let value = found.of_field(field, frame);
        term.limit(field, &Set { absent: value.is_none(), ..Set::of(value.map(|value| (value, value))) });
    }
    for (key, values) in varying(spec) {
        match fields(key) {
            [] => {}
            // A rule sees the outer one of two tags.
            [Field::Vlan] if headers.is_some_and(|headers| headers.tags[1].is_some()) => return None,
            fields if fields.len() == Field::ALL.len() => return None,
            fields => {
                for field in fields.iter().filter(|field| found.of_field(**field, frame).is_some()) {
                    term.replace(*field, Set::of(values.parts.iter().copied()));
                }
            }
        }
    }
    Some(term)
}

/// The class that all frames of a term are of.
fn only_class(term: &Term, rules: &[Vec<Term>]) -> Option<usize> {
    let mut parts = vec![term.clone()];
    let mut only = None;
    for (class, terms) in rules.iter().enumerate() {
        for term in terms {
            if !parts.iter().any(|part| part.meets(term)) {
                continue;
            }
            if only.is_some_and(|only| only != class) {
                return None;
            }
            only = Some(class);
            parts = parts
                .iter()
                .flat_map(|part| if part.meets(term) { part.without(term) } else { vec![part.clone()] })
                .collect();
            if parts.len() > PARTS {
                return None;
            }
        }
    }
    match only {
        Some(class) => parts.is_empty().then_some(class),
        None => Some(rules.len()),
    }
}

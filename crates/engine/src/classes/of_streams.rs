//! Predicts the class of a stream's frames.

use super::Rule;
use super::classifier::{Classifier, MOST_TERMS, Values as Found};
use super::reach::PARTS;
use super::set::Set;
use super::term::{Field, Term, terms};
use crate::sources::{StreamSpec, Streams, Values};
use packet::{Frame, Headers, HeapFrame, Key};

/// The class of each stream's frames under `rules`, numbered as in [`Classifier::class`]. `None` if it cannot be
/// predicted, or if frames of one stream fall into several classes.
#[must_use]
pub fn classes_of_streams(specs: &[StreamSpec], rules: &[&Rule]) -> Option<Vec<usize>> {
    let (terms, vocabulary) = terms(rules, MOST_TERMS)?;
    // The stamp may change bytes that a rule compares, or the payload. The payload may look like a tunnel that a rule
    // tests for.
    if !vocabulary.shapes.is_empty() || !vocabulary.texts.is_empty() || !vocabulary.probes.is_empty() {
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

/// The fields of a stream with more than one value.
fn varying(spec: &StreamSpec) -> impl Iterator<Item = (Key, &Values)> {
    spec.fields.iter().filter(|(_, values)| values.only().is_none()).map(|(key, values)| (*key, values))
}

/// The rule fields that this stream field affects.
fn fields(key: Key) -> &'static [Field] {
    match key {
        Key::Source => &[Field::Source4, Field::Source6],
        Key::Destination => &[Field::Destination4, Field::Destination6],
        Key::Sport => &[Field::SourcePort],
        Key::Dport => &[Field::DestinationPort],
        Key::Vlan | Key::Svlan => &[Field::Vlan],
        Key::Dscp => &[Field::Dscp],
        Key::Flags => &[Field::Flags],
        // These change the next header.
        Key::EtherType | Key::Proto => &Field::ALL,
        _ => &[],
    }
}

/// The frames of a stream as a term, derived from one of them. `None` if they differ in more than field values.
fn term(spec: &StreamSpec, frame: &[u8]) -> Option<Term> {
    let headers = Headers::outermost(frame);
    let found = Found::of(headers.as_ref());
    let mut term = Term::everything();
    for field in Field::ALL {
        let value = found.of_field(field, frame);
        term.limit(field, &Set { absent: value.is_none(), ..Set::of(value.map(|value| (value, value))) });
    }
    for (key, values) in varying(spec) {
        match fields(key) {
            [] => {}
            // Rules match the outer of two tags.
            [Field::Vlan] if headers.is_some_and(|headers| headers.tags[1].is_some()) => return None,
            fields if fields.len() == Field::ALL.len() => return None,
            fields => {
                for field in fields.iter().filter(|field| found.of_field(**field, frame).is_some()) {
                    term.replace(*field, Set::of(values.parts.iter().map(|(a, b)| (*a.min(b), *a.max(b)))));
                }
            }
        }
    }
    Some(term)
}

/// The class of all frames of a term, if there is only one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{Payload, StreamSpec};
    use packet::Protocol;

    /// UDP from port 1 to port 53, with these fields replaced or added.
    fn udp(fields: &[(Key, &[(u128, u128)])]) -> StreamSpec {
        let values = |parts: &[(u128, u128)]| Values { parts: parts.to_vec(), step: 1, random: false };
        let mut spec = StreamSpec::made(Protocol::Udp, false);
        let mut all: Vec<(Key, &[(u128, u128)])> = vec![(Key::Sport, &[(1, 1)]), (Key::Dport, &[(53, 53)])];
        all.retain(|(key, _)| fields.iter().all(|(other, _)| other != key));
        spec.fields = all.iter().chain(fields).map(|(key, parts)| (*key, values(parts))).collect();
        spec
    }

    #[test]
    fn gives_a_stream_the_class_that_all_its_frames_share() {
        type Fields = &'static [(Key, &'static [(u128, u128)])];
        let rules = ["dport 53", "udp dport 80-99 sport 1-9", "src 10.0.0.0/8", "vlan 5"];
        let rules = rules.map(|rule| rule.parse::<Rule>().expect(rule));
        let rules: Vec<&Rule> = rules.iter().collect();
        let cases: &[(Fields, Option<usize>)] = &[
            (&[], Some(0)),
            (&[(Key::Ttl, &[(1, 9)]), (Key::Dmac, &[(0, 99)])], Some(0)),
            (&[(Key::Dport, &[(80, 85), (90, 90)])], Some(1)),
            (&[(Key::Dport, &[(53, 53), (80, 80)])], None),
            (&[(Key::Dport, &[(80, 100)])], None),
            (&[(Key::Dport, &[(80, 90)]), (Key::Sport, &[(5, 20)])], None),
            (&[(Key::Dport, &[(80, 90)]), (Key::Sport, &[(10, 20)])], Some(4)),
            (&[(Key::Dport, &[(100, 200)])], Some(4)),
            (&[(Key::Dport, &[(100, 200)]), (Key::Source, &[(0x0a00_0000, 0x0a00_ffff)])], Some(2)),
            (&[(Key::Dport, &[(7, 7)]), (Key::Source, &[(0x0a00_0000, 0x0b00_0000)])], None),
            (&[(Key::Dport, &[(7, 7)]), (Key::Vlan, &[(5, 6)])], None),
            (&[(Key::Dport, &[(7, 7)]), (Key::Vlan, &[(6, 9)])], Some(4)),
            // Rules match only the outer of two tags; the stream may vary the inner one.
            (&[(Key::Dport, &[(7, 7)]), (Key::Vlan, &[(6, 9)]), (Key::Svlan, &[(5, 5)])], None),
        ];
        for (fields, class) in cases {
            let found = classes_of_streams(&[udp(fields)], &rules);
            assert_eq!(found, class.map(|class| vec![class]), "{fields:?}");
        }
        let all = [udp(&[]), udp(&[(Key::Dport, &[(53, 80)])])];
        assert_eq!(classes_of_streams(&all, &rules), None, "one of several is enough");
    }

    #[test]
    fn does_not_predict_rules_on_bytes_or_payload() {
        let mut spec = udp(&[]);
        spec.payload = Some(Payload::Bytes(b"GET".to_vec()));
        let rule: Rule = "payload \"GET\"".parse().expect("a rule");
        assert_eq!(classes_of_streams(&[spec], &[&rule]), None);
    }
}

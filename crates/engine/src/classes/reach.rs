//! Checks whether any frame can reach a rule.

use super::term::Term;

/// Maximum number of parts of a rule that remain after subtracting the rules before it. Above this the rule counts as
/// reachable.
pub(super) const PARTS: usize = 4_096;

/// Why no frame reaches a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreachable {
    /// Its conditions exclude each other.
    Contradiction,
    /// The rules with these indices match all its frames.
    Taken(Vec<usize>),
}

/// Why no frame reaches rule `number`; `None` if a frame may reach it. Never reports a reachable rule. May miss an
/// unreachable rule that earlier rules cut into more than [`PARTS`] parts.
pub(super) fn unreachable(rules: &[Vec<Term>], number: usize) -> Option<Unreachable> {
    let mut parts = rules[number].clone();
    if parts.is_empty() {
        return Some(Unreachable::Contradiction);
    }
    let mut by = Vec::new();
    for (earlier, terms) in rules[..number].iter().enumerate() {
        for term in terms {
            if !parts.iter().any(|part| part.meets(term)) {
                continue;
            }
            if by.last() != Some(&earlier) {
                by.push(earlier);
            }
            parts = parts
                .iter()
                .flat_map(|part| if part.meets(term) { part.without(term) } else { vec![part.clone()] })
                .collect();
            if parts.is_empty() {
                return Some(Unreachable::Taken(by));
            }
            if parts.len() > PARTS {
                return None;
            }
        }
    }
    None
}

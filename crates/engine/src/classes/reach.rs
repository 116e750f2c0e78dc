//! Whether any frame ever reaches a rule.

use super::term::Term;

/// Parts of a rule that are kept while the rules before it are taken away; with more, the rule counts
/// as reachable.
pub(super) const PARTS: usize = 4_096;

/// Why no frame reaches a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreachable {
    /// Its conditions exclude each other.
    Contradiction,
    /// The rules with these numbers take all its frames.
    Taken(Vec<usize>),
}

/// Why rule `number` is reached by no frame; `None` if some may reach it. Never wrong about a rule that
/// is reached; a rule that is cut into very many parts by those before it may pass unnoticed.
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

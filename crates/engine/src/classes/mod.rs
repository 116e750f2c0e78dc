//! Classes: assign frames to classes by their headers and bytes.
//!
//! Users write a [`Rule`]. A [`Classifier`] compiles the rules of all classes and returns, for each frame, the first
//! class whose rule matches. Its cost hardly grows with the number of rules, see [`Classifier`]. It refuses rules that
//! no frame can reach.

mod classifier;
mod grammar;
mod of_streams;
mod probe;
mod reach;
mod rule;
mod search;
mod set;
mod term;

pub use classifier::{Classifier, Unusable};
pub(crate) use grammar::code_point;
pub use of_streams::classes_of_streams;
pub use rule::{Condition, FieldValues, Fields, Prefix, Rule, Side, Test};

#[cfg(test)]
mod tests;

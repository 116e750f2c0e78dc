//! Classes: which frames belong together, by what is in their headers and bytes.
//!
//! A [`Rule`] is what people write; a [`Classifier`] is made of the rules of all classes and tells of
//! each frame the first class whose rule it meets. Its cost hardly grows with the number of rules, see
//! [`Classifier`]. Rules that no frame can ever reach are refused when it is made.

mod classifier;
mod grammar;
mod of_streams;
mod reach;
mod rule;
mod search;
mod set;
mod term;

pub use classifier::{Classifier, Unusable};
pub(crate) use grammar::code_point;
pub use of_streams::classes_of_streams;
pub use rule::{Condition, Prefix, Rule, Side, Test};

#[cfg(test)]
mod tests;

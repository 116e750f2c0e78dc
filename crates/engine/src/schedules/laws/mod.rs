//! Laws of gaps: from which distribution inter-departure times are drawn.
//!
//! A law is one file with its documentation, grammar and distribution functions, and one line in
//! the list below. A [`GapLaw`] says where a law lies on the axis of time and how it is drawn from;
//! its [`Placed`] law answers every question about the distribution of the gaps.
//!
//! All arithmetic is that of [`measure::special`]: the same to the bit on every machine.

mod copula;
mod gap_law;
mod placed;
mod sampler;
mod schedule;
mod strata;
mod values;
mod words;

pub use gap_law::{Correlation, Edges, GapLaw, Sampling};
pub use placed::Placed;
pub(crate) use sampler::Sampler;
pub use schedule::LawSchedule;
pub use table::TableFile;
pub use values::{Distribution, Values};

use crate::Kind;
use measure::special::Probability;
use std::fmt;
use units::ParseError;
pub(crate) use words::{Words, as_word};

/// How a law is written. Implemented by each law.
trait Grammar: Shape + Sized {
    const KIND: Kind;

    /// Reads its parameters, which follow the name.
    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError>;
}

/// A distribution, in a unit of its own: picoseconds where its parameters are times.
trait Shape: fmt::Display {
    /// P(X ≤ x) and P(X > x).
    fn cdf(&self, x: f64) -> Probability;

    /// P(X < x) and P(X ≥ x): another than [`Shape::cdf`] where single values have a probability.
    fn strictly(&self, x: f64) -> Probability {
        self.cdf(x)
    }

    /// The least x of which P(X ≤ x) is at least that.
    fn quantile(&self, p: Probability) -> f64;

    /// The mean and the standard deviation, where they exist.
    fn moments(&self) -> (Option<f64>, Option<f64>);

    /// Its parameters are times, so that it lies on the axis of time without being placed.
    fn is_timed(&self) -> bool {
        false
    }

    /// A mean alone places it: it starts at zero and is scaled.
    fn is_scaled_by_mean(&self) -> bool {
        false
    }

    /// Its values are the integers from 0.
    fn is_discrete(&self) -> bool {
        false
    }

    /// Its quantile is about as fast as a look into a table.
    fn is_fast(&self) -> bool {
        false
    }
}

/// From the list of laws: modules, the enum of distributions, its grammar and the kinds.
macro_rules! laws {
    ($($module:ident :: $law:ident,)*) => {
        $(mod $module;)*
        $(pub use $module::$law;)*

        /// A distribution with its parameters.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Law {
            $(#[expect(missing_docs, reason = "each law documents itself")] $law($law),)*
        }

        impl Law {
            /// Every kind of law.
            pub const KINDS: &'static [Kind] = &[$($law::KIND),*];

            /// Reads a law's name and parameters; `None` if the first word names none.
            fn parse(words: &mut Words<'_>) -> Option<Result<Self, ParseError>> {
                $(if words.take($law::KIND.name) {
                    return Some($law::parse(words).map(Law::$law));
                })*
                None
            }

            /// What it is called, and how it is written.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self {
                    $(Law::$law(_) => $law::KIND,)*
                }
            }

            fn shape(&self) -> &dyn Shape {
                match self {
                    $(Law::$law(law) => law,)*
                }
            }
        }

        impl fmt::Display for Law {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.shape().fmt(f)
            }
        }
    };
}

laws! {
    uniform::Uniform,
    normal::Normal,
    chi2::Chi2,
    poisson::Poisson,
    exp::Exponential,
    pareto::Pareto,
    lognormal::LogNormal,
    gamma::Gamma,
    table::Table,
}

#[cfg(test)]
mod tests;

//! Laws of gaps: the distributions of inter-departure times.
//!
//! Each law has a file with its documentation, grammar and distribution functions, and a line in the list below. A
//! [`GapLaw`] adds the position in time and the sampling. Its [`GapDistribution`] is the distribution of the gaps.
//!
//! All arithmetic uses [`measure::special`], which gives identical bits on every machine.

mod copula;
mod gap_distribution;
mod gap_law;
mod sampler;
mod schedule;
mod strata;
mod values;
mod words;

pub use gap_distribution::GapDistribution;
pub use gap_law::{Correlation, Edges, GapLaw, Sampling};
pub(crate) use sampler::Sampler;
pub use schedule::LawSchedule;
pub use table::TableFile;
pub use values::{Distribution, Values};

use crate::Kind;
use measure::special::Probability;
use std::fmt;
use units::ParseError;
pub(crate) use words::{Words, as_word};

/// The grammar of a law. Each law implements it.
trait Grammar: Shape + Sized {
    const KIND: Kind;

    /// Parses the parameters after the name.
    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError>;
}

/// A distribution in its own unit: picoseconds if its parameters are times.
trait Shape: fmt::Display {
    /// P(X ≤ x) and P(X > x).
    fn cdf(&self, x: f64) -> Probability;

    /// P(X < x) and P(X ≥ x). Differs from [`Shape::cdf`] if single values have a probability.
    fn strictly(&self, x: f64) -> Probability {
        self.cdf(x)
    }

    /// The smallest x with P(X ≤ x) at least `p`.
    fn quantile(&self, p: Probability) -> f64;

    /// The mean and standard deviation, if they exist.
    fn moments(&self) -> (Option<f64>, Option<f64>);

    /// True if the parameters are times. The law then needs no mean, deviation or range.
    fn is_timed(&self) -> bool {
        false
    }

    /// True if a mean alone determines the scale: the law starts at zero.
    fn is_scaled_by_mean(&self) -> bool {
        false
    }

    /// True if the values are the integers from 0.
    fn is_discrete(&self) -> bool {
        false
    }

    /// True if the quantile is about as fast as a table lookup.
    fn is_fast(&self) -> bool {
        false
    }
}

/// Expands the list of laws to modules, the enum of distributions, its grammar and the kinds.
macro_rules! laws {
    ($($module:ident :: $law:ident,)*) => {
        $(mod $module;)*
        $(pub use $module::$law;)*

        /// A distribution and its parameters.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Law {
            $(#[expect(missing_docs, reason = "each law documents itself")] $law($law),)*
        }

        impl Law {
            /// Every kind of law.
            pub const KINDS: &'static [Kind] = &[$($law::KIND),*];

            /// Parses the name and parameters of a law. `None` if the first word is not the name of a law.
            fn parse(words: &mut Words<'_>) -> Option<Result<Self, ParseError>> {
                $(if words.take($law::KIND.name) {
                    return Some($law::parse(words).map(Law::$law));
                })*
                None
            }

            /// The name and syntax.
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

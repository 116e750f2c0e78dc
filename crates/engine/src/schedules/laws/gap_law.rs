use super::{GapDistribution, Law, Words};
use crate::schedules::Files;
use std::fmt;
use units::{ParseError, Share, Span};

/// A law of gaps as configured: the distribution, its position in time, its limits and the sampling.
#[derive(Clone, Debug, PartialEq)]
pub struct GapLaw {
    /// The distribution.
    pub law: Law,
    /// Shifts the law to this mean.
    pub mean: Option<Span>,
    /// Scales the law to this standard deviation.
    pub sd: Option<Span>,
    /// Maps the law onto this range.
    pub within: Option<(Span, Span)>,
    /// How to treat values outside a range.
    pub edges: Option<Edges>,
    /// The share that is cut off at each end if the law is mapped onto a range; also the position of the outer bins of
    /// a fit.
    pub tail: Share,
    /// How values are drawn.
    pub sampling: Sampling,
    /// Pearson's correlation of each gap with the next one.
    pub correlation: Option<Correlation>,
    /// Gaps run from the end of a frame (its FCS) to the start of the next, not from start to start.
    pub idle: bool,
}

/// How to treat values outside a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// Draw them again.
    Clip(Span, Span),
    /// Replace them by the nearest value inside.
    Saturate(Span, Span),
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// Independently.
    #[default]
    Independent,
    /// Stratified: one value from each of as many equally likely strata as there are gaps, in random order.
    Stratified,
}

/// A correlation in parts per billion, from −1 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correlation(i32);

impl Correlation {
    /// A correlation from parts per billion.
    pub const fn of_share(share: Share) -> Self {
        Correlation(share.ppb().cast_signed())
    }

    /// The correlation as a fraction.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Share::ONE.ppb())
    }

    /// Parses `25%` or `-25%`.
    ///
    /// # Errors
    /// The text is not a share.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        let (size, sign) = text.strip_prefix('-').map_or((text, 1), |size| (size, -1));
        let share: Share = size.parse()?;
        Ok(Correlation(sign * share.ppb().cast_signed()))
    }
}

impl fmt::Display for Correlation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.0 < 0 { "-" } else { "" }, Share::from_ppb(self.0.unsigned_abs()))
    }
}

/// The default share that is cut off at each end: 1e-4.
const TAIL: Share = Share::from_ppb(100_000);

impl GapLaw {
    /// Parses a law. `None` if the first word is not the name of a law.
    ///
    /// Checks that depend on the values of a table happen in [`GapLaw::distribution`], after the table is read.
    ///
    /// # Errors
    /// Words outside the grammar, or an impossible law.
    pub fn parse(text: &str) -> Option<Result<Self, ParseError>> {
        let mut words = Words::of(text);
        let law = Law::parse(&mut words)?;
        Some(law.and_then(|law| Self::with_options(law, &mut words)))
    }

    fn with_options(law: Law, words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut gap = GapLaw {
            law,
            mean: None,
            sd: None,
            within: None,
            edges: None,
            tail: TAIL,
            sampling: Sampling::Independent,
            correlation: None,
            idle: false,
        };
        let mut seen: Vec<&str> = Vec::new();
        while let Some(word) = words.next() {
            if seen.contains(&word) {
                return Err(ParseError::new(format!("'{word}' is given twice"), "leave one out"));
            }
            seen.push(word);
            match word {
                "mean" => gap.mean = Some(words.time(word)?),
                "sd" => gap.sd = Some(words.time(word)?),
                "in" => gap.within = Some(words.range(word)?),
                "clip" | "saturate" if gap.edges.is_some() => {
                    return Err(ParseError::new(
                        "clip and saturate both decide what happens outside the range",
                        "leave one out",
                    ));
                }
                "clip" => gap.edges = Some(words.range(word).map(|(a, b)| Edges::Clip(a, b))?),
                "saturate" => gap.edges = Some(words.range(word).map(|(a, b)| Edges::Saturate(a, b))?),
                "tail" => gap.tail = tail(words)?,
                "sampling" => gap.sampling = sampling(words)?,
                "corr" => gap.correlation = Some(Correlation::parse(words.next().unwrap_or_default())?),
                "idle" => gap.idle = true,
                time if time.starts_with(|c: char| c.is_ascii_digit()) => {
                    let example = gap.law.kind().example;
                    return Err(ParseError::new(
                        format!("'{time}' has no keyword before it"),
                        format!("write a word in front of it, as in {example}"),
                    ));
                }
                _ => {
                    return Err(ParseError::new(
                        format!("'{word}' is not an option of a law"),
                        "write in, mean, sd, clip, saturate, tail, sampling, corr or idle",
                    ));
                }
            }
        }
        if gap.correlation.is_some() && gap.sampling == Sampling::Stratified {
            return Err(ParseError::new(
                "stratified draws have no correlation of their own to set",
                "leave corr or sampling stratified out",
            ));
        }
        gap.check_placing()?;
        if gap.is_ready() {
            gap.distribution()?;
        }
        Ok(gap)
    }

    /// Checks that the position of the law in time is defined.
    fn check_placing(&self) -> Result<(), ParseError> {
        let name = self.law.kind().name;
        let shape = self.law.shape();
        match (self.mean, self.sd, self.within) {
            (None, None, None) if shape.is_timed() => Ok(()),
            (Some(_), None, None) if shape.is_scaled_by_mean() => Ok(()),
            (None, None, Some(_)) | (Some(_), None, Some(_)) | (Some(_), Some(_), None) => Ok(()),
            (_, Some(_), Some(_)) => Err(ParseError::new(
                "sd and in both scale the law",
                format!("write {name} … mean M sd S clip A..B, or leave sd out"),
            )),
            _ => Err(ParseError::new(
                format!("'{self}' does not say where the law lies"),
                "add in 80us..120us, or mean 100us sd 5us",
            )),
        }
    }

    /// False until the table of the law is read.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(&self.law, Law::Table(table) if !table.is_read())
    }

    /// Reads the law's table, if it has one, and runs the checks that depend on its values.
    ///
    /// # Errors
    /// The file cannot be read or is not a table, with the line; or an error of [`GapLaw::distribution`].
    pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        if let Law::Table(table) = &mut self.law {
            table.load(files)?;
            self.distribution()?;
        }
        Ok(())
    }

    /// The distribution of the gaps.
    ///
    /// # Errors
    /// An impossible law: a mean outside the range, a range that the law does not reach, negative gaps, or a
    /// correlation that it cannot have.
    pub fn distribution(&self) -> Result<GapDistribution, ParseError> {
        GapDistribution::new(self)
    }
}

fn tail(words: &mut Words<'_>) -> Result<Share, ParseError> {
    let word = words.next().unwrap_or_default();
    let share: Share = word.parse()?;
    if share == Share::default() || share.as_f64() > 0.25 {
        return Err(ParseError::new(format!("a tail of '{word}' cuts nothing or most"), "write 0.01%, at most 25%"));
    }
    Ok(share)
}

fn sampling(words: &mut Words<'_>) -> Result<Sampling, ParseError> {
    match words.next().unwrap_or_default() {
        "iid" => Ok(Sampling::Independent),
        "stratified" => Ok(Sampling::Stratified),
        word => Err(ParseError::new(format!("'{word}' is not a sampling method"), "write iid or stratified")),
    }
}

impl fmt::Display for GapLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.law)?;
        if let Some(mean) = self.mean {
            write!(f, " mean {mean}")?;
        }
        if let Some(sd) = self.sd {
            write!(f, " sd {sd}")?;
        }
        if let Some((from, to)) = self.within {
            write!(f, " in {from}..{to}")?;
        }
        match self.edges {
            Some(Edges::Clip(from, to)) => write!(f, " clip {from}..{to}")?,
            Some(Edges::Saturate(from, to)) => write!(f, " saturate {from}..{to}")?,
            None => {}
        }
        write!(f, " tail {}", self.tail)?;
        match (self.sampling, self.correlation) {
            (Sampling::Stratified, _) => f.write_str(" sampling stratified")?,
            (Sampling::Independent, None) => f.write_str(" sampling iid")?,
            (Sampling::Independent, Some(correlation)) => write!(f, " corr {correlation}")?,
        }
        f.write_str(if self.idle { " idle" } else { "" })
    }
}

use super::super::Files;
use super::super::laws::as_word;
use super::{Kind, Shape, Stretch, Waveform, Words, profile, rate};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use units::{BitRate, FrameRate, ParseError, Rate, Span, measured};

/// Constant rates over time, from a file. Each line has a time since the start and the rate from then on; `0` is
/// silence. The last rate continues, or the list repeats.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The file.
    pub path: PathBuf,
    /// Period of repetition, if the list repeats.
    pub every: Option<Span>,
    steps: Option<Arc<Vec<Step>>>,
}

/// Start and rate of a step; `None` is silence.
type Step = (Span, Option<Rate>);

impl PartialEq for Steps {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, self.every) == (&other.path, other.every)
    }
}

impl Eq for Steps {}

impl Waveform for Steps {
    const KIND: Kind = Kind {
        name: "steps",
        grammar: "steps FILE [every TIME]",
        summary: "a step per line of FILE: a time, and the rate from then on",
        example: "steps rates.txt",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        words.take("steps");
        let path = words.file("steps", "steps rates.txt")?;
        let every = words.time_after("every")?;
        Ok(Steps { path: path.into(), every, steps: None })
    }

    fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        let text = files.text(&self.path)?;
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().replace(',', " ");
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |what: String| ParseError::new(format!("{}:{number}: {what}", self.path.display()), HOW);
            let line: Vec<String> = line.split_whitespace().map(rounded).collect();
            let line = line.join(" ");
            let mut words = Words::of(&line);
            let time: Span = measured(words.next().unwrap_or_default()).map_err(|error| wrong(error.to_string()))?;
            let rate = if words.take("0") {
                None
            } else {
                Some(rate(&mut words, "5Gbps").map_err(|error| wrong(error.to_string()))?)
            };
            if let Some(word) = words.next() {
                return Err(wrong(format!("'{word}' is unexpected after a rate")));
            }
            match steps.last() {
                None if time > Span::ZERO => return Err(wrong(format!("the first step is at {time}, not at 0s"))),
                Some((before, _)) if time <= *before => {
                    return Err(wrong(format!("{time} is not after {before}")));
                }
                Some((before, _)) if !profile::is_short_enough(time - *before) => {
                    return Err(wrong("a step is longer than a day".to_owned()));
                }
                _ => steps.push((time, rate)),
            }
        }
        let Some((last, _)) = steps.last() else {
            return Err(ParseError::new(format!("{} has no steps", self.path.display()), HOW));
        };
        if let Some(every) = self.every {
            let file = self.path.display();
            if every <= *last {
                let what = format!("the last step of {file}, at {last}, is not before it starts again every {every}");
                return Err(ParseError::new(what, "write a longer time"));
            }
            if !profile::is_short_enough(every - *last) {
                return Err(ParseError::new(
                    format!("the last step of {file} is longer than a day, with every {every}"),
                    "write a shorter time",
                ));
            }
        }
        self.steps = Some(Arc::new(steps));
        Ok(())
    }

    fn shape(&self) -> Option<Shape> {
        let steps = self.steps.as_ref()?;
        let ends = steps
            .iter()
            .skip(1)
            .map(|(time, _)| *time)
            .chain([self.every.unwrap_or(steps.last()?.0 + Span::from_ps(1))]);
        let pieces = steps.iter().zip(ends).map(|((start, rate), end)| Stretch::Rates(end - *start, *rate, *rate));
        Some(Shape { pieces: pieces.collect(), repeats: self.every.is_some() })
    }
}

/// A measured rate, rounded to the resolution of its type. Returns other words unchanged.
fn rounded(word: &str) -> String {
    let bits = || measured::<BitRate>(word).map(|rate| rate.to_string());
    let frames = || measured::<FrameRate>(word).map(|rate| rate.to_string());
    bits().or_else(|_| frames()).unwrap_or_else(|_| word.to_owned())
}

const HOW: &str = "write a time and a rate on each line, from 0s on: 10ms 5Gbps";

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "steps {}", as_word(&self.path.display().to_string()))?;
        self.every.map_or(Ok(()), |every| write!(f, " every {every}"))
    }
}

//! Values of options shared by several commands, and their parsers.

use scenario::Override;

/// Parses a value by `FromStr`. `ParseError` names the remedy.
pub(crate) fn parse<T: std::str::FromStr<Err = units::ParseError>>(text: &str) -> Result<T, units::ParseError> {
    text.parse()
}

/// Parses a count of 1 or more.
pub(crate) fn parse_count(text: &str) -> Result<u64, units::ParseError> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| units::ParseError::new(format!("'{text}' is not a count"), "write a whole number from 1"))
}

/// Parses a value that replaces a value of a scenario.
pub(super) fn parse_override(text: &str) -> Result<Override, units::ParseError> {
    Override::parse(text)
}

/// A list of CPU numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

pub(super) fn parse_cores(text: &str) -> Result<Cores, units::ParseError> {
    let bad = |part: &str| {
        units::ParseError::new(format!("'{part}' names no CPUs"), "write numbers and ranges such as 2,3 or 2-5")
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) =
            first.parse().ok().zip(last.parse().ok()).filter(|(a, b)| a <= b && *b < 1_024).ok_or_else(|| bad(part))?;
        for core in first..=last {
            if cores.contains(&core) {
                return Err(units::ParseError::new(
                    format!("CPU {core} is named twice"),
                    "name each once, as 2,3 or 2-5",
                ));
            }
            cores.push(core);
        }
    }
    Ok(Cores(cores))
}

/// Trace one frame in N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceInterval(pub(crate) u64);

pub(crate) fn parse_sampling(text: &str) -> Result<TraceInterval, units::ParseError> {
    let every = text.strip_prefix("1/").unwrap_or(text).parse().ok().filter(|every| *every > 0);
    let every = every.filter(|every| text.starts_with("1/") || *every == 1);
    every.map(TraceInterval).ok_or_else(|| {
        units::ParseError::new(format!("'{text}' is not a share of frames to trace"), "write 1/64, or 1/1 for all")
    })
}

pub(super) fn parse_every(text: &str) -> Result<units::Span, units::ParseError> {
    let every: units::Span = text.parse()?;
    if every < units::Span::from_ms(100) {
        let what = format!("'{text}' is too short an interval: each reading takes CPU time from departures");
        return Err(units::ParseError::new(what, "write 100ms or more"));
    }
    Ok(every)
}

#[cfg(feature = "live")]
pub(super) fn parse_exchange_interval(text: &str) -> Result<units::Span, units::ParseError> {
    let every: units::Span = text.parse()?;
    if every < units::Span::from_ms(1) {
        let what = format!("'{text}' is too short an interval: exchanges would wait for each other");
        return Err(units::ParseError::new(what, "write 1ms or more"));
    }
    Ok(every)
}

pub(super) fn parse_window(text: &str) -> Result<units::Span, units::ParseError> {
    let window: units::Span = text.parse()?;
    if window == units::Span::ZERO {
        return Err(units::ParseError::new("a window of length 0 holds no frames", "write 1us or more"));
    }
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_one_in_some() {
        assert_eq!(parse_sampling("1/64"), Ok(TraceInterval(64)));
        assert_eq!((parse_sampling("1"), parse_sampling("1/1")), (Ok(TraceInterval(1)), Ok(TraceInterval(1))));
        for text in ["", "64", "0", "1/0", "2/3", "1/x", "25%", "1/"] {
            assert!(parse_sampling(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!(parse_cores("0"), Ok(Cores(vec![0])));
        assert_eq!(parse_cores("3,0-1"), Ok(Cores(vec![3, 0, 1])));
        for text in ["", ",", "1,", "a", "2-1", "1,0-2", "-1", "9999"] {
            assert!(parse_cores(text).is_err(), "{text}");
        }
        for text in ["0,0", "1-3,2"] {
            assert!(parse_cores(text).is_err_and(|error| error.to_string().contains("named twice")), "{text}");
        }
    }
}

use engine::schedules::laws::{GapLaw, Law};
use engine::schedules::waves::Wave;
use engine::schedules::{FollowDepth, Target};
use std::sync::Arc;
use units::nearest;
use units::{ParseError, Rate, Span};

/// Maximum gap, reasonable for runs of up to 213 days.
const LONGEST_GAP: Span = Span::from_ms(86_400_000);

/// Parses a GAP: `10us`, `fixed 10us`, or a law such as `chi2 df 6 in 80us..120us`. Does not read tables.
///
/// # Errors
/// No time, a number without a unit, zero, more than a day, an unknown law, or an impossible one.
pub fn parse_gap(text: &str) -> Result<Target, ParseError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if let Some(law) = GapLaw::parse(text) {
        return law.map(|law| Target::Law(Arc::new(law)));
    }
    match words[..] {
        ["fixed", time, "idle"] | [time, "idle"] => fixed_gap(time).map(Target::IdleGap),
        ["fixed", time] | [time] => fixed_gap(time).map(Target::Gap),
        ["fixed", number, unit, ..] | [number, unit, ..] if format!("{number}{unit}").parse::<Span>().is_ok() => {
            Err(ParseError::new(
                format!("'{text}' has a space between a number and its unit"),
                format!("write {number}{unit}"),
            ))
        }
        [time, word, ..] if time.parse::<Span>().is_ok() => {
            let law = Law::KINDS.iter().find(|kind| kind.name == word).ok_or_else(|| no_gap(text))?;
            let example = law.example;
            Err(ParseError::new(
                format!("'{text}' is not a gap: the name of a law comes first"),
                format!("write it as {example}"),
            ))
        }
        _ => Err(no_gap(text)),
    }
}

/// The error for a text that does not start with the name of a law.
fn no_gap(text: &str) -> ParseError {
    let names: Vec<&str> = std::iter::once("fixed").chain(Law::KINDS.iter().map(|kind| kind.name)).collect();
    let word = text.split_whitespace().next().unwrap_or_default();
    let remedy = match nearest(word, &names) {
        None if names.contains(&word) => format!("write {word} 10us"),
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("write 10us, or one of {}", names.join(", ")),
    };
    ParseError::new(format!("'{text}' is not a gap"), remedy)
}

fn fixed_gap(time: &str) -> Result<Span, ParseError> {
    if time.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(no_gap(time));
    }
    let gap: Span = time.parse()?;
    if gap == Span::ZERO {
        return Err(ParseError::new(
            "a gap of zero has no effect",
            "leave it out to send as fast as the line takes frames",
        ));
    }
    if gap > LONGEST_GAP {
        return Err(ParseError::new(format!("a gap of {gap} is longer than a day"), "write at most 86400s"));
    }
    Ok(gap)
}

/// Parses a WAVE: `5Gbps`, `const 5Gbps`, `1.2Mpps`, `50%`, or a waveform such as `burst 8Gbps for 2ms every 10ms`.
/// Does not read files.
///
/// # Errors
/// No rate, a number without a unit, an unknown waveform, or an impossible one.
pub fn parse_wave(text: &str) -> Result<Target, ParseError> {
    let text = text.trim();
    if text.split_whitespace().next() == Some(FollowDepth::NAME) {
        return text.parse().map(Target::Depth);
    }
    if let Some(wave) = Wave::parse(text) {
        return wave.map(|wave| Target::Wave(Arc::new(wave)));
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    let rate = if first == "const" { text[first.len()..].trim_start() } else { text };
    if rate.is_empty() {
        return Err(ParseError::new("a rate is missing", "write 5Gbps, 1.2Mpps or 50%"));
    }
    if rate.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let known = ["const", FollowDepth::NAME].into_iter();
        let names: Vec<&str> = known.chain(Wave::KINDS.iter().map(|kind| kind.name)).collect();
        let remedy = match nearest(first, &names) {
            Some(meant) => format!("write {meant}"),
            None => format!("write 5Gbps, or one of {}", names.join(", ")),
        };
        return Err(ParseError::new(format!("'{text}' is not a waveform"), remedy));
    }
    rate.parse::<Rate>().map(Target::Rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_both_spellings() {
        assert_eq!(parse_gap("fixed 10us"), Ok(Target::Gap(Span::from_us(10))));
        assert_eq!(parse_gap("10us"), Ok(Target::Gap(Span::from_us(10))));
        assert_eq!(parse_gap("fixed 10us idle"), Ok(Target::IdleGap(Span::from_us(10))));
        assert_eq!(parse_wave("const 5Gbps"), parse_wave("5Gbps"));
        assert!(parse_wave("5Gbps wire").is_ok());
        assert!(matches!(parse_wave("follow-depth 1Gbps..2Gbps"), Ok(Target::Depth(_))));
    }

    #[test]
    fn errors_of_a_law_after_its_time_show_the_right_order() {
        for (text, example) in [("10us exp", "exp mean 10us"), ("10us normal 2us", "normal mean 100us sd 5us")] {
            let error = parse_gap(text).expect_err(text).to_string();
            assert!(error.ends_with(&format!("write it as {example}")), "{error}");
        }
    }

    #[test]
    fn errors_name_the_spelling_to_use() {
        for text in ["", "10", "fixed", "fixed 10", "-1us", "0us", "10us 20us", "99999s", "fixd 10us"] {
            let error = parse_gap(text).expect_err(text).to_string();
            let remedies = ["write", "leave", "did you mean", "add"];
            assert!(remedies.iter().any(|remedy| error.contains(remedy)), "{text}: {error}");
        }
        let error = parse_gap("fixed").expect_err("no time").to_string();
        assert!(error.ends_with("write fixed 10us"), "{error}");
        for (text, expected) in [("10 us", "write 10us"), ("fixed 1.5 ms idle", "write 1.5ms")] {
            let error = parse_gap(text).expect_err(text).to_string();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
        for text in [
            "", "const", "10", "10mbps", "-5Gbps", "5Gbps fast", "bursts 1Gbps", "burst", "burst 8Gbps", "ramp 1Gbps",
            "follow-depth 2Gbps..1Gbps",
        ] {
            let error = parse_wave(text).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}

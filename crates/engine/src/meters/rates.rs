use super::{Bucket, Key, KeyKind, parse_depth};
use std::collections::HashMap;
use units::{BitRate, ParseError};

/// Rates of users, read from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    buckets: Vec<Bucket>,
    users: Vec<UserRate>,
}

/// A user and its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRate {
    /// The user.
    pub key: Key,
    /// Index of the bucket.
    pub bucket: u32,
}

/// Maximum number of problems that an error lists. The others are only counted.
const TOLD: usize = 10;

impl Rates {
    /// Parses lines of `USER RATE [burst SIZE]`, ignoring empty lines and comments after `#`. A user listed twice is an
    /// error. `burst` computes the burst of a rate without one.
    ///
    /// # Errors
    /// The line numbers and problems of the first ten bad lines, and the number of others.
    pub fn parse(kind: KeyKind, text: &str, burst: &dyn Fn(BitRate) -> u64) -> Result<Self, String> {
        let mut rates = Rates::default();
        let mut numbers: HashMap<Bucket, u32> = HashMap::new();
        let mut lines: HashMap<Key, usize> = HashMap::new();
        // Most lines repeat the same rate.
        let mut last: Option<(&str, u32)> = None;
        let mut problems = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let read = || -> Result<(Key, &str), ParseError> {
                let (user, rate) = split(line).ok_or_else(|| {
                    ParseError::new(format!("'{line}' has no rate"), "write USER RATE, as 10.0.0.1 2Mbps")
                })?;
                let key = kind.parse(user).map_err(|error| behind_user(kind, line).unwrap_or(error))?;
                Ok((key, rate))
            };
            let mut note = |error: &ParseError| problems.push(format!("line {}: {error}", i + 1));
            let (key, rate) = match read() {
                Ok(read) => read,
                Err(error) => {
                    note(&error);
                    continue;
                }
            };
            let bucket = match last.filter(|(text, _)| *text == rate) {
                Some((_, number)) => number,
                None => match parse_rate(rate, burst) {
                    Ok(bucket) => {
                        let number = *numbers.entry(bucket).or_insert_with(|| {
                            rates.buckets.push(bucket);
                            rates.buckets.len() as u32 - 1
                        });
                        last = Some((rate, number));
                        number
                    }
                    Err(error) => {
                        note(&error);
                        continue;
                    }
                },
            };
            if let Some(first) = lines.insert(key, i + 1) {
                let error =
                    ParseError::new(format!("{} is on line {first} already", kind.show(key)), "leave one of them out");
                note(&error);
                continue;
            }
            rates.users.push(UserRate { key, bucket });
        }
        if problems.is_empty() {
            return Ok(rates);
        }
        let more = problems.len().saturating_sub(TOLD);
        let mut text = problems[..problems.len() - more].join("; ");
        if more > 0 {
            text += &format!("; and {more} more");
        }
        Err(text)
    }

    /// The distinct buckets.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The users.
    #[must_use]
    pub fn users(&self) -> &[UserRate] {
        &self.users
    }
}

/// Splits a line into the user and the rest: the rate and an optional burst.
fn split(line: &str) -> Option<(&str, &str)> {
    let at = match line.rfind(" burst ") {
        Some(burst) => line[..burst].trim_end().rfind(char::is_whitespace)?,
        None => line.rfind(char::is_whitespace)?,
    };
    Some((line[..at].trim_end(), line[at..].trim_start()))
}

/// The error for a line that starts with a user but continues with something other than a rate and a burst.
fn behind_user(kind: KeyKind, line: &str) -> Option<ParseError> {
    let mut blanks = line.match_indices(char::is_whitespace);
    let at = blanks.find(|(at, _)| kind.parse(line[..*at].trim_end()).is_ok())?.0;
    let what = format!("'{}' is not a rate, nor a rate with its burst", line[at..].trim_start());
    Some(ParseError::new(what, "write USER RATE or USER RATE burst SIZE, as 10.0.0.1 2Mbps burst 10kB"))
}

fn parse_rate(text: &str, burst: &dyn Fn(BitRate) -> u64) -> Result<Bucket, ParseError> {
    let (rate, depth) = match text.split_once(" burst ") {
        Some((rate, depth)) => (rate.trim(), Some(parse_depth(depth.trim())?)),
        None => (text, None),
    };
    let rate: BitRate = rate.parse()?;
    Bucket::new(rate, depth.unwrap_or_else(|| burst(rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Rates, String> {
        Rates::parse(KeyKind::DstIp, text, &|_| 3_036)
    }

    #[test]
    fn parses_lines_of_users() {
        let rates = parse("# who  what\n10.0.0.1 1Mbps\n\n10.0.0.2\t2Mbps   burst 10kB # fast\n10.0.0.3 1Mbps\n");
        let rates = rates.expect("rates");
        let numbers: Vec<u32> = rates.users().iter().map(|user| user.bucket).collect();
        assert_eq!(numbers, [0, 1, 0]);
        let bursts: Vec<u64> = rates.buckets().iter().map(Bucket::burst).collect();
        assert_eq!(bursts, [3_036, 10_000]);
        let flows = Rates::parse(KeyKind::FiveTuple, "udp 10.0.0.1:1 > 10.0.0.2:2 5Mbps burst 9kB", &|_| 1);
        assert_eq!(flows.expect("a flow").users().len(), 1);
    }

    #[test]
    fn errors_name_the_line() {
        let error =
            parse("10.0.0.1 1Mbps\n10.0.0.x 1Mbps\n10.0.0.2 10\n10.0.0.3\n10.0.0.1 2Mbps\n10.0.0.4 1Mbps burst 1")
                .expect_err("five lines");
        for part in ["line 2: '10.0.0.x'", "line 3: ", "line 4: ", "line 5: 10.0.0.1 is on line 1", "line 6: "] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(error.lines().count(), 1, "one line");
        for line in ["10.0.0.1 1Mbps burst", "10.0.0.1 1Mbps bust 5kB", "10.0.0.1\t1Mbps ip"] {
            let error = parse(line).expect_err(line);
            assert!(error.contains("line 1: '1Mbps") && error.contains("USER RATE burst SIZE"), "{error}");
        }
        let many = "x y\n".repeat(25);
        assert!(parse(&many).expect_err("25 lines").contains("and 15 more"));
    }
}

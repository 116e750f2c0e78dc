use super::{IDLE, Limit, MARKING, MOST_WORKERS, Marking, Mode, USERS, Unknown};
use crate::classes::code_point;
use crate::meters::{Algorithm, Colours, parse_depth, positive, value};
use std::fmt;
use std::path::PathBuf;
use units::{BitRate, Layer, ParseError, Rate};

/// Parses the text after `limit`: pairs of a keyword and a value, in any order.
pub(super) fn parse(words: &[&str]) -> Result<Limit, ParseError> {
    let quoted = unquote(words);
    let owned: Vec<&str> = quoted.iter().map(String::as_str).collect();
    let mut words = owned.as_slice();
    let key = taken(&mut words.iter(), "key", "key dst-ip")?.parse()?;
    let (rate, layer) = rate_of(words)?;
    let mut limit = Limit::new(key, rate, layer);
    let mut seen: Vec<&str> = Vec::new();
    while let Some((word, rest)) = words.split_first() {
        words = rest;
        if seen.contains(word) {
            return Err(ParseError::new(format!("{word} is given twice"), "leave one of them out"));
        }
        seen.push(word);
        match *word {
            "key" => drop(value(&mut words, "key", "key dst-ip")?),
            "rate" => {
                let _ = value(&mut words, "rate", "rate 1Mbps")?;
                if let Some((&("wire" | "ip"), rest)) = words.split_first() {
                    words = rest;
                }
            }
            word => limit.take(word, &mut words)?,
        }
    }
    limit.check()
}

impl Limit {
    /// Sets the setting named `word` to the value `text`. Does not check that it is compatible with other settings.
    ///
    /// # Errors
    /// An unknown setting or an invalid value.
    pub fn set(&mut self, word: &str, text: &str) -> Result<(), ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut rest = words.as_slice();
        self.take(word, &mut rest)?;
        match rest.first() {
            None => Ok(()),
            Some(more) => Err(ParseError::new(format!("'{more}' in '{text}' is unexpected"), "leave it out")),
        }
    }

    /// Parses the value of a setting from the front of `words` and consumes it.
    fn take(&mut self, word: &str, words: &mut &[&str]) -> Result<(), ParseError> {
        match word {
            "burst" => self.burst = Some(parse_depth(value(words, "burst", "burst 3036B")?)?),
            "mode" => {
                self.mode_said = true;
                self.mode = match value(words, "mode", "mode shape")? {
                    "police" => Mode::Police,
                    "shape" => Mode::Shape,
                    "mark" => Mode::Mark,
                    other => return Err(unknown(other, "mode", "police, shape or mark")),
                };
            }
            "mark" => self.marking = marking(words)?,
            "colours" => self.colours = Some(Colours::take(words)?),
            "queue" => self.queue = Some(positive(value(words, "queue", "queue 100ms")?, "a queue")?),
            "rates" => self.rates = Some(PathBuf::from(value(words, "rates", "rates users.txt")?)),
            "unknown" => {
                self.unknown = match value(words, "unknown", "unknown pass")? {
                    "default" => Unknown::Default,
                    "pass" => Unknown::Pass,
                    "drop" => Unknown::Drop,
                    other => return Err(unknown(other, "fate of unknown users", "default, pass or drop")),
                };
            }
            "users" => self.users = number(value(words, "users", "users 1000000")?, "users", Limit::MOST_USERS)?,
            "idle" => self.idle = positive(value(words, "idle", "idle 10s")?, "an age")?,
            "full" => {
                self.pass_when_full = match value(words, "full", "full pass")? {
                    "pass" => true,
                    "drop" => false,
                    other => return Err(unknown(other, "fate of users without room", "drop or pass")),
                };
            }
            "algorithm" => self.algorithm = Algorithm::take(words)?,
            "device" => self.device = Some(value(words, "device", "device event_dsw")?.to_owned()),
            "workers" => self.workers = number(value(words, "workers", "workers 8")?, "workers", MOST_WORKERS)?,
            "service" => {
                self.service = Some(positive(value(words, "service", "service 400ns")?, "a service time")?);
            }
            other => {
                return Err(unknown(
                    other,
                    "setting of limit",
                    "key, rate, burst, mode, mark, colours, queue, rates, unknown, users, idle, full, algorithm, \
                     device, workers or service",
                ));
            }
        }
        Ok(())
    }
}

/// Reads the value of a required keyword.
fn taken<'w>(words: &mut std::slice::Iter<'_, &'w str>, word: &str, example: &str) -> Result<&'w str, ParseError> {
    words.find(|found| **found == word);
    words.next().copied().ok_or_else(|| ParseError::new(format!("limit needs a {word}"), format!("write {example}")))
}

fn rate_of(words: &[&str]) -> Result<(BitRate, Layer), ParseError> {
    let mut words = words.iter();
    let rate = taken(&mut words, "rate", "rate 1Mbps")?;
    let layer = words.next().filter(|layer| matches!(**layer, "wire" | "ip"));
    let text = layer.map_or_else(|| (*rate).to_owned(), |layer| format!("{rate} {layer}"));
    match text.parse::<Rate>()? {
        Rate::Bits(rate, layer) => Ok((rate, layer)),
        Rate::Frames(_) | Rate::Line(_) => {
            Err(ParseError::new(format!("'{text}' is not a bit rate"), "write 1Mbps, '1Mbps wire' or '1Mbps ip'"))
        }
    }
}

fn marking(words: &mut &[&str]) -> Result<Marking, ParseError> {
    const EXAMPLE: &str = "mark dscp 12 14 or mark ecn";
    match value(words, "mark", EXAMPLE)? {
        "ecn" => Ok(Marking::Ecn),
        "dscp" => {
            let mut dscp = || {
                let text = value(words, "dscp", EXAMPLE)?;
                code_point(text).parse::<u8>().ok().filter(|dscp| *dscp < 64).ok_or_else(|| {
                    ParseError::new(format!("'{text}' is not a DSCP"), "write 0 to 63, or a name as af12")
                })
            };
            Ok(Marking::Dscp(dscp()?, dscp()?))
        }
        other => Err(unknown(other, "mark", EXAMPLE)),
    }
}

fn number(text: &str, what: &str, most: usize) -> Result<usize, ParseError> {
    text.parse().ok().filter(|number| (1..=most).contains(number)).ok_or_else(|| {
        ParseError::new(format!("'{text}' is not a number of {what}"), format!("write a whole number from 1 to {most}"))
    })
}

fn unknown(word: &str, what: &str, known: &str) -> ParseError {
    ParseError::new(format!("'{word}' is not a {what}"), format!("write {known}"))
}

/// Joins words between quotes, such as a file name with a space.
fn unquote(words: &[&str]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut open = false;
    for word in words {
        let starts = !open && word.starts_with('"');
        let text = if starts { &word[1..] } else { word };
        let ends = (open || starts) && text.ends_with('"');
        let text = if ends { &text[..text.len() - 1] } else { text };
        match joined.last_mut().filter(|_| open) {
            Some(last) => {
                last.push(' ');
                last.push_str(text);
            }
            None => joined.push(text.to_owned()),
        }
        open = (open || starts) && !ends;
    }
    joined
}

pub(super) fn print(limit: &Limit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "limit key {} rate {}", limit.key, Rate::Bits(limit.rate, limit.layer))?;
    if let Some(burst) = limit.burst {
        write!(f, " burst {burst}B")?;
    }
    if limit.mode_said {
        write!(f, " mode {}", limit.mode.name())?;
    }
    match limit.marking {
        MARKING => {}
        Marking::Dscp(yellow, red) => write!(f, " mark dscp {yellow} {red}")?,
        Marking::Ecn => f.write_str(" mark ecn")?,
    }
    if let Some(colours) = &limit.colours {
        write!(f, " colours {colours}")?;
    }
    if let Some(queue) = limit.queue {
        write!(f, " queue {queue}")?;
    }
    if let Some(path) = &limit.rates {
        let path = path.display().to_string();
        let quote = if path.contains(char::is_whitespace) { "\"" } else { "" };
        write!(f, " rates {quote}{path}{quote}")?;
    }
    match limit.unknown {
        Unknown::Default => {}
        Unknown::Pass => f.write_str(" unknown pass")?,
        Unknown::Drop => f.write_str(" unknown drop")?,
    }
    if limit.users != USERS {
        write!(f, " users {}", limit.users)?;
    }
    if limit.idle != IDLE {
        write!(f, " idle {}", limit.idle)?;
    }
    if limit.pass_when_full {
        f.write_str(" full pass")?;
    }
    if limit.algorithm != Algorithm::Gcra {
        write!(f, " algorithm {}", limit.algorithm)?;
    }
    if let Some(device) = &limit.device {
        write!(f, " device {device}")?;
    }
    if limit.workers != 1 {
        write!(f, " workers {}", limit.workers)?;
    }
    if let Some(service) = limit.service { write!(f, " service {service}") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use crate::stages::StageConfig;

    #[test]
    fn limits_survive_printing_and_parsing() {
        for text in [
            "limit key dst-ip rate 1Mbps",
            "limit key 5-tuple rate 1.5Mbps wire burst 9kB mode mark mark ecn",
            "limit key vlan rate 64kbps ip mode shape queue 50ms",
            "limit key dst-prefix/24 rate 1Gbps rates \"a b.txt\" unknown drop users 10000000 idle 1s full pass",
            "limit key src-ip rate 1Mbps algorithm light-lock batch 1500B depth 6000B idle expire 10ms workers 64",
            "limit key src-ip rate 1Mbps algorithm static workers 8 service 100ns",
            "limit key src-ip rate 1Mbps algorithm atomic-queue device event_sw workers 8",
            "limit key src-ip rate 1Mbps mode mark mark dscp 0 63 colours rfc2698 pir 2Mbps pbs 9000B",
            "limit key src-ip rate 1Mbps colours rfc2697 ebs 9000B",
            "limit key src-ip rate 1Mbps colours rfc2697 ebs 9000B aware users 5",
            "limit key src-ip rate 1Mbps colours rfc4115 eir 9kbps ebs 9000B",
            "limit key src-ip rate 1Mbps mode mark mark dscp af21 ef",
        ] {
            let config = StageConfig::parse(text).expect(text);
            assert_eq!(StageConfig::parse(&config.to_string()).as_ref(), Ok(&config), "{config}");
        }
        let swapped = StageConfig::parse("limit users 7 rate 1Mbps key vlan").expect("any order");
        assert_eq!(swapped.to_string(), "limit key vlan rate 1Mbps users 7");
    }

    #[test]
    fn refuses_impossible_limits_with_a_remedy() {
        for text in [
            "limit",
            "limit key dst-ip",
            "limit rate 1Mbps",
            "limit key ip rate 1Mbps",
            "limit key dst-ip rate 1",
            "limit key dst-ip rate 1mbps",
            "limit key dst-ip rate 1kpps",
            "limit key dst-ip rate 50%",
            "limit key dst-ip rate 500Gbps",
            "limit key dst-ip rate 1kbps burst 1TB",
            "limit key dst-ip rate 1Mbps burst",
            "limit key dst-ip rate 1Mbps burst 3036",
            "limit key dst-ip rate 1Mbps burst 3kB burst 4kB",
            "limit key dst-ip rate 1Mbps mode drop",
            "limit key dst-ip rate 1Mbps queue 10ms",
            "limit key dst-ip rate 1Mbps mark ecn",
            "limit key dst-ip rate 1Mbps mode mark mark dscp 64 1",
            "limit key dst-ip rate 1Mbps workers 0",
            "limit key dst-ip rate 1Mbps device event_dsw",
            "limit key dst-ip rate 1Mbps workers 4 mode shape",
            "limit key dst-ip rate 1Mbps unknown drop",
            "limit key dst-ip rate 1Mbps users 0",
            "limit key dst-ip rate 1Mbps algorithm dlb",
            "limit key dst-ip rate 1Mbps algorithm light-lock batch 9kB depth 1kB",
            "limit key dst-ip rate 2Mbps colours rfc2698 pir 1Mbps pbs 9kB",
            "limit key dst-ip rate 1Mbps colours rfc2697 unknown default",
            "limit key dst-ip rate 1Mbps colours rfc2697 ebs 9kB algorithm mutex",
            "limit key dst-ip rate 1Mbps colours rfc2697 ebs 9kB aware mark ecn",
            "limit key dst-ip rate 1Mbps colours rfc2697 ebs 9kB aware mark dscp 3 3",
            "limit key dst-ip rate 1Mbps fast",
        ] {
            let error = StageConfig::parse(text).expect_err(text).to_string();
            assert!(["write", "leave", "add"].iter().any(|word| error.contains(word)), "{text}: {error}");
        }
    }
}

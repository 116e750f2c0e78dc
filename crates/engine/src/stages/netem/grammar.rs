//! The grammar of SPEC: that of tc's `q_netem.c`, plus keywords that netem does not have.

use super::hints::{LAW, is_law, meant_by, model_meant_by};
use super::units_of_tc::{self as tc, Wrong};
use super::{
    Aqm, Bottleneck, Chance, DelayStep, Delayed, LossModel, Mode, Netem, Opportunities, Pattern, Profile, QueueLimit,
    Slot, SlotTimes,
};
use crate::random::Random;
use crate::schedules::laws::{Distribution, Values};
use units::{ParseError, Share, Span, nearest};

/// tc's keywords. tc accepts any prefix; a SPEC must spell them out, because `los` is more likely a typo.
const OF_TC: [&str; 14] = [
    "limit", "latency", "delay", "loss", "drop", "ecn", "corrupt", "gap", "duplicate", "reorder", "distribution",
    "rate", "slot", "seed",
];
/// Our keywords.
const OURS: [&str; 5] = ["queue", "keep-order", "down", "mtu", "profile"];

/// Words that follow another keyword, with an example of their use.
const INNER: [(&str, &str); 26] = [
    ("then", "after the time of a delay: delay 20ms then 80ms at 5s"),
    ("at", "after then: delay 20ms then 80ms at 5s"),
    ("icmp", "after an MTU: mtu 1400 icmp"),
    ("mode", "after the share of corrupt: corrupt 1% mode checksum-valid"),
    ("checksum-valid", "after mode: corrupt 1% mode checksum-valid"),
    ("bit", "after mode: corrupt 1% mode bit"),
    ("byte", "after mode: corrupt 1% mode byte"),
    ("every", "after the time that the link is down: down 2s every 30s"),
    ("trace", "after rate: rate trace FILE"),
    ("random", "after loss: loss random 1%"),
    ("state", "after loss: loss state 1%"),
    ("gemodel", "after loss: loss gemodel 1% 10%"),
    ("pattern", "after loss: loss pattern 0b1011"),
    ("packets", "after the times of slot: slot 1ms 2ms packets 10"),
    ("bytes", "after the times of slot: slot 1ms 2ms bytes 3000"),
    ("codel", "after queue: queue codel"),
    ("fq_codel", "after queue: queue fq_codel"),
    ("pie", "after queue: queue pie"),
    ("red", "after queue: queue red min 30kB max 90kB"),
    ("step", "after queue: queue step above 1ms"),
    ("target", "right after the name of a queue: queue codel target 5ms"),
    ("interval", "right after the name of a queue: queue codel interval 100ms"),
    ("tupdate", "right after the name of a queue: queue pie tupdate 15ms"),
    ("probability", "right after the name of a queue: queue red min 30kB max 90kB probability 10%"),
    ("weight", "right after the name of a queue: queue red min 30kB max 90kB weight 1%"),
    ("above", "right after the name of a queue: queue step above 1ms"),
];

/// The words of a SPEC and their positions.
pub(super) struct Cursor<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    /// True if the next word is a number and so belongs to the preceding word.
    fn number_follows(&self) -> bool {
        self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()))
    }

    fn signed_follows(&self) -> bool {
        self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
    }

    /// An error at the last word read.
    pub(super) fn error(&self, what: impl std::fmt::Display, remedy: impl Into<String>) -> ParseError {
        let word = self.words[self.at.saturating_sub(1).min(self.words.len() - 1)];
        // Words are slices of the text.
        let character = self.text[..word.as_ptr() as usize - self.text.as_ptr() as usize].chars().count() + 1;
        ParseError::new(format!("character {character} of '{}': '{word}' {what}", self.text), remedy)
    }

    /// Reads the value after the last word.
    pub(super) fn value<T>(
        &mut self,
        read: impl FnOnce(&str) -> Result<T, Wrong>,
        expected: &str,
    ) -> Result<T, ParseError> {
        let Some(word) = self.next() else {
            return Err(
                self.error(format_args!("has no value, {expected} is expected"), format!("write {expected} after it"))
            );
        };
        if word.ends_with(',') {
            return Err(self.error("ends in a comma, but spaces separate the words of a SPEC", "leave the comma out"));
        }
        if let Some(unit) = self.peek().filter(|unit| tc::is_split(word, unit)) {
            // A SPEC may not have this unit. The remedy then names a valid unit.
            let joined = format!("{word}{unit}");
            let remedy = read(&joined).err().map_or(format!("write {joined}"), |(_, remedy)| remedy);
            return Err(self.error(format_args!("is separated from its unit '{unit}'"), remedy));
        }
        read(word).map_err(|(what, remedy)| self.error(format_args!("{what}; {expected} is expected"), remedy))
    }

    /// Requires `word` next, as in `example`.
    pub(super) fn exactly(&mut self, word: &str, example: &str) -> Result<(), ParseError> {
        let read = |other: &str| {
            if other == word {
                Ok(())
            } else {
                Err((format!("is where '{word}' should be"), format!("write {example}")))
            }
        };
        self.value(read, word)
    }

    fn time(&mut self) -> Result<Span, ParseError> {
        self.value(tc::time, "a time such as 10ms")
    }

    /// Reads a time greater than zero.
    pub(super) fn some_time(&mut self) -> Result<Span, ParseError> {
        let time = self.time()?;
        if time == Span::ZERO {
            return Err(self.error("is zero", "write 5ms, or leave it and its word out"));
        }
        Ok(time)
    }

    fn share(&mut self) -> Result<Share, ParseError> {
        self.value(tc::share, "a share such as 1%")
    }

    /// Reads a probability, and a correlation if another number follows.
    fn chance(&mut self) -> Result<Chance, ParseError> {
        let share = self.share()?;
        let correlation = if self.number_follows() { self.share()? } else { Share::default() };
        if correlation == Share::ONE {
            return Err(self.error("as a correlation never changes the first decision", "write less than 100%"));
        }
        Ok(Chance { share, correlation })
    }

    /// Reads a keyword.
    fn keyword(&mut self) -> Result<Option<&'static str>, ParseError> {
        let Some(word) = self.next() else { return Ok(None) };
        if let Some(name) = OF_TC.iter().chain(&OURS).find(|name| **name == word) {
            return Ok(Some(match *name {
                "latency" => "delay",
                "drop" => "loss",
                name => name,
            }));
        }
        let known: Vec<&str> = OF_TC.into_iter().chain(OURS).collect();
        if let Some((_, place)) = INNER.iter().find(|(inner, _)| *inner == word && meant_by(word).is_none()) {
            return Err(self.error("cannot begin a setting", format!("write it {place}")));
        }
        let all: Vec<&str> = known.iter().copied().chain(INNER.map(|(inner, _)| inner)).collect();
        let mut begun = known.iter().copied().filter(|name| name.starts_with(word));
        let begun = begun.next().filter(|_| begun.next().is_none());
        let remedy = match begun.or_else(|| nearest(word, &all)) {
            Some(meant) => format!("did you mean {meant}?"),
            None if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                "a number belongs right after its word, and only overheads may be negative".to_owned()
            }
            None => "write one of these".to_owned(),
        };
        let remedy = meant_by(word).map_or(remedy, str::to_owned);
        Err(self.error(format_args!("is not a word of a SPEC, which has {}", known.join(", ")), remedy))
    }
}

/// Parses a SPEC.
pub(super) fn parse(text: &str) -> Result<Netem, ParseError> {
    let mut cursor = Cursor { text, words: text.split_whitespace().collect(), at: 0 };
    if cursor.words.is_empty() {
        return Err(ParseError::new("this SPEC is empty", "write impairments, such as delay 10ms loss 1%"));
    }
    let mut netem = Netem::default();
    let mut distribution: Option<Distribution> = None;
    let mut seen: Vec<&str> = Vec::new();
    while let Some(word) = cursor.keyword()? {
        if seen.contains(&word) {
            return Err(cursor.error("is given twice", "leave one out"));
        }
        seen.push(word);
        match word {
            "limit" => netem.limit = Some(limit(&mut cursor)?),
            "delay" => netem.delay = Some(delay(&mut cursor)?),
            "queue" => netem.aqm = Some(Aqm::parse(&mut cursor)?),
            "keep-order" => netem.keep_order = true,
            "distribution" => distribution = Some(name_of_distribution(&mut cursor)?),
            "loss" => netem.loss = loss(&mut cursor)?,
            "ecn" => netem.ecn = true,
            "corrupt" => {
                netem.corrupt = Some(cursor.chance()?);
                if cursor.peek() == Some("mode") {
                    cursor.next();
                    netem.mode = mode(&mut cursor)?;
                }
            }
            "duplicate" => netem.duplicate = Some(cursor.chance()?),
            "reorder" => netem.reorder = Some(cursor.chance()?),
            "gap" => {
                let few = |word: &str| {
                    tc::count(word)
                        .and_then(|n| u32::try_from(n).map_err(|_| ("is too large".into(), "write less".into())))
                };
                netem.gap = cursor.value(few, "a number of frames such as 5")?;
            }
            "rate" => netem.rate = Some(rate(&mut cursor, &mut netem.bytes_rate)?),
            "slot" => netem.slot = Some(slot(&mut cursor)?),
            "down" => netem.down = Some(down(&mut cursor)?),
            "mtu" => {
                let bytes = |word: &str| {
                    let number = word.trim_end_matches('B').parse().ok().filter(|n| (68..=65_535).contains(n));
                    number.ok_or_else(|| {
                        ("is not an MTU".into(), "write 68 to 65535, the longest IP packet in bytes".into())
                    })
                };
                netem.mtu = Some(cursor.value(bytes, "a length such as 1400")?);
                netem.icmp = cursor.peek() == Some("icmp");
                if netem.icmp {
                    cursor.next();
                }
            }
            "seed" => {
                let number =
                    |word: &str| word.parse().map_err(|_| ("is not a seed".into(), "write a whole number".into()));
                netem.seed = Some(cursor.value(number, "a whole number")?);
            }
            _ => {
                let known: Vec<&str> = super::PROFILES.iter().map(|profile| profile.name).collect();
                let named = |word: &str| {
                    let meant = nearest(word, &known).map(|name| format!(", perhaps {name}")).unwrap_or_default();
                    Profile::named(word).ok_or_else(|| {
                        (
                            format!("is not a profile{meant}"),
                            format!("write one of {}, or delay, rate and loss yourself", known.join(", ")),
                        )
                    })
                };
                let profile = cursor.value(named, "the name of a profile")?;
                if seen.len() > 1 {
                    return Err(cursor.error(
                        "comes after what it would undo",
                        "write the profile first; what follows replaces parts of it",
                    ));
                }
                netem = parse(profile.spec)?;
                seen.clear();
                seen.push("profile");
            }
        }
    }
    if netem.aqm.is_some() && seen.contains(&"profile") && !seen.contains(&"limit") {
        // A queue named explicitly replaces the queue of the profile.
        netem.limit = None;
    }
    finish(netem, distribution, &cursor)
}

/// Checks that the settings are compatible, and completes them.
fn finish(mut netem: Netem, distribution: Option<Distribution>, cursor: &Cursor<'_>) -> Result<Netem, ParseError> {
    let text = cursor.text;
    let impossible = |what: &str, remedy: &str| Err(ParseError::new(format!("'{text}': {what}"), remedy));
    if let Some(distribution) = distribution {
        match &mut netem.delay {
            Some(delay) if delay.jitter > Span::ZERO => delay.distribution = distribution,
            _ => {
                return impossible("a distribution needs a jitter", "write delay 10ms 2ms distribution normal");
            }
        }
    }
    let delays = netem.delay.as_ref().is_some_and(|delay| delay.most() > Span::ZERO || delay.jitter > Span::ZERO);
    if netem.reorder.is_some() && !delays {
        return impossible(
            "reorder sends some frames ahead of the delayed ones, but nothing is delayed",
            "add delay 10ms, or shape with --reorder 25%",
        );
    }
    if netem.reorder.is_none() && netem.gap > 0 {
        return impossible("gap only applies to reorder, and there is no reorder", "add reorder 25%");
    }
    if netem.reorder.is_some() && netem.gap == 0 {
        netem.gap = 1;
    }
    if netem.reorder.is_some() && netem.keep_order {
        return impossible("reorder changes the order and keep-order keeps it", "leave one out");
    }
    if netem.ecn && netem.loss == LossModel::None && netem.aqm.is_none() {
        return impossible(
            "ecn marks frames that loss or a queue has chosen, but there is neither",
            "add loss 1%, or rate 10mbit queue codel",
        );
    }
    if matches!(netem.limit, Some(QueueLimit::Wait(_))) && netem.rate.is_none() {
        return impossible("a limit of time bounds the wait for a rate, but there is no rate", "add rate 10mbit");
    }
    if let Some((what, remedy)) = netem.aqm.as_ref().and_then(|aqm| beside_queue(&netem, aqm)) {
        return impossible(&what, remedy);
    }
    check_delay(&netem)?;
    Ok(netem)
}

/// The problem and remedy of a setting that is incompatible with a queue, if any.
fn beside_queue(netem: &Netem, aqm: &Aqm) -> Option<(String, &'static str)> {
    let (what, remedy) = match (aqm, &netem.rate, netem.limit) {
        (_, None, _) => ("without a rate there is no queue", "add rate 10mbit"),
        (_, _, Some(QueueLimit::Wait(_))) => (
            "the queue itself bounds the wait, and a limit only its memory",
            "write the limit in frames or bytes, limit 1000",
        ),
        _ if netem.slot.is_some() => {
            ("frames wait for their slot after it, so it could not measure their wait", "leave one out")
        }
        (Aqm::FqCodel(_), ..) if netem.keep_order => {
            ("flows take turns, and keep-order keeps all frames in their order of arrival", "leave one out")
        }
        _ => return None,
    };
    Some((format!("queue {aqm}: {what}"), remedy))
}

/// Checks that the delays can be drawn.
pub(super) fn check_delay(netem: &Netem) -> Result<(), ParseError> {
    let Some(delay) = &netem.delay else { return Ok(()) };
    let Delayed { jitter, distribution, .. } = delay;
    if *jitter == Span::ZERO || !distribution.is_ready() {
        return Ok(());
    }
    let correlation = netem.delay_correlation();
    delay.means().try_for_each(|mean| {
        Values::of_distribution(distribution, mean, *jitter, correlation, Random::stream(0, "check")).map(drop)
    })
}

pub(super) fn limit(cursor: &mut Cursor<'_>) -> Result<QueueLimit, ParseError> {
    let read = |word: &str| {
        let none = || ("would pass no frame".to_owned(), "write 1 at least".to_owned());
        if word.ends_with('B') {
            return match units::parse_size(word) {
                Ok(0) => Err(none()),
                Ok(bytes) => Ok(QueueLimit::Bytes(bytes)),
                Err(error) => Err(("is not a size".to_owned(), error.to_string())),
            };
        }
        if word.ends_with('s') {
            return tc::time(word).map(QueueLimit::Wait);
        }
        match tc::count(word)? {
            0 => Err(none()),
            frames => Ok(QueueLimit::Frames(frames)),
        }
    };
    cursor.value(read, "frames, bytes or a time such as 1000, 64KiB or 50ms")
}

fn delay(cursor: &mut Cursor<'_>) -> Result<Delayed, ParseError> {
    if let Some(remedy) = cursor.peek().filter(|word| is_law(word)).and_then(meant_by) {
        cursor.next();
        return Err(cursor.error("is not a time; the distribution of a delay comes after its jitter", remedy));
    }
    let mean = cursor.time()?;
    let (mut jitter, mut correlation) = (Span::ZERO, Share::default());
    if cursor.number_follows() {
        jitter = cursor.time()?;
        if cursor.number_follows() {
            correlation = cursor.share()?;
        }
    }
    let mut steps: Vec<DelayStep> = Vec::new();
    while cursor.peek() == Some("then") {
        cursor.next();
        let mean = cursor.time()?;
        cursor.exactly("at", "then 80ms at 5s")?;
        let at = cursor.time()?;
        if at <= steps.last().map_or(Span::ZERO, |step| step.at) {
            return Err(cursor.error("is not after the time before it", "write steps in the order of time, after 0s"));
        }
        steps.push(DelayStep { at, mean });
    }
    Ok(Delayed { mean, jitter, correlation, distribution: Distribution::Uniform, steps })
}

fn name_of_distribution(cursor: &mut Cursor<'_>) -> Result<Distribution, ParseError> {
    let read = |word: &str| {
        let is_file = word.contains('/') || word.ends_with(".dist") || word == "experimental";
        if is_file || Distribution::NAMES.contains(&word) {
            return Ok(Distribution::named(word));
        }
        if is_law(word) {
            return Err(("is not a distribution of tc".to_owned(), LAW.to_owned()));
        }
        let meant = nearest(word, &Distribution::NAMES).map(|name| format!(", perhaps {name}")).unwrap_or_default();
        Err((
            format!("is not a distribution{meant}"),
            "write uniform, normal, pareto, paretonormal or FILE.dist".to_owned(),
        ))
    };
    cursor.value(read, "the name of a distribution")
}

fn mode(cursor: &mut Cursor<'_>) -> Result<Mode, ParseError> {
    let names = Mode::ALL.map(Mode::name);
    let read = |word: &str| {
        let meant = nearest(word, &names).map(|name| format!(", perhaps {name}")).unwrap_or_default();
        let mode = Mode::ALL.into_iter().find(|mode| mode.name() == word);
        mode.ok_or_else(|| (format!("is not a kind of corruption{meant}"), format!("write {}", names.join(", "))))
    };
    cursor.value(read, "bit, byte or checksum-valid")
}

fn loss(cursor: &mut Cursor<'_>) -> Result<LossModel, ParseError> {
    const MODELS: [&str; 4] = ["random", "state", "gemodel", "pattern"];
    if cursor.number_follows() {
        let chance = cursor.chance()?;
        // After a rate, the same word means a token bucket.
        if let Some(remedy) = cursor.peek().and_then(model_meant_by) {
            cursor.next();
            return Err(cursor.error("is not a part of a loss by single frames", remedy));
        }
        return Ok(LossModel::Random(chance));
    }
    let model = |word: &str| {
        let meant = nearest(word, &MODELS).map(|name| format!(", perhaps {name}")).unwrap_or_default();
        let model = MODELS.into_iter().find(|name| *name == word);
        model.ok_or_else(|| {
            (
                format!("is neither a share nor a loss model{meant}"),
                model_meant_by(word).unwrap_or("write loss 1%, or random, state, gemodel, pattern").to_owned(),
            )
        })
    };
    let model = cursor.value(model, "a share or a model")?;
    match model {
        "random" => return cursor.chance().map(LossModel::Random),
        "pattern" => {
            let word = cursor.value(|word| Ok(word.to_owned()), "0b1011 or a file")?;
            return Pattern::parse(&word).map(LossModel::Pattern);
        }
        _ => {}
    }
    let first = cursor.share()?;
    let rest = |taken: Share| Share::from_ppb(Share::ONE.ppb() - taken.ppb());
    let mut more = |default: Share| if cursor.number_follows() { cursor.share() } else { Ok(default) };
    if model == "gemodel" {
        let r = more(rest(first))?;
        let bad = more(Share::ONE)?;
        let good = more(Share::default())?;
        return Ok(LossModel::GilbertElliott { p: first, r, bad, good });
    }
    let p31 = more(rest(first))?;
    let p32 = more(Share::default())?;
    let p23 = more(Share::ONE)?;
    let p14 = more(Share::default())?;
    for (a, b, what) in [(first, p14, "p13 and p14"), (p31, p32, "p31 and p32")] {
        if a.ppb() + b.ppb() > Share::ONE.ppb() {
            return Err(cursor.error(
                format_args!("ends a model in which {what} are {a} and {b}, together more than 100%"),
                "write probabilities that add up to 100% at most: p13 [p31 [p32 [p23 [p14]]]]",
            ));
        }
    }
    Ok(LossModel::States { p13: first, p31, p32, p23, p14 })
}

fn rate(cursor: &mut Cursor<'_>, bytes_rate: &mut Option<String>) -> Result<Bottleneck, ParseError> {
    if cursor.peek() == Some("trace") {
        cursor.next();
        let file = cursor.value(|word| Ok(word.to_owned()), "a file of Mahimahi")?;
        return Ok(Bottleneck::Trace(Opportunities::of(&file)));
    }
    let word = cursor.peek().unwrap_or_default();
    let (rate, bytes) = cursor.value(tc::rate, "a rate such as 10mbit")?;
    if bytes {
        *bytes_rate = Some(word.to_owned());
    }
    let mut overhead = 0;
    let mut cell = 0;
    let mut cell_overhead = 0;
    if cursor.signed_follows() {
        overhead = cursor.value(tc::signed, "bytes of overhead")?;
        if cursor.number_follows() {
            let few = |word: &str| tc::signed(word).map(i32::unsigned_abs);
            cell = cursor.value(few, "bytes of a cell")?;
            if cursor.signed_follows() {
                cell_overhead = cursor.value(tc::signed, "bytes of overhead of a cell")?;
            }
        }
    }
    if cell_overhead != 0 && cell == 0 {
        return Err(
            cursor.error("is an overhead of cells, but there are no cells", "write the size of a cell before it, 48")
        );
    }
    if cell != 0 && i64::from(cell) + i64::from(cell_overhead) <= 0 {
        let what = format!("cancels cells of {cell} B, so that no frame would take any time");
        return Err(cursor.error(&what, "write an overhead above minus the size of a cell, 5"));
    }
    Ok(Bottleneck::Rate { rate, overhead, cell, cell_overhead })
}

fn slot(cursor: &mut Cursor<'_>) -> Result<Slot, ParseError> {
    let times = if cursor.peek() == Some("distribution") {
        cursor.next();
        let distribution = name_of_distribution(cursor)?;
        let mean = cursor.time()?;
        SlotTimes::Drawn(distribution, mean, cursor.time()?)
    } else {
        let min = cursor.time()?;
        let max = if cursor.number_follows() { cursor.time()? } else { min };
        if max < min {
            return Err(cursor.error("is less than the smallest time between slots", "write the smaller time first"));
        }
        SlotTimes::Between(min, max)
    };
    let mut slot = Slot { times, packets: 0, bytes: 0 };
    while let Some(word) = cursor.peek() {
        let field = match word {
            "packets" => &mut slot.packets,
            "bytes" => &mut slot.bytes,
            _ => break,
        };
        cursor.next();
        *field = cursor.value(tc::count, "a whole number")?;
    }
    Ok(slot)
}

fn down(cursor: &mut Cursor<'_>) -> Result<(Span, Span), ParseError> {
    let down = cursor.time()?;
    cursor.exactly("every", "down 2s every 30s")?;
    let period = cursor.time()?;
    if down == Span::ZERO || period <= down {
        return Err(cursor.error(
            "leaves the link never up or never down",
            "write a shorter time that it is down, down 2s every 30s",
        ));
    }
    Ok((down, period))
}

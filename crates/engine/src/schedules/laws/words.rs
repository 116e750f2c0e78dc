use units::{ParseError, Span};

/// Reads the words of a text one by one. A word in double quotes may contain blanks.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

/// Quotes a text if necessary, so that [`Words`] reads it as a single word.
pub(crate) fn as_word(text: &str) -> String {
    if text.contains(char::is_whitespace) { format!("\"{text}\"") } else { text.to_owned() }
}

impl<'a> Words<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let mut words = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (word, after) = match rest.strip_prefix('"').and_then(|quoted| quoted.split_once('"')) {
                Some(parts) => parts,
                None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
            };
            words.push(word);
            rest = after.trim_start();
        }
        Words { words, at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// Consumes the next word if it equals `word`.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.at += usize::from(is);
        is
    }

    /// Reads the value after `key`.
    fn value(&mut self, key: &str, example: &str) -> Result<&'a str, ParseError> {
        self.next().ok_or_else(|| ParseError::new(format!("'{key}' has no value"), format!("write {key} {example}")))
    }

    /// Reads a file name after `key`; `example` shows the whole form.
    pub(crate) fn file(&mut self, key: &str, example: &str) -> Result<&'a str, ParseError> {
        let missing = || ParseError::new(format!("{key} has no file"), format!("write {example}"));
        // A quote inside would not survive printing and parsing.
        self.next().filter(|word| !word.is_empty() && !word.contains('"')).ok_or_else(missing)
    }

    /// Reads a decimal number from `least` to `most`.
    pub(crate) fn number(&mut self, key: &str, least: f64, most: f64) -> Result<f64, ParseError> {
        let example = format!("{}", least.max(2.0));
        let word = self.value(key, &example)?;
        let decimal = word.chars().all(|c| c.is_ascii_digit() || c == '.') && word.chars().any(|c| c.is_ascii_digit());
        let number = word.parse::<f64>().ok().filter(|number| decimal && (least..=most).contains(number));
        number.ok_or_else(|| {
            ParseError::new(format!("'{key} {word}' is out of range"), format!("write a number from {least} to {most}"))
        })
    }

    /// Reads a time above zero.
    pub(crate) fn time(&mut self, key: &str) -> Result<Span, ParseError> {
        let word = self.value(key, "10us")?;
        let span: Span = word.parse()?;
        if span == Span::ZERO {
            return Err(ParseError::new(format!("'{key} {word}' is zero"), "write a time above zero"));
        }
        Ok(span)
    }

    /// Reads the time after `key`, if `key` comes next.
    pub(crate) fn time_after(&mut self, key: &str) -> Result<Option<Span>, ParseError> {
        if self.take(key) { self.time(key).map(Some) } else { Ok(None) }
    }

    /// Reads two times `A..B`, the first below the second.
    pub(crate) fn range(&mut self, key: &str) -> Result<(Span, Span), ParseError> {
        let word = self.value(key, "80us..120us")?;
        let (from, to) = word.split_once("..").ok_or_else(|| {
            ParseError::new(format!("'{word}' is not a range of times"), format!("write {key} 80us..120us"))
        })?;
        let (from, to): (Span, Span) = (from.parse()?, to.parse()?);
        if from >= to {
            return Err(ParseError::new(
                format!("the range '{word}' does not go up"),
                "write the smaller time first, 80us..120us",
            ));
        }
        Ok((from, to))
    }
}

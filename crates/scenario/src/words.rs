//! Splits streams into words.

use units::ParseError;

/// Splits a text into words. `>` is a separate word, and quotes may contain blanks.
pub(crate) fn split(text: &str) -> Result<Vec<String>, ParseError> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                // A quoted text is a word even if it is empty.
                word.push('\u{0}');
            }
            _ if quoted => word.push(c),
            '>' => words.extend([std::mem::take(&mut word), ">".to_owned()]),
            _ if c.is_whitespace() => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    if quoted {
        return Err(ParseError::new(format!("a quote in '{text}' does not end"), "add a closing \""));
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    Ok(words.into_iter().map(|word| word.replace('\u{0}', "")).collect())
}

/// Reads the words of a stream one by one.
pub(crate) struct Words<'a> {
    words: &'a [String],
    at: usize,
}

impl<'a> Words<'a> {
    pub(crate) fn new(words: &'a [String]) -> Self {
        Words { words, at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str)
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// The next word, which is the value of `of`.
    pub(crate) fn value(&mut self, of: &str) -> Result<&'a str, ParseError> {
        self.next().ok_or_else(|| ParseError::new(format!("'{of}' has no value"), format!("write a value after {of}")))
    }

    pub(crate) fn rest(&self) -> &'a [String] {
        &self.words[self.at..]
    }
    pub(crate) fn skip(&mut self, count: usize) {
        self.at += count;
    }
}

//! Typed values of a TOML file with their positions.

use crate::keys;
use crate::overrides::{self, Override};
use crate::problem::{Origin, Problems, Text};
use engine::schedules::Files;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use units::nearest;

/// Commands that a scenario runs as programs.
const COMMANDS: [&str; 3] = ["disk", "search", "slice"];

type Value<'i> = Spanned<DeValue<'i>>;

/// Reads a file and collects its problems.
pub(crate) struct Reader<'s> {
    file: &'s str,
    source: &'s str,
    /// Start of each line.
    lines: Vec<usize>,
    /// Values that replace those of the file. Their positions continue after the end of the source.
    set: &'s [Override],
    /// Source of the named files, if available.
    pub(crate) files: Option<&'s dyn Files>,
    pub(crate) problems: Problems,
    /// Characters before each multiple of [`CHUNK`] bytes. Counting from the start of a line for each text would take
    /// minutes if one line has many.
    counted: Vec<usize>,
}

const CHUNK: usize = 4_096;

/// The number of characters that begin in these bytes of UTF-8.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

impl<'s> Reader<'s> {
    /// A reader of `source`, whose name in messages is `file`. `set` replaces values.
    pub(crate) fn new(file: &'s str, source: &'s str, files: Option<&'s dyn Files>, set: &'s [Override]) -> Self {
        let lines = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut counted = vec![0];
        let mut sum = 0;
        for chunk in source.as_bytes().chunks(CHUNK) {
            sum += characters(chunk);
            counted.push(sum);
        }
        Reader { file, source, lines, set, files, problems: Problems::default(), counted }
    }

    /// The number of characters before the byte `end`.
    fn characters(&self, end: usize) -> usize {
        let chunk = end / CHUNK;
        self.counted[chunk] + characters(&self.source.as_bytes()[chunk * CHUNK..end])
    }

    /// Each replacement value, with the position of its first character.
    fn overrides(&self) -> impl Iterator<Item = (usize, &'s Override)> + use<'s> {
        self.set.iter().scan(self.source.len() + 1, |end, set| {
            let start = *end;
            *end += set.typed.len() + 1;
            Some((start, set))
        })
    }

    /// Applies the replacement values to the document.
    pub(crate) fn set(&mut self, document: &mut DeTable<'s>) {
        for (start, set) in self.overrides() {
            let path = start..start + set.path().len();
            if let Err(problem) = overrides::apply(document, set.path(), set.value(start), &path) {
                self.add(path, problem);
            }
        }
    }

    pub(crate) fn origin(&self, span: Range<usize>) -> Origin {
        if let Some((start, set)) = self.overrides().take_while(|(start, _)| *start <= span.start).last() {
            let before = set.typed.get(..span.start - start).unwrap_or(&set.typed);
            return Origin::Set { typed: set.typed.clone(), column: before.chars().count() + 1 };
        }
        let before = &self.source[..span.start.min(self.source.len())];
        let line = self.lines.partition_point(|start| *start <= before.len());
        let column = self.characters(before.len()) - self.characters(self.lines[line - 1]) + 1;
        Origin::File { file: self.file.to_owned(), line, column }
    }

    pub(crate) fn add(&mut self, span: Range<usize>, message: impl Into<String>) {
        let origin = self.origin(span);
        self.problems.add(&origin, message);
    }

    /// Adds a problem for each key that the table of this name does not have.
    pub(crate) fn check_keys(&mut self, table: &DeTable<'_>, of: &str) {
        let known = &keys::of_table(of)[..];
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if of.is_empty() && COMMANDS.contains(&name) {
                self.add(
                    key.span(),
                    format!(
                        "'{name}' is not a table of a scenario, because it is a command with a process of its own: write \
                         [[program]] with command = \"netlathe {name} …\""
                    ),
                );
            } else if !known.contains(&name) {
                let hint = match nearest(name, known) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => format!("write one of {}", known.join(", ")),
                };
                self.add(key.span(), format!("'{name}' is not known here: {hint}"));
            }
        }
    }

    pub(crate) fn text(&mut self, table: &DeTable<'_>, key: &str) -> Option<Text> {
        let value = table.get(key)?;
        self.string(value)
    }

    /// Reads a text that may also be a TOML number, because it has no unit.
    pub(crate) fn number(&mut self, table: &DeTable<'_>, key: &str) -> Option<Text> {
        let value = table.get(key)?;
        let digits = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return self.string(value),
        };
        Some(Text { value: digits.to_owned(), origin: self.origin(value.span()) })
    }

    pub(crate) fn texts(&mut self, table: &DeTable<'_>, key: &str) -> Vec<Text> {
        let Some(value) = table.get(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            self.add(value.span(), format!("{key} is not a list: write {key} = [\"…\"]"));
            return Vec::new();
        };
        array.iter().filter_map(|value| self.string(value)).collect()
    }

    /// Reads a text or a list of texts.
    pub(crate) fn one_or_more(&mut self, table: &DeTable<'_>, key: &str) -> Vec<Text> {
        match table.get(key).map(|value| value.get_ref()) {
            Some(DeValue::Array(_)) => self.texts(table, key),
            _ => self.text(table, key).into_iter().collect(),
        }
    }

    pub(crate) fn string(&mut self, value: &Value<'_>) -> Option<Text> {
        if let DeValue::String(text) = value.get_ref() {
            return Some(Text { value: text.to_string(), origin: self.origin(value.span()) });
        }
        let what = match value.get_ref() {
            DeValue::Integer(_) | DeValue::Float(_) => {
                "a bare number has no unit: write it in quotes with its unit, \"10us\""
            }
            _ => "a text is expected: write it in quotes",
        };
        self.add(value.span(), what);
        None
    }

    pub(crate) fn integer(&mut self, value: &Value<'_>) -> Option<u64> {
        let message = match value.get_ref() {
            DeValue::Integer(integer) => match u64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => return Some(integer),
                Err(_) if integer.as_str().starts_with('-') => "this is below zero: write 0 or more".into(),
                Err(_) => format!("this is too large: write at most {}", u64::MAX),
            },
            DeValue::Float(_) => "a whole number is expected: write it without point and exponent, 1000".into(),
            DeValue::String(_) => "a number is expected: write it without quotes, 1000".into(),
            _ => "a whole number is expected: write one, 1000".into(),
        };
        self.add(value.span(), message);
        None
    }

    pub(crate) fn boolean(&mut self, value: &Value<'_>) -> bool {
        if let DeValue::Boolean(boolean) = value.get_ref() {
            return *boolean;
        }
        self.add(value.span(), "write true or false");
        false
    }

    /// The tables of `[[header]]` with their positions. The last part of the header is their key in `table`.
    pub(crate) fn tables<'t, 'i>(
        &mut self,
        table: &'t DeTable<'i>,
        header: &str,
    ) -> Vec<(Range<usize>, &'t DeTable<'i>)> {
        let key = header.rsplit('.').next().unwrap_or_default();
        let Some(value) = table.get(key) else { return Vec::new() };
        let mut tables = Vec::new();
        let elements = value.get_ref().as_array().map_or(std::slice::from_ref(value), |array| array);
        for element in elements {
            match element.get_ref() {
                DeValue::Table(table) if value.get_ref().is_array() => tables.push((element.span(), table)),
                _ => self.add(element.span(), format!("'{key}' is a list of tables: write [[{header}]]")),
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_the_start_of_the_line() {
        let source = format!("a = 1\n{}b = 2\nµ{}c", "µs ".repeat(3_000), "x".repeat(2 * CHUNK));
        let reader = Reader::new("f", &source, None, &[]);
        let starts: Vec<usize> = source.char_indices().map(|(at, _)| at).collect();
        // In any order, each column is what counting from the start of the line gives.
        for at in starts.iter().rev().step_by(7).chain(&starts) {
            let line_start = source[..*at].rfind('\n').map_or(0, |end| end + 1);
            let counted = (source[..*at].matches('\n').count() + 1, source[line_start..*at].chars().count() + 1);
            let Origin::File { line, column, .. } = reader.origin(*at..*at) else { panic!("a file") };
            assert_eq!((line, column), counted);
        }
        let Origin::File { line, .. } = reader.origin(source.len() + 9..source.len() + 9) else { panic!("a file") };
        assert_eq!(line, 3);
    }
}

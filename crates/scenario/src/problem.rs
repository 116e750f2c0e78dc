use engine::schedules::Files;
use std::fmt::{self, Write};
use units::ParseError;

/// Where a text was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An option of the command line, as typed: `--gap`.
    Option(&'static str),
    /// A position in the value of `--set`.
    Set {
        /// The value as typed.
        typed: String,
        /// Column in characters, from 1.
        column: usize,
    },
    /// A position in a scenario file.
    File {
        /// The file's name as given.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Option(name) => f.write_str(name),
            Origin::Set { typed, column } => write!(f, "--set '{typed}', column {column}"),
            Origin::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
        }
    }
}

/// A text and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The text.
    pub value: String,
    /// The position.
    pub origin: Origin,
}

impl Text {
    /// The value of a command line option.
    pub fn option(name: &'static str, value: impl Into<String>) -> Self {
        Text { value: value.into(), origin: Origin::Option(name) }
    }
}

/// A problem in one line: position, problem and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The position.
    pub origin: Origin,
    /// The problem and the remedy.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        // Escapes control characters in quoted text, which could break lines or control the terminal.
        self.message.chars().try_for_each(|c| match c.is_control() {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

/// All problems of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds a problem.
    pub fn add(&mut self, origin: &Origin, message: impl Into<String>) {
        self.0.push(Problem { origin: origin.clone(), message: message.into() });
    }

    /// Parses a text. Adds the error if the text is invalid.
    pub fn read<T>(&mut self, text: &Text, parse: impl FnOnce(&str) -> Result<T, ParseError>) -> Option<T> {
        parse(&text.value).map_err(|error| self.add(&text.origin, error.to_string())).ok()
    }

    /// Parses a text, and loads the files that it names if `files` are available. Adds the errors of both.
    pub(crate) fn read_with_files<T>(
        &mut self,
        text: &Text,
        files: Option<&dyn Files>,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
        load: impl FnOnce(&mut T, &dyn Files) -> Result<(), ParseError>,
    ) -> Option<T> {
        self.read(text, |text| {
            let mut value = parse(text)?;
            files.map_or(Ok(()), |files| load(&mut value, files))?;
            Ok(value)
        })
    }

    /// Returns `value`, unless there were problems.
    ///
    /// # Errors
    /// The problems, if there are any.
    pub fn unless_any<T>(self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            let newline = if i > 0 { "\n" } else { "" };
            write!(f, "{newline}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

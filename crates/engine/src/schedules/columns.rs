//! Parses files of measured values as written by people and programs: lists, CSV, `numpy.savetxt`, R's `write.table`.

use std::path::Path;
use units::ParseError;

/// Parses the values of a file. `read` parses one value, or returns the problem and the remedy; `name` is for messages.
///
/// Blanks, commas and semicolons separate values, and `#` starts a comment. Skips lines such as `unit us`. If the first
/// line consists of names, it is a header; an additional column without a name then holds row names.
///
/// # Errors
/// The first word that is not a value, with its line; or a header with several columns.
pub(crate) fn read<T>(
    text: &str,
    name: &Path,
    read: impl Fn(&str) -> Result<T, (String, String)>,
) -> Result<Vec<T>, ParseError> {
    let mut values = Vec::new();
    // Number of columns that the header names.
    let mut named = None;
    let mut first = true;
    // Names in a comment before the first value, as numpy.savetxt writes them, and their line.
    let mut heading = None;
    let several = |number: usize, names: usize| {
        let what = format!("{}:{number}: {names} columns, of which one can be used", name.display());
        ParseError::new(what, "keep one, as cut -d , -f 2 does for commas")
    };
    for (number, line) in (1..).zip(text.lines()) {
        let (line, comment) = line.split_once('#').unwrap_or((line, ""));
        let line = line.trim();
        if line.is_empty() || unit(line).is_some() {
            let names = split(comment);
            if first && unit(comment).is_none() && names.len() > 1 && names.iter().all(is_name) {
                heading = Some((number, names.len()));
            }
            continue;
        }
        let mut words = split(line);
        let is_first = std::mem::take(&mut first);
        if is_first && words.iter().all(is_name) {
            let names = words.iter().filter(|word| !word.text.is_empty()).count();
            if names > 1 {
                return Err(several(number, names));
            }
            named = Some(names);
            continue;
        }
        let columns = heading.filter(|(_, names)| is_first && *names == words.len());
        // Row names are quoted, or stand in a column without a name.
        if words.iter().any(|word| !word.quoted) {
            words.retain(|word| !word.quoted);
        }
        if named.is_some_and(|named| words.len() == named + 1) {
            words.remove(0);
        }
        for word in words.iter().filter(|word| !word.text.is_empty()) {
            let value = read(word.text).map_err(|(what, remedy)| {
                ParseError::new(format!("{}:{number}: '{}' {what}", name.display(), word.text), remedy)
            })?;
            values.push(value);
        }
        if let Some((number, names)) = columns {
            return Err(several(number, names));
        }
    }
    Ok(values)
}

/// The unit of numbers without a suffix, from a line such as `unit us`. The line may be a comment, because
/// `numpy.savetxt` writes its header as one.
pub(crate) fn unit(line: &str) -> Option<&str> {
    line.trim_start_matches(['#', ' ', '\t']).strip_prefix("unit ").map(str::trim)
}

struct Word<'a> {
    text: &'a str,
    quoted: bool,
}

/// Whether a word is a name: it starts with a letter, or is quoted and not a number.
fn is_name(word: &Word<'_>) -> bool {
    let first = word.text.chars().next();
    first.map_or(word.quoted || word.text.is_empty(), |first| first.is_alphabetic() || first == '_')
}

/// Splits a line at blanks, commas and semicolons. Quoted text is one word, and so is an empty field before a comma.
fn split(line: &str) -> Vec<Word<'_>> {
    const SEPARATORS: [char; 2] = [',', ';'];
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (text, quoted, after) = match rest.strip_prefix('"').and_then(|inner| inner.split_once('"')) {
            Some((text, after)) => (text, true, after),
            None => {
                let end = rest.find(|c: char| c.is_whitespace() || SEPARATORS.contains(&c)).unwrap_or(rest.len());
                (&rest[..end], false, &rest[end..])
            }
        };
        words.push(Word { text, quoted });
        let after = after.trim_start();
        rest = after.strip_prefix(SEPARATORS).unwrap_or(after).trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<f64>, String> {
        let parse = |word: &str| word.parse().map_err(|_| ("is not a number".to_owned(), "write one".to_owned()));
        read(text, Path::new("f"), parse).map_err(|error| error.to_string())
    }

    #[test]
    fn refuses_several_columns() {
        for (text, line) in
            [("i,gap\n1,1.5\n", 1), ("# i gap\n0 1.5\n1 2.5\n", 1), ("# by numpy.savetxt of 3.1\n# i,gap\n0,1.5\n", 2)]
        {
            let error = values(text).expect_err("two columns");
            assert!(error.contains(&format!("f:{line}: 2 columns")), "{error}");
        }
        assert_eq!(values("# measured gaps\n1.5\n2.5\n"), Ok(vec![1.5, 2.5]), "a comment");
        assert_eq!(values("# three values\n1 2 3\n"), Ok(vec![1.0, 2.0, 3.0]), "a list");
    }

    #[test]
    fn reads_files_of_other_programs() {
        for text in [
            "1.5 2.5\n3\n",
            "1.5,2.5;3",
            "# numpy\n1.500000000000000000e+00\n2.500000000000000000e+00\n3.000000000000000000e+00\n",
            "\"x\"\n\"1\" 1.5\n\"2\" 2.5\n\"3\" 3\n",
            "\"\",\"x\"\n\"1\",1.5\n\"2\",2.5\n\"3\",3\n",
            "x\n1 1.5\n2 2.5\n3 3\n",
            ",gap\n0,1.5\n1,2.5\n2,3\n",
            "\"\" \"x\"\n\"row one\" 1.5\n\"row two\" 2.5\n\"row three\" 3\n",
            "gap_us\r\n1.5\r\n2.5\r\n3\r\n",
            "unit us\nx\n1.5\n2.5\n3\n",
            "\"1.5\"\n\"2.5\"\n\"3\"\n",
            "1.5,\n2.5,\n3,\n",
            "1.5\t2.5 # more\n\n3",
        ] {
            assert_eq!(values(text), Ok(vec![1.5, 2.5, 3.0]), "{text:?}");
        }
    }

    #[test]
    fn errors_of_invalid_words_name_their_line() {
        assert_eq!(values("1\nx\n"), Err("f:2: 'x' is not a number: write one".into()));
        assert_eq!(values("gap\nnext\n1\n"), Err("f:2: 'next' is not a number: write one".into()));
        assert_eq!(values("1\nNA\n"), Err("f:2: 'NA' is not a number: write one".into()));
        assert!(values("t,gap\n1,2\n").is_err_and(|error| error.starts_with("f:1: 2 columns")));
        assert_eq!(values(""), Ok(vec![]));
    }
}

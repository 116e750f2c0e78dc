//! Help that fits the terminal: descriptions of options are wrapped at their own column. The text after the options
//! stays as written, so that examples can be copied.

use crate::output::{self, Failure};
use console::Term;

/// Minimum width of descriptions in columns. On narrower terminals they start on the line below the option.
const LEAST: usize = 32;
/// Indentation of descriptions below the option.
const BELOW: usize = 10;

/// Prints help or the version on stdout.
pub(crate) fn print(message: &clap::Error) -> Result<(), Failure> {
    let text = message.render();
    let plain = text.to_string();
    let terminal = Term::stdout();
    if !terminal.is_term() {
        return output::print(&plain);
    }
    let styled = if console::colors_enabled() { text.ansi().to_string() } else { plain.clone() };
    let columns = terminal.size_checked().map_or(usize::MAX, |(_, columns)| columns.into());
    output::styled(&folded(&plain, &styled, columns)).map(drop)
}

/// Returns the help with descriptions wrapped to `columns`. `styled` is `plain` with escape sequences.
fn folded(plain: &str, styled: &str, columns: usize) -> String {
    let mut out = String::with_capacity(styled.len());
    let mut listed = false;
    for (line, styled) in plain.lines().zip(styled.lines()) {
        listed = match line {
            "Options:" | "Arguments:" | "Commands:" => true,
            "" => false,
            _ => listed,
        };
        match description(line).filter(|_| listed && line.chars().count() > columns) {
            // Descriptions are not styled, so both texts end with the same words.
            Some((column, words)) if styled.ends_with(words) => {
                let head = &styled[..styled.len() - words.len()];
                if columns < column + LEAST && !head.trim().is_empty() {
                    out.push_str(&format!("{}\n{}", head.trim_end(), " ".repeat(BELOW)));
                    fold(&mut out, words, BELOW, columns);
                } else {
                    out.push_str(head);
                    fold(&mut out, words, column, columns);
                }
            }
            // Notes are sentences and are wrapped. Examples are indented and stay as written.
            _ if line.chars().count() > columns && line == styled && !line.starts_with([' ', '{']) => {
                fold(&mut out, line, 0, columns);
            }
            _ => out.push_str(styled),
        }
        out.push('\n');
    }
    out
}

/// Splits a line of options: returns the column at which the description begins, and the description.
fn description(line: &str) -> Option<(usize, &str)> {
    let indent = line.len() - line.trim_start().len();
    let begin = match line[indent..].find("  ") {
        Some(gap) => line.len() - line[indent + gap..].trim_start().len(),
        // The description is already below its option.
        None if indent >= BELOW => indent,
        None => return None,
    };
    Some((line[..begin].chars().count(), &line[begin..]))
}

/// Appends words, wrapped to `columns`, with every line starting at `column`.
fn fold(out: &mut String, words: &str, column: usize, columns: usize) {
    let mut used = column;
    for word in words.split(' ') {
        let width = word.chars().count();
        if used > column {
            if used + 1 + width > columns {
                out.push_str(&format!("\n{}", " ".repeat(column)));
                used = column;
            } else {
                out.push(' ');
                used += 1;
            }
        }
        out.push_str(word);
        used += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "\
Do a thing that takes long to describe in one line

Options:
      --out <PORT>   Port that frames leave by
      --rate <RATE>  Rate to keep: 5Gbps, '5Gbps wire', 1.2Mpps, 50%, 'burst 8Gbps for 2ms every 10ms'
  -q, --quiet        Print no report

Examples:
  netlathe gen --out eth0 --rate 5Gbps --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000'";

    #[test]
    fn descriptions_are_folded_at_their_column_and_nothing_else_is() {
        let wide = folded(HELP, HELP, 200);
        assert_eq!(wide, format!("{HELP}\n"));
        let narrow = folded(HELP, HELP, 60);
        let expected = "\
      --rate <RATE>  Rate to keep: 5Gbps, '5Gbps wire',
                     1.2Mpps, 50%, 'burst 8Gbps for 2ms
                     every 10ms'
  -q, --quiet ";
        assert!(narrow.contains(expected), "{narrow}");
        assert!(narrow.contains("'udp 10.0.0.1:1000 > 10.0.0.2:2000'\n"), "examples can be copied: {narrow}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in 1..120 {
            let text = folded(HELP, HELP, columns);
            assert_eq!(words(&text), words(HELP), "nothing is lost at {columns}");
            let options = text.lines().skip_while(|line| *line != "Options:").take_while(|line| !line.is_empty());
            let widest = options.map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(columns < 40 || widest <= columns, "{widest} at {columns}: {text}");
        }
    }

    #[test]
    fn notes_fold_and_examples_do_not() {
        let help = "Examples:\n  netlathe gen --out null --count 1000000 --rate 1Mpps\n\nNotes are sentences that are as long as they like.";
        let narrow = folded(help, help, 30);
        assert!(narrow.contains("  netlathe gen --out null --count 1000000 --rate 1Mpps\n"), "{narrow}");
        assert!(narrow.contains("Notes are sentences that are\nas long as they like."), "{narrow}");
    }

    #[test]
    fn narrow_help_puts_descriptions_below_and_keeps_styles() {
        let styled = HELP.replace("--rate", "\u{1b}[1m--rate\u{1b}[0m");
        let text = folded(HELP, &styled, 40);
        assert!(text.contains("\u{1b}[1m--rate\u{1b}[0m <RATE>\n          Rate to keep: 5Gbps,"), "{text}");
    }
}

//! HTML-safe text, and tables.

use std::fmt::Write;

/// The text with HTML markup escaped.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(character),
            // Programs print these. They would control a terminal that shows the file, or reorder its text.
            other if other.is_control() || is_bidi(other) => safe.push(char::REPLACEMENT_CHARACTER),
            other => safe.push(other),
        }
    }
    safe
}

/// Characters that change the direction of text (Unicode TR9).
fn is_bidi(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with HTML markup escaped, and non-breaking spaces within figures and before their units.
pub(crate) fn figures(text: &str) -> String {
    const UNITS: [&str; 11] = ["%", "ps", "ns", "µs", "ms", "s", "B", "bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
    let mut kept = String::with_capacity(text.len());
    for (i, word) in text.split(' ').enumerate() {
        let bare = word.trim_end_matches([',', ';', '.', ':', ')']);
        let group = bare.split('.').next().unwrap_or_default();
        let goes_on = UNITS.contains(&bare) || group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
        if i > 0 {
            kept.push(if goes_on && kept.ends_with(|c: char| c.is_ascii_digit()) { '\u{a0}' } else { ' ' });
        }
        kept.push_str(word);
    }
    escape(&kept)
}

/// Sentences in a list with a heading.
pub(crate) fn notes(heading: &str, notes: &[String]) -> String {
    let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    format!(
        "<section class=\"stack\"><h2>{heading}</h2>\n<div class=\"card\"><ul class=\"list\">\n{items}</ul></div></section>\n"
    )
}

/// A table. The first cell of a row is its heading. Cells are plain text.
pub(crate) fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!("<div class=\"wide\"><table><caption>{}</caption>\n", figures(caption));
    // Writing to a string cannot fail.
    if !head.is_empty() {
        out.push_str("<thead><tr>");
        for name in head {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escape(name));
        }
        out.push_str("</tr></thead>\n");
    }
    out.push_str("<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let cell = figures(cell);
            let _ = if i == 0 { write!(out, "<th scope=\"row\">{cell}</th>") } else { write!(out, "<td>{cell}</td>") };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A section that the reader can expand.
pub(crate) fn details(summary: &str, content: &str) -> String {
    format!("<details><summary>{}</summary>\n{content}</details>\n", escape(summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stay_on_one_line() {
        for (text, kept) in [
            ("99 806 of 100 972", "99\u{a0}806 of 100\u{a0}972"),
            ("3.2 ms to 3.5 ms, 1 063 (0.01 %)", "3.2\u{a0}ms to 3.5\u{a0}ms, 1\u{a0}063 (0.01\u{a0}%)"),
            ("5 Gbit/s in 7 windows", "5\u{a0}Gbit/s in 7 windows"),
            ("123 430.584 at 10.584", "123\u{a0}430.584 at 10.584"),
            ("1 byte time", "1 byte time"),
            ("tcp dport 8080 payload \"<i>\"", "tcp dport 8080 payload &quot;&lt;i&gt;&quot;"),
        ] {
            assert_eq!(figures(text), kept);
        }
    }

    #[test]
    fn markup_in_text_stays_text() {
        assert_eq!(escape("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
        assert!(table("<i>", &["<b>"], &[vec!["<u>".into(), "<p>".into()]]).matches("&lt;").count() == 4);
    }
}

/// The word of `known` that `word` probably means: it differs by a letter or two, or only one of them is longer. `None`
/// if `word` is in `known`: then it is in the wrong place, and its spelling is not the problem.
#[must_use]
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if known.contains(&word) {
        return None;
    }
    let typed = word.to_lowercase();
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let (short, long) = if typed.len() < name.len() { (&typed, &name) } else { (&name, &typed) };
        let letters = strsim::osa_distance(&typed, &name);
        let allowed = match short.chars().count() {
            // Two-letter words have little in common once one letter differs.
            0..=2 => 0,
            3..=6 => 1,
            _ => 2,
        };
        if letters <= allowed {
            Some(letters)
        } else {
            (short.len() >= 3 && long.starts_with(short.as_str())).then_some(allowed + 1)
        }
    };
    let scored = known.iter().filter_map(|name| Some((distance(name)?, name.len(), *name)));
    scored.min().map(|(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_misspelt_words() {
        let known = ["delay", "loss", "corrupt", "duplicate", "distribution", "rate", "fq_codel", "max_ns"];
        for (word, meant) in [
            ("dely", "delay"),
            ("dealy", "delay"),
            ("losss", "loss"),
            ("los", "loss"),
            ("Delay", "delay"),
            ("corupt", "corrupt"),
            ("duplcate", "duplicate"),
            ("distrib", "distribution"),
            ("max", "max_ns"),
            ("fqcodel", "fq_codel"),
            ("rates", "rate"),
        ] {
            assert_eq!(nearest(word, &known), Some(meant), "{word}");
        }
    }

    #[test]
    fn does_not_suggest_unrelated_words() {
        let known = ["quiet", "pacer", "then", "loss", "in", "out", "rate"];
        for word in ["junit", "iface", "then", "x", "", "ports", "gate-keeper", "on"] {
            assert_eq!(nearest(word, &known), None, "{word}");
        }
    }
}

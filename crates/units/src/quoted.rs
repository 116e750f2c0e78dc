use std::borrow::Cow;

/// Quotes a name, if necessary, so that a shell reads it as one word in commands that users copy.
#[must_use]
pub fn quoted(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@:+,/-".contains(c);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        return name.into();
    }
    format!("'{}'", name.replace('\'', "'\\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_names_that_a_shell_would_split_or_expand() {
        for plain in ["eth0", "gen-b0", "eth0.5", "wlan_1", "0000:03:00.1"] {
            assert_eq!(quoted(plain), plain);
        }
        for (name, written) in [
            ("a;reboot", "'a;reboot'"),
            ("$(x)", "'$(x)'"),
            ("it's", r"'it'\''s'"),
            ("-x", "'-x'"),
            ("", "''"),
            ("a*", "'a*'"),
        ] {
            assert_eq!(quoted(name), written);
        }
    }
}

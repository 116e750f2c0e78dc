//! Changes at given times of a run: `timeline = ["at 10s: down.delay = 80ms"]`.

use crate::plan::PipelinePlan;
use crate::problem::{Origin, Text};
use crate::reader::Reader;
use crate::settings::{SettingChange, Settings};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};
use units::{ParseError, Span, nearest};

/// A change at a time since the start of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineChange {
    /// The time.
    pub at: Span,
    /// The change.
    pub change: SettingChange,
}

const HOW: &str = "write at 10s: down.delay = 80ms, or at 10s: profile NAME";

/// Settings that a timeline applies together.
type Profile = Vec<(Text, Text)>;

impl Reader<'_> {
    /// Reads the timeline, in time order. Checks each change against the settings that the earlier changes leave.
    pub(crate) fn timeline(&mut self, table: &DeTable<'_>, plans: &[PipelinePlan]) -> Vec<TimelineChange> {
        let profiles = self.profiles(table);
        let mut sets: Vec<(Span, Text, Text)> = Vec::new();
        for entry in self.texts(table, "timeline") {
            let before = sets.len();
            if let Err((offset, error)) = entry_of(&entry, &profiles, &mut sets) {
                sets.truncate(before);
                self.problems.add(&behind(&entry.origin, &entry.value, offset), error.to_string());
            }
        }
        // Changes at the same time keep their order.
        sets.sort_by_key(|(at, ..)| *at);
        let mut settings = Settings::of(plans);
        let mut timeline = Vec::new();
        for (at, path, value) in sets {
            match settings.check(&path.value, &value.value, self.files) {
                Ok(change) => {
                    settings.apply(&change);
                    timeline.push(TimelineChange { at, change });
                }
                Err(error) => {
                    let text = error.to_string();
                    let origin =
                        if text.contains(&format!("'{}' is not a setting", path.value)) { &path } else { &value };
                    self.problems.add(&origin.origin, text);
                }
            }
        }
        timeline
    }

    /// The profiles, each with its settings in file order.
    fn profiles(&mut self, table: &DeTable<'_>) -> BTreeMap<String, Profile> {
        let mut profiles = BTreeMap::new();
        let Some(value) = table.get("profile") else { return profiles };
        let DeValue::Table(tables) = value.get_ref() else {
            self.add(value.span(), "profile is a table of settings: write [profile.NAME] and PATH = \"VALUE\" in it");
            return profiles;
        };
        for (name, value) in tables {
            let DeValue::Table(table) = value.get_ref() else {
                self.add(value.span(), format!("write [profile.{}] and PATH = \"VALUE\" in it", name.get_ref()));
                continue;
            };
            let mut sets = Vec::new();
            self.flatten(table, "", &mut sets);
            profiles.insert(name.get_ref().to_string(), sets);
        }
        profiles
    }

    /// The settings of a table. In TOML, `down.delay = "80ms"` is a table within a table.
    fn flatten(&mut self, table: &DeTable<'_>, prefix: &str, sets: &mut Profile) {
        for (key, value) in table {
            let path = format!("{prefix}{}", key.get_ref());
            if let DeValue::Table(inner) = value.get_ref() {
                self.flatten(inner, &format!("{path}."), sets);
            } else if let Some(text) = self.string(value) {
                let origin = self.origin(key.span());
                sets.push((Text { value: path, origin }, text));
            }
        }
    }
}

/// Adds the settings of an entry of the timeline. Errors have their offset in the entry.
fn entry_of(
    entry: &Text,
    profiles: &BTreeMap<String, Profile>,
    sets: &mut Vec<(Span, Text, Text)>,
) -> Result<(), (usize, ParseError)> {
    let text = entry.value.as_str();
    let wrong = |offset: usize, what: String| Err((offset, ParseError::new(what, HOW)));
    let Some((time, rest)) = text.split_once(':') else {
        return wrong(0, format!("'{text}' has no ':' after its time"));
    };
    let Some(time) = time.trim().strip_prefix("at ") else {
        return wrong(0, format!("'{text}' does not start with a time"));
    };
    let offset = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    let time = time.trim();
    let at = time.parse::<Span>().map_err(|error| (offset(time), error))?;
    let rest = rest.trim();
    if let Some((path, value)) = rest.split_once('=') {
        let (path, value) = (path.trim(), value.trim());
        if path.is_empty() || value.is_empty() {
            return wrong(offset(rest), format!("'{rest}' sets nothing"));
        }
        let part = |part: &str| Text { value: part.to_owned(), origin: behind(&entry.origin, text, offset(part)) };
        sets.push((at, part(path), part(value)));
        return Ok(());
    }
    let Some(name) = rest.strip_prefix("profile ").map(str::trim) else {
        return wrong(offset(rest), format!("'{rest}' changes nothing"));
    };
    let Some(profile) = profiles.get(name) else {
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        let remedy = match nearest(name, &names) {
            Some(meant) => format!("did you mean {meant}?"),
            None if names.is_empty() => format!("write [profile.{name}] with its settings"),
            None => format!("write one of {}", names.join(", ")),
        };
        return Err((offset(name), ParseError::new(format!("there is no profile '{name}'"), remedy)));
    };
    sets.extend(profile.iter().map(|(path, value)| (at, path.clone(), value.clone())));
    Ok(())
}

/// The position `offset` bytes after the start of a quoted text.
fn behind(origin: &Origin, text: &str, offset: usize) -> Origin {
    match origin {
        Origin::File { file, line, column } => {
            let column = column + 1 + text[..offset].chars().count();
            Origin::File { file: file.clone(), line: *line, column }
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::SettingValue;

    const PIPELINE: &str = r#"
[[pipeline]]
name = "down"
in = "pcap:in.pcap"
out = "wire:10G"
rate = "1Gbps"
stages = ["delay 20ms"]

[profile.weak]
down.rate = "100Mbps"
"down.delay" = "200ms"
"#;

    fn read(timeline: &str) -> Result<crate::Scenario, String> {
        let text = format!("schema = 1\ntimeline = [{timeline}]\n{PIPELINE}");
        crate::read("a.toml", &text, None).map_err(|problems| problems.to_string())
    }

    #[test]
    fn timeline_is_in_order_of_time_and_profiles_are_sets() {
        let scenario =
            read("'at 3s: down.loss = 1%', 'at 500ms: profile weak', 'at 3s: down.loss = off'").expect("a timeline");
        let paths: Vec<_> = scenario
            .timeline
            .iter()
            .map(|at| (at.at.as_ps() / 1_000_000_000, at.change.path.as_str(), at.change.value.as_str()))
            .collect();
        assert_eq!(
            paths,
            [
                (500, "down.rate", "100Mbps"),
                (500, "down.delay", "200ms"),
                (3_000, "down.loss", "1%"),
                (3_000, "down.loss", "off")
            ]
        );
        assert!(matches!(scenario.timeline[3].change.to, SettingValue::Stage(1, None)));
        let printed = scenario.to_string();
        assert_eq!(crate::read("b.toml", &printed, None).as_ref(), Ok(&scenario), "{printed}");
    }

    #[test]
    fn errors_have_the_column_within_the_entry() {
        for (entry, column, expected) in [
            ("at 1s down.rate = 1Gbps", 14, "no ':'"),
            ("in 1s: down.rate = 1Gbps", 14, "does not start with a time"),
            ("at 1: down.rate = 1Gbps", 17, "unit"),
            ("at 1s: down.rate", 21, "changes nothing"),
            ("at 1s: down.rat = 1Gbps", 21, "did you mean down.rate?"),
            ("at 1s: down.rate = 11Gbps", 33, "above the line rate"),
            ("at 1s: down.delay = fast", 34, "fast"),
            ("at 1s: profile week", 29, "did you mean weak?"),
            ("at 1s: = 1Gbps", 21, "sets nothing"),
        ] {
            let error = read(&format!("'{entry}'")).expect_err(entry);
            let position = format!("a.toml:2:{column}: ");
            assert!(error.starts_with(&position) && error.contains(expected), "{entry}: {error}");
        }
    }
}

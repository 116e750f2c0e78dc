//! Help on commands, and lists of accepted words. Each list is the one that the parser uses.

use crate::options::Arguments;
use crate::options::help::Help;
use crate::output::{self, Failure};
use crate::render::help;
use clap::{CommandFactory, Parser};
use engine::Kind;
use engine::classes::Rule;
use engine::schedules::laws::Law;
use engine::schedules::waves::Wave;
use engine::stages::StageConfig;
use measure::Named;
use packet::Key;
use packet::layers::{LayerKind, Role};
use scenario::{KEYS, PortSpec, STREAM_KEYS};
use std::process::ExitCode;

impl Help {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let topic: Vec<&str> = self.topic.iter().map(String::as_str).collect();
        match topic[..] {
            ["figures"] => output::print(&figures("")?)?,
            ["report-schema"] => output::print(&report_schema()?)?,
            ["figures", path] => output::print(&figures(path)?)?,
            [list] if kinds(list).is_some() => output::print(&table(list, &kinds(list).unwrap_or_default()))?,
            // Names of fields may have two words.
            [list, ref name @ ..] if !name.is_empty() && kinds(list).is_some() => {
                output::print(&entry(list, &name.join(" "), &kinds(list).unwrap_or_default())?)?;
            }
            _ => return command(&topic),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The lists of entries. The list of figures is separate, because figures have no grammar and no example.
const LISTS: [&str; 8] = ["stages", "laws", "waves", "ports", "rules", "fields", "layers", "keys"];

/// An accepted word of a list, with its grammar and an example.
struct Entry {
    name: String,
    grammar: String,
    summary: String,
    example: String,
}

impl From<&Kind> for Entry {
    fn from(kind: &Kind) -> Entry {
        let Kind { name, grammar, summary, example } = *kind;
        Entry {
            name: name.to_owned(),
            grammar: grammar.to_owned(),
            summary: summary.to_owned(),
            example: example.to_owned(),
        }
    }
}

impl From<&Key> for Entry {
    fn from(key: &Key) -> Entry {
        let (name, kind) = (key.name(), key.kind());
        Entry {
            name: name.to_owned(),
            grammar: format!("{name} {}", kind.grammar()),
            summary: format!("of a stream: {}", key.meaning()),
            example: format!("{name} {}", kind.example()),
        }
    }
}

impl From<&LayerKind> for Entry {
    fn from(kind: &LayerKind) -> Entry {
        let description = kind.description();
        let name = description.name;
        let example = description
            .fields
            .iter()
            .find(|field| field.role == Role::Plain && field.bare)
            .unwrap_or(&description.fields[0]);
        Entry {
            name: name.to_owned(),
            grammar: fields_of(*kind),
            summary: description.about.to_owned(),
            example: format!("{name} {} {}", example.name, example.kind.one()),
        }
    }
}

/// Returns one line per field of a protocol.
fn fields_of(kind: LayerKind) -> String {
    let description = kind.description();
    let name = description.name;
    let width = description.fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    let lines = description.fields.iter().map(|field| {
        let values = field.kind.grammar();
        format!("{name} {:<width$}  {:<12}  {}", field.name, values, field.about)
    });
    lines.collect::<Vec<_>>().join("\n  ")
}

/// The conditions of rules: those with a grammar of their own, and each protocol with its fields.
fn rules() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Rule::CONDITIONS.iter().map(Entry::from).collect();
    for kind in LayerKind::ALL {
        match entries.iter_mut().find(|entry| entry.name == kind.name()) {
            Some(entry) => entry.grammar = format!("{}\n  {}", entry.grammar, fields_of(*kind)),
            None => {
                let entry = Entry::from(kind);
                entries.push(Entry { grammar: format!("{}\n  {}", entry.name, entry.grammar), ..entry });
            }
        }
    }
    entries
}

/// Every field of every protocol, by its shortest name, then the words that only streams accept.
fn fields() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for kind in LayerKind::ALL {
        for field in kind.description().fields {
            let name = if field.bare { field.name.to_owned() } else { format!("{} {}", kind.name(), field.name) };
            let values = field.kind;
            match entries.iter_mut().find(|entry| entry.name == name) {
                Some(entry) if entry.summary.contains(field.about) => {
                    entry.summary = format!("{}, {}", entry.summary, kind.name());
                }
                Some(entry) => entry.summary = format!("{}; {}: {}", entry.summary, field.about, kind.name()),
                None => entries.push(Entry {
                    grammar: format!("{name} {}", values.grammar()),
                    summary: if field.bare {
                        format!("{}: {}", field.about, kind.name())
                    } else {
                        field.about.to_owned()
                    },
                    example: format!("{name} {}", values.one()),
                    name,
                }),
            }
        }
    }
    let of_streams = Key::ALL.iter().filter(|key| entries.iter().all(|entry| entry.name != key.name()));
    let of_streams: Vec<Entry> = of_streams.map(Entry::from).collect();
    entries.extend(of_streams);
    entries.extend(STREAM_KEYS.iter().map(|key| {
        let entry = Entry::from(key);
        Entry { summary: format!("of a stream: {}", entry.summary), ..entry }
    }));
    entries
}

/// The entries of a list; `None` if there is no such list.
fn kinds(list: &str) -> Option<Vec<Entry>> {
    let of = |kinds: &[Kind]| kinds.iter().map(Entry::from).collect();
    Some(match list {
        "stages" => of(StageConfig::KINDS),
        "laws" => of(Law::KINDS),
        "waves" => of(Wave::KINDS),
        "ports" => of(PortSpec::KINDS),
        "rules" => rules(),
        "fields" => fields(),
        "keys" => of(KEYS),
        "layers" => LayerKind::ALL.iter().map(Entry::from).collect(),
        _ => return None,
    })
}

/// A line for each entry.
fn table(list: &str, entries: &[Entry]) -> String {
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let lines: String = entries.iter().map(|entry| format!("{:<width$}   {}\n", entry.name, entry.summary)).collect();
    format!("{lines}\nnetlathe help {list} NAME shows the grammar and an example\n")
}

/// Returns the summary, the grammar and the example of one entry.
fn entry(list: &str, name: &str, entries: &[Entry]) -> Result<String, Failure> {
    let Some(entry) = entries.iter().find(|entry| entry.name == name) else {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let how = match units::nearest(name, &names) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("netlathe help {list} lists them"),
        };
        return Err(Failure::new(format!("'{name}' is not in the list of {list}: {how}")));
    };
    let Entry { grammar, summary, example, .. } = entry;
    Ok(format!("{name}: {summary}\n\n  {grammar}\n\nExample:\n  {example}\n"))
}

/// The figures of a report at and below a path, with their meanings. An empty path lists all.
fn figures(path: &str) -> Result<String, Failure> {
    let parts: Vec<String> = path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    if let Named::Nothing(at, known) = measure::named(&parts) {
        let how = match units::nearest(&parts[at], &known) {
            Some(meant) => format!("did you mean {meant}?"),
            None if known.is_empty() => format!("{} is a figure", parts[..at].join(".")),
            None => format!("there are {}", known.join(", ")),
        };
        return Err(Failure::new(format!("there is no figure '{path}' in reports: {how}")));
    }
    let group = match measure::named(&parts) {
        Named::Figure(figure) => figure.path.clone(),
        _ => parts,
    };
    let found: Vec<(String, &str)> = measure::all_figures()
        .iter()
        .filter(|figure| figure.path.starts_with(&group) && !figure.path.iter().any(|name| name.ends_with("[]")))
        .map(|figure| (figure.path.join("."), figure.meaning.as_str()))
        .collect();
    let width = found.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    let line = |(path, meaning): &(String, &str)| format!("{path:<width$}   {meaning}").trim_end().to_owned() + "\n";
    Ok(found.iter().map(line).collect())
}

/// Returns the JSON schema of pipeline reports.
pub(crate) fn report_schema() -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(&measure::report_schema()).map_err(Failure::new)? + "\n")
}

/// Prints the same help of a command as its `--help`.
fn command(topic: &[&str]) -> Result<ExitCode, Failure> {
    let mut known = Arguments::command();
    for name in topic {
        let Some(inner) = known.find_subcommand(name) else {
            let mut names: Vec<&str> = known.get_subcommands().map(clap::Command::get_name).collect();
            names.extend(LISTS);
            names.extend(["figures", "report-schema"]);
            let how = match units::nearest(name, &names) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "netlathe help help shows the lists, netlathe --help the commands".to_owned(),
            };
            return Err(Failure::new(format!("there is no command or list '{name}': {how}")));
        };
        known = inner.clone();
    }
    let words = ["netlathe"].iter().chain(topic).chain(&["--help"]);
    if let Err(message) = Arguments::try_parse_from(words) {
        help::print(&message)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Protocol;

    #[test]
    fn every_list_has_entries_with_a_summary_and_distinct_names() {
        for list in LISTS {
            let entries = kinds(list).expect(list);
            assert!(entries.len() > 4, "{list}");
            for (at, entry) in entries.iter().enumerate() {
                let Entry { name, grammar, summary, example } = entry;
                assert!(!summary.is_empty() && !grammar.is_empty() && !example.is_empty(), "{list} {name}");
                assert!(entries[..at].iter().all(|other| other.name != *name), "{list} {name}");
            }
        }
    }

    #[test]
    fn examples_of_rules_and_fields_are_accepted() {
        for Entry { name, example, .. } in kinds("rules").expect("rules") {
            assert!(example.parse::<Rule>().is_ok(), "{name}: {example}");
        }
        // The stream has all keys that its protocol needs, so that only the tested key is added.
        let ends = [("src", "10.0.0.1"), ("dst", "10.0.0.2"), ("sport", "1"), ("dport", "2")];
        for Entry { name, example, .. } in kinds("fields").expect("fields") {
            let name = name.as_str();
            let in_stream = Protocol::ALL.iter().any(|protocol| {
                [0, 2, 4].into_iter().any(|needed| {
                    let others = ends[..needed].iter().filter(|(key, _)| *key != name);
                    let others: String = others.map(|(key, value)| format!(" {key} {value}")).collect();
                    let tag = if ["svlan", "spcp", "pcp"].contains(&name) { " vlan 5 svlan 7" } else { "" };
                    let tag = if name == "svlan" { " vlan 5" } else { tag };
                    let stream = format!("{}{others}{tag} {example}", protocol.name());
                    [stream.clone(), stream.replace("10.0.0.", "2001:db8::")]
                        .iter()
                        .any(|stream| scenario::parse_stream(stream).is_ok())
                })
            });
            let of_streams = Key::named(name).is_some() || STREAM_KEYS.iter().any(|key| key.name == name);
            // Rules accept a list of flags, streams a single value.
            let in_rule = example.replace('+', ",").parse::<Rule>().is_ok();
            let only_streams = kinds("fields")
                .expect("fields")
                .iter()
                .any(|entry| entry.name == name && entry.summary.starts_with("of a stream"));
            assert_eq!(in_stream, of_streams, "{example}");
            assert!(in_rule || only_streams, "{example}");
        }
    }

    /// Streams, rules, rewrites and keys use the same notation for the values of a field.
    #[test]
    fn keys_of_streams_have_the_values_of_the_fields() {
        for key in Key::ALL {
            for field in LayerKind::ALL.iter().flat_map(|kind| kind.description().fields) {
                if field.bare && field.name == key.name() {
                    assert_eq!(field.kind, key.kind(), "{}", field.name);
                }
            }
        }
    }

    #[test]
    fn figures_are_those_that_expectations_accept() {
        let all = figures("").expect("figures");
        assert!(all.lines().count() > 150 && all.lines().any(|line| line.starts_with("gap.error.p99_ns  ")), "{all}");
        assert!(figures("gap.error").expect("a group").lines().all(|line| line.starts_with("gap.error.")));
        let failure = figures("gapp").expect_err("unknown").to_string();
        assert!(failure.contains("did you mean gap?"), "{failure}");
    }
}

use crate::options::Arguments;
use crate::options::manual::Manual;
use crate::output::{self, Failure};
use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

impl Manual {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let folder = self.to.display();
        let unwritable =
            |cause| Failure::new(format!("cannot write to {folder}: {cause}: check the path and its permissions"));
        std::fs::create_dir_all(&self.to).map_err(unwritable)?;
        let mut command = Arguments::command().disable_help_subcommand(true);
        command.build();
        pages(&command, &self.to).map_err(unwritable)?;
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "netlathe", &mut script);
            let script = with_interfaces(*shell, &String::from_utf8_lossy(&script));
            std::fs::write(self.to.join(shell.file_name("netlathe")), script).map_err(unwritable)?;
        }
        output::print(&format!("wrote man pages and completions to {folder}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Options that take an interface, or a port that may be one.
const OF_INTERFACES: [&str; 5] = ["in", "out", "between", "on", "host"];

/// A completion script that offers the interfaces of the machine where an option takes one.
fn with_interfaces(shell: Shell, script: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in script.lines() {
        let line = match shell {
            Shell::Bash => {
                let option = lines.last().and_then(|before| before.trim().strip_prefix("--")?.strip_suffix(')'));
                let files = "$(compgen -f \"${cur}\")";
                let interfaces = format!("$(compgen -W \"$(ls /sys/class/net)\" -- \"${{cur}}\") {files}");
                match option.is_some_and(|option| OF_INTERFACES.contains(&option)) {
                    true => line.replace(files, &interfaces),
                    false => line.to_owned(),
                }
            }
            Shell::Zsh => {
                let takes = OF_INTERFACES.iter().any(|option| line.contains(&format!("--{option}=[")));
                if takes { line.replace(":_default", ":_net_interfaces") } else { line.to_owned() }
            }
            Shell::Fish => {
                let takes = OF_INTERFACES.iter().any(|option| line.contains(&format!(" -l {option} ")));
                if takes { format!("{line} -a '(command ls /sys/class/net)'") } else { line.to_owned() }
            }
            _ => line.to_owned(),
        };
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

/// Writes the page of a command, and those of its own commands.
fn pages(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands() {
        pages(below, folder)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    verbatim("SYNOPSIS", usage.trim_start_matches("Usage: ").lines().map(str::trim), &mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    // The library would fill and hyphenate examples, which are there to be copied, and lists.
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = after.strip_prefix("Examples:\n").or(after.strip_prefix("Example:\n"));
    let (examples, notes) = examples.map_or((None, after.as_str()), |rest| {
        let (examples, notes) = rest.split_once("\n\n").unwrap_or((rest, ""));
        (Some(examples), notes)
    });
    if let Some(examples) = examples {
        verbatim("EXAMPLES", examples.lines(), &mut page)?;
    }
    if !notes.is_empty() {
        verbatim("NOTES", notes.lines(), &mut page)?;
    }
    man.render_version_section(&mut page)?;
    std::fs::write(folder.join(man.get_filename()), page)
}

/// A section whose lines stay as they are, in characters that a shell takes.
fn verbatim<'a>(heading: &str, lines: impl Iterator<Item = &'a str>, page: &mut Vec<u8>) -> io::Result<()> {
    writeln!(page, ".SH {heading}\n.nf")?;
    for line in lines {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
        // A line that begins with a dot would be a request.
        writeln!(page, "{}{line}", if line.starts_with('.') { "\\&" } else { "" })?;
    }
    writeln!(page, ".fi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_offer_interfaces_where_an_option_takes_one() {
        for (shell, word) in
            [(Shell::Bash, "ls /sys/class/net"), (Shell::Zsh, "_net_interfaces"), (Shell::Fish, "ls /sys/class/net")]
        {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "netlathe", &mut script);
            let script = String::from_utf8(script).expect("text");
            let offering = with_interfaces(shell, &script);
            assert_eq!(script.lines().count(), offering.lines().count());
            let changed = script.lines().zip(offering.lines()).filter(|(before, after)| before != after).count();
            let offers = offering.lines().filter(|line| line.contains(word)).count();
            assert!(changed > 10 && offers == changed, "{shell}: {changed} lines, {offers} offers");
        }
    }
}

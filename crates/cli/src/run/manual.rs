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
            let script = with_settings(*shell, &with_interfaces(*shell, &String::from_utf8_lossy(&script)));
            std::fs::write(self.to.join(shell.file_name("netlathe")), script).map_err(unwritable)?;
        }
        output::print(&format!("wrote man pages and completions to {folder}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Options that take an interface, or a port that may be one.
const OF_INTERFACES: [&str; 5] = ["in", "out", "between", "on", "host"];

/// A completion script that offers the machine's interfaces for options that take one.
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

/// Returns a completion script that offers the paths of the run's settings after `ctl set`.
fn with_settings(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => {
            let (before, set) = script.split_once("__subcmd__ctl__subcmd__set)\n").unwrap_or((script, ""));
            let set = set.replacen("opts=\"", "opts=\"$(_netlathe_settings) ", 1);
            format!("{BASH_SETTINGS}\n{before}__subcmd__ctl__subcmd__set)\n{set}")
        }
        Shell::Zsh => {
            let is_path = |line: &str| line.starts_with("':path -- ") && line.contains("down.rate");
            let offering = |line: &str| match is_path(line) {
                true => line.replace(":_default'", ":_netlathe_settings'"),
                false => line.to_owned(),
            };
            let lines: Vec<String> = script.lines().map(offering).collect();
            lines.join("\n").replacen("\n", &format!("\n\n{ZSH_SETTINGS}"), 1) + "\n"
        }
        Shell::Fish => format!("{script}{FISH_SETTINGS}"),
        _ => script.to_owned(),
    }
}

/// Offers the settings of the run that the preceding words of the command name.
const BASH_SETTINGS: &str = r#"_netlathe_settings() {
    [[ "${COMP_WORDS[COMP_CWORD-1]}" == set ]] || return
    local i options=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in --socket|--run) options+=("${COMP_WORDS[i]}" "${COMP_WORDS[i+1]}") ;; esac
    done
    "${COMP_WORDS[0]}" ctl "${options[@]}" show --paths 2>/dev/null
}
"#;

/// The same for zsh. It reads the words of the whole line, because the words of the completion begin at `set`.
const ZSH_SETTINGS: &str = r#"_netlathe_settings() {
    local -a line options paths
    local i
    line=(${(z)LBUFFER})
    for ((i = 2; i < $#line; i++)); do
        case $line[i] in (--socket|--run) options+=(${(Q)line[i]} ${(Q)line[i+1]}) ;; esac
    done
    paths=(${(f)"$(_call_program settings $line[1] ctl $options show --paths)"})
    compadd -a paths
}
"#;

const FISH_SETTINGS: &str = r#"function __fish_netlathe_settings
    set -l line (commandline -opc)
    test $line[-1] = set; or return
    set -l options
    for i in (seq 2 (math (count $line) - 1))
        contains -- $line[$i] --socket --run; and set -a options $line[$i] $line[(math $i + 1)]
    end
    $line[1] ctl $options show --paths 2>/dev/null
end
complete -c netlathe -n "__fish_netlathe_using_subcommand ctl; and __fish_seen_subcommand_from set" -f -a '(__fish_netlathe_settings)'
"#;

/// Writes the manual page of a command, and the pages of its subcommands.
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
    // The library would reflow and hyphenate lists, and examples that users copy.
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

/// Writes a section with unchanged lines. Escapes characters that roff would replace, so that users can paste the lines
/// into a shell.
fn verbatim<'a>(heading: &str, lines: impl Iterator<Item = &'a str>, page: &mut Vec<u8>) -> io::Result<()> {
    writeln!(page, ".SH {heading}\n.nf")?;
    for line in lines {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
        // A line that begins with a dot would be a roff request.
        writeln!(page, "{}{line}", if line.starts_with('.') { "\\&" } else { "" })?;
    }
    writeln!(page, ".fi")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn completion_offers_interfaces_for_options_that_take_one() {
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

    #[test]
    fn bash_offers_the_settings_of_the_run_that_the_line_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("netlathe");
        std::fs::write(&program, "#!/bin/sh\necho down.rate\necho down.delay\necho \"$@\" >&2\n").expect("a file");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Arguments::command(), "netlathe", &mut script);
        let script = with_settings(Shell::Bash, &String::from_utf8(script).expect("text"));
        let offers = |words: &[&str]| {
            let words: Vec<&str> =
                [program.to_str().expect("a path")].into_iter().chain(words.iter().copied()).collect();
            let (current, before) = (words[words.len() - 1], words[words.len() - 2]);
            let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
            let ask = format!(
                "COMP_WORDS=({line}) COMP_CWORD={}; _netlathe '{}' '{current}' '{before}'",
                words.len() - 1,
                words[0]
            );
            let bash = format!("{script}\n{ask}\necho \"${{COMPREPLY[@]}}\"");
            let done = std::process::Command::new("bash").args(["-c", &bash]).output().expect("bash");
            String::from_utf8(done.stdout).expect("text").trim().to_owned()
        };
        assert_eq!(offers(&["ctl", "set", "down."]), "down.rate down.delay");
        assert_eq!(offers(&["ctl", "--socket", "/tmp/run.sock", "set", "down.d"]), "down.delay");
        assert_eq!(offers(&["ctl", "set", "down.rate", "d"]), "", "a value is no path");
        assert!(BASH_SETTINGS.contains("ctl \"${options[@]}\" show --paths"));
    }
}

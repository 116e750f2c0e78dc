//! What this machine can do. Each finding is one line: what was looked at, what was found, and the command that mends
//! it. Files of the kernel are read below a root folder, which is `/` except in tests; one file here per concern.

mod drivers;
mod events;
#[cfg(feature = "live")]
mod interfaces;
mod memory;
mod pci;
mod processors;
mod rights;

use crate::output::{self, Failure};
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check what this machine can do, and how to fix what is missing
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe doctor
  netlathe doctor eth1 eth2

Prints one line for each thing that netlathe can use: present, or what is missing, the effect, and the
command that fixes it. Checks the named interfaces, or all that are up, for pause frames, for
offloads that spoil a run, and for a small ring. Changes and sends nothing. The exit status is 0 even if
something is missing, since virtual time needs none of it.")]
pub(crate) struct Doctor {
    /// Interfaces to check [default: all that are up]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
    /// Print the findings as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What was found of one thing.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    what: String,
    good: bool,
    found: String,
    /// What to do where it is not good.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn good(what: impl Into<String>, found: impl Into<String>) -> Self {
        Finding { what: what.into(), good: true, found: found.into(), remedy: None }
    }

    fn bad(what: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { what: what.into(), good: false, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// The kernel's files.
struct Machine {
    root: PathBuf,
}

impl Machine {
    /// A file's text without white space around it; none where it is absent or may not be read.
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// The names in a folder, sorted; none where it is absent.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The interfaces of this network namespace, sorted; none where the kernel does not tell. `/sys` is no witness: it
    /// shows those of the namespace that it was mounted in.
    fn interfaces(&self) -> Option<Vec<String>> {
        let listed = self.read("proc/net/dev")?;
        let name = |line: &str| line.split_once(':').map(|(name, _)| name.trim().to_owned());
        let mut names: Vec<String> = listed.lines().filter_map(name).collect();
        names.sort();
        Some(names)
    }

    /// Only the first user namespace maps all users onto themselves.
    #[cfg(feature = "live")]
    fn is_first_user_namespace(&self) -> bool {
        self.read("proc/self/uid_map").is_some_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
    }

    /// The last part of where a link leads.
    fn link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.root.join(path)).ok()?.file_name()?.to_string_lossy().into_owned())
    }
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let findings = self.findings(&Machine { root: PathBuf::from("/") })?;
        let text = if self.json {
            let object = serde_json::json!({ "schema": 1, "command": "doctor", "findings": findings });
            object.to_string() + "\n"
        } else {
            table(&findings)
        };
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn findings(&self, machine: &Machine) -> Result<Vec<Finding>, Failure> {
        // First, since a name that is wrong makes the rest useless.
        #[cfg(feature = "live")]
        let of_interfaces = interfaces::look(machine, &self.interfaces)?;
        #[cfg(not(feature = "live"))]
        let of_interfaces = match self.interfaces.first() {
            Some(name) => return Err(Failure::new(format!("{name}: {}", Failure::no_live_ports()))),
            None => Vec::new(),
        };
        let mut findings = vec![Finding::good("virtual time", "captures and model lines need nothing listed below")];
        findings.extend(rights::look(machine));
        findings.push(slow_disks(disk::permitted()));
        findings.extend(drivers::look(machine));
        findings.extend(pci::look(machine));
        findings.extend(events::look(machine));
        findings.extend(memory::look(machine));
        findings.extend(processors::look(machine));
        findings.extend(of_interfaces);
        Ok(findings)
    }
}

/// Whether `netlathe disk` can mount; what it would say if not is a cause and a remedy.
fn slow_disks(permitted: Result<(), disk::Error>) -> Finding {
    const WHAT: &str = "slow disks";
    match permitted {
        Ok(()) => Finding::good(WHAT, "/dev/fuse is there, and you can mount"),
        Err(error) => {
            let said = error.to_string();
            let (cause, remedy) = said.rsplit_once(": ").unwrap_or((&said, "run as root"));
            Finding::bad(WHAT, cause, remedy)
        }
    }
}

fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.chars().count()).max().unwrap_or(0);
    let line = |finding: &Finding| {
        let mark = if finding.good { "ok" } else { "--" };
        let remedy = finding.remedy.as_ref().map_or(String::new(), |remedy| format!(": {remedy}"));
        format!("{mark}  {:<width$}  {}{remedy}\n", finding.what, finding.found)
    };
    findings.iter().map(line).collect()
}

/// A machine made of files.
#[cfg(test)]
struct Fake {
    folder: tempfile::TempDir,
}

#[cfg(test)]
impl Fake {
    fn new(files: &[(&str, &str)]) -> (Fake, Machine) {
        let fake = Fake { folder: tempfile::tempdir().expect("a folder") };
        for (path, text) in files {
            fake.write(path, text);
        }
        let root = fake.folder.path().to_owned();
        (fake, Machine { root })
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is ours");
        fs::write(path, format!("{text}\n")).expect("it is ours");
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is ours");
        std::os::unix::fs::symlink(to, path).expect("it is ours");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_disk_support_has_a_cause_and_a_remedy() {
        let denied = std::io::Error::from_raw_os_error(13);
        let errors = [
            (disk::Error::NoFuse, "there is no /dev/fuse", "as root, modprobe fuse; "),
            (
                disk::Error::Device(denied),
                "cannot open /dev/fuse: Permission denied (os error 13)",
                "run as root or let ",
            ),
            (
                disk::Error::NoHelper,
                "mounting needs root or fusermount3, which is not here",
                "run as root, or install it (fuse3 on Debian)",
            ),
        ];
        for (error, cause, remedy) in errors {
            let finding = slow_disks(Err(error));
            assert_eq!(finding.found, cause);
            assert!(finding.remedy.as_deref().is_some_and(|text| text.starts_with(remedy)), "{finding:?}");
        }
    }

    #[test]
    fn a_finding_is_a_line() {
        let findings = [Finding::good("TSC", "there"), Finding::bad("huge pages", "none", "echo 1 > file")];
        assert_eq!(table(&findings), "ok  TSC         there\n--  huge pages  none: echo 1 > file\n");
        let json = serde_json::to_value(&findings).expect("plain data");
        assert_eq!(json[0], serde_json::json!({"what": "TSC", "good": true, "found": "there"}));
        assert_eq!(json[1]["remedy"], "echo 1 > file");
    }
}

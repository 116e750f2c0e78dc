//! Checks what this machine can do. Each finding is one line: the subject, the finding, and the command that fixes it.
//! Files of the kernel are read below a root folder, which is `/` except in tests. There is one module per subject.

mod drivers;
#[cfg(feature = "live")]
mod events;
#[cfg(feature = "live")]
mod interfaces;
mod machine;
mod memory;
#[cfg(feature = "live")]
mod pci;
mod processors;
mod rights;

use crate::options::doctor::Doctor;
use crate::output::{self, Failure};
use machine::{Finding, Machine};
use std::path::PathBuf;
use std::process::ExitCode;

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
        // Interfaces come first, because a wrong name makes the rest useless.
        #[cfg(feature = "live")]
        let of_interfaces = interfaces::check(machine, &self.interfaces)?;
        #[cfg(not(feature = "live"))]
        let of_interfaces = match self.interfaces.first() {
            Some(name) => return Err(Failure::new(format!("{name}: {}", Failure::no_live_ports()))),
            None => Vec::new(),
        };
        let mut findings = vec![Finding::good("virtual time", "captures and model lines need nothing listed below")];
        findings.extend(rights::check(machine));
        findings.push(slow_disks(disk::permitted()));
        findings.extend(drivers::check(machine));
        // Without live ports, NICs and event devices cannot be used.
        #[cfg(feature = "live")]
        findings.extend(pci::check(machine).into_iter().chain(events::check(machine)));
        findings.extend(memory::check(machine));
        findings.extend(processors::check(machine));
        findings.extend(of_interfaces);
        Ok(findings)
    }
}

/// Checks whether `netlathe disk` can mount. The error message has the cause and the remedy.
fn slow_disks(permitted: Result<(), disk::Error>) -> Finding {
    const WHAT: &str = "slow disks";
    match permitted {
        Ok(()) => Finding::good(WHAT, "/dev/fuse is there, and you can mount"),
        Err(error) => {
            let message = error.to_string();
            let (cause, remedy) = message.rsplit_once(": ").unwrap_or((&message, "run as root"));
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
    fn each_finding_is_one_line() {
        let findings = [Finding::good("TSC", "there"), Finding::bad("huge pages", "none", "echo 1 > file")];
        assert_eq!(table(&findings), "ok  TSC         there\n--  huge pages  none: echo 1 > file\n");
        let json = serde_json::to_value(&findings).expect("plain data");
        assert_eq!(json[0], serde_json::json!({"what": "TSC", "good": true, "found": "there"}));
        assert_eq!(json[1]["remedy"], "echo 1 > file");
    }
}

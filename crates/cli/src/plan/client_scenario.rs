//! The scenarios that a service runs for its clients. Clients may send on the ports of this machine. They may use files
//! only in the folder that the owner of the service permits. They may not start programs, build labs, run sweeps, or
//! use DPDK drivers other than `net_null`.

use super::files::OnDisk;
use crate::options::host_clock::HostClock;
use crate::options::start_at::{StartAt, Utc, check};
use engine::schedules::{Advise, Files};
use scenario::{PipelinePlan, PortSpec, Scenario};
use service::ScenarioProblem;
use sim::is_standard;
use std::path::{Path, PathBuf};
use units::ParseError;

/// How to permit files, for messages.
const NO_FILES: &str = "start netlathe serve with --files DIR to permit those in DIR";

/// Checks a scenario as `netlathe check` does, and that a client may run it. Files must be in `folder`. Without a
/// folder, no file may be named.
///
/// # Errors The scenario has a problem, or asks for something that clients may not use.
pub(crate) fn permit(text: &str, folder: Option<&Path>) -> Result<Scenario, ScenarioProblem> {
    let permitted = Permitted { folder };
    let scenario = scenario::read("scenario", text, Some(&permitted)).map_err(|problems| {
        let at = problems.0.first().map(|problem| problem.origin.to_string());
        let message = match &problems.0[..] {
            [one] => one.message.clone(),
            all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        ScenarioProblem {
            message,
            at,
            remedy: "correct the scenario; netlathe check reports the same problems for a file".to_owned(),
        }
    })?;
    let beside = match (scenario.programs.first(), &scenario.lab, &scenario.sweep) {
        (Some(program), ..) => Some((format!("program '{}'", program.name), "start programs")),
        (None, Some(_), _) => Some(("lab".to_owned(), "build labs")),
        // A run of a sweep, which an environment variable selects, has other values than those checked here.
        (None, None, Some(_)) => Some(("sweep".to_owned(), "run sweeps")),
        (None, None, None) => None,
    };
    if let Some((at, what)) = beside {
        return Err(ScenarioProblem {
            message: format!(
                "clients of a service may not {what}, because it would run with the rights of the service"
            ),
            at: Some(at),
            remedy: "leave it out, or use netlathe run on the host itself".to_owned(),
        });
    }
    for plan in &scenario.pipelines {
        let at = Some(format!("pipeline '{}'", plan.name));
        for path in files(plan) {
            permitted.check(path).map_err(|error| {
                let remedy = NO_FILES.to_owned();
                ScenarioProblem { message: error, at: at.clone(), remedy }
            })?;
        }
        if let Some(port) = ports(plan).into_iter().find(|port| is_foreign(port)) {
            let message = format!("clients may not name {port}: a driver of DPDK can open files and sockets");
            let remedy = "name an interface, a NIC, or dpdk:net_null0; other drivers are for netlathe run".to_owned();
            return Err(ScenarioProblem { message, at, remedy });
        }
    }
    Ok(scenario)
}

/// Returns the instant in UTC at which a scenario is asked to start. `+5s` counts from now.
///
/// # Errors The text is not an instant in the future, or the scenario has no live port.
pub(crate) fn start_of(scenario: &Scenario, text: &str, clock: HostClock) -> Result<String, ScenarioProblem> {
    let refused = |message: &str, remedy: &str| ScenarioProblem {
        message: message.to_owned(),
        at: Some("start-at".to_owned()),
        remedy: remedy.to_owned(),
    };
    if scenario.pipelines.iter().all(PipelinePlan::is_virtual) {
        return Err(refused(
            "the scenario has no live port, and virtual time begins at 0 whenever it runs",
            "leave start-at out",
        ));
    }
    let now = clock.now_ns();
    let remedy = "write 2026-11-25T18:00:00Z, 2026-11-25T18:00:37TAI or +5s";
    let asked: StartAt = text.parse().map_err(|error: ParseError| refused(error.what(), remedy))?;
    let at = asked.unix_ns(now).ok_or_else(|| refused(&format!("'{text}' is not an instant"), remedy))?;
    check(at, now).map_err(|error| refused(error.what(), error.remedy()))?;
    Ok(Utc(at).to_string())
}

/// Returns a message if the new value of a setting names a file. The run that applies the change may read every file of
/// its owner.
pub(crate) fn file_in_value(value: &str) -> Option<String> {
    let words: Vec<&str> = value.split([' ', '\t', '\n', '\r', ',']).filter(|word| !word.is_empty()).collect();
    let named = words.iter().zip(words.iter().skip(1).copied().chain([""])).find(|(word, next)| match **word {
        "table" | "steps" | "trace" | "rates" | "replay" | "pcap" => true,
        "pattern" => !next.starts_with("0b"),
        "distribution" => next.contains(['/', '.']) || *next == "experimental",
        _ => false,
    });
    named.map(|(word, next)| format!("clients may not name files in changes, as in '{word} {next}'"))
}

/// Returns the captures and frame lists that a pipeline reads or writes.
fn files(plan: &PipelinePlan) -> Vec<&Path> {
    let mut files: Vec<&Path> = plan.captures().collect();
    match &plan.output {
        PortSpec::Pcap(path) => files.push(path),
        PortSpec::Wire(wire) => files.extend(wire.pcap.iter().chain(&wire.frames).map(PathBuf::as_path)),
        PortSpec::Line(line) => files.extend(line.frames.iter().map(PathBuf::as_path)),
        _ => {}
    }
    files
}

fn ports(plan: &PipelinePlan) -> Vec<&PortSpec> {
    plan.input_ports().chain([&plan.output]).collect()
}

/// Whether a port is a DPDK device whose arguments may name files. Those of `net_null` do not.
fn is_foreign(port: &PortSpec) -> bool {
    matches!(port, PortSpec::Dpdk(device) if !device.starts_with("net_null") || device.contains('/'))
}

/// Reads only the files in a folder, or none.
struct Permitted<'a> {
    folder: Option<&'a Path>,
}

impl Permitted<'_> {
    /// Returns the path with links resolved, if it is in the folder.
    fn check(&self, path: &Path) -> Result<PathBuf, String> {
        let shown = path.display();
        let Some(folder) = self.folder else {
            return Err(format!("clients of this service may not name files, as {shown}"));
        };
        let outside = || format!("{shown} is not in {}", folder.display());
        if is_standard(path) {
            return Err(format!("clients may not name {shown}, which belongs to the service"));
        }
        let whole = folder.join(path);
        // A missing file is permitted if its folder is. A dangling link is refused, because its target could be
        // anywhere once it exists.
        let resolved = match whole.symlink_metadata() {
            Ok(_) => whole.canonicalize().ok(),
            Err(_) => whole
                .parent()
                .zip(whole.file_name())
                .and_then(|(parent, name)| Some(parent.canonicalize().ok()?.join(name))),
        };
        let inside =
            folder.canonicalize().ok().zip(resolved.as_ref()).is_some_and(|(folder, path)| path.starts_with(folder));
        resolved.filter(|_| inside).ok_or_else(outside)
    }

    fn open(&self, path: &Path) -> Result<PathBuf, ParseError> {
        self.check(path).map_err(|error| ParseError::new(error, NO_FILES))
    }
}

impl Files for Permitted<'_> {
    fn text(&self, path: &Path) -> Result<String, ParseError> {
        OnDisk.text(&self.open(path)?)
    }

    fn capture(&self, path: &Path) -> Result<(), ParseError> {
        OnDisk.capture(&self.open(path)?)
    }

    fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError> {
        OnDisk.capture_gaps(&self.open(path)?)
    }

    fn frame(&self, path: &Path, number: u64) -> Result<Vec<u8>, ParseError> {
        OnDisk.frame(&self.open(path)?, number)
    }

    fn memory(&self) -> Option<Advise> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn scenario(pipeline: &str) -> String {
        format!("schema = 1\n[[pipeline]]\nname = \"a\"\n{pipeline}\n")
    }

    #[test]
    fn files_are_those_of_the_folder_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("in");
        fs::create_dir(&inside).expect("a folder");
        symlink("/etc/passwd", inside.join("link")).expect("a link");
        symlink("/etc/nothing", inside.join("dead")).expect("a link");
        fs::write(inside.join("gaps.txt"), "10us\n20us\n").expect("a file");
        let out = |path: &str| {
            scenario(&format!("stream = [\"udp 10.0.0.1:1 > 10.0.0.2:2\"]\ncount = 1\nout = \"pcap:{path}\""))
        };
        let ok = |text: &str| permit(text, Some(&inside)).map(drop).map_err(|problem| problem.message);
        assert_eq!(ok(&out("new.pcap")), Ok(()));
        for path in ["../out.pcap", "/etc/passwd", "link", "dead", "-", "none/x", "/dev/stdout"] {
            assert!(ok(&out(path)).is_err(), "{path}");
        }
        assert!(permit(&out("new.pcap"), None).is_err(), "no folder, no files");
        let table = |path: &str| {
            scenario(&format!(
                "stream = [\"udp 10.0.0.1:1 > 10.0.0.2:2\"]\ncount = 1\nout = \"null\"\ngap = \"table {path}\""
            ))
        };
        assert_eq!(ok(&table("gaps.txt")), Ok(()));
        assert!(ok(&table("/etc/passwd")).is_err() && ok(&table("link")).is_err());
    }

    #[test]
    fn values_with_files_are_found() {
        for value in ["table /etc/passwd mean 1us sd 1us", "steps x", "rate trace x", "limit rates x", "replay x"] {
            assert!(file_in_value(value).is_some(), "{value}");
        }
        for value in ["loss pattern x", "delay 1ms 1ms distribution /x", "delay 1ms 1ms distribution experimental"] {
            assert!(file_in_value(value).is_some(), "{value}");
        }
        for value in
            ["5Gbps", "loss pattern 0b10", "delay 1ms 1ms distribution normal", "chi2 df 6 in 80us..120us", "5MB/s"]
        {
            assert_eq!(file_in_value(value), None);
        }
    }

    #[test]
    fn drivers_that_open_files_are_refused() {
        let to =
            |port: &str| scenario(&format!("stream = [\"udp 10.0.0.1:1 > 10.0.0.2:2\"]\ncount = 1\nout = \"{port}\""));
        assert!(permit(&to("dpdk:net_null0"), None).is_ok());
        for port in ["dpdk:net_pcap0,tx_pcap=/tmp/x", "dpdk:net_memif0", "dpdk:net_null0,x=/etc/passwd"] {
            assert!(permit(&to(port), None).is_err(), "{port}");
        }
    }

    #[test]
    fn programs_and_labs_are_refused() {
        let pipeline = scenario("stream = [\"udp 10.0.0.1:1 > 10.0.0.2:2\"]\ncount = 1\nout = \"null\"");
        assert!(permit(&pipeline, None).is_ok());
        for table in ["[[program]]\nname = \"x\"\ncommand = \"true\"", "[lab]", "[sweep]\nseed = [1, 2]"] {
            let problem = permit(&format!("{pipeline}{table}\n"), None).expect_err(table);
            assert!(problem.message.contains("clients of a service may not"), "{}", problem.message);
        }
    }

    #[test]
    fn the_position_of_the_first_problem_is_given() {
        let problem =
            permit(&scenario("stream = [\"udp 10.0.0.1:1 > 10.0.0.2:2\"]\nout = \"null\"\ngap = \"10\""), None)
                .expect_err("no unit");
        assert!(problem.at.is_some_and(|at| at.starts_with("scenario:6:")), "{}", problem.message);
    }
}

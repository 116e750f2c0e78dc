//! The services that synchronise this host's clock (chrony and linuxptp, as their own programs report them), and the
//! hardware clocks of NICs.

use serde::Serialize;
use std::process::{Command, Stdio};

/// A service, and its report on the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct TimeService {
    pub(super) name: &'static str,
    /// Whether its program is installed and answers.
    pub(super) present: bool,
    /// Its output, or what is missing.
    pub(super) state: String,
}

/// The report of each service.
pub(super) fn query() -> Vec<TimeService> {
    let chrony = run_tool(&["chronyc", "-n", "tracking"], |text| {
        let wanted = ["Reference ID", "System time", "Root dispersion", "Leap status"];
        let lines: Vec<&str> = text.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name))).collect();
        lines.join("; ")
    });
    let ptp = run_tool(&["pmc", "-u", "-b", "0", "GET CURRENT_DATA_SET"], |text| {
        let wanted = ["offsetFromMaster", "meanPathDelay", "stepsRemoved"];
        let lines = text.lines().map(str::trim).filter(|line| wanted.iter().any(|name| line.starts_with(name)));
        lines.collect::<Vec<_>>().join("; ")
    });
    [("chrony", chrony), ("ptp4l", ptp), ("hardware clocks", hardware_clocks())]
        .map(|(name, answer)| match answer {
            Ok(state) => TimeService { name, present: true, state },
            Err(state) => TimeService { name, present: false, state },
        })
        .into()
}

/// The part of a program's output that `pick` selects, or why there is none.
fn run_tool(line: &[&str], pick: impl Fn(&str) -> String) -> Result<String, String> {
    let output = Command::new(line[0]).args(&line[1..]).stdin(Stdio::null()).output();
    let output = output.map_err(|_| format!("{} is not installed", line[0]))?;
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let answer = words(&pick(&String::from_utf8_lossy(&output.stdout)));
    match (output.status.success(), answer.is_empty()) {
        (true, false) => Ok(answer),
        _ => {
            let stderr = words(&String::from_utf8_lossy(&output.stderr));
            Err(format!(
                "{} does not report the clock{}",
                line[0],
                if stderr.is_empty() { stderr } else { format!(": {stderr}") }
            ))
        }
    }
}

/// The PTP hardware clocks of this host's NICs.
fn hardware_clocks() -> Result<String, String> {
    let folders = std::fs::read_dir("/sys/class/ptp").into_iter().flatten().flatten();
    let mut clocks: Vec<String> = folders
        .filter_map(|folder| {
            let name = std::fs::read_to_string(folder.path().join("clock_name")).ok()?;
            Some(format!("{} {}", folder.file_name().to_string_lossy(), name.trim()))
        })
        .collect();
    clocks.sort();
    if clocks.is_empty() { Err("no NIC has one".to_owned()) } else { Ok(clocks.join(", ")) }
}

//! Labs of sites: builds the lab, starts its forwarder and the programs of the sites.

use super::pings;
use crate::options::lab::{PingOptions, SiteOptions};
use crate::output::{self, Failure};
use lab::{Lab, Node, Site, SiteWay, Topology};
use scenario::{Sites, host_name};
use std::env;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

/// The line that the forwarder writes when its ports are open.
pub(super) const READY: &str = "ready";
/// A program of a site that fails within this time is reported.
const AT_ONCE: Duration = Duration::from_millis(300);

/// Builds a lab of these sites. If a step fails, removes what was built.
pub(super) fn up(topology: Topology, sites: &Sites, options: &SiteOptions) -> Result<ExitCode, Failure> {
    for note in &sites.notes {
        output::note(note);
    }
    let name = topology.name.clone();
    let topology = Topology { sites: of_table(sites), ..topology };
    let mut lab = lab::up(&topology).map_err(Failure::new)?;
    let running = start_forwarder(&mut lab).and_then(|()| match &options.each {
        Some(command) => start_at_each(&lab, command),
        None => Ok(()),
    });
    if let Err(failure) = running {
        // Reports the first failure; `lab down` finds what is left.
        let _also_failed = lab::down(&name);
        return Err(failure);
    }
    output::print(&format!("{}lab {name} is up; netlathe lab list shows it\n", addresses(&topology)))?;
    if options.check { pings::check(&lab, &PingOptions::default())?.print(false) } else { Ok(ExitCode::SUCCESS) }
}

/// The sites in the form of the lab's record.
fn of_table(sites: &Sites) -> Vec<Site> {
    let of_way = |way: &scenario::Way| SiteWay {
        delay_ps: way.delay.as_ps(),
        loss_ppb: way.loss.ppb(),
        rate_bps: way.rate.map(units::BitRate::bps),
    };
    let site = |(name, ways): (&String, &Vec<scenario::Way>)| Site {
        name: name.clone(),
        host: host_name(name),
        ways: ways.iter().map(of_way).collect(),
    };
    sites.names.iter().zip(&sites.ways).map(site).collect()
}

/// One line for each site: its address, its host name and its namespace.
fn addresses(topology: &Topology) -> String {
    let mut text = String::new();
    for node in topology.hosts() {
        let (Some(site), Some(address)) = (topology.site_of(node), topology.ipv4(node)) else { continue };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<14} {:<24} {}", address.to_string(), site.host, topology.namespace(node));
    }
    text
}

/// Starts the process that forwards between the sites. It lives in the box, so `lab down` ends it.
fn start_forwarder(lab: &mut Lab) -> Result<(), Failure> {
    let failed = |cause: &dyn std::fmt::Display| Failure::new(format!("cannot start the lab's forwarder: {cause}"));
    let program = env::current_exe().map_err(|cause| failed(&cause))?;
    let mut command = lab.command(Node::Box, program).map_err(Failure::new)?;
    command.args(["lab", "forward", lab.name()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|cause| failed(&cause))?;
    let mut line = String::new();
    let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    if matches!(read, Some(Ok(_))) && line.trim() == READY {
        return lab.forwarded_by(child.id()).map_err(Failure::new);
    }
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // If the pipe fails, uses the output so far.
        let _ended = stderr.read_to_string(&mut message);
    }
    // The forwarder is ending; its message is the cause.
    let _status = child.wait();
    Err(failed(&message.trim().trim_start_matches("netlathe: ")))
}

/// Starts a shell command at every site. It outlives this process and runs until the lab goes down.
fn start_at_each(lab: &Lab, shell_command: &str) -> Result<(), Failure> {
    let mut started: Vec<(String, Child)> = Vec::new();
    for node in lab.topology().hosts() {
        let mut command = lab.command(node, "sh").map_err(Failure::new)?;
        command.args(["-c", shell_command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|cause| Failure::new(format!("cannot run sh at {node}: {cause}")))?;
        let name = lab.topology().site_of(node).map_or_else(|| node.to_string(), |site| site.host.clone());
        started.push((name, child));
    }
    thread::sleep(AT_ONCE);
    let failed = |(name, child): &mut (String, Child)| {
        let status = child.try_wait().ok().flatten().filter(|status| !status.success())?;
        Some(format!("{name} ({status})"))
    };
    let failed: Vec<String> = started.iter_mut().filter_map(failed).collect();
    if let Some(first) = failed.first() {
        output::warn(format!(
            "--each: the command ended at {} of {} sites, the first {first}: its output is discarded, redirect it to see it",
            failed.len(),
            started.len()
        ));
    }
    Ok(())
}

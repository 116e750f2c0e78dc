//! The links of NICs on PCI, which Linux does not see: waits for them before a run, and monitors them during it.

use crate::output::{self, Failure};
use dataplane::Worker;
use dpdk::NicLink;
use scenario::{Pacer, PipelinePlan};
use std::cmp::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use units::BitRate;

/// Time limit for links to come up. Negotiation on copper takes up to 4 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between checks before the run.
const LOOK: Duration = Duration::from_millis(20);

/// The links of a run.
pub(crate) struct NicLinks(Vec<Watched>);

struct Watched {
    link: NicLink,
    /// When the link went down, if it is down.
    down_since: Option<Instant>,
    /// The link was down at the start of the run.
    down_at_start: bool,
    /// Number of times that the link was lost during the run.
    losses: u32,
    /// Total time without the link during the run, up to the last time that it came back.
    down: Duration,
}

/// Waits a few seconds for these links to come up. Returns early if the run is stopped.
pub(crate) fn await_links(links: impl IntoIterator<Item = NicLink>, stop: impl Fn() -> bool) {
    let links: Vec<NicLink> = links.into_iter().collect();
    let start = Instant::now();
    while links.iter().any(is_down) && start.elapsed() < PATIENCE && !stop() {
        thread::sleep(LOOK);
    }
}

impl NicLinks {
    /// The links of these workers.
    pub(crate) fn of(workers: &[Worker]) -> NicLinks {
        let now = Instant::now();
        let watched = |link: NicLink| {
            let down_at_start = is_down(&link);
            Watched { link, down_since: down_at_start.then_some(now), down_at_start, losses: 0, down: Duration::ZERO }
        };
        NicLinks(workers.iter().flat_map(Worker::nic_links).map(watched).collect())
    }

    /// Records which links were lost or came back since the last check.
    pub(crate) fn check(&mut self) {
        for watched in &mut self.0 {
            // A closed port reports nothing.
            let Some(up) = watched.link.is_up() else { continue };
            match (up, watched.down_since) {
                (false, None) => {
                    watched.losses += 1;
                    watched.down_since = Some(Instant::now());
                }
                (true, Some(since)) => {
                    watched.down += since.elapsed();
                    watched.down_since = None;
                }
                (false, Some(_)) | (true, None) => {}
            }
        }
    }

    /// Warns about each link that was down.
    pub(crate) fn warn(&self) {
        for Watched { link, down_since, down_at_start, losses, down } in &self.0 {
            let down = (*down + down_since.map_or(Duration::ZERO, |since| since.elapsed())).as_secs_f64();
            let name = link.device();
            const LOST: &str = "frames sent meanwhile count as out, but did not leave";
            match (down_at_start, losses) {
                (false, 0) => {}
                (true, 0) if down_since.is_some() => output::warn(format!(
                    "pci:{name} had no link during the whole run: frames count as out, but none left; check the cable and the other end"
                )),
                (true, 0) => {
                    output::warn(format!("pci:{name} had no link for the first {down:.1} s of the run: {LOST}"));
                }
                (_, times) => {
                    let back = if down_since.is_some() { "not back at the end" } else { "back at the end" };
                    output::warn(format!(
                        "pci:{name} lost its link {} during the run, and had none for {down:.1} s of it, {back}: {LOST}",
                        output::counted(u64::from(*times), "time")
                    ));
                }
            }
        }
    }
}

/// Compares the line rate of a pipeline with the speed of its output's link, if the driver knows it.
///
/// # Errors
/// The line rate is above the speed, so the NIC cannot send at it.
pub(crate) fn check_speed(plan: &PipelinePlan, output: Option<&NicLink>) -> Result<(), Failure> {
    let (Some(line), Some(link)) = (&plan.line, output) else { return Ok(()) };
    let Some(mbps) = link.speed_mbps() else { return Ok(()) };
    let warning = compare(line.rate(), mbps, plan.pacer == Pacer::Filler).map_err(|slower| {
        Failure::new(format!("{}: --line-rate {}: pci:{} {slower}", plan.name, line.rate(), link.device()))
    })?;
    if let Some(faster) = warning {
        output::warn(format!("{}: --line-rate {}: pci:{} {faster}", plan.name, line.rate(), link.device()));
    }
    Ok(())
}

/// What a line rate does on a link of this speed: an error above it, and with fillers a warning below it.
fn compare(line: BitRate, mbps: u32, fillers: bool) -> Result<Option<String>, String> {
    let speed = BitRate::from_bps(u64::from(mbps) * 1_000_000);
    match line.bps().cmp(&speed.bps()) {
        Ordering::Greater => Err(format!("has a link of {speed}: write --line-rate {speed}")),
        Ordering::Less if fillers => Ok(Some(format!(
            "has a link of {speed}, which fillers for a slower line do not fill: gaps will be shorter than planned"
        ))),
        _ => Ok(None),
    }
}

fn is_down(link: &NicLink) -> bool {
    link.is_up() == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_are_compared_with_the_link() {
        let gigabit = |line, fillers| compare(BitRate::from_bps(line), 1_000, fillers);
        assert_eq!(gigabit(1_000_000_000, true), Ok(None));
        assert_eq!(gigabit(10_000_000, false), Ok(None), "a share of a slower line is a rate that the link has");
        assert!(gigabit(10_000_000, true).is_ok_and(|warning| warning.is_some_and(|text| text.contains("1Gbps"))));
        assert_eq!(gigabit(1_000_000_001, false), Err("has a link of 1Gbps: write --line-rate 1Gbps".to_owned()));
    }
}

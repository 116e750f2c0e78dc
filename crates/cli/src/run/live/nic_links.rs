//! The links of NICs on PCI, which Linux does not see: waits for them before a run, and monitors them during it.

use crate::output;
use dataplane::Worker;
use dpdk::NicLink;
use std::thread;
use std::time::{Duration, Instant};

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
    /// The run started without it.
    down_at_start: bool,
    /// Number of times that the link was lost during the run.
    losses: u32,
    /// Total time without the link during the run, up to the last time that it came back.
    down: Duration,
}

/// Waits some seconds for these links to come up, or until the run is stopped.
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
    pub(crate) fn look(&mut self) {
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

fn is_down(link: &NicLink) -> bool {
    link.is_up() == Some(false)
}

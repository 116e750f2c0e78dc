//! Interfaces that a run is on. One that is deleted ends the run; one that is down for a while does not.

use crate::execute::{Arrivals, Request};
use crate::output::Failure;
use scenario::{PortSpec, SourcePlan};
use std::time::{Duration, Instant};

/// How often they are looked for. What an interface is given after it went counts as sent.
const EVERY: Duration = Duration::from_millis(100);

/// The interfaces, by their numbers: those outlive a change of name, and no other interface gets them.
pub(crate) struct Watched {
    interfaces: Vec<(String, u32)>,
    gone: Option<String>,
    looked: Instant,
}

impl Watched {
    /// Those of a request whose ports are open. Devices that netlathe makes are not among them: they go with their
    /// pipeline.
    pub(crate) fn of(request: &Request, receiver: Option<&Arrivals>) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for plan in &request.pipelines {
            let source = if let SourcePlan::Port(port) = &plan.source { Some(port) } else { None };
            names.extend(source.into_iter().chain([&plan.output]).filter_map(PortSpec::interface));
        }
        names.extend(receiver.and_then(|arrivals| arrivals.port.interface()));
        names.extend(request.on.as_ref().map(|on| on.interface.as_str()));
        let numbered = |name: &str| Some((name.to_owned(), dpdk::link(name).ok()?.index));
        let interfaces = names.into_iter().filter_map(numbered).collect();
        Watched { interfaces, gone: None, looked: Instant::now() }
    }

    /// True if one has gone, as far as was looked of late.
    pub(crate) fn has_lost_one(&mut self) -> bool {
        if self.looked.elapsed() >= EVERY {
            self.look();
        }
        self.gone.is_some()
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        let gone = self.interfaces.iter().find(|(_, index)| !dpdk::is_there(*index));
        self.gone = self.gone.take().or(gone.map(|(name, _)| name.clone()));
    }

    /// What to say at the end of the run if one has gone.
    pub(crate) fn failure(mut self) -> Option<Failure> {
        self.look();
        let name = self.gone?;
        Some(Failure::new(format!(
            "interface {name} went away, which ended the run: the report is good up to there, but frames that it was given in its last 0.1 s may count as out; see ip link"
        )))
    }
}

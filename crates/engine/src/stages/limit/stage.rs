use super::Limit;
use super::metering::{Found, Look, Metering};
use super::settling::Settling;
use crate::meters::{Metered, Workers};
use crate::random::Random;
use crate::stages::{Item, Outlet, Stage};
use measure::DropReason;
use packet::Frame;
use units::Time;

/// The running stage, with one worker or several modelled ones.
pub(super) struct Limiting<F> {
    metering: Metering,
    settling: Settling<F>,
    workers: Option<Workers>,
    /// Frames that the modelled workers have collected.
    together: Vec<Item<F>>,
    looks: Vec<Look>,
}

impl<F: Frame> Limiting<F> {
    pub(super) fn new(limit: &Limit, metering: Metering, settling: Settling<F>, random: Random) -> Self {
        let model = limit.workers > 1 || limit.service.is_some();
        let workers = model.then(|| Workers::new(limit.workers, limit.algorithm.dispatch(), limit.service, random));
        Limiting { metering, settling, workers, together: Vec::new(), looks: Vec::new() }
    }

    /// Makes the modelled workers meter the frames that they have collected.
    fn interleave(&mut self, out: &mut Outlet<F>) {
        let Some(workers) = &mut self.workers else { return };
        let (frames, looks) = (&self.together, &mut self.looks);
        self.metering.look(frames, looks);
        // Frames without a user need no worker.
        let flow = |frame: &F| if workers.ask_for_flows() { packet::flow_hash(frame.bytes()) } else { 0 };
        let (numbers, metered): (Vec<usize>, Vec<Metered>) = (looks.iter().zip(frames).enumerate())
            .filter_map(|(i, (look, item))| {
                Some((i, Metered { user: look.slot.ok()?, flow: flow(&item.frame), at: item.at }))
            })
            .unzip();
        for look in looks.iter_mut() {
            // The default, used if no worker takes the frame below: all workers were too busy.
            look.found = if look.slot.is_ok() { Found::Drop(DropReason::Overrun) } else { Found::Unmetered };
        }
        for (worker, number) in workers.order(&metered) {
            let i = numbers[number];
            self.metering.decide(&mut looks[i], frames[i].at, worker);
            if looks[i].found == Found::Exceeds {
                workers.exceeded(worker);
            }
        }
        for (look, item) in looks.iter_mut().zip(frames).filter(|(look, _)| look.slot.is_err()) {
            self.metering.decide(look, item.at, 0);
        }
        self.settling.settle(looks, &mut self.together, workers.loads(), out);
    }
}

impl<F: Frame + Send> Stage<F> for Limiting<F> {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        self.settling.seen(now);
        self.settling.release_due(now, out);
        if let Some(workers) = &mut self.workers {
            let mut full = false;
            for item in batch.drain(..) {
                full |= workers.arrived(item.at, self.together.len() + 1);
                self.together.push(item);
            }
            if full {
                self.interleave(out);
            }
            return;
        }
        self.metering.meter(0, batch, &mut self.looks);
        self.settling.settle(&mut self.looks, batch, &[], out);
        // Some frames are already due: their wait is less than a picosecond, or the driver is late.
        self.settling.release_due(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<F>) {
        if self.workers.as_ref().and_then(Workers::due).is_some_and(|due| due <= now) {
            self.interleave(out);
        }
        self.settling.release_due(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        self.settling.due().into_iter().chain(self.workers.as_ref().and_then(Workers::due)).min()
    }

    fn held(&self) -> usize {
        self.settling.held() + self.together.len()
    }
}

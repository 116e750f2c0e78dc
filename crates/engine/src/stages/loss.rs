use super::{Configuration, Item, Kind, Outlet, Stage};
use crate::random::Random;
use measure::DropReason;
use packet::Frame;
use std::fmt;
use units::{ParseError, Share, Time};

/// Drops each frame with the same probability, independently of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The probability.
    pub share: Share,
}

impl Configuration for Loss {
    const KIND: Kind = Kind {
        name: "loss",
        grammar: "loss SHARE",
        summary: "drops each frame with probability SHARE",
        example: "loss 0.5%",
    };

    fn parse(words: &[&str]) -> Result<Self, ParseError> {
        match words {
            [share] => Ok(Loss { share: share.parse()? }),
            _ => Err(ParseError::new(
                "loss takes one share",
                "write loss 0.5%; losses in runs are netem loss gemodel 0.2% 20%: 1 % in all, 5 frames in a run on average",
            )),
        }
    }

    fn build<F: Frame + Send + 'static>(&self, random: Random) -> Box<dyn Stage<F>> {
        Box::new(Losing { share: self.share, random })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {}", self.share)
    }
}

struct Losing {
    share: Share,
    random: Random,
}

impl<F: Frame> Stage<F> for Losing {
    fn push(&mut self, _: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        for item in batch.drain(..) {
            if self.random.chance(self.share) {
                out.discard(item.frame, DropReason::Loss);
            } else {
                out.release(item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::HeapFrame;

    fn lost(share: &str, frames: usize) -> usize {
        let config = Loss { share: share.parse().expect("a share") };
        let mut stage = config.build(Random::stream(7, "test"));
        let mut out = Outlet::default();
        let mut batch: Vec<_> = (0..frames).map(|_| Item { frame: HeapFrame::default(), at: Time::ZERO }).collect();
        stage.push(Time::ZERO, &mut batch, &mut out);
        assert_eq!(out.released.len() + out.dropped.len(), frames);
        out.dropped.len()
    }

    #[test]
    fn effect_is_the_requested_share() {
        assert_eq!(lost("0%", 10_000), 0);
        assert_eq!(lost("100%", 10_000), 10_000);
        // Four standard deviations of a binomial with n = 100 000, p = 0.2: 506.
        assert!(lost("20%", 100_000).abs_diff(20_000) < 506);
    }
}

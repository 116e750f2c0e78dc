//! Reports where the kernel's netem differs from what a SPEC says.

use super::{Bottleneck, Chance, Delayed, LossModel, Netem, QueueLimit};
use crate::random::Random;
use units::{PS_PER_S, Span};

/// Number of draws of the kernel's generator for the estimate.
const DRAWS: u64 = 400_000;

/// The share that netem obtains for a chance with correlation. Its values u·(1 − ρ) + last·ρ are not uniform, but it
/// compares them with a threshold for uniform values (sch_netem.c, get_crandom()).
fn obtained(chance: Chance) -> f64 {
    let whole = u64::from(u32::MAX);
    let fixed = |share: units::Share| (share.as_f64() * whole as f64) as u64;
    let (threshold, rho) = (fixed(chance.share), fixed(chance.correlation) + 1);
    let mut random = Random::stream(1, "kernel");
    let (mut last, mut hits) = (0, 0);
    for _ in 0..DRAWS {
        let value = random.bits() >> 32;
        last = (value * ((1 << 32) - rho) + last * rho) >> 32;
        hits += u64::from(threshold >= last);
    }
    hits as f64 / DRAWS as f64
}

/// One line per difference.
pub(super) fn what_netem_would_do(spec: &Netem) -> Vec<String> {
    let mut notes = Vec::new();
    let loss = match &spec.loss {
        LossModel::Random(chance) => Some(*chance),
        _ => None,
    };
    let chances = [("loss", loss), ("corrupt", spec.corrupt), ("reorder", spec.reorder)];
    for (name, chance) in chances {
        let Some(chance) = chance.filter(|chance| chance.correlation.ppb() > 0) else { continue };
        notes.push(format!(
            "{name} {chance}: netem would hit {:.4} % of frames, not {}, since its correlated numbers are not uniform",
            obtained(chance) * 100.0,
            chance.share
        ));
    }
    if let Some(chance) = spec.duplicate.filter(|chance| chance.correlation.ppb() > 0) {
        let lone = loss.is_none_or(|loss| loss.correlation.ppb() == 0)
            && spec.delay.as_ref().is_none_or(|delay| delay.correlation.ppb() == 0);
        notes.push(if lone {
            format!("duplicate {chance}: tc would not pass the correlation to netem, unless delay or loss has one, too")
        } else {
            let got = obtained(chance) * 100.0;
            format!("duplicate {chance}: netem would copy {got:.4} % of frames, not {}", chance.share)
        });
    }
    if let Some(Delayed { correlation, jitter, .. }) = &spec.delay
        && correlation.ppb() > 0
        && *jitter > Span::ZERO
    {
        notes.push(format!(
            "delay … {correlation}: netem would leave almost no correlation, since it takes the delay from the low bits of a correlated number"
        ));
    }
    let mean = spec.delay.as_ref().map_or(Span::ZERO, Delayed::most);
    if mean > Span::ZERO && !matches!(spec.limit, Some(QueueLimit::Frames(_))) {
        let rate = 1_000 * 1_514 * 8 * u128::from(PS_PER_S) / u128::from(mean.as_ps());
        notes.push(format!(
            "limit: netem would hold 1000 frames and drop the others silently: with {mean} no more than {:.1} Mbit/s of full frames pass",
            rate as f64 / 1e6
        ));
    }
    if matches!(spec.rate, Some(Bottleneck::Rate { .. })) || spec.loss != LossModel::None {
        notes.push(
            "offloads: netem on a sender would count a super-frame of up to 64 KiB (GSO) as one: one loss drops 45 frames at once, and a rate comes in bursts"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obtained_shares_match_measurements() {
        // FIELD.md, A0.3: 1.5 million draws of a replica of get_crandom().
        for (share, correlation, least, most) in [
            ("0.3%", "25%", 0.0, 0.0001),
            ("5%", "25%", 0.0013, 0.0025),
            ("10%", "25%", 0.0165, 0.0187),
            ("25%", "50%", 0.067, 0.073),
        ] {
            let chance =
                Chance { share: share.parse().expect("a share"), correlation: correlation.parse().expect("a share") };
            let got = obtained(chance);
            assert!((least..=most).contains(&got), "{share} {correlation}: {got}");
        }
    }

    #[test]
    fn reports_only_differences() {
        let notes_on = |text: &str| what_netem_would_do(&Netem::parse_spec(text).expect(text));
        assert!(notes_on("corrupt 1%").is_empty());
        assert!(notes_on("loss 0.3% 25%")[0].contains("0.0000 %"));
        assert!(notes_on("delay 100ms").iter().any(|line| line.contains("Mbit/s")));
        assert!(notes_on("delay 100ms limit 100000").is_empty());
        assert!(notes_on("duplicate 1% 25%")[0].contains("not pass the correlation"));
    }
}

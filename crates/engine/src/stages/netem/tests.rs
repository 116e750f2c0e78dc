use super::*;
use crate::stages::{Item, Outlet};
use measure::{DropReason, Effect};
use packet::HeapFrame;
use units::Time;

/// Sends `frames` frames of `bytes` B without FCS, 1 µs apart, through a SPEC.
fn run(spec: &str, frames: u64, bytes: usize) -> Outlet<HeapFrame> {
    let mut stage = Netem::parse_spec(spec).expect(spec).build::<HeapFrame>(Random::stream(1, "test"));
    let mut out = Outlet::default();
    for i in 0..frames {
        let at = Time::from_ps(i * 1_000_000);
        while let Some(deadline) = stage.deadline().filter(|deadline| *deadline < at) {
            stage.wake(deadline, &mut out);
        }
        stage.push(at, &mut vec![Item { frame: frame(i, bytes), at }], &mut out);
    }
    while let Some(deadline) = stage.deadline() {
        stage.wake(deadline, &mut out);
    }
    assert_eq!(stage.held(), 0);
    let accounted = (out.released.len() + out.dropped.len()) as u64;
    assert_eq!(accounted, frames + out.copies, "{spec}: the books balance");
    out
}

fn frame(number: u64, bytes: usize) -> HeapFrame {
    let mut frame = vec![0; bytes];
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    HeapFrame::new(frame)
}

fn number(item: &Item<HeapFrame>) -> u64 {
    u64::from_be_bytes(item.frame.bytes()[14..22].try_into().expect("eight bytes"))
}

fn dropped(out: &Outlet<HeapFrame>, reason: DropReason) -> usize {
    out.dropped.iter().filter(|(_, other)| *other == reason).count()
}

#[test]
fn specs_survive_printing_and_parsing() {
    for spec in [
        "limit 1000",
        "limit 64KiB rate 1mbit",
        "limit 50ms rate 1mbit",
        "delay 10ms",
        "latency 10ms 2ms",
        "delay 10ms 2ms 25% distribution normal",
        "delay 10ms 2ms distribution pareto keep-order",
        "delay 0ms then 80ms at 5s then 20ms at 10s loss 1%",
        "delay 20ms 2ms 25% then 80ms at 5s distribution normal",
        "delay 10MSEC",
        "loss 0 delay 1ms",
        "loss 0.3% 25%",
        "drop 1%",
        "loss random 1%",
        "loss random 1% ecn",
        "loss state 1% 10% 20% 30% 2%",
        "loss state 1%",
        "loss gemodel 1%",
        "loss gemodel 1% 10% 70% 0.1%",
        "loss pattern 0b1011",
        "corrupt 1% 5%",
        "corrupt 1% mode checksum-valid",
        "corrupt 1% mode byte",
        "duplicate 1% 5%",
        "delay 1ms reorder 25% 50% gap 5",
        "gap 5 reorder 25% delay 1ms",
        "rate 10mbit",
        "rate 10mbit 20 48 5",
        "rate 10mbit -14",
        "rate 1mbps",
        "slot 1ms",
        "slot 1ms 2ms packets 5 bytes 3000",
        "slot distribution normal 5ms 1ms packets 3",
        "seed 18446744073709551615",
        "down 2s every 30s",
        "mtu 1400",
        "mtu 1400 icmp",
        "profile lte",
        "profile 3g-down loss 1%",
    ] {
        let mut netem = Netem::parse_spec(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
        // The original spelling of the rate is not printed.
        netem.bytes_rate = None;
        let printed = netem.to_string();
        let spec_again = printed.strip_prefix("netem ").unwrap_or_else(|| panic!("{spec} prints as {printed}"));
        assert_eq!(Netem::parse_spec(spec_again).as_ref(), Ok(&netem), "{spec} prints as {printed}");
    }
}

#[test]
fn errors_of_bad_specs_name_position_problem_and_remedy() {
    for (spec, words) in [
        ("", "is empty"),
        ("delay 100", "character 7"),
        ("delay 100", "6.8"),
        ("dely 10ms", "did you mean delay"),
        ("delay 10ms los 1% losss 1%", "character 12"),
        ("delay 10ms los 1% losss 1%", "did you mean loss"),
        ("loss 0.3", "character 6 of 'loss 0.3': '0.3' has no unit, and tc reads it as 0.3 %"),
        ("loss 0.3", "write 0.3%"),
        ("delay 1ms rate 10", "character 16"),
        ("rate 10", "tc reads it as 10 bit/s"),
        ("rate 10", "write 10mbit, 10kbit or 10bit"),
        ("corrupt 1", "write 1%"),
        ("duplicate 1% 25", "write 25%"),
        ("delay 10ms 2ms 25", "write 25%"),
        ("loss random 5", "write 5%"),
        ("loss gemodel 1% 10 70% 0.1%", "character 17"),
        ("loss state 1% 10% 5", "write 5%"),
        ("reorder 25% 50 delay 1ms", "write 50%"),
        ("dup 1%", "did you mean duplicate?"),
        ("dist normal delay 10ms 2ms", "did you mean distribution?"),
        ("reord 5%", "did you mean reorder?"),
        ("del 10ms", "did you mean delay?"),
        ("dro 1%", "did you mean drop?"),
        ("li 10", "did you mean limit?"),
        ("delay", "a time such as 10ms is expected"),
        ("loss 1% 25% 3%", "character 13"),
        ("loss randon 1%", "perhaps random"),
        ("loss 101%", "at most 100%"),
        ("loss 2%;", "'2%;' ends in '%;', which is not a unit of a share"),
        ("duplicate 5ms", "ends in 'ms'"),
        ("loss 1% loss 2%", "twice"),
        ("reorder 25%", "nothing is delayed"),
        ("gap 5 delay 10ms", "no reorder"),
        ("delay 10ms distribution normal", "needs a jitter"),
        ("delay 10ms 2ms distribution norml", "perhaps normal"),
        ("ecn", "add loss 1%, or rate 10mbit queue codel"),
        ("corrupt 1% mode checksumvalid", "perhaps checksum-valid"),
        ("rate 10Mbit/s", "not a unit of rate in tc"),
        ("rate 10 Mbit/s", "'10' has no unit"),
        ("rate 10 Mbit/s", "write 10mbit"),
        ("rate 10 mbit", "is separated from its unit 'mbit': write 10mbit"),
        ("delay 10 ms", "separated from its unit 'ms': write 10ms"),
        ("rate 10mbit 0 0 5", "no cells"),
        ("rate 10mbit 0 48 -48", "character 18 of"),
        ("rate 10mbit 0 48 -48", "no frame would take any time"),
        ("limit 10ms", "no rate"),
        ("limit 0", "would pass no frame"),
        ("loss state 60% 10% 10% 10% 50%", "p13 and p14"),
        ("down 2s each 30s", "every"),
        ("delay 20ms then 80ms", "at is expected"),
        ("delay 20ms then 80ms after 5s", "character 22"),
        ("delay 20ms then 80ms at 5s then 20ms at 5s", "not after"),
        ("delay 20ms then 80ms at 0s", "after 0s"),
        ("then 80ms at 5s", "write it after the time of a delay"),
        ("down 30s every 2s", "never"),
        ("delay 1ms reorder 5% keep-order", "leave one out"),
        ("profile lteee", "perhaps lte"),
        ("profile wifi", "or delay, rate and loss yourself"),
        ("flap 1s every 10s", "write down 1s every 10s"),
        ("rate 10mbit codel", "write rate 10mbit queue codel"),
        ("policer 10mbit", "netlathe limit polices"),
        ("ber 1%", "write corrupt 0.1%"),
        ("loss burst 5", "write loss gemodel 0.2% 20%"),
        ("loss 1% burst 5", "write loss gemodel 0.2% 20%"),
        ("loss 1% 25% bursty", "write loss gemodel 0.2% 20%"),
        ("loss 1% profile lte", "profile first"),
        ("loss 1% 100%", "correlation"),
        ("slot 2ms 1ms", "smaller time first"),
        ("mtu 10", "68 to 65535"),
        ("netem delay 10ms", "leave it out"),
        ("tc qdisc add dev eth0 root netem delay 10ms", "leave it out"),
        ("rate 10mbit burst 32kbit latency 50ms", "limit 50ms"),
        ("delay 10ms 2ms normal", "distribution normal"),
        ("delay normal 10ms 2ms", "distribution normal"),
        ("delay exp mean 5ms", "character 7"),
        ("delay exp mean 5ms", "--delay 'exp mean 5ms'"),
        ("delay 5ms exp", "--delay 'exp mean 5ms'"),
        ("delay 10ms 2ms distribution exponential", "--delay 'exp mean 5ms'"),
        ("delay 10ms \u{b1} 2ms", "delay 100ms 10ms"),
        ("delay 10ms, loss 1%", "comma"),
        ("loss 1%, delay 10ms", "comma"),
    ] {
        let error = Netem::parse_spec(spec).expect_err(spec).to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{spec}: {error}");
    }
}

#[test]
fn effect_of_loss_repeats_with_the_seed() {
    let of = |spec| dropped(&run(spec, 50_000, 60), DropReason::Loss);
    let lost = of("loss 20%");
    // Four standard deviations of a binomial with n = 50 000, p = 0.2: 358.
    assert!(lost.abs_diff(10_000) < 358, "{lost}");
    let numbers = |spec: &str| run(spec, 5_000, 60).released.iter().map(number).collect::<Vec<_>>();
    assert_eq!(numbers("loss 20%"), numbers("loss 20%"));
    assert_ne!(numbers("loss 20% seed 5"), numbers("loss 20% seed 6"));
    let lost = |spec: &str| {
        let mut kept = numbers(spec);
        kept.sort_unstable();
        kept
    };
    assert_eq!(lost("loss 20%"), lost("loss 20% delay 10ms 2ms"), "another impairment changes no decision");
}

#[test]
fn effect_of_duplicate_is_a_counted_copy() {
    let out = run("duplicate 10%", 50_000, 60);
    assert!(out.copies.abs_diff(5_000) < 269, "{}", out.copies);
    assert_eq!(out.released.len() as u64, 50_000 + out.copies);
    assert_eq!(out.effects.counted(Effect::Duplicated), out.copies);
    let mut numbers: Vec<u64> = out.released.iter().map(number).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 50_000, "a copy is beside its frame");
}

/// If a duplicated frame is lost, one frame remains, as in the kernel: the frame itself, without a copy.
#[test]
fn effect_of_losing_a_duplicated_frame_is_nothing() {
    let out = run("duplicate 100% loss 100%", 1_000, 60);
    assert_eq!((out.released.len(), out.dropped.len(), out.copies), (1_000, 0, 0));
}

#[test]
fn effect_of_ecn_is_a_mark_instead_of_a_loss() {
    let passed = |spec: &str| {
        let mut bytes = vec![0; 60];
        bytes[12..16].copy_from_slice(&[8, 0, 0x45, 1]);
        bytes[16..18].copy_from_slice(&46_u16.to_be_bytes());
        let mut stage = Netem::parse_spec(spec).expect(spec).build::<HeapFrame>(Random::stream(1, "test"));
        let mut out = Outlet::default();
        let item = || Item { frame: HeapFrame::new(bytes.clone()), at: Time::ZERO };
        stage.push(Time::ZERO, &mut (0..1_000).map(|_| item()).collect(), &mut out);
        let marked = out.released.iter().filter(|item| item.frame.bytes()[15] & 3 == 3).count();
        // A copy of a marked frame has the mark without being selected.
        assert!(marked as u64 >= out.effects.counted(Effect::Marked), "{spec}");
        assert_eq!(marked > 0, out.effects.counted(Effect::Marked) > 0, "{spec}");
        (out.released.len(), marked, dropped(&out, DropReason::Loss))
    };
    assert_eq!(passed("loss 100%"), (0, 0, 1_000));
    assert_eq!(passed("loss 100% ecn"), (1_000, 1_000, 0));
    let (_, marked, lost) = passed("loss 50% duplicate 50%");
    assert!(marked == 0 && lost > 0);
    let (left, marked, lost) = passed("loss 50% ecn duplicate 50%");
    assert!(left > 1_000 && marked > 0 && lost == 0);
}

#[test]
fn effect_of_reorder_with_a_gap() {
    let out = run("delay 1ms reorder 25% 50% gap 5", 100_000, 60);
    // The first four frames after each reordered one are delayed; then the chain decides.
    let hastened: Vec<u64> =
        out.released.iter().filter(|item| item.at.as_ps() == number(item) * 1_000_000).map(number).collect();
    assert_eq!(hastened.len() as u64, out.effects.counted(Effect::Hastened));
    assert!(hastened.windows(2).all(|pair| pair[1] - pair[0] >= 5));
    // P(hit | hit) = 0.625: the next candidate is 5 frames later.
    let again = hastened.windows(2).filter(|pair| pair[1] - pair[0] == 5).count() as f64 / hastened.len() as f64;
    assert!((again - 0.625).abs() < 0.02, "{again}");

    // With a probability of 100 %, each fifth frame is sent at once and overtakes. Without a gap, no frame is delayed
    // at all.
    let out = run("delay 1ms reorder 100% gap 5", 1_000, 60);
    let early = |item: &&Item<HeapFrame>| item.at.as_ps() == number(item) * 1_000_000;
    assert!(out.released.iter().filter(early).map(number).eq((4..1_000).step_by(5)));
    assert!(out.effects.reorder().is_some_and(|report| report.reordered > 700), "{:?}", out.effects.reorder());
    let out = run("delay 1ms reorder 100%", 1_000, 60);
    assert_eq!(out.released.iter().filter(early).count(), 1_000);
    assert!(out.effects.reorder().is_none_or(|report| report.reordered == 0));
}

#[test]
fn effect_of_rate_at_every_instant() {
    let out = run("rate 10mbit limit 100000", 2_000, 1_000);
    for (i, item) in out.released.iter().enumerate() {
        assert_eq!(item.at, Time::from_ps((i as u64 + 1) * 800_000_000), "1000 B take 800 µs");
    }
    let out = run("rate 10mbit 20 48 5", 1_000, 1_500);
    assert_eq!(out.released[0].at, Time::from_ps(32 * 53 * 800_000), "32 cells of 53 B");
}

#[test]
fn effect_of_limits() {
    let held = |spec: &str| run(spec, 500, 1_000).released.len();
    // While one frame takes 800 µs, 500 arrive; one leaves at the end of each.
    assert_eq!(held("rate 10mbit limit 10"), 10);
    assert_eq!(held("rate 10mbit limit 9999B"), 9);
    assert_eq!(held("rate 10mbit limit 10ms"), 14, "the 14th comes when 13 take 10.4 ms less 0.4 ms");
    assert_eq!(run("rate 10mbit limit 10", 500, 1_000).dropped.len(), 490);
    assert_eq!(run("delay 1s", 2_000, 60).dropped.len(), 0, "no silent limit of 1000");
    let left = |spec: &str| run(spec, 3_000, 1_000).released.iter().map(number).collect::<Vec<_>>();
    assert_eq!(left("rate 10mbit limit 1500B"), [0, 800, 1_600, 2_400], "who leaves makes room for his bytes");
    assert_eq!(left("rate 10mbit limit 800us"), [0, 1, 800, 1_600, 2_400], "a wait of just the limit is within it");
}

#[test]
fn effect_of_slots() {
    let out = run("slot 1ms packets 100", 5_000, 60);
    let slots: Vec<_> = out.released.chunk_by(|a, b| a.at == b.at).collect();
    assert!(slots.iter().all(|slot| slot.len() <= 100));
    assert!(slots.windows(2).all(|pair| pair[1][0].at.since(pair[0][0].at) >= Span::from_ms(1)));
    assert!(slots.len() >= 50, "{}", slots.len());
}

#[test]
fn effect_of_outages_and_of_a_black_hole() {
    let out = run("down 2ms every 10ms", 20_000, 60);
    assert_eq!(dropped(&out, DropReason::Outage), 4_000);
    assert!(out.released.iter().all(|item| item.at.as_ps() % 10_000_000_000 < 8_000_000_000));
    let lost = |bytes| dropped(&run("mtu 1400", 10, bytes), DropReason::Mtu);
    assert_eq!((lost(1_414), lost(1_415)), (0, 10));
}

#[test]
fn effect_of_a_step_in_delay_at_every_instant() {
    let leaves = |spec: &str| {
        let mut at = vec![0; 10];
        run(spec, 10, 60).released.iter().for_each(|item| at[number(item) as usize] = item.at.as_ps() / 1_000_000);
        at
    };
    // Frames arrive 1 µs apart. The delay changes at 4 µs and at 8 µs.
    let steps = "delay 5us then 20us at 4us then 1us at 8us";
    assert_eq!(leaves(steps), [5, 6, 7, 8, 24, 25, 26, 27, 9, 10]);
    assert_eq!(leaves(&format!("{steps} keep-order")), [5, 6, 7, 8, 24, 25, 26, 27, 27, 27]);
    let drawn = run("delay 1ms 100us then 3ms at 10ms", 20_000, 60);
    let delay = |item: &Item<HeapFrame>| item.at.as_ps() / 1_000 - number(item) * 1_000;
    let off = drawn.released.iter().filter(|item| {
        let mean = if number(item) < 10_000 { 1_000_000 } else { 3_000_000 };
        delay(item).abs_diff(mean) > 100_000
    });
    assert_eq!(off.count(), 0);
}

#[test]
fn effect_of_icmp_is_an_answer_per_unfragmentable_packet() {
    let frame = |dont_fragment: bool| {
        let mut bytes = vec![0; 1_514];
        bytes[..15].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
        bytes[16..18].copy_from_slice(&1_500_u16.to_be_bytes());
        (bytes[20], bytes[23]) = (if dont_fragment { 0x40 } else { 0 }, 17);
        bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        Item { frame: HeapFrame::new(bytes), at: Time::ZERO }
    };
    let answered = |spec: &str, way_back: bool| {
        let mut stage = Netem::parse_spec(spec).expect(spec).build::<HeapFrame>(Random::stream(1, "test"));
        let mut out = Outlet { answers: way_back.then(Vec::new), ..Outlet::default() };
        stage.push(Time::ZERO, &mut vec![frame(true), frame(false)], &mut out);
        assert_eq!(dropped(&out, DropReason::Mtu), 2);
        let answers = out.answers.take().unwrap_or_default();
        assert_eq!(out.effects.counted(Effect::Answered), answers.len() as u64);
        answers
    };
    let answers = answered("mtu 1400 icmp", true);
    assert_eq!(answers.len(), 1);
    assert_eq!((answers[0].bytes().len(), &answers[0].bytes()[40..42]), (590, &1_400_u16.to_be_bytes()[..]));
    assert!(answered("mtu 1400", true).is_empty() && answered("mtu 1400 icmp", false).is_empty());
}

#[test]
fn effect_of_corruption_is_one_bit() {
    let out = run("corrupt 10%", 20_000, 60);
    let wrong =
        |item: &&Item<HeapFrame>| item.frame.bytes()[22..].iter().chain(&item.frame.bytes()[..14]).any(|b| *b != 0);
    let seen = out.released.iter().filter(wrong).count() as u64;
    let corrupted = out.effects.counted(Effect::Corrupted);
    assert!(corrupted.abs_diff(2_000) < 170, "{corrupted}");
    // The number is in eight of sixty bytes.
    assert!(seen.abs_diff(corrupted * 52 / 60) < 80, "{seen} of {corrupted}");
}

#[test]
fn the_limit_follows_the_rate_and_the_line() {
    let settled = |spec: &str, line: Option<u64>| {
        let mut netem = Netem::parse_spec(spec).expect(spec);
        netem.settle(line.map(BitRate::from_bps));
        netem.limit
    };
    // 10 Gbit/s × (100 ms + 4 × 10 ms) ÷ 64 B.
    assert_eq!(settled("delay 100ms 10ms", Some(10_000_000_000)), Some(QueueLimit::Frames(2_734_375)));
    assert_eq!(
        settled("delay 10ms 10ms then 100ms at 5s then 0ms at 9s", Some(10_000_000_000)),
        Some(QueueLimit::Frames(2_734_375))
    );
    assert_eq!(settled("delay 100ms", None), None);
    assert_eq!(settled("rate 10mbit", Some(10_000_000_000)), Some(QueueLimit::Frames(1_000)));
    assert_eq!(settled("limit 7 rate 10mbit", None), Some(QueueLimit::Frames(7)));
}

#[test]
fn notes_the_effects_of_a_jitter() {
    let notes = |spec: &str| Netem::parse_spec(spec).expect(spec).notes().join("; ");
    // The mean is (1 + 5)² ÷ 20 ms, and 4 of 10 ms of the range are below zero.
    let note = notes("delay 1ms 5ms");
    assert!(note.contains("40.0 % of the frames") && note.contains("the mean is 1.800 ms"), "{note}");
    assert!(notes("delay 1ms 5ms distribution normal").contains("the mean is longer"));
    let note = notes("delay 10ms 5ms keep-order");
    assert!(note.contains("nearer all are to 15.000 ms, and not to 10ms"), "{note}");
    // The 93.3 % and 99.3 % quantiles: 10 ms ± 5 ms × (2 p − 1), and 10 ms + 5 ms × 1.4990 and 2.4626 for the normal law.
    assert!(note.contains("by 14.330 ms at the median, of 100 by 14.931 ms"), "{note}");
    for (law, longest, ten, hundred) in [
        ("normal", 27.613, 17.494, 22.310),
        ("pareto", 29.999, 16.417, 29.999),
        ("paretonormal", 29.402, 16.686, 28.078),
    ] {
        let note = notes(&format!("delay 10ms 5ms distribution {law} keep-order"));
        let figures: Vec<f64> = note.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        for (figure, expected) in [(figures[0], longest), (figures[2], ten), (figures[4], hundred)] {
            assert!((figure / expected - 1.0_f64).abs() < 0.01, "{law}: {expected} {note}");
        }
    }
    assert!(!notes("delay 10ms 5ms 25% keep-order").contains("together"));
    assert_eq!(notes("delay 10ms 5ms") + &notes("delay 5ms 5ms") + &notes("delay 10ms keep-order"), "");
}

#[test]
fn effect_profiles_have_a_queue_of_their_size() {
    for (name, longest) in [("3g-up", 450), ("3g-down", 450), ("dsl-up", 225), ("cable-up", 214), ("lte", 235)] {
        let out = run(&format!("profile {name}"), 3_000, 1_514);
        // The last frame waits for less than the capacity of the queue, plus its own transmission time.
        let delay = |item: &Item<HeapFrame>| item.at.since(Time::from_ps(number(item) * 1_000_000));
        let most = out.released.iter().map(delay).max().expect("frames passed");
        assert!(most <= Span::from_ms(longest + 35) && most >= Span::from_ms(longest - 1), "{name}: {most}");
        assert!(dropped(&out, DropReason::Queue) > 0, "{name}");
    }
    let codel = Netem::parse_spec("profile 3g-up queue codel").expect("a queue of its own");
    assert_eq!(codel.limit, None);
    let other = Netem::parse_spec("profile 3g-up limit 50").expect("a limit of its own");
    assert_eq!(other.limit, Some(QueueLimit::Frames(50)));
}

#[test]
fn notes_a_queue_longer_than_timeouts() {
    let notes = |spec: &str| {
        let mut netem = Netem::parse_spec(spec).expect(spec);
        netem.settle(None);
        netem.notes()
    };
    assert!(notes("rate 10kbit")[0].contains("1211 s"), "{:?}", notes("rate 10kbit"));
    assert!(notes("rate 10kbit limit 20").is_empty() && notes("rate 1mbit").is_empty());
    assert!(notes("delay 1ms reorder 100%")[0].contains("gap 5"), "{:?}", notes("delay 1ms reorder 100%"));
    assert!(notes("delay 1ms reorder 100% gap 5").is_empty() && notes("delay 1ms reorder 99%").is_empty());
    assert!(!notes("rate 100bit limit 1")[0].contains("20"), "a longer queue is not a remedy");
}

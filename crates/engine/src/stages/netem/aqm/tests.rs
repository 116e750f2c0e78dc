//! Effects of queues before a link, in virtual time.

use super::super::Netem;
use super::codel::{Codel, Control};
use super::{Fifo, Hits, Manager, Queue, Waiting};
use crate::random::Random;
use crate::schedules::Text;
use crate::stages::{Configuration, Decision, Fate, Item, Outlet};
use measure::{DropReason, Effect};
use packet::{Frame, HeapFrame};
use units::{Span, Time};

/// A UDP/IPv4 frame of `bytes` without FCS from a port, able to carry the ECN mark.
fn frame(port: u16, bytes: usize) -> HeapFrame {
    let mut frame = vec![0; bytes];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, 0x02]);
    frame[16..18].copy_from_slice(&(bytes as u16 - 14).to_be_bytes());
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    HeapFrame::new(frame)
}

fn port(frame: &HeapFrame) -> u16 {
    u16::from_be_bytes([frame.bytes()[34], frame.bytes()[35]])
}

/// Sends frames at their times through a SPEC. Returns the outlet and the waits in ms of the frames that left.
fn run(spec: &str, frames: impl IntoIterator<Item = (Time, HeapFrame)>) -> (Outlet<HeapFrame>, Vec<f64>) {
    run_netem(&Netem::parse_spec(spec).expect(spec), frames)
}

fn run_netem(spec: &Netem, frames: impl IntoIterator<Item = (Time, HeapFrame)>) -> (Outlet<HeapFrame>, Vec<f64>) {
    let mut stage = spec.build::<HeapFrame>(Random::stream(1, "test"));
    let mut out = Outlet::default();
    let mut arrived = std::collections::HashMap::new();
    let mut count = 0;
    for (number, (at, mut frame)) in frames.into_iter().enumerate() {
        while let Some(deadline) = stage.deadline().filter(|deadline| *deadline < at) {
            stage.wake(deadline, &mut out);
        }
        frame.set_tag(number as u32);
        arrived.insert(number as u32, at);
        stage.push(at, &mut vec![Item { frame, at }], &mut out);
        count += 1;
    }
    while let Some(deadline) = stage.deadline() {
        stage.wake(deadline, &mut out);
    }
    assert_eq!((stage.held(), out.released.len() + out.dropped.len()), (0, count), "{spec}: the books balance");
    let wait = |item: &Item<HeapFrame>| item.at.since(arrived[&item.frame.tag()]).as_secs_f64() * 1e3;
    let waits = out.released.iter().map(wait).collect();
    (out, waits)
}

/// Frames of 1 500 B every `gap` for `s` seconds.
fn every(gap: Span, s: u64) -> impl Iterator<Item = (Time, HeapFrame)> {
    (0..s * 1_000_000_000_000 / gap.as_ps()).map(move |n| (Time::ZERO + gap * n, frame(1, 1_500)))
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn early(out: &Outlet<HeapFrame>) -> usize {
    out.dropped.iter().filter(|(_, reason)| *reason == DropReason::Early).count()
}

/// At 12 Mbit/s, a frame of 1 500 B takes 1 ms.
const MS: fn(u64) -> Span = Span::from_ms;

#[test]
fn queues_survive_printing_and_parsing() {
    for (spec, name) in [
        ("queue codel", "codel target 5ms interval 100ms"),
        ("queue codel interval 20ms target 1ms", "codel target 1ms interval 20ms"),
        ("queue pie", "pie target 15ms tupdate 15ms"),
        ("queue red max 90KiB min 30KiB", "red min 30720B max 92160B probability 2% weight 0.2%"),
        ("queue step above 1ms", "step above 1ms"),
        ("queue step above 65", "step above 65"),
        ("queue fq_codel quantum 300 target 1ms", "fq_codel target 1ms interval 100ms quantum 300"),
    ] {
        let netem = Netem::parse_spec(&format!("rate 10mbit {spec} ecn")).expect(spec);
        assert_eq!(netem.aqm.as_ref().map(ToString::to_string).as_deref(), Some(name));
        let text = netem.to_string();
        assert_eq!(Netem::parse(&text.split(' ').skip(1).collect::<Vec<_>>()).as_ref(), Ok(&netem), "{text}");
    }
}

#[test]
fn refuses_settings_incompatible_with_a_queue() {
    for (spec, why) in [
        ("queue codel", "add rate"),
        ("rate 10mbit queue codl", "perhaps codel"),
        ("rate 10mbit queue", "write a queue such as codel after it"),
        ("rate 10mbit queue codel target 0ms", "is zero"),
        ("rate 10mbit queue red", "without min and max"),
        ("rate 10mbit queue red min 30KiB max 30KiB", "not above its min"),
        ("rate 10mbit queue red min 30KiB max 90KiB probability 0%", "never selects a frame"),
        ("rate 10mbit queue red min 30KiB max 90KiB probability 0.02", "a part of 1: 2 %"),
        ("rate 10mbit queue step 65", "write queue step above 65"),
        ("rate 10mbit queue step", "write above 65 after it"),
        ("rate 10mbit queue pie tupdate 99us", "100us at least"),
        ("rate 10mbit queue fq_codel quantum 0", "not a quantum"),
        ("rate 10mbit queue fq_codel quantum 4294967296", "not a quantum"),
        ("rate 10mbit queue fq_codel keep-order", "take turns"),
        ("rate 10mbit queue codel limit 50ms", "bounds the wait"),
        ("rate 10mbit queue codel slot 1ms", "slot"),
        ("rate 10mbit codel", "write rate 10mbit queue codel"),
    ] {
        let error = Netem::parse_spec(spec).expect_err(spec).to_string();
        assert!(error.contains(why), "{spec}: {error}");
    }
}

#[test]
fn queue_without_selections_equals_tail_drop() {
    // Bursts of frames of any size, with jitter: the departures are equal to the picosecond.
    let mut random = Random::stream(3, "sizes");
    let frames: Vec<_> = (0..3_000_u64)
        .map(|n| (Time::ZERO + MS(1) * (n / 7 * 3), frame(1, 60 + random.below(1_440) as usize)))
        .collect();
    for spec in
        ["rate 12mbit limit 20", "delay 10ms 3ms rate 7mbit limit 30KiB", "delay 2ms rate 9mbit 20 48 5 limit 40"]
    {
        let (plain, waits) = run(spec, frames.clone());
        for queue in ["codel target 10s", "step above 1000", "red min 1GiB max 2GiB", "pie target 10s"] {
            let (queued, others) = run(&format!("{spec} queue {queue}"), frames.clone());
            assert!(!plain.dropped.is_empty() && early(&queued) == 0);
            assert_eq!((waits.len(), plain.dropped.len()), (others.len(), queued.dropped.len()), "{spec} {queue}");
            assert!(plain.released.iter().zip(&queued.released).all(|(a, b)| a.at == b.at), "{spec} {queue}");
        }
    }
}

#[test]
fn codel_drops_at_the_times_of_rfc_8289() {
    // 2 ms of frames arrive per ms, so the queue grows by 1 ms per ms. Frame n arrives at n/2 ms and would depart at n
    // ms.
    let (out, _) = run("rate 12mbit queue codel limit 100000", every(Span::from_us(500), 1));
    let mut dropped: Vec<u32> = out.dropped.iter().map(|(frame, _)| frame.tag()).collect();
    dropped.sort_unstable();
    // At 10 ms, frame 10 has waited for 5 ms. The first drop is 100 ms later, the next 100 ms after that, then 100 ÷ √2
    // and 100 ÷ √3 ms later. A dropped frame takes no time on the link.
    assert_eq!(dropped[..4], [110, 211, 283, 342], "{:?}", &dropped[..8]);
}

#[test]
fn codel_bounds_the_wait_unlike_tail_drop() {
    // A sender at 5 % above the link rate; TCP would slow down.
    let load = || every(Span::from_us(952), 60);
    let (tail, waits) = run("rate 12mbit limit 1000", load());
    assert!(early(&tail) == 0 && median(&waits[30_000..]) > 900.0, "{}", median(&waits[30_000..]));
    let (codel, waits) = run("rate 12mbit limit 1000 queue codel", load());
    let (late, share) = (median(&waits[30_000..]), early(&codel) as f64 / 63_000.0);
    assert!(late < 40.0 && (0.03..0.07).contains(&share), "{late} ms, {share} dropped");
}

#[test]
fn pie_keeps_the_wait_near_its_target() {
    for (target, over) in [(15.0, 952), (40.0, 833)] {
        let (out, waits) =
            run(&format!("rate 12mbit limit 1000 queue pie target {target}ms"), every(Span::from_us(over), 120));
        let late = &waits[waits.len() / 2..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        // A frame spends 1 ms on the link itself.
        assert!((mean - 1.0 - target).abs() < 0.2 * target, "{mean} ms for {target}");
        let share = early(&out) as f64 / (waits.len() + out.dropped.len()) as f64;
        assert!((share - (1.0 - over as f64 / 1_000.0)).abs() < 0.02, "{share} dropped");
    }
    // No frame is selected in the first 150 ms.
    let (out, _) = run("rate 12mbit limit 10000 queue pie", every(Span::from_us(100), 1));
    let first = out.dropped.iter().map(|(frame, _)| frame.tag()).min().expect("some are dropped");
    assert!(first > 1_500, "frame {first} came at {} ms", first / 10);
}

#[test]
fn red_selects_by_the_mean_length() {
    // The queue stays at its initial 40 frames of 1 500 B = 60 000 B, half way from min to max.
    let full = (0..40).map(|_| (Time::ZERO, frame(1, 1_500)));
    let steady = every(MS(1), 200).map(|(at, frame)| (at + Span::from_us(1), frame));
    let spec = "rate 12mbit limit 10000 queue red min 30kB max 90kB probability 10% weight 1%";
    let (out, waits) = run(spec, full.chain(steady));
    // 5 % at that length. Drops shorten the queue until none occur: 20 frames wait and one is on the link.
    let last = &waits[waits.len() - 1_000..];
    assert!(early(&out) >= 15 && median(last) < 22.5, "{} dropped, {} ms", early(&out), median(last));
    // Above max all frames are dropped, whether they can carry the mark or not.
    let (out, waits) =
        run("rate 12mbit limit 10000 queue red min 15kB max 30kB weight 10%", every(Span::from_us(500), 10));
    let most = waits.iter().copied().fold(0.0, f64::max);
    assert!(most < 60.0, "{most} ms");
    assert!((early(&out) as f64 / 20_000.0 - 0.5).abs() < 0.02, "{}", early(&out));
}

#[test]
fn drops_despite_marking_under_overload() {
    // Twice the link rate, from a sender that ignores marks.
    for (queue, marked) in [("red min 15kB max 60kB probability 10%", 30..3_000), ("pie", 1..100)] {
        let (out, _) = run(&format!("rate 12mbit limit 200 queue {queue} ecn"), every(Span::from_us(500), 10));
        assert!(early(&out) > 4_000, "{queue}: {} dropped", early(&out));
        assert!(
            marked.contains(&out.effects.counted(Effect::Marked)),
            "{queue}: {}",
            out.effects.counted(Effect::Marked)
        );
    }
    let (codel, _) = run("rate 12mbit limit 200 queue codel ecn", every(Span::from_us(500), 10));
    assert_eq!(early(&codel), 0, "CoDel leaves that to the limit");
}

#[test]
fn red_spreads_its_selections() {
    // A constant mean of 60 000 B: a share of 5 %. Gaps are spread evenly over 1 to 19 frames (mean 10); pure chance
    // would give one in eight gaps above 40.
    let mut red =
        match Netem::parse_spec("rate 12mbit queue red min 30kB max 90kB probability 10%").expect("a SPEC").aqm {
            Some(super::Aqm::Red(red)) => red.early(12e6, Random::stream(1, "test")),
            other => panic!("{other:?}"),
        };
    let backlog = super::Backlog { frames: 40, bytes: 60_000 };
    let is_chosen = |_: &usize| super::Manager::enqueue(&mut red, Time::ZERO, backlog) == super::Verdict::Chosen;
    let chosen: Vec<usize> = (0..200_000).filter(is_chosen).skip(500).collect();
    let gaps: Vec<usize> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<usize>() as f64 / gaps.len() as f64;
    assert!((mean - 10.0).abs() < 0.2 && gaps.iter().max() <= Some(&20), "{mean}, {:?}", gaps.iter().max());
}

#[test]
fn step_marks_frames_that_find_more_than_the_limit() {
    // Twenty frames at once: one is sent and 19 wait.
    let burst = || (0..20).map(|_| (Time::ZERO, frame(1, 1_500)));
    let marked = |out: &Outlet<HeapFrame>| -> Vec<u32> {
        let ce = out.released.iter().filter(|item| item.frame.bytes()[15] & 3 == 3);
        ce.map(|item| item.frame.tag()).collect()
    };
    let from = |first: u32| (first..20).collect::<Vec<_>>();
    // The frame that finds six waiting is the eighth; 1 500 B × 5 does not exceed 7 500 B; at 5 ms the sixth frame has
    // waited.
    for (above, first) in [("5", 7), ("7500B", 7), ("5ms", 6)] {
        let (out, _) = run(&format!("rate 12mbit queue step above {above} ecn"), burst());
        assert_eq!((marked(&out), early(&out)), (from(first), 0), "above {above}");
        assert_eq!(out.effects.counted(Effect::Marked), 20 - u64::from(first));
        let (out, _) = run(&format!("rate 12mbit queue step above {above}"), burst());
        assert!(marked(&out).is_empty() && early(&out) > 0, "above {above}: dropped where no mark is asked");
    }
}

/// Outer headers are the same for both flows.
#[test]
fn flows_in_tunnels_take_turns() {
    use LayerKind::{Esp, Ethernet, Gre, Ipv4, Ipv6, Mpls, Pppoe, Udp, Vlan, Vxlan};
    use packet::layers::{FieldPath, LayerKind, Layers, stack, write_field};
    for (kinds, path) in [
        (&[Ethernet, Pppoe, Ipv4, Udp][..], "dport"),
        (&[Ethernet, Mpls, Ipv4, Udp], "dport"),
        (&[Ethernet, Vlan, Vlan, Ipv4, Udp], "dport"),
        (&[Ethernet, Ipv4, Gre, Ipv4, Udp], "inner dport"),
        (&[Ethernet, Ipv4, Ipv6, Udp], "inner dport"),
        (&[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Udp], "inner dport"),
        (&[Ethernet, Ipv4, Esp], "esp spi"),
    ] {
        let frame = |flow: u128, bytes: usize| {
            let mut frame = stack(kinds, &vec![0; bytes]).expect("a stack");
            let layers = Layers::of(&frame);
            let (path, _) = FieldPath::read(path, &path.split(' ').collect::<Vec<_>>()).expect("a path");
            let (of, field) = path.find(&frame, &layers).expect("a field");
            assert!(write_field(&mut frame, &layers, of, field, flow));
            HeapFrame::new(frame)
        };
        let bulk = (0..5_000).map(|n| (Time::ZERO + MS(1) * n, frame(1_001, 1_400)));
        let sparse = (0..250).map(|n| (Time::ZERO + MS(20) * n + Span::from_us(500), frame(1_002, 60)));
        let mut frames: Vec<_> = bulk.chain(sparse).collect();
        frames.sort_by_key(|(at, _)| *at);
        let median_of = |spec: &str| {
            let (out, waits) = run(spec, frames.clone());
            let short = out.released.iter().zip(waits).filter(|(item, _)| item.frame.bytes().len() < 700);
            let mut waits: Vec<f64> = short.map(|(_, wait)| wait).collect();
            waits.sort_by(f64::total_cmp);
            waits[waits.len() / 2]
        };
        let median = median_of("rate 10mbit queue fq_codel");
        assert!(median < 2.0, "{kinds:?}: {median} ms");
        assert!(median_of("rate 10mbit queue codel") > 2.0, "{kinds:?}: one queue for both");
    }
}

#[test]
fn flows_take_turns_and_new_flows_go_first() {
    // One flow fills the queue; another sends a frame of 100 B every 10 ms.
    let bulk = every(Span::from_us(500), 10);
    let sparse = (0..1_000).map(|n| (Time::ZERO + MS(10) * n + Span::from_us(3), frame(2, 100)));
    let mut frames: Vec<_> = bulk.chain(sparse).collect();
    frames.sort_by_key(|(at, _)| *at);
    let waits_of = |spec: &str, of: u16| {
        let (out, waits) = run(spec, frames.clone());
        let waits = out.released.iter().zip(waits).filter(|(item, _)| port(&item.frame) == of).map(|(_, wait)| wait);
        waits.collect::<Vec<_>>()
    };
    // A frame waits for at most one frame of the other flow, plus its own 67 µs. The first frame waits for two, since
    // both flows are new.
    let sparse = waits_of("rate 12mbit limit 500 queue fq_codel", 2);
    assert!(sparse.len() == 1_000 && sparse[1..].iter().all(|wait| *wait < 1.07), "{sparse:?}");
    assert!(waits_of("rate 12mbit limit 500", 2).len() < 100, "a tail that is full has no room for it");

    // Three greedy flows get equal shares, for any frame lengths.
    let greedy = (0..30_000_u64).flat_map(|n| {
        let at = Time::ZERO + Span::from_us(300) * n;
        [(at, frame(1, 1_500)), (at, frame(2, 300)), (at, frame(2, 300)), (at, frame(3, 700))]
    });
    let (out, _) = run("rate 12mbit limit 300 queue fq_codel", greedy);
    let mut bytes = [0_u64; 3];
    out.released.iter().for_each(|item| bytes[usize::from(port(&item.frame)) - 1] += item.frame.bytes().len() as u64);
    let total: u64 = bytes.iter().sum();
    // The second flow sends 16 Mbit/s, the third 18.7, the first 40; each may have 4.
    assert!(bytes.iter().all(|bytes| (*bytes as f64 / total as f64 - 1.0 / 3.0).abs() < 0.01), "{bytes:?}");
    let full = out.dropped.iter().filter(|(_, reason)| *reason == DropReason::Queue).count();
    assert!(full > 0, "what is beyond the limit is dropped at the head of who has most");
}

#[test]
fn red_recovers_after_a_pause() {
    // The mean is far above max when the link becomes idle. The first frame after the pause still finds this mean and
    // is dropped; then the mean falls.
    let full = (0..400).map(|_| (Time::ZERO, frame(1, 1_500)));
    let later = (0..20).map(|n| (Time::ZERO + MS(430) + MS(2_000) * n, frame(1, 1_500)));
    let (out, _) = run("rate 12mbit limit 10000 queue red min 15kB max 30kB weight 0.1%", full.chain(later));
    let late: Vec<u32> = out.dropped.iter().map(|(frame, _)| frame.tag()).filter(|tag| *tag >= 400).collect();
    assert_eq!(late, [400], "the mean of an empty queue falls with time, not with those who come");
}

#[test]
fn pie_drops_flows_that_ignore_marks() {
    // Twice the rate, and no sender slows down: above a probability of 10 %, frames are dropped that could be marked.
    let (out, waits) = run("rate 12mbit limit 10000 queue pie ecn", every(Span::from_us(500), 60));
    let marked = out.effects.counted(Effect::Marked);
    assert!(marked > 0 && early(&out) > 40_000, "{marked} marked, {} dropped", early(&out));
    assert!(median(&waits[waits.len() / 2..]) < 25.0, "the wait is bounded");
}

#[test]
fn returning_flow_resumes_its_drop_rate() {
    // Twice the link rate for 2 s, a pause that drains the queue, and again. After a short pause CoDel continues its
    // drop rate, as a single shared queue does; after a long one it restarts.
    let twice = |pause: u64| {
        let from = MS(2_000 + pause);
        every(Span::from_us(500), 2).chain(every(Span::from_us(500), 1).map(move |(at, frame)| (at + from, frame)))
    };
    let drops = |queue: &str, pause: u64| {
        let (out, _) = run(&format!("rate 12mbit limit 10000 queue {queue}"), twice(pause));
        let mut tags: Vec<u32> = out.dropped.iter().map(|(frame, _)| frame.tag()).collect();
        tags.sort_unstable();
        tags
    };
    for pause in [2_500, 10_000] {
        assert_eq!(drops("fq_codel", pause), drops("codel", pause), "after {pause} ms");
    }
    assert!(drops("codel", 2_500).len() > drops("codel", 10_000).len() + 10, "and the pauses differ");
}

#[test]
fn longest_flow_with_the_arriving_frame_makes_room() {
    // One frame on the link; then 100 B + 900 B of one flow against 950 B of another: the 100 B frame is dropped.
    let frames = [(9, 60), (1, 100), (2, 950), (1, 900)].map(|(port, bytes)| (Time::ZERO, frame(port, bytes)));
    let (out, _) = run("rate 12mbit limit 3 queue fq_codel", frames);
    let dropped: Vec<u32> = out.dropped.iter().map(|(frame, _)| frame.tag()).collect();
    assert_eq!(dropped, [1]);
    // The arriving frame alone is longer than the backlog of any other flow: it is dropped.
    let frames = [(9, 60), (1, 100), (2, 950), (3, 1_500)].map(|(port, bytes)| (Time::ZERO, frame(port, bytes)));
    let (out, _) = run("rate 12mbit limit 3 queue fq_codel", frames);
    assert_eq!(out.dropped.iter().map(|(frame, _)| frame.tag()).collect::<Vec<_>>(), [3]);
}

#[test]
fn codel_keeps_a_backlog_shorter_than_one_long_frame() {
    // 60 B takes 7.5 ms at 64 kbit/s. Twenty frames wait for longer than the target, but are only 1 200 B, less than
    // one long frame.
    let at = |n: u64| Time::ZERO + Span::from_us(7_500) * n.saturating_sub(20);
    let (out, _) = run("rate 64kbit queue codel", (0..400).map(|n| (at(n), frame(1, 60))));
    assert_eq!(early(&out), 0);
    let at = |n: u64| Time::ZERO + Span::from_us(7_500) * n.saturating_sub(60);
    let (out, _) = run("rate 64kbit queue codel", (0..400).map(|n| (at(n), frame(1, 60))));
    assert!(early(&out) > 10, "{}", early(&out));
}

fn dropped(out: &Outlet<HeapFrame>) -> Vec<u32> {
    out.dropped.iter().map(|(frame, _)| frame.tag()).collect()
}

#[test]
fn drops_half_of_the_longest_flow_to_make_room() {
    let full = |sizes: [usize; 3], arriving: u16| {
        let of = |port: usize| (0..sizes[port]).map(move |_| frame(port as u16, 1_000));
        (0..3).flat_map(of).chain([frame(arriving, 1_000)]).map(|frame| (Time::ZERO, frame)).collect::<Vec<_>>()
    };
    // One frame on the link; seven wait in one flow and four in another. The first four of the seven are dropped, for
    // any arriving flow.
    let (out, _) = run("rate 12mbit limit 12 queue fq_codel", full([1, 7, 4], 2));
    assert_eq!(dropped(&out), [1, 2, 3, 4]);
    // With the arriving frame there are eight: again four are dropped.
    let (out, _) = run("rate 12mbit limit 12 queue fq_codel", full([1, 7, 4], 1));
    assert_eq!(dropped(&out), [1, 2, 3, 4]);
    // At most 64 are dropped.
    let (out, _) = run("rate 12mbit limit 300 queue fq_codel target 10s", full([1, 299, 0], 1));
    assert_eq!(dropped(&out), (1..65).collect::<Vec<_>>());
}

#[test]
fn flow_counts_as_started_even_if_all_its_frames_are_dropped() {
    // The frame of flow 3 is the longest and is dropped. Its next frame arrives after the one of flow 4, but flow 3
    // started earlier.
    let first = [(9, 60), (1, 100), (2, 950), (3, 1_500)].map(|(port, bytes)| (Time::ZERO, frame(port, bytes)));
    let later = [4, 3].map(|port| (Time::ZERO + Span::from_us(120), frame(port, 100)));
    let (out, _) = run("rate 12mbit limit 3 queue fq_codel", first.into_iter().chain(later));
    assert_eq!(dropped(&out), [3]);
    let order: Vec<u16> = out.released.iter().map(|item| port(&item.frame)).collect();
    assert_eq!(order, [9, 1, 2, 3, 4]);
}

#[test]
fn codel_postpones_its_next_selection_after_a_mark() {
    let mut control = Control::new(&Codel::default());
    let dequeue = |control: &mut Control, us: u64, waited: u64| {
        let now = Time::ZERO + Span::from_us(us);
        let verdict = control.dequeue(now, MS(waited), 1_500, super::Backlog { frames: 10, bytes: 15_000 });
        if verdict == super::Verdict::Chosen {
            control.marked();
        }
        verdict == super::Verdict::Chosen
    };
    let chosen: Vec<bool> =
        [0, 100_000, 200_000, 270_800, 328_500].map(|us| dequeue(&mut control, us, 10)).into_iter().collect();
    assert_eq!(chosen, [false, true, true, true, true]);
    assert!(!dequeue(&mut control, 329_000, 0), "the wait is short again");
    // The next selection would have been due at 100 (2 + 1/√2 + 1/√3 + 1/√4) = 378 ms. The rate is remembered until 16
    // intervals after that.
    assert!(control.resumes(Time::ZERO + MS(1_975)) && !control.resumes(Time::ZERO + MS(1_980)));
}

#[test]
fn codel_restarts_once_its_queue_is_empty() {
    let waiting = |at: Time| Waiting {
        frame: frame(1, 1_500),
        decision: Decision { frame: 0, copy: 0, marked: false, fate: Fate::Pass, delay: Span::ZERO, change: None },
        arrived: at,
        since: at,
        bytes: 1_500,
    };
    let mut out = Outlet::default();
    let mut hits = Hits { out: &mut out, ecn: false };
    let mut queue = Fifo::new(Control::new(&Codel::default()));
    (0..20).for_each(|_| queue.push(Time::ZERO, waiting(Time::ZERO), &mut hits));
    queue.pop(Time::ZERO + MS(10), &mut hits);
    queue.pop(Time::ZERO + MS(110), &mut hits);
    // CoDel drops frames. Then the other frames are dropped to free space for another flow.
    while queue.take().is_some() {}
    assert!(queue.pop(Time::ZERO + MS(120), &mut hits).is_none());
    (0..20).for_each(|_| queue.push(Time::ZERO + MS(300), waiting(Time::ZERO + MS(300)), &mut hits));
    queue.pop(Time::ZERO + MS(310), &mut hits);
    assert_eq!(out.dropped.len(), 1, "not for an interval");
}

#[test]
fn trace_carries_a_packet_of_1500_bytes_per_opportunity() {
    // An IPv4 packet of 1500 B, the same after two VLAN tags, an IPv6 packet of 1500 B, and a frame without IP.
    let bytes = |ethertype: &[u8], packet: &[u8]| {
        let mut frame = [&[0x02; 12], ethertype, packet].concat();
        frame.resize(12 + ethertype.len() + 1_500, 0);
        HeapFrame::new(frame)
    };
    let v4 = [0x45, 0, 0x05, 0xdc];
    let v6 = [0x60, 0, 0, 0, 0x05, 0xb4];
    let frames = [
        bytes(&[0x08, 0], &v4),
        bytes(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x08, 0], &v4),
        bytes(&[0x86, 0xdd], &v6),
        bytes(&[0x12, 0x34], &[]),
    ];
    for queue in ["", " queue codel target 1s"] {
        let mut netem = Netem::parse_spec(&format!("rate trace t{queue}")).expect("a SPEC");
        netem.load(&Text("10\n")).expect("a trace");
        let (out, _) = run_netem(&netem, frames.clone().into_iter().map(|frame| (Time::ZERO + MS(1), frame)));
        let left: Vec<Time> = out.released.iter().map(|item| item.at).collect();
        assert_eq!(left, [10, 20, 30, 40].map(|ms| Time::ZERO + MS(ms)), "{queue}");
    }
}

#[test]
fn trace_frames_are_judged_at_their_opportunity() {
    // Two frames arrive at 1 ms. One opportunity comes at 10 ms, the other at 20 ms.
    let frames = || (0..2).map(|_| (Time::ZERO + MS(1), frame(1, 1_514)));
    for (above, marked) in [("12ms", 1), ("8ms", 2), ("20ms", 0)] {
        let mut netem = Netem::parse_spec(&format!("rate trace t queue step above {above} ecn")).expect("a SPEC");
        netem.load(&Text("10\n")).expect("a trace");
        let (out, _) = run_netem(&netem, frames());
        let left: Vec<Time> = out.released.iter().map(|item| item.at).collect();
        assert_eq!(left, [Time::ZERO + MS(10), Time::ZERO + MS(20)]);
        assert_eq!(out.effects.counted(Effect::Marked), marked, "above {above}");
    }
    // A frame that arrives in the meantime finds the other one still waiting.
    let mut netem = Netem::parse_spec("rate trace t queue step above 1").expect("a SPEC");
    netem.load(&Text("10\n")).expect("a trace");
    let (out, _) = run_netem(&netem, frames().chain([(Time::ZERO + MS(2), frame(1, 1_514))]));
    assert_eq!(dropped(&out), [2]);
}

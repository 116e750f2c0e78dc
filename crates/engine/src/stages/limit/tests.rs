use crate::pipeline::Pipeline;
use crate::schedules::{Draw, Target, Text};
use crate::stages::{Item, Outlet, StageConfig};
use measure::{DropReason, LimitReport};
use packet::{Frame, HeapFrame};
use proptest::prelude::*;
use units::{Span, Time};

/// UDP over IPv4 to 10.0.`to`, of `length` bytes with FCS.
fn frame(to: u16, length: usize, class: u8) -> HeapFrame {
    let mut bytes = vec![2; 12];
    bytes.extend([0x08, 0, 0x45, class]);
    bytes.extend((length as u16 - 18).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0]);
    bytes.extend(to.to_be_bytes());
    bytes.resize(length - 4, 0);
    HeapFrame::new(bytes)
}

fn config(text: &str) -> StageConfig {
    StageConfig::parse(text).expect(text)
}

fn report(config: &StageConfig) -> LimitReport {
    let StageConfig::Limit(limit) = config else { panic!("{config} is not a limit") };
    limit.report().expect("it was built")
}

/// Pushes frames given as (ms, user, bytes). Returns what left as (ms, bytes), and the outlet.
fn run(config: &StageConfig, frames: &[(u64, u16, usize)]) -> (Vec<(u64, u32)>, Outlet<HeapFrame>) {
    let mut stage = config.build::<HeapFrame>(1, "test");
    let mut out = Outlet::default();
    for (ms, user, bytes) in frames {
        let at = Time::ZERO + Span::from_ms(*ms);
        while let Some(due) = stage.deadline().filter(|due| *due <= at) {
            stage.wake(due, &mut out);
        }
        stage.push(at, &mut vec![Item { frame: frame(*user, *bytes, 0), at }], &mut out);
    }
    while let Some(due) = stage.deadline() {
        stage.wake(due, &mut out);
    }
    assert_eq!(stage.held(), 0);
    let left = out.released.iter().map(|item| (item.at.as_ps() / 1_000_000_000, item.frame.length().bytes()));
    (left.collect(), out)
}

#[test]
fn police_drops_exceeding_frames_per_user() {
    let config = config("limit key dst-ip rate 1Mbps burst 1500B users 10");
    // 125 B per ms.
    let (left, out) = run(&config, &[(0, 1, 1_500), (0, 2, 1_500), (0, 1, 64), (4, 1, 500), (4, 1, 64), (7, 2, 876)]);
    assert_eq!(left, [(0, 1_500), (0, 1_500), (4, 500)]);
    let reasons: Vec<DropReason> = out.dropped.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [DropReason::Policed; 3]);
    let report = report(&config);
    assert_eq!((report.conforming.frames, report.exceeding.frames, report.exceeding.bytes), (3, 3, 64 + 64 + 876));
    let talkers: Vec<_> =
        report.talkers.iter().map(|user| (user.user.as_str(), user.passed_bytes, user.exceeded_bytes)).collect();
    assert_eq!(talkers, [("10.0.0.2", 1_500, 876), ("10.0.0.1", 2_000, 128)]);
}

#[test]
fn eviction_never_refills_a_second_bucket() {
    let colours = |text: &str, users: usize, frames: &[(u64, u16, usize)]| {
        let config = config(&format!("limit key dst-ip rate 1Mbps burst 1000B users {users} idle 1ms colours {text}"));
        let (_, out) = run(&config, frames);
        let report = report(&config);
        let yellow = report.yellow.expect("a marker").frames;
        assert!(!out.dropped.iter().any(|(_, reason)| *reason == DropReason::NoRoom));
        (report.conforming.frames, yellow, report.exceeding.frames - yellow, report.users.reclaimed)
    };
    // Users 2 to 5 join a table of five. The bucket of the first user is full after 8 ms, the excess bucket after 2 s.
    let frames: Vec<_> = [(0, 1, 1_000); 4].into_iter().chain((2..6).map(|user| (100, user, 64))).collect();
    for text in ["rfc4115 eir 8kbps ebs 2000B", "rfc2698 pir 1Mbps pbs 3000B", "rfc2697 ebs 2000B"] {
        for back in [110, 1_200, 5_000] {
            let arrived = [(back, 1, 1_000); 4];
            let frames: Vec<_> = frames.iter().copied().chain(arrived).collect();
            let (room, none) = (colours(text, 5, &frames), colours(text, 100, &frames));
            assert_eq!((room.0, room.1, room.2), (none.0, none.1, none.2), "{text}, back after {back} ms");
        }
    }
    // A user without a single green frame still occupies its slot.
    let frames: Vec<_> = (0..400).map(|i| (i, 1 + u16::from(i % 100 == 50) * (1 + i as u16 / 100), 1_001)).collect();
    let (room, none) =
        ((colours("rfc4115 eir 8kbps ebs 2002B", 5, &frames)), colours("rfc4115 eir 8kbps ebs 2002B", 100, &frames));
    assert_eq!(room, none);
}

#[test]
fn evicted_user_returns_with_a_full_second_bucket() {
    let config = config("limit key dst-ip rate 1Mbps burst 1000B users 4 idle 1ms colours rfc2697 ebs 2000B");
    // The fourth user causes the eviction of the first two and takes the slot of the second. The first user gets its
    // own slot again.
    let frames =
        [(0, 1, 1_000), (0, 1, 2_000), (0, 2, 64), (99, 3, 1_000), (100, 4, 64), (100, 1, 1_000), (100, 1, 2_000)];
    run(&config, &frames);
    let report = report(&config);
    assert_eq!(report.users.reclaimed, 2);
    assert_eq!((report.conforming.frames, report.yellow.map(|frames| frames.frames)), (5, Some(2)));
}

#[test]
fn windows_never_mix_users_of_one_slot() {
    // 1 Mbit/s is 125 B per ms. Users take turns of 200 ms: 150 ms with a frame of 1000 B every 5 ms, then a pause.
    let arrived: Vec<_> = (0..25 * 30).map(|i: u64| (i / 30 * 200 + i % 30 * 5, (i / 30 % 5) as u16, 1_000)).collect();
    let windows = |users: usize| {
        let config = config(&format!("limit key dst-ip rate 1Mbps burst 2000B users {users} idle 20ms"));
        run(&config, &arrived);
        let report = report(&config);
        assert_eq!((report.users.refused, report.users.reclaimed > 0), (0, users < 10), "{users} users");
        report.error.iter().map(|(window, error)| (*window, error.windows, error.p50_ratio)).collect::<Vec<_>>()
    };
    // All users paused for 100 ms. The earlier ones then returned after an absence of 1 s.
    assert_eq!(windows(1), windows(5));
    assert_eq!(windows(1), windows(100));
}

#[test]
fn shape_requests_buffers_for_a_line_and_for_one_user() {
    let room = |text: &str| config(text).room();
    // 100 ms of full-size frames at 10 Gbit/s, plus 100 ms of 64 B frames at the user's rate.
    assert_eq!(room("limit key dst-ip rate 1Gbps mode shape"), 81_274 + 195_312);
    assert_eq!(room("limit key dst-ip rate 1Mbps mode shape queue 10ms"), 8_127 + 19);
    assert_eq!(room("limit key dst-ip rate 1Gbps"), 0, "nothing waits");
}

#[test]
fn reports_frames_that_no_worker_could_take() {
    let config = config("limit key dst-ip rate 1Mbps users 10");
    let StageConfig::Limit(limit) = &config else { panic!("{config} is not a limit") };
    let (_, mut settling) = limit.parts(2, 1);
    assert_eq!(report(&config).undealt, None);
    let mut out = Outlet::default();
    settling.undealt(frame(1, 64, 0), &mut out);
    assert_eq!(report(&config).undealt, Some(1));
    assert_eq!(out.dropped.iter().map(|(_, reason)| *reason).collect::<Vec<_>>(), [DropReason::Overrun]);
}

#[test]
fn shape_delays_until_a_frame_conforms_and_drops_the_impatient() {
    let config = config("limit key dst-ip rate 1Mbps burst 1500B users 10 mode shape queue 16ms");
    let (left, out) = run(&config, &[(0, 1, 1_500), (0, 1, 500), (0, 1, 1_500), (0, 1, 1_000), (1, 1, 64), (1, 2, 64)]);
    // 1 500 B at once; 500 B after 4 ms; 2 000 B would wait 16 ms; the third, 1 500 + 500 B, waits 16 ms; the next
    // would wait too long.
    assert_eq!(left, [(0, 1_500), (1, 64), (4, 500), (16, 1_500), (16, 64)]);
    let reasons: Vec<DropReason> = out.dropped.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [DropReason::Impatient]);
    assert_eq!(report(&config).delayed, Some(3));
}

#[test]
fn mark_passes_exceeding_frames_with_a_mark() {
    let dscp = config("limit key dst-ip rate 1Mbps burst 1500B users 10 mode mark mark dscp 1 10");
    let (left, out) = run(&dscp, &[(0, 1, 1_500), (0, 1, 64)]);
    assert_eq!(left.len(), 2);
    let classes: Vec<u8> = out.released.iter().map(|item| item.frame.bytes()[15]).collect();
    assert_eq!(classes, [0, 10 << 2]);
    assert_eq!(report(&dscp).marked, Some(1));

    let ecn = config("limit key dst-ip rate 1Mbps burst 64B users 10 mode mark mark ecn");
    let mut stage = ecn.build::<HeapFrame>(1, "test");
    let mut out = Outlet::default();
    for class in [1, 1, 2, 0] {
        stage.push(Time::ZERO, &mut vec![Item { frame: frame(1, 64, class), at: Time::ZERO }], &mut out);
    }
    let classes: Vec<u8> = out.released.iter().map(|item| item.frame.bytes()[15]).collect();
    assert_eq!(classes, [1, 3, 3], "who does not know ECN is dropped");
    assert_eq!(out.dropped[0].1, DropReason::Policed);
}

#[test]
fn colours_mark_yellow_frames_and_drop_red_ones() {
    let config = config("limit key dst-ip rate 1Mbps burst 1000B users 10 colours rfc2697 ebs 500B");
    let (left, out) = run(&config, &[(0, 1, 1_000), (0, 1, 500), (0, 1, 64)]);
    assert_eq!(left, [(0, 1_000), (0, 500)]);
    assert_eq!(out.released[1].frame.bytes()[15], 12 << 2);
    assert_eq!((report(&config).yellow.map(|yellow| yellow.frames), out.dropped.len()), (Some(1), 1));
}

#[test]
fn aware_colours_respect_arriving_colours() {
    let config = config("limit key dst-ip rate 1Mbps burst 1000B users 10 colours rfc2697 ebs 500B aware");
    let mut stage = config.build::<HeapFrame>(1, "test");
    let mut out = Outlet::default();
    // Red, yellow and green frames arrive with the DSCPs that the stage itself would set.
    for (class, length) in [(14 << 2, 64), (12 << 2, 500), (0, 1_000)] {
        stage.push(Time::ZERO, &mut vec![Item { frame: frame(1, length, class), at: Time::ZERO }], &mut out);
    }
    let left: Vec<u8> = out.released.iter().map(|item| item.frame.bytes()[15]).collect();
    assert_eq!((left, out.dropped.len()), (vec![12 << 2, 0], 1));
    assert_eq!(report(&config).yellow.map(|yellow| yellow.bytes), Some(500));
}

#[test]
fn other_layers_count_other_bytes() {
    // An IP packet is 18 B shorter than its frame; the wire adds 20 B.
    for (layer, passes) in [("", 1_000), (" ip", 1_018), (" wire", 980)] {
        let text = format!("limit key dst-ip rate 1Mbps{layer} burst 1000B users 10");
        let (left, _) = run(&config(&text), &[(0, 1, passes + 1), (0, 1, passes)]);
        assert_eq!(left, [(0, passes as u32)], "{text}");
    }
}

#[test]
fn passes_frames_without_a_user_and_reports_a_full_table() {
    let mut stage = config("limit key vlan rate 1bps burst 1B users 1").build::<HeapFrame>(1, "test");
    let mut out = Outlet::default();
    stage.push(Time::ZERO, &mut vec![Item { frame: frame(1, 64, 0), at: Time::ZERO }], &mut out);
    assert_eq!(out.released.len(), 1, "no tag, no user");
    for (full, left, drops) in [("drop", 1, 1), ("pass", 2, 0)] {
        let config = config(&format!("limit key dst-ip rate 1Mbps users 1 full {full}"));
        let (passed, out) = run(&config, &[(0, 1, 64), (0, 2, 64)]);
        assert_eq!((passed.len(), out.dropped.len()), (left, drops), "{full}");
        assert!(out.dropped.iter().all(|(_, reason)| *reason == DropReason::NoRoom));
        assert_eq!(report(&config).users.refused, 1);
    }
}

#[test]
fn slow_user_of_a_file_may_wait_for_its_own_frames() {
    // Four full-size frames take 4.9 s at 10 kbit/s; the bucket holds two.
    let StageConfig::Limit(mut limit) = config("limit key dst-ip rate 1Gbps mode shape users 10 rates f") else {
        panic!("a limit")
    };
    limit.load(&Text("10.0.0.1 10kbps burst 3036B\n")).expect("rates");
    let (left, out) = run(&StageConfig::Limit(limit), &[(0, 1, 1_518); 7]);
    let ms: Vec<u64> = left.iter().map(|(ms, _)| *ms).collect();
    assert_eq!(ms, [0, 0, 1_214, 2_428, 3_643, 4_857]);
    let reasons: Vec<DropReason> = out.dropped.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [DropReason::Impatient]);
}

#[test]
fn rate_changes_keep_waiting_frames_in_order() {
    for (rates, last) in [("10.0.0.1 8Mbps burst 1500B", 61), ("10.0.0.1 100kbps burst 15kB", 140)] {
        let StageConfig::Limit(mut limit) = config("limit key dst-ip rate 1Mbps mode shape users 10 rates f") else {
            panic!("a limit")
        };
        limit.load(&Text("10.0.0.1 1Mbps burst 1500B\n")).expect("rates");
        let config = StageConfig::Limit(limit);
        let mut stage = config.build::<HeapFrame>(1, "test");
        let mut out = Outlet::default();
        let mut push = |length, out: &mut Outlet<HeapFrame>| {
            stage.push(Time::ZERO, &mut vec![Item { frame: frame(1, length, 0), at: Time::ZERO }], out);
        };
        // They leave at 0, 12, 24, 36, 48 and 60 ms.
        (0..6).for_each(|_| push(1_500, &mut out));
        let StageConfig::Limit(limit) = &config else { panic!("a limit") };
        assert_eq!(limit.reload(&Text(rates)), Ok(1));
        push(1_000, &mut out);
        while let Some(due) = stage.deadline() {
            stage.wake(due, &mut out);
        }
        let left: Vec<(u64, u32)> =
            out.released.iter().map(|item| (item.at.as_ps() / 1_000_000_000, item.frame.length().bytes())).collect();
        let waiting = (0..6).map(|i| (i * 12, 1_500));
        assert_eq!(left, waiting.chain([(last, 1_000)]).collect::<Vec<_>>(), "{rates}");
    }
}

#[test]
fn applies_file_rates_and_the_rule_for_unknown_users() {
    for (unknown, passed) in
        [("default", vec![1_500, 64, 64]), ("pass", vec![1_500, 64, 64, 64]), ("drop", vec![1_500])]
    {
        let text = format!("limit key dst-ip rate 1Mbps burst 100B users 10 rates f unknown {unknown}");
        let StageConfig::Limit(mut limit) = config(&text) else { panic!("a limit") };
        limit.load(&Text("10.0.0.1 1Mbps burst 1500B\n")).expect("rates");
        let config = StageConfig::Limit(limit);
        let (left, _) = run(&config, &[(0, 1, 1_500), (0, 2, 64), (0, 2, 64), (0, 3, 64)]);
        let mut lengths: Vec<u32> = left.iter().map(|(_, bytes)| *bytes).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(lengths, passed, "{unknown}");
        let StageConfig::Limit(limit) = &config else { panic!("a limit") };
        assert_eq!(limit.reload(&Text("10.0.0.1 2Mbps\n10.0.0.2 3Mbps\n")), Ok(2));
        assert!(limit.reload(&Text("10.0.0.1 2")).expect_err("no unit").to_string().contains("line 1"));
        assert_eq!(report(&config).users.reloads, 1);
        assert!(report(&config).talkers.iter().any(|user| user.rate_bps == 2_000_000));
    }
}

#[test]
fn busy_worker_drops_frames() {
    let text = "limit key dst-ip rate 1Gbps users 10 algorithm static workers 2 service 1ms";
    let config = config(text);
    let frames: Vec<(u64, u16, usize)> = (0..1_100).map(|_| (0, 1, 64)).collect();
    let (left, out) = run(&config, &frames);
    let busy = out.dropped.iter().filter(|(_, reason)| *reason == DropReason::Overrun).count();
    assert_eq!(busy, 1_100 - 513, "one in hand and 512 in the ring");
    assert!(left.len() + out.dropped.len() == 1_100 && left.len() <= 513);
    let loads = report(&config).workers;
    assert_eq!(loads.iter().map(|load| load.frames).sum::<u64>(), 1_100);
    assert!(loads.iter().any(|load| load.frames == 0), "pinned");
}

#[test]
fn exact_schemes_agree_and_light_lock_deviates() {
    // A user at twice its rate, one frame every 3 ms, as in reference 001.
    let frames: Vec<(u64, u16, usize)> = (0..2_000).map(|i| (i * 3, 1, 64 + (i * 7_919 % 1_437) as usize)).collect();
    let of =
        |scheme: &str| run(&config(&format!("limit key dst-ip rate 1Mbps burst 3036B users 4 {scheme}")), &frames).0;
    let plain = of("algorithm gcra");
    let total = |left: &[(u64, u32)]| left.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>();
    let allowed = 1_999 * 3 * 125 + 3_036;
    assert!(total(&plain) <= allowed && total(&plain) + 1_500 > allowed);
    for algorithm in ["gcra", "atomic-queue", "static", "mutex"] {
        for workers in [1, 8, 64] {
            assert_eq!(of(&format!("algorithm {algorithm} workers {workers}")), plain, "{algorithm} {workers}");
        }
    }
    let light = total(&of("algorithm light-lock batch 1500B depth 1500B idle expire 20ms workers 8"));
    assert!(light * 10 < allowed * 8, "what expires in idle buckets is lost: {light} of {allowed}");
    let keeps = total(&of("algorithm light-lock batch 3000B depth 30000B workers 8"));
    assert_ne!(keeps, total(&plain));
}

#[test]
fn pipeline_accounts_for_every_frame() {
    let draw = Draw { seed: 1, path: "test", frames: None };
    let stage = config("limit key dst-ip rate 1Mbps users 10 workers 4").build(1, "test");
    let mut pipeline = Pipeline::new(vec![stage], Target::Nothing.schedule(None, draw).expect("a schedule"));
    for i in 0..1_000_u64 {
        let at = Time::from_ps(i * 3_000_000);
        while let Some(due) = pipeline.deadline().filter(|due| *due <= at) {
            pipeline.wake(due);
        }
        pipeline.push(at, at, frame((i % 3) as u16, 500, 0));
    }
    while let Some(due) = pipeline.deadline() {
        pipeline.wake(due);
    }
    let mut last = Time::ZERO;
    while let Some(departure) = pipeline.next_departure() {
        let at = departure.token.at();
        assert!(at >= last, "frames leave in order");
        last = at;
        departure.token.complete(&mut pipeline, at);
    }
    assert_eq!((pipeline.books().should_hold(), pipeline.held()), (0, 0));
    assert_eq!(pipeline.books().left.frames, 18, "six frames of 500 B in 3 036 B");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No interval grants more than rate × t + burst, for any interleaving.
    #[test]
    fn no_interleaving_of_workers_grants_more(
        workers in 1_usize..65,
        seed in any::<u64>(),
        mbps in 1_u64..1_000,
        algorithm in prop::sample::select(vec!["gcra", "mutex", "static", "atomic-queue"]),
        gaps in prop::collection::vec((0_u64..3_000, 64_usize..1_519), 50..400),
    ) {
        let text = format!(
            "limit key dst-ip rate {mbps}Mbps burst 3036B users 4 algorithm {algorithm} workers {workers} service 1ns"
        );
        let mut stage = config(&text).build::<HeapFrame>(seed, "test");
        let mut out = Outlet::default();
        let mut now = 0;
        for (flow, (gap, bytes)) in gaps.into_iter().enumerate() {
            now += gap * 1_000_000 / mbps;
            let at = Time::from_ps(now);
            while let Some(due) = stage.deadline().filter(|due| *due <= at) {
                stage.wake(due, &mut out);
            }
            // Each frame has its own flow, so that any worker may get it.
            let mut bytes = frame(1, bytes, 0).bytes().to_vec();
            bytes[34..36].copy_from_slice(&(flow as u16).to_be_bytes());
            stage.push(at, &mut vec![Item { frame: HeapFrame::new(bytes), at }], &mut out);
        }
        while let Some(due) = stage.deadline() {
            stage.wake(due, &mut out);
        }
        // The maximum over t0 of (granted since t0) − rate × (t − t0), in bits × 10⁶.
        let (mut level, mut last) = (0_u128, 0);
        for item in &out.released {
            let at = item.at.as_ps();
            level = level.saturating_sub(u128::from((at - last) * mbps)) + u128::from(item.frame.length().bytes()) * 8_000_000;
            last = at;
            prop_assert!(level <= 3_036 * 8_000_000, "{level} at {at}");
        }
    }
}

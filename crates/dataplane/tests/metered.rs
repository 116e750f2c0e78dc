//! Stages `limit` with their own threads: they grant exactly the frames that one worker grants, keep the order of every
//! flow, and lose none. With real threads and event devices, but without ports.

use dataplane::limit_stage;
use dpdk::{Eal, EalConfig, HugePages, Mbuf, Pool};
use engine::stages::{Item, Limit, StageConfig};
use engine::{Outlet, Stage};
use measure::DropReason;
use packet::Frame;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use units::Time;

const USERS: u64 = 53;
const FRAMES: u64 = 20_000;

fn eal() -> &'static Eal {
    static EAL: OnceLock<&Eal> = OnceLock::new();
    let config = EalConfig::new("metered").memory_mib(256).hugepages(HugePages::Never);
    EAL.get_or_init(|| Eal::init(&config).expect("DPDK starts"))
}

fn limit(scheme: &str) -> Limit {
    let text = format!("limit key dst-ip rate 1Mbps burst 3036B users 64 {scheme}");
    match StageConfig::parse(&text).expect("a stage") {
        StageConfig::Limit(limit) => limit,
        other => panic!("{other} is not a limit"),
    }
}

/// Frame `number` and its arrival: a frame of a user at twice its rate, over one of `flows` flows.
fn frame(pool: &Pool, number: u64, flows: u64) -> Option<Item<Mbuf>> {
    let length = 64 + (number * 7_919 % 1_437) as usize - 4;
    let mut bytes = vec![0; length];
    bytes[..16].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 1, (number % USERS) as u8]);
    bytes[34..36].copy_from_slice(&((number / USERS % flows) as u16).to_be_bytes());
    bytes[42..50].copy_from_slice(&number.to_be_bytes());
    let mut frame = pool.alloc()?;
    frame.copy_from(&bytes).expect("room");
    Some(Item { frame, at: Time::from_ps(number * 3_128_000_000 / USERS) })
}

fn number(frame: &Mbuf) -> u64 {
    u64::from_be_bytes(frame.bytes()[42..50].try_into().expect("eight bytes"))
}

/// Runs all frames through a stage. Returns those that passed, in order of departure, and the number refused.
fn through(stage: &mut dyn Stage<Mbuf>, pool: &Pool, flows: u64) -> (Vec<u64>, u64) {
    let mut out = Outlet::default();
    let (mut passed, mut refused) = (Vec::new(), 0);
    let mut take = |out: &mut Outlet<Mbuf>| {
        let (released, dropped) = out.drain();
        for item in released {
            assert_eq!(item.frame.len() as u64, 60 + number(&item.frame) * 7_919 % 1_437, "its own length");
            passed.push(number(&item.frame));
        }
        for (_, reason) in dropped {
            assert_eq!(reason, DropReason::Policed);
            refused += 1;
        }
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut now = Time::ZERO;
    let mut next = 0;
    while next < FRAMES || stage.held() > 0 {
        assert!(Instant::now() < deadline, "{} frames are held", stage.held());
        // Stays within the capacity of the workers' rings.
        if next < FRAMES
            && stage.held() < 32
            && let Some(item) = frame(pool, next, flows)
        {
            now = now.max(item.at);
            stage.push(now, &mut vec![item], &mut out);
            next += 1;
        } else {
            thread::yield_now();
        }
        now += units::Span::from_us(2);
        if stage.deadline().is_some_and(|due| due <= now) {
            stage.wake(now, &mut out);
        }
        take(&mut out);
    }
    take(&mut out);
    (passed, refused)
}

fn in_order(passed: &[u64], flows: u64, what: &str) {
    let mut last: HashMap<(u64, u64), u64> = HashMap::new();
    for number in passed {
        let flow = (number % USERS, number / USERS % flows);
        let before = last.insert(flow, *number);
        assert!(before < Some(*number), "{what}: {number} after {before:?} of one flow");
    }
}

#[test]
fn threads_grant_the_same_frames_as_one_worker() {
    let eal = eal();
    let _registered = eal.register_thread().expect("DPDK knows this thread");
    let pool = Pool::new(eal, "metered", 2_047, 2_048).expect("a pool");
    let mut one = StageConfig::Limit(limit("")).build::<Mbuf>(1, "one");
    let (mut alone, refused) = through(&mut *one, &pool, 1);
    assert!(refused > FRAMES / 4 && alone.len() as u64 + refused == FRAMES);
    alone.sort_unstable();
    for scheme in [
        "workers 2",
        "workers 3 algorithm mutex",
        "workers 2 algorithm static",
        "workers 2 algorithm atomic-queue device event_sw",
        "workers 2 algorithm atomic-queue device event_dsw",
        "workers 1 algorithm atomic-queue",
    ] {
        let limit = limit(scheme);
        let mut stage = match limit_stage(eal, &limit, (1, "test"), &[]) {
            Ok(stage) => stage,
            Err(error) if error.to_string().contains("no such driver") => {
                println!("SKIP: {scheme}: {error}");
                continue;
            }
            Err(error) => panic!("{scheme}: {error}"),
        };
        let (mut passed, refused) = through(&mut *stage, &pool, 1);
        in_order(&passed, 1, scheme);
        passed.sort_unstable();
        assert_eq!(passed.len() as u64 + refused, FRAMES, "{scheme}: none is lost");
        assert!(passed == alone, "{scheme}: the very frames that one worker grants");
        let report = limit.report().expect("it runs");
        assert_eq!(report.workers.len(), limit.workers, "{scheme}");
        assert_eq!(report.workers.iter().map(|load| load.frames).sum::<u64>(), FRAMES, "{scheme}");
        assert_eq!(report.workers.iter().map(|load| load.exceeded).sum::<u64>(), refused, "{scheme}");
        assert!(report.workers.iter().all(|load| load.frames > 0), "{scheme}: all worked");
        assert_eq!(report.exceeding.frames, refused, "{scheme}");
    }
}

#[test]
fn flows_of_one_user_share_its_bucket_on_two_threads() {
    let eal = eal();
    let _registered = eal.register_thread().expect("DPDK knows this thread");
    let pool = Pool::new(eal, "flows", 2_047, 2_048).expect("a pool");
    let limit = limit("workers 2");
    let mut stage = limit_stage(eal, &limit, (1, "test"), &[]).expect("threads");
    let (passed, refused) = through(&mut *stage, &pool, 8);
    in_order(&passed, 8, "eight flows");
    assert_eq!(passed.len() as u64 + refused, FRAMES);
    let bytes = |number: &u64| 64 + number * 7_919 % 1_437;
    let seconds = FRAMES as f64 * 3.128e-3 / USERS as f64;
    for user in 0..USERS {
        let got: u64 = passed.iter().filter(|number| *number % USERS == user).map(bytes).sum();
        let allowed = 125_000.0 * seconds + 3_036.0;
        assert!(got as f64 <= allowed && got as f64 > allowed * 0.98, "user {user}: {got} of {allowed}");
    }
}

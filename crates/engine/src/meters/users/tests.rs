use super::*;
use crate::meters::{Answer, Gcra, KeyKind, Meter, Rates};
use units::BitRate;

fn bucket(bps: u64) -> Bucket {
    Bucket::new(BitRate::from_bps(bps), 3_000).expect("a bucket")
}

fn at(ms: u64) -> Moment {
    Moment::of(Time::ZERO + Span::from_ms(ms))
}

// The documented bound.
const _: () = assert!(Users::BYTES_PER_USER <= 64);

#[test]
fn holds_its_capacity_and_finds_every_user() {
    for capacity in [1, 7, 20_481, 200_000] {
        let users = Users::new(capacity, Span::from_ms(1_000), Some(bucket(1_000_000)), 3);
        // Consecutive addresses, as in practice.
        let key = |i: usize| Key::new(0, 0xffff_c0a8_0000 + i as u64);
        let slots: Vec<u32> = (0..capacity).map(|i| users.find_or_add(key(i), &at(0)).expect("room for all")).collect();
        assert_eq!(users.find_or_add(key(capacity), &at(0)), Err(Full::NoRoom));
        assert!((0..capacity).all(|i| users.find(key(i)) == Some(slots[i])));
        assert_eq!(users.totals(), (capacity as u64, 0, 1));
    }
}

#[test]
fn evicts_idle_users_and_keeps_busy_ones() {
    let users = Users::new(4, Span::from_ms(100), Some(bucket(1_000_000)), 1);
    let key = |i: u64| Key::new(1, i);
    for i in 0..4 {
        let slot = users.find_or_add(key(i), &at(0)).expect("room");
        assert_eq!(Gcra.charge(&users, 0, slot, key(i), &at(0), 8_000), Answer::Conforms);
    }
    // At 1 Mbit/s, 1 000 B refill within 8 ms, and the user is idle 100 ms later.
    assert_eq!(users.find_or_add(key(9), &at(107)), Err(Full::NoRoom));
    let busy = users.find(key(2)).expect("there");
    assert_eq!(Gcra.charge(&users, 0, busy, key(2), &at(50), 8_000), Answer::Conforms);
    assert!(users.find_or_add(key(9), &at(109)).is_ok());
    assert_eq!(users.find(key(2)), Some(busy), "not idle");
    assert!((0..4).filter(|i| users.find(key(*i)).is_some()).count() < 4);
    let (_, reclaimed, _) = users.totals();
    assert!(reclaimed >= 1);
}

#[test]
fn stale_slot_of_an_evicted_user_reports_gone() {
    let users = Users::new(1, Span::from_ms(10), Some(bucket(1_000_000)), 1);
    let (old, new) = (Key::new(0, 1), Key::new(0, 2));
    let slot = users.find_or_add(old, &at(0)).expect("room");
    assert_eq!(users.find_or_add(new, &at(1_000)), Ok(slot));
    assert_eq!(users.find(old), None);
    assert_eq!(Gcra.charge(&users, 0, slot, old, &at(1_000), 800), Answer::Gone);
    assert_eq!(Gcra.charge(&users, 0, slot, new, &at(1_000), 800), Answer::Conforms);
}

#[test]
fn rate_changes_keep_debts() {
    let users = Users::new(8, Span::from_ms(100), Some(bucket(1_000_000)), 1);
    let key = KeyKind::DstIp.parse("10.0.0.1").expect("an address");
    let slot = users.find_or_add(key, &at(0)).expect("room");
    let charge = |ms, bytes: u64| Gcra.charge(&users, 0, slot, key, &at(ms), bytes * 8);
    assert_eq!(charge(0, 3_000), Answer::Conforms, "the bucket is empty now");
    users.seen(at(0).time());
    let rates = Rates::parse(KeyKind::DstIp, "10.0.0.1 8Mbps burst 3000B\n", &|_| 3_000).expect("rates");
    users.give(&rates).expect("room");
    assert_eq!(charge(0, 64), Answer::Exceeds, "still empty");
    assert_eq!(charge(1, 1_001), Answer::Exceeds);
    assert_eq!(charge(1, 1_000), Answer::Conforms, "8 Mbit/s are 1 000 B in a ms");
    users.seen(at(1).time());
    users.give(&Rates::default()).expect("room");
    assert_eq!(charge(9, 1_000), Answer::Conforms, "back to 1 Mbit/s");
    assert_eq!(charge(9, 64), Answer::Exceeds);
    assert_eq!(users.all().map(|(_, bucket, ..)| bucket.rate().bps()).collect::<Vec<_>>(), [1_000_000]);
}

#[test]
fn keeps_a_debt_from_the_fastest_to_the_slowest_rate() {
    let text = |rate: &str| Rates::parse(KeyKind::DstIp, &format!("10.0.0.1 {rate} burst 3000B\n"), &|_| 3_000);
    let fast = Bucket::new(BitRate::from_gbps(400), 1 << 29).expect("a bucket");
    for turns in [0, 1] {
        let users = Users::new(8, Span::from_ms(100), Some(fast), 1);
        let key = KeyKind::DstIp.parse("10.0.0.1").expect("an address");
        let slot = users.find_or_add(key, &at(0)).expect("room");
        for _ in 0..turns {
            users.give(&text("1Mbps").expect("rates")).expect("room");
            users.give(&Rates::default()).expect("room");
        }
        let charge = |ms, bytes: u64| Gcra.charge(&users, 0, slot, key, &at(ms), bytes * 8);
        assert_eq!(charge(0, 1 << 29), Answer::Conforms, "4.3 Gbit are owed");
        users.seen(at(0).time());
        users.give(&text("10bps").expect("rates")).expect("room");
        assert_eq!(users.find(key), Some(slot));
        for ms in [0, 1, 1_000_000] {
            assert_eq!(charge(ms, 64), Answer::Exceeds, "4.3 Gbit at 10 bit/s take 13 years");
        }
    }
}

#[test]
fn keeps_configured_users_and_refuses_others_without_default() {
    let rates = Rates::parse(KeyKind::DstIp, "10.0.0.1 8Mbps\n10.0.0.2 1Mbps\n", &|_| 3_000).expect("rates");
    let users = Users::new(2, Span::from_ms(1), None, 1);
    users.give(&rates).expect("room");
    let other = KeyKind::DstIp.parse("10.0.0.3").expect("an address");
    assert_eq!(users.find_or_add(other, &at(10_000)), Err(Full::Unknown));
    assert!(users.find(KeyKind::DstIp.parse("10.0.0.2").expect("an address")).is_some());
    let rate = |user: &str| {
        let key = KeyKind::DstIp.parse(user).expect("an address");
        users.all().find(|(of, ..)| *of == key).map(|(_, bucket, ..)| bucket.rate().bps())
    };
    let parse = |text: &str| Rates::parse(KeyKind::DstIp, text, &|_| 3_000).expect("rates");
    let more = users.give(&parse("10.0.0.1 1Mbps\n10.0.0.2 2Mbps\n10.0.0.3 1Mbps"));
    assert!(more.expect_err("too many").contains("no room for 3 users in a table of 2"));
    let rates = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(rate);
    assert_eq!(rates, [Some(8_000_000), Some(1_000_000), None], "all or none");
    // Users that are removed free their slots.
    users.give(&parse("10.0.0.3 3Mbps\n10.0.0.2 2Mbps")).expect("room for two");
    let rates = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(rate);
    assert_eq!(rates, [None, Some(2_000_000), Some(3_000_000)]);
}

#[test]
fn configured_users_replace_idle_ones() {
    let users = Users::new(2, Span::from_us(1), Some(bucket(1_000_000)), 1);
    let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|user| KeyKind::DstIp.parse(user).expect("an address"));
    users.find_or_add(a, &at(1)).expect("room");
    users.find_or_add(b, &at(1)).expect("room");
    users.seen(at(1_000).time());
    let rates = Rates::parse(KeyKind::DstIp, "10.0.0.2 2Mbps\n10.0.0.3 3Mbps", &|_| 3_000).expect("rates");
    users.give(&rates).expect("room, once the idle have gone");
    let mut rates: Vec<u64> = users.all().map(|(_, bucket, ..)| bucket.rate().bps()).collect();
    rates.sort_unstable();
    assert_eq!(rates, [2_000_000, 3_000_000]);
}

#[test]
fn removes_unconfigured_users_without_a_default_rate() {
    let parse = |text: &str| Rates::parse(KeyKind::DstIp, text, &|_| 3_000).expect("rates");
    let users = Users::new(2, Span::from_ms(60_000), None, 1);
    users.give(&parse("10.0.0.1 8Mbps\n10.0.0.2 1Mbps\n")).expect("room");
    let [kept, gone, new] =
        ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|user| KeyKind::DstIp.parse(user).expect("an address"));
    let slot = users.find(gone).expect("it is there");
    assert_eq!(Gcra.charge(&users, 0, slot, gone, &at(1), 800), Answer::Conforms);
    users.give(&parse("10.0.0.1 8Mbps\n")).expect("room");
    assert_eq!(Gcra.charge(&users, 0, slot, gone, &at(1), 800), Answer::Gone, "though it was looked up before");
    assert_eq!(users.find_or_add(gone, &at(1)), Err(Full::Unknown));
    assert!(users.find(kept).is_some());
    // Another user fits and takes the freed slot.
    users.give(&parse("10.0.0.1 8Mbps\n10.0.0.3 1Mbps")).expect("room");
    assert_eq!(users.find(new), Some(slot));
    assert_eq!(users.all().count(), 2);
}

#[test]
fn two_threads_add_and_evict_users_during_rate_changes() {
    let users = Users::new(64, Span::from_us(50), Some(bucket(1_000_000_000)), 1);
    let text: String = (0..16).map(|i| format!("10.0.0.{i} 2Gbps\n")).collect();
    let rates = Rates::parse(KeyKind::DstIp, &text, &|_| 3_000).expect("rates");
    let worker = |start: u64| {
        let mut answered = 0;
        for i in 0..60_000_u64 {
            let now = Moment::of(Time::from_ps(i * 2_000_000));
            let key = Key::new(0, 0xffff_0a00_0000 + (i * 7 + start) % 200);
            let Ok(slot) = users.find_or_add(key, &now) else { continue };
            answered += u64::from(Gcra.charge(&users, 0, slot, key, &now, 512) != Answer::Gone);
        }
        answered
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(|| worker(0)), scope.spawn(|| worker(3))];
        for _ in 0..50 {
            users.give(&rates).expect("room");
            users.give(&Rates::default()).expect("nothing new");
        }
        assert!(threads.into_iter().all(|thread| thread.join().expect("no panic") > 0));
    });
    let live = users.all().count() as u64;
    let (created, reclaimed, _) = users.totals();
    assert_eq!(created - reclaimed, live, "none was lost or is there twice");
}

//! Frames per second on one core: prebuilt 64 B frames from one ring, through the stage, into another.

use crate::traffic::Prepared;
use engine::meters::{Answer, Bucket, Gcra, Key, KeyKind, Meter, Moment, Sought, Users};
use engine::stages::{Item, StageConfig};
use engine::{Outlet, Stage};
use packet::Frame;
use serde_json::{Value, json};
use std::error::Error;
use units::{BitRate, Span, Time};

const BURST: usize = 32;
const SLOTS: usize = 1_024;
const FRAMES: usize = 1 << 22;
const ROUNDS: usize = 5;
/// The light-lock scheme, with batches that fit its small buckets.
const LIGHT: &str = "light-lock batch 64B depth 128B";
/// The table and the meter without the stage: no counters, no error windows and no drop reasons.
const BARE: &str = "gcra without accounting";

/// Measures every scheme at each number of users, and the same rings without a stage.
pub(crate) fn all() -> Result<Value, Box<dyn Error>> {
    let mut rows = Vec::new();
    for users in [20_481, 1_000_000, 10_000_000] {
        for scheme in ["", BARE, "gcra", "mutex", LIGHT] {
            // The buckets alone would take 240 MB per worker.
            if scheme == LIGHT && users > 1_000_000 {
                continue;
            }
            let seconds = measure(scheme, users)?;
            let (rate, ns) = (FRAMES as f64 / seconds / 1e6, seconds / FRAMES as f64 * 1e9);
            let name = if scheme.is_empty() { "rings alone" } else { scheme };
            eprintln!("{name} {users} {rate:.2} M frames/s");
            rows.push(json!({"scheme": name, "users": users, "mframes_per_s": rate, "ns_per_frame": ns}));
        }
    }
    Ok(Value::Array(rows))
}

/// CPU time of this thread in ns. Other processes affect it only through the caches.
fn ran() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("no time in /proc/thread-self/schedstat")?.parse()?)
}

/// Half the rate at which a user sends: on average one frame of 512 bits per users × 10 ns.
fn rate(users: usize) -> u64 {
    25_600_000_000 / users as u64
}

/// The minimum that meters a frame.
struct Bare {
    users: Users,
    keys: Vec<Key>,
    sought: Vec<Sought>,
}

impl Bare {
    fn new(users: usize) -> Result<Self, Box<dyn Error>> {
        let bucket = Bucket::new(BitRate::from_bps(rate(users)), 128)?;
        Ok(Bare {
            users: Users::new(users, Span::from_ms(10_000), Some(bucket), 7),
            keys: Vec::new(),
            sought: Vec::new(),
        })
    }
}

impl Stage<Prepared> for Bare {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<Prepared>>, out: &mut Outlet<Prepared>) {
        let at = Moment::of(now);
        self.keys.clear();
        self.sought.clear();
        for key in batch.iter().filter_map(|item| KeyKind::DstIp.of_frame(item.frame.bytes())) {
            self.keys.push(key);
            self.sought.push(self.users.seek(key));
        }
        self.users.find_all(&mut self.sought);
        for ((key, sought), item) in self.keys.iter().zip(&self.sought).zip(batch.drain(..)) {
            let Ok(slot) = self.users.settle(sought, &at) else { continue };
            let bits = u64::from(item.frame.length().bytes()) * 8;
            if Gcra.charge(&self.users, 0, slot, *key, &at, bits) == Answer::Conforms {
                out.release(item);
            }
        }
    }
}

fn measure(scheme: &str, users: usize) -> Result<f64, Box<dyn Error>> {
    let frame = Prepared::new(0, 64);
    let mut drawn = 1_u64;
    let mut stage: Option<Box<dyn Stage<Prepared>>> = None;
    if scheme == BARE {
        stage = Some(Box::new(Bare::new(users)?));
    } else if !scheme.is_empty() {
        let bps = rate(users);
        let text = format!("limit key dst-ip rate {bps}bps burst 128B users {users} algorithm {scheme}");
        stage = Some(StageConfig::parse(&text)?.build::<Prepared>(7, "bench"));
    }
    let mut out = Outlet::default();
    let mut batch: Vec<Item<Prepared>> = Vec::with_capacity(BURST);
    let (mut into, mut from) = rtrb::RingBuffer::new(SLOTS);
    let (mut beyond, mut end) = rtrb::RingBuffer::<Prepared>::new(SLOTS);
    let mut now = Time::ZERO;
    let mut times = Vec::new();
    let mut passed = 0_usize;
    for round in 0..=ROUNDS {
        let start = ran()?;
        for _ in 0..FRAMES / BURST {
            for _ in 0..BURST {
                // A generator of one multiplication, so that the measurement does not include the cost of a better one.
                drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let user = (((drawn >> 32) * users as u64) >> 32) as u32;
                into.push(frame.for_user(0x0a00_0000 + user)).map_err(|_| "the ring is full")?;
            }
            now += Span::from_ns(10 * BURST as u64);
            while let Ok(frame) = from.pop() {
                batch.push(Item { frame, at: now });
            }
            if let Some(stage) = &mut stage {
                stage.push(now, &mut batch, &mut out);
                let (released, dropped) = out.drain();
                drop(dropped);
                for item in released {
                    beyond.push(item.frame).map_err(|_| "the ring is full")?;
                }
            } else {
                for item in batch.drain(..) {
                    beyond.push(item.frame).map_err(|_| "the ring is full")?;
                }
            }
            while end.pop().is_ok() {
                passed += 1;
            }
        }
        // The first round fills the table and is not timed.
        if round > 0 {
            times.push((ran()? - start) as f64 / 1e9);
        }
    }
    assert!(passed > 0, "some frames conform");
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

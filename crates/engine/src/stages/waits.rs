//! Tests of frames that waited in their port before the driver polled it.

use super::{Item, Outlet, StageConfig};
use packet::{Frame, HeapFrame};
use units::{Span, Time};

/// A frame and the time that it waited before it was polled.
pub(crate) struct Late(HeapFrame, Span);

impl Late {
    pub(crate) fn new(frame: HeapFrame, waited: Span) -> Late {
        Late(frame, waited)
    }
}

impl Frame for Late {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    fn copy(&self) -> Option<Self> {
        Some(Late(self.0.clone(), self.1))
    }

    fn replace(&mut self, bytes: &[u8]) -> bool {
        self.0.replace(bytes)
    }

    fn tag(&self) -> u32 {
        self.0.tag()
    }

    fn set_tag(&mut self, tag: u32) {
        self.0.set_tag(tag);
    }

    fn waited(&self) -> Span {
        self.1
    }

    fn forget_wait(&mut self) {
        self.1 = Span::ZERO;
    }
}

pub(crate) fn us(us: u64) -> Time {
    Time::from_ps(us * 1_000_000)
}

/// A UDP packet of `bytes` with FCS to one destination, polled at `seen` and present since `arrived`, both in µs.
fn item(bytes: usize, arrived: u64, seen: u64) -> Item<Late> {
    let mut frame = vec![0; bytes - 4];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(bytes as u16 - 18).to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
    Item { frame: Late(HeapFrame::new(frame), Span::from_us(seen - arrived)), at: us(seen) }
}

/// Sends 1000 B frames every 400 µs (20 Mbit/s) through a limit of 5 Mbit/s with a bucket of 3036 B. The frames are
/// polled as they arrive, or 50 at a time, with 20 ms between polls.
fn passed(looks: &dyn Fn(u64) -> u64, with_waits: bool) -> Vec<Time> {
    let stage = StageConfig::parse("limit key dst-ip rate 5Mbps burst 3036B users 16").expect("a stage");
    let mut stage = stage.build::<Late>(1, "test");
    let mut out = Outlet::default();
    for n in 0..1_000 {
        let (arrived, seen) = (n * 400, looks(n * 400));
        stage.push(us(seen), &mut vec![item(1_000, if with_waits { arrived } else { seen }, seen)], &mut out);
    }
    out.released.iter().map(|item| item.at).collect()
}

#[test]
fn late_poll_costs_no_tokens() {
    let at_once = passed(&|arrived| arrived, true);
    let late = |arrived: u64| arrived.next_multiple_of(20_000);
    let with_waits = passed(&late, true);
    assert_eq!(at_once.len(), 252, "400 ms of 5 Mbit/s, and what the bucket held");
    assert_eq!(with_waits.len(), at_once.len());
    // The same frames pass, none of them before it was polled.
    for (with_waits, at_once) in with_waits.iter().zip(&at_once) {
        assert_eq!(*with_waits, us(late(at_once.as_ps() / 1_000_000)));
    }
    assert!(passed(&late, false).len() < 70, "without the setting nothing changes");
}

#[test]
fn delays_count_from_the_arrival() {
    for spec in ["delay 5ms", "netem delay 5ms"] {
        let mut stage = StageConfig::parse(spec).expect(spec).build::<Late>(1, "test");
        let mut out = Outlet::default();
        stage.push(us(10_000), &mut vec![item(100, 8_000, 10_000), item(100, 3_000, 10_000)], &mut out);
        let left: Vec<Time> = out.released.iter().map(|item| item.at).collect();
        assert_eq!((left, stage.deadline()), (vec![us(8_000)], Some(us(13_000))), "{spec}");
        stage.wake(us(13_000), &mut out);
        assert_eq!(out.released[1].at, us(13_000), "{spec}");
        assert!(
            out.released.iter().all(|item| item.frame.waited() == Span::ZERO),
            "{spec}: the next stage has its time"
        );
    }
}

#[test]
fn frame_that_is_not_held_is_ready_at_its_poll() {
    for spec in ["netem loss 0.001%", "limit key dst-ip rate 5Mbps burst 3036B users 16"] {
        let mut stage = StageConfig::parse(spec).expect(spec).build::<Late>(1, "test");
        let mut out = Outlet::default();
        stage.push(us(10_000), &mut vec![item(100, 8_000, 10_000)], &mut out);
        assert_eq!(out.released.iter().map(|item| item.at).collect::<Vec<_>>(), [us(10_000)], "{spec}");
    }
}

#[test]
fn late_polls_do_not_reduce_reordering() {
    for spec in ["reorder 25% hold 1ms", "reorder 25% timeout 1ms"] {
        let mut stage = StageConfig::parse(spec).expect(spec).build::<Late>(1, "test");
        let mut out = Outlet::default();
        for n in 0..20_000_u64 {
            let (arrived, seen) = (n * 20, (n * 20).next_multiple_of(20_000));
            // Like a driver: frames that are due by the poll leave before the next frame.
            stage.wake(us(seen), &mut out);
            stage.push(us(seen), &mut vec![item(100, arrived, seen)], &mut out);
        }
        stage.wake(us(1_000_000), &mut out);
        let ratio = out.effects.reorder().expect("an order").ratio;
        // Four standard deviations of a binomial with n = 20 000, p = 0.25.
        assert!((ratio - 0.25).abs() < 0.0123, "{spec}: {ratio}");
        // Held frames have their own time, from which the next stage counts.
        let held = |item: &&Item<Late>| !item.at.as_ps().is_multiple_of(20_000_000_000);
        let held: Vec<_> = out.released.iter().filter(held).collect();
        assert!(held.iter().all(|item| item.arrived() == item.at), "{spec}");
        assert!(held.len() > 1_000 || spec.contains("timeout"), "{spec}");
    }
}

/// As from several queues, whose frames may be polled in any order.
#[test]
fn every_stage_accepts_arrivals_in_any_order() {
    for kind in StageConfig::KINDS {
        let config = StageConfig::parse(kind.example).expect(kind.example);
        let mut stage = config.build::<Late>(1, "test");
        let mut out = Outlet::default();
        for n in 0..5_000_u64 {
            let seen = 1_000 + n;
            stage.push(us(seen), &mut vec![item(100, seen - n * 7_919 % 1_000, seen)], &mut out);
            if stage.deadline().is_some_and(|deadline| deadline <= us(seen)) {
                stage.wake(us(seen), &mut out);
            }
            let accounted = (out.released.len() + out.dropped.len() + stage.held()) as u64 + out.not_copied;
            assert_eq!(accounted, n + 1 + out.copies, "{config}: frames conserved");
        }
        for _ in 0..100_000 {
            let Some(deadline) = stage.deadline() else { break };
            stage.wake(deadline, &mut out);
        }
        assert_eq!(stage.held(), 0, "{config}");
    }
}

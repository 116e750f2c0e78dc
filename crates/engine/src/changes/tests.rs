use super::*;
use crate::schedules::{Draw, Target};
use crate::stages::StageConfig;
use packet::HeapFrame;

fn us(us: u64) -> Time {
    Time::from_ps(us * 1_000_000)
}

fn gap(us: u64) -> Box<dyn Schedule> {
    let draw = Draw { seed: 1, path: "test", frames: None };
    Target::Gap(Span::from_us(us)).schedule(None, draw).expect("a schedule")
}

fn delay(text: &str) -> Box<dyn Stage<HeapFrame>> {
    StageConfig::parse(text).expect(text).build(1, text)
}

fn depart(pipeline: &mut Pipeline<HeapFrame>) -> Option<Time> {
    let token = pipeline.next_departure()?.token;
    let at = token.at();
    token.complete(pipeline, at);
    Some(at)
}

/// A departure that is settled but has not left follows the new setting.
#[test]
fn settled_departure_follows_the_new_schedule() {
    let mut pipeline = Pipeline::new(Vec::new(), gap(100)).changing();
    (0..4).for_each(|_| pipeline.push(us(0), us(0), HeapFrame::new(vec![0; 60])));
    assert_eq!(depart(&mut pipeline), Some(us(0)));
    assert_eq!(pipeline.due(), Some(us(100)));
    let to = DepartureSetting::Schedule(gap(10));
    let departures = vec![DepartureChange { class: 0, to }];
    pipeline.plan_change(us(30), Change { departures, ..Change::default() });
    pipeline.change_until(us(29));
    assert_eq!(pipeline.due(), Some(us(100)), "it is not due yet");
    pipeline.change_until(us(30));
    assert_eq!((depart(&mut pipeline), depart(&mut pipeline)), (Some(us(30)), Some(us(40))));
    assert_eq!(pipeline.report().starved, Some(0));
    let spent = pipeline.take_spent().expect("the old schedule");
    assert_eq!((spent.changes.len(), spent.stages.len()), (1, 0));
}

#[test]
fn replaced_stage_is_spent_once_it_is_empty() {
    let mut pipeline = Pipeline::new(vec![delay("delay 50us")], gap(1)).changing();
    pipeline.push(us(0), us(0), HeapFrame::new(vec![0; 60]));
    let stages = vec![StageChange { class: 0, stage_index: 0, stage: Some(delay("delay 5us")) }];
    pipeline.plan_change(us(10), Change { stages, ..Change::default() });
    pipeline.change_until(us(10));
    pipeline.push(us(11), us(11), HeapFrame::new(vec![0; 60]));
    assert_eq!(pipeline.take_spent().map(|spent| (spent.changes.len(), spent.stages.len())), Some((1, 0)));
    assert_eq!((pipeline.held(), pipeline.deadline()), (2, Some(us(16))));
    pipeline.wake(us(16));
    assert_eq!(pipeline.due(), None, "the second frame does not overtake the first");
    pipeline.wake(us(50));
    assert_eq!((depart(&mut pipeline), depart(&mut pipeline)), (Some(us(50)), Some(us(51))));
    assert_eq!(pipeline.take_spent().map(|spent| spent.stages.len()), Some(1));
    assert!(pipeline.take_spent().is_none());
    let report = pipeline.report();
    let delays = report.delay.map(|delay| (delay.count, delay.asked.min_ns, delay.asked.max_ns));
    assert_eq!(delays, Some((2, 39_000.0, 50_000.0)), "a frame that waits for others is delayed by that");
}

#[test]
fn begin_moves_planned_changes() {
    let mut pipeline = Pipeline::<HeapFrame>::new(Vec::new(), gap(1)).changing();
    let change = || Change { asked: vec![ChangeReport::default()], ..Change::default() };
    pipeline.plan_change(us(20), change());
    pipeline.plan_change(us(10), change());
    pipeline.begin(us(1_000));
    assert_eq!(pipeline.next_stage_change(), Some(us(1_010)));
    pipeline.change_until(us(1_012));
    pipeline.end_changes(us(1_015));
    let times: Vec<_> =
        pipeline.report().changes.iter().map(|report| (report.asked_at_ns, report.took_effect_at_ns)).collect();
    assert_eq!(times, [(10_000.0, Some(12_000.0)), (20_000.0, None)]);
}

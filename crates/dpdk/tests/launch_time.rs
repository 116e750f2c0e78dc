//! Frames carry their launch time, and ports without launch times refuse or ignore it.

mod common;

use common::eal;
use dpdk::{Burst, Error, LaunchField, LaunchTime, Pool, Port, PortConfig, Vdev};

#[test]
fn a_frame_carries_its_time_through_a_port() {
    let eal = eal();
    let pool = Pool::new(eal, "launch", 255, 2_048).expect("a pool");
    let field = LaunchField::register(eal).expect("a field");
    let started = Port::ring(eal, 64, 1, &pool).and_then(Port::start).expect("a ring");
    let (mut tx, mut rx) = (started.tx, started.rx);
    let mut burst = Burst::new();
    for ticks in [7, u64::MAX] {
        let mut frame = pool.alloc().expect("a frame");
        frame.copy_from(&[5; 60]).expect("room");
        assert_eq!(field.get(&frame), None, "a fresh frame says nothing");
        field.set(&mut frame, ticks);
        burst.push(frame).expect("room");
    }
    let mut silent = pool.alloc().expect("a frame");
    silent.copy_from(&[5; 60]).expect("room");
    field.set(&mut silent, 1);
    field.clear(&mut silent);
    burst.push(silent).expect("room");
    assert_eq!(tx[0].send(&mut burst), 3);
    let mut got = Burst::new();
    rx[0].poll(&mut got);
    let times: Vec<_> = got.iter().map(|frame| field.get(frame)).collect();
    assert_eq!(times, [Some(7), Some(u64::MAX), None]);
    assert!(got.iter().all(|frame| packet::Frame::bytes(frame) == [5; 60]));
}

#[test]
fn ports_without_it_are_refused_by_name_or_do_without() {
    let eal = eal();
    let pool = Pool::new(eal, "launch", 255, 2_048).expect("a pool");
    let open = |launch_time| {
        Port::open(eal, Vdev::null().as_str(), &pool, &PortConfig { launch_time, ..PortConfig::default() })
    };
    let error = open(LaunchTime::Required).expect_err("net_null has no clock");
    assert!(matches!(&error, Error::NoLaunchTime { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("net_null") && text.contains("deadline"), "{text}");
    let port = open(LaunchTime::IfOffered).expect("does without");
    assert!(port.launch_clock().is_none());
}

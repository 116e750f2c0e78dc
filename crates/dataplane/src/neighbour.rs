use crate::Error;
use crate::answers::ignore;
use dpdk::{Burst, Pool, Started};
use engine::sources::Host;
use measure::{AnsweredTally, AnswersReport};
use packet::{Answered, Asker, Frame, MacAddr};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Questions, and how long each waits for an answer: as Linux asks by itself.
const QUESTIONS: u32 = 3;
const EACH: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_micros(200);

/// Asks on a port for the hardware address of a neighbour before anything else is sent, and answers who
/// asks for ours: a neighbour may want to know who asks. None if it was stopped before. `heard` counts what
/// came and was answered.
pub(crate) fn meet(
    port: &mut Started,
    pool: &Pool,
    hosts: &[Host],
    asker: &Asker,
    neighbour: IpAddr,
    stop: &AtomicBool,
    heard: &mut AnswersReport,
) -> Result<Option<MacAddr>, Error> {
    let Started { rx, tx, .. } = port;
    let mut sending = Burst::new();
    let mut received = Burst::new();
    let mut answer = Vec::new();
    let question = packet::question(asker, neighbour);
    let owner = |address, vlans| hosts.iter().find_map(|host| host.mac_of(address, vlans));
    for _ in 0..QUESTIONS {
        let asked = Instant::now();
        let mut frame = pool.alloc().ok_or_else(|| no_buffer(pool))?;
        frame.copy_from(&question)?;
        sending.push(frame).expect("there is room for one more");
        while asked.elapsed() < EACH {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if !sending.is_empty() {
                // What the driver does not take is offered again.
                let _taken = tx[0].send(&mut sending);
            }
            for queue in rx.iter_mut() {
                queue.poll(&mut received);
                for mut frame in received.drain() {
                    heard.came.add(frame.length());
                    if let Some(mac) = packet::told(frame.bytes(), neighbour) {
                        heard.ignored += 1;
                        return Ok(Some(mac));
                    }
                    match packet::answer(frame.bytes(), owner, &mut answer) {
                        Some(answered) if sending.room() > 1 => {
                            frame.copy_from(&answer)?;
                            sending.push(frame).expect("there is room");
                            count(&mut heard.answered, answered);
                        }
                        _ => ignore(heard, frame.bytes()),
                    }
                }
            }
            thread::sleep(LOOK);
        }
    }
    let asked = if neighbour.is_ipv4() { "ARP" } else { "neighbour solicitation" };
    let seconds = u64::from(QUESTIONS) * EACH.as_secs();
    Err(Error::Nobody { neighbour, asked, from: asker.address, seconds })
}

/// Counts an answer by what was asked.
pub(crate) fn count(answered: &mut AnsweredTally, what: Answered) {
    *match what {
        Answered::Arp => &mut answered.arp,
        Answered::Solicitation => &mut answered.ndp,
        Answered::Echo => &mut answered.echo,
    } += 1;
}

pub(crate) fn no_buffer(pool: &Pool) -> Error {
    let (frames, data_room) = (pool.frames(), pool.data_room());
    dpdk::Error::Pool { frames, data_room, reason: "all are in use".to_owned(), log: String::new() }.into()
}

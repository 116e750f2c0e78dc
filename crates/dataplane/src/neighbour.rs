use crate::Error;
use crate::answers::ignore;
use dpdk::{Burst, Pool, Started};
use engine::sources::Host;
use measure::{AnsweredTally, AnswersReport};
use packet::{AnsweredRequest, Frame, MacAddr, Requester};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of requests and time to wait for each answer, as in Linux.
const REQUESTS: u32 = 3;
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Requests the MAC address of a neighbour on a port before anything else is sent. Answers requests for our addresses
/// meanwhile, because the neighbour may need our MAC address. Returns `None` if stopped before the answer. `answers`
/// counts received and answered frames.
pub(crate) fn meet(
    port: &mut Started,
    pool: &Pool,
    hosts: &[Host],
    requester: &Requester,
    neighbour: IpAddr,
    stop: &AtomicBool,
    answers: &mut AnswersReport,
) -> Result<Option<MacAddr>, Error> {
    let Started { rx, tx, .. } = port;
    let mut sending = Burst::new();
    let mut received = Burst::new();
    let mut reply = Vec::new();
    let request = packet::address_request(requester, neighbour);
    let owner = |address, vlans| hosts.iter().find_map(|host| host.mac_of(address, vlans));
    for _ in 0..REQUESTS {
        let requested_at = Instant::now();
        let mut frame = pool.alloc().ok_or_else(|| no_buffer(pool))?;
        frame.copy_from(&request)?;
        sending.push(frame).expect("there is room for one more");
        while requested_at.elapsed() < REPLY_TIMEOUT {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if !sending.is_empty() {
                // Frames that the driver does not take are offered again.
                let _taken = tx[0].send(&mut sending);
            }
            for queue in rx.iter_mut() {
                queue.poll(&mut received);
                for mut frame in received.drain() {
                    answers.arrived.add(frame.length());
                    if let Some(mac) = packet::hardware_address(frame.bytes(), neighbour) {
                        answers.ignored += 1;
                        return Ok(Some(mac));
                    }
                    match packet::write_reply(frame.bytes(), owner, &mut reply) {
                        Some(answered) if sending.room() > 1 => {
                            frame.copy_from(&reply)?;
                            sending.push(frame).expect("there is room");
                            count(&mut answers.answered, answered);
                        }
                        _ => ignore(answers, frame.bytes()),
                    }
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
    let request = if neighbour.is_ipv4() { "ARP" } else { "neighbour solicitation" };
    let seconds = u64::from(REQUESTS) * REPLY_TIMEOUT.as_secs();
    Err(Error::NoAnswer { neighbour, request, from: requester.address, seconds })
}

/// Counts an answer by kind of request.
pub(crate) fn count(answered: &mut AnsweredTally, what: AnsweredRequest) {
    *match what {
        AnsweredRequest::Arp => &mut answered.arp,
        AnsweredRequest::Solicitation => &mut answered.ndp,
        AnsweredRequest::Echo => &mut answered.echo,
    } += 1;
}

pub(crate) fn no_buffer(pool: &Pool) -> Error {
    let (frames, data_room) = (pool.frames(), pool.data_room());
    dpdk::Error::Pool { frames, data_room, reason: "all are in use".to_owned(), log: String::new() }.into()
}

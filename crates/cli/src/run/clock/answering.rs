//! The answering side. It sends one answer of the same length for each valid request, and ignores everything else.

use super::message::{self, Answer, LENGTH};
use super::stamped_socket::StampedSocket;
use crate::options::clock::PORT;
use crate::options::host_clock::HostClock;
use crate::output::{self, Failure};
use crate::run::readiness;
use crate::run::stop::Stop;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Interval between checks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Counts of answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    pub(super) answered: u64,
    pub(super) ignored: u64,
}

/// Answers until a signal arrives or `duration` has passed.
pub(super) fn answer(
    listen: Option<SocketAddr>,
    duration: Option<Duration>,
    clock: HostClock,
    stop: &Stop,
) -> Result<Answered, Failure> {
    let (socket, address) = bind(listen)?;
    let socket = StampedSocket::new(socket, clock, LOOK).map_err(Failure::new)?;
    output::say(format_args!("answers on {address}"));
    readiness::tell_starter("exchanges are answered");
    let (begun, mut done) = (Instant::now(), Answered::default());
    let mut buffer = [0; LENGTH + 1];
    while !stop.asked() && duration.is_none_or(|duration| begun.elapsed() < duration) {
        let arrived = match socket.receive(&mut buffer) {
            Ok(Some(arrived)) => arrived,
            // An error means that an earlier answer was refused, because the requester has ended.
            Ok(None) | Err(_) => continue,
        };
        let (Some(nonce), Some(from)) = (message::read_request(&buffer[..arrived.length]), arrived.from) else {
            done.ignored += 1;
            continue;
        };
        let answer = message::answer(nonce, Answer { received_at: arrived.at, sent: socket.now() });
        match socket.socket.send_to(&answer, from) {
            Ok(_) => done.answered += 1,
            Err(_) => done.ignored += 1,
        }
        // Unread departure stamps would fill the socket's memory.
        socket.left();
    }
    Ok(done)
}

fn bind(listen: Option<SocketAddr>) -> Result<(UdpSocket, SocketAddr), Failure> {
    let address = listen.unwrap_or_else(|| (Ipv6Addr::UNSPECIFIED, PORT).into());
    let bound = UdpSocket::bind(address);
    // Hosts without IPv6 use IPv4.
    let bound = if listen.is_none() && bound.is_err() { UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)) } else { bound };
    let named = bound.and_then(|socket| socket.local_addr().map(|address| (socket, address)));
    named.map_err(|cause| {
        Failure::new(format!("cannot answer on {address}: {cause}: name another with --listen ADDR:PORT"))
    })
}

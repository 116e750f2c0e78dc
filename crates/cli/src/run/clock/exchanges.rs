//! Exchanges with one peer.

use super::message::{self, LENGTH};
use super::stamped_socket::StampedSocket;
use crate::options::clock::PORT;
use crate::options::host_clock::HostClock;
use crate::output::Failure;
use measure::{ClockExchange, ClockMeter, ClockReport, ClockStamps};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

/// Time limit for an answer. A slower one would have a large error.
const PATIENCE: Duration = Duration::from_millis(200);
/// Resolution of the kernel's stamps in ns.
const RESOLUTION_NS: f64 = 1.0;

/// A peer, and the exchanges with it.
pub(super) struct Exchanges {
    /// The name as typed.
    pub(super) name: String,
    pub(super) address: SocketAddr,
    socket: StampedSocket,
    nonces: RandomState,
    asked: u64,
    meter: ClockMeter,
    refused: bool,
}

impl Exchanges {
    /// Opens a socket to the peer `HOST[:PORT]`.
    pub(super) fn open(name: &str, clock: HostClock) -> Result<Self, Failure> {
        let fail = |cause: &dyn std::fmt::Display| {
            Failure::new(format!("peer {name}: {cause}: write HOST or HOST:PORT, such as 10.0.0.2:{PORT}"))
        };
        let address = resolve(name).map_err(|cause| fail(&cause))?;
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let open = || {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(address)?;
            StampedSocket::new(socket, clock, PATIENCE)
        };
        let socket = open().map_err(|cause| fail(&cause))?;
        Ok(Exchanges {
            name: name.to_owned(),
            address,
            socket,
            nonces: RandomState::new(),
            asked: 0,
            meter: ClockMeter::default(),
            refused: false,
        })
    }

    /// Makes one exchange. Returns false if it was not answered in time.
    pub(super) fn exchange(&mut self) -> io::Result<bool> {
        let nonce = self.nonces.hash_one(self.asked);
        self.asked += 1;
        let begun = self.socket.now();
        match self.socket.socket.send(&message::request(nonce)) {
            Ok(_) => {}
            // The refusal of an earlier message is reported at the next call.
            Err(cause) if cause.kind() == ErrorKind::ConnectionRefused => return self.is_refused(),
            Err(cause) => return Err(cause),
        }
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = [0; LENGTH + 1];
        while Instant::now() < deadline {
            let arrived = match self.socket.receive(&mut buffer) {
                Ok(Some(arrived)) => arrived,
                Ok(None) => continue,
                Err(cause) if cause.kind() == ErrorKind::ConnectionRefused => return self.is_refused(),
                Err(cause) => return Err(cause),
            };
            // Skips late answers to earlier requests.
            let Some(answer) = message::read_answer(&buffer[..arrived.length], nonce) else { continue };
            let left = self.socket.left().filter(|left| (begun..=arrived.at).contains(left));
            let sent = left.unwrap_or(begun);
            if let Some(exchange) = ClockExchange::of(sent, answer.received_at, answer.sent, arrived.at) {
                let by_kernel = left.is_some() && arrived.by_kernel;
                self.meter.add(exchange, if by_kernel { ClockStamps::Kernel } else { ClockStamps::Program });
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_refused(&mut self) -> io::Result<bool> {
        self.refused = true;
        Ok(false)
    }

    /// The figures so far.
    pub(super) fn report(&self) -> Option<ClockReport> {
        self.meter.report(&self.name, self.asked, RESOLUTION_NS)
    }

    /// The figures, or the reason why there are none.
    pub(super) fn concluded(&self) -> Result<ClockReport, Failure> {
        self.report().ok_or_else(|| {
            let why = match self.refused {
                true => "its host refuses messages to that port",
                false => "no answer arrived",
            };
            Failure::new(format!(
                "peer {}: {why} ({}): start netlathe clock --answer there, and let UDP port {} pass",
                self.name,
                self.address,
                self.address.port()
            ))
        })
    }
}

/// The address of `HOST[:PORT]`. HOST may be an IPv6 address, with or without brackets.
fn resolve(name: &str) -> io::Result<SocketAddr> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok((address, PORT).into());
    }
    let found = if bare.contains(':') { bare.to_socket_addrs() } else { (bare, PORT).to_socket_addrs() };
    found?.next().ok_or_else(|| io::Error::new(ErrorKind::NotFound, "it has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_port_is_optional() {
        for (name, expected) in [
            ("10.0.0.2", "10.0.0.2:47100"),
            ("10.0.0.2:5000", "10.0.0.2:5000"),
            ("::1", "[::1]:47100"),
            ("[::1]", "[::1]:47100"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(resolve(name).map(|address| address.to_string()).ok().as_deref(), Some(expected));
        }
        assert!(resolve("10.0.0.2:port").is_err());
    }
}

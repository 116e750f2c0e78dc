//! Pings all pairs of sites, and compares their round trips with those asked.
//!
//! The requests are ICMP echo requests, which the kernels of the sites answer, as for `ping`. A round trip ends at the
//! kernel's stamp of the answer.

use crate::options::lab::PingOptions;
use crate::output::{self, Failure, time};
use lab::{Lab, Node, Topology};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recvmsg, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use units::Span;

/// The time between two requests.
const STEP: Duration = Duration::from_millis(1);
/// How long to wait for answers beyond the longest asked round trip.
const PATIENCE: Duration = Duration::from_secs(1);
/// Payload of a request in bytes, as for `ping`.
const PAYLOAD: usize = 56;
/// Bytes of the frame without FCS: Ethernet, IP and ICMP headers, and the payload.
const FRAME: u64 = 14 + 20 + 8 + PAYLOAD as u64;
/// Types of ICMP messages.
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Limit on pairs in the text report; JSON has all.
const LISTED: usize = 20;

/// The result of a check.
#[derive(Serialize)]
pub(super) struct CheckReport {
    schema: u32,
    command: &'static str,
    lab: String,
    sites: usize,
    pings_per_pair: u16,
    tolerance_ns: f64,
    /// Pairs whose median is within the tolerance.
    pairs_within: usize,
    /// The largest error of a median; `None` if no ping was answered.
    worst_error_ns: Option<f64>,
    pairs: Vec<PairResult>,
    /// The forwarder's counters since the lab came up.
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarder: Option<serde_json::Value>,
}

/// The round trips of one ordered pair of sites.
#[derive(Serialize)]
struct PairResult {
    from: String,
    to: String,
    /// The delays of both directions, plus the transmission time of the frames at the asked rates.
    asked_ns: f64,
    /// The expected share of lost pings, from the losses of both directions.
    asked_loss: f64,
    sent: u32,
    received: u32,
    median_ns: Option<f64>,
    min_ns: Option<f64>,
    max_ns: Option<f64>,
    /// Median minus asked.
    error_ns: Option<f64>,
}

/// Sends the pings and collects their answers.
pub(super) fn check(lab: &Lab, options: &PingOptions) -> Result<CheckReport, Failure> {
    let topology = lab.topology();
    if !topology.has_sites() {
        let how = "build one with netlathe lab up --matrix FILE";
        return Err(Failure::new(format!("lab {} has no sites, so nothing says its round trips: {how}", lab.name())));
    }
    if !lab.is_forwarded() {
        let how = format!("take it down with netlathe lab down {}", lab.name());
        return Err(Failure::new(format!("lab {} has no forwarder any more, so no frame passes: {how}", lab.name())));
    }
    let asked = asked(topology);
    let got = Pinger::open(topology)?.ping(options.pings, &asked)?;
    let host = |site: usize| topology.sites[site].host.clone();
    let mut pairs = Vec::new();
    for (from, to) in all_pairs(topology.sites.len()) {
        let Asked { round_trip_ns, loss } = asked[from][to];
        let mut times = got.get(&(from, to)).cloned().unwrap_or_default();
        times.sort_unstable();
        let ns = |time: Option<&u64>| time.map(|ns| *ns as f64);
        let median = median(&times);
        pairs.push(PairResult {
            from: host(from),
            to: host(to),
            asked_ns: round_trip_ns,
            asked_loss: loss,
            sent: options.pings.into(),
            received: u32::try_from(times.len()).unwrap_or(u32::MAX),
            median_ns: median,
            min_ns: ns(times.first()),
            max_ns: ns(times.last()),
            error_ns: median.map(|median| median - round_trip_ns),
        });
    }
    let tolerance_ns = options.tolerance.as_ns_f64();
    let is_within = |pair: &&PairResult| pair.error_ns.is_some_and(|error| error.abs() <= tolerance_ns);
    let largest = |a: f64, b: f64| if b.abs() > a.abs() { b } else { a };
    Ok(CheckReport {
        schema: 2,
        command: "lab check",
        lab: lab.name().to_owned(),
        sites: topology.sites.len(),
        pings_per_pair: options.pings,
        tolerance_ns,
        pairs_within: pairs.iter().filter(is_within).count(),
        worst_error_ns: pairs.iter().filter_map(|pair| pair.error_ns).reduce(largest),
        pairs,
        // The file exists once frames have passed.
        forwarder: std::fs::read_to_string(lab.counters_file()).ok().and_then(|text| serde_json::from_str(&text).ok()),
    })
}

fn median(sorted: &[u64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle] as f64),
        _ => Some((sorted[middle - 1] as f64 + sorted[middle] as f64) / 2.0),
    }
}

/// All ordered pairs of sites.
fn all_pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites).flat_map(move |from| (0..sites).filter(move |to| *to != from).map(move |to| (from, to)))
}

/// The asked round trip and loss of a pair.
#[derive(Clone, Copy, Default)]
struct Asked {
    round_trip_ns: f64,
    loss: f64,
}

fn asked(topology: &Topology) -> Vec<Vec<Asked>> {
    let sites = topology.sites.len();
    let mut table = vec![vec![Asked::default(); sites]; sites];
    for (from, to) in all_pairs(sites) {
        let ways = [topology.sites[from].ways[to], topology.sites[to].ways[from]];
        let takes = |rate: Option<u64>| rate.map_or(0.0, |bps| (FRAME * 8) as f64 / bps as f64 * 1e9);
        let time = ways.map(|way| Span::from_ps(way.delay_ps).as_ns_f64() + takes(way.rate_bps));
        let passes = ways.map(|way| 1.0 - f64::from(way.loss_ppb) / 1e9);
        table[from][to] = Asked { round_trip_ns: time.iter().sum(), loss: 1.0 - passes[0] * passes[1] };
    }
    table
}

/// A socket at each site.
struct Pinger {
    sockets: Vec<OwnedFd>,
    addresses: Vec<Ipv4Addr>,
    /// Requests in flight: site and sequence number, with the receiver and the send time.
    open: HashMap<(usize, u16), (usize, u64)>,
    got: HashMap<(usize, usize), Vec<u64>>,
}

impl Pinger {
    fn open(topology: &Topology) -> Result<Pinger, Failure> {
        let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
        for node in topology.hosts() {
            let namespace = format!("/run/netns/{}", topology.namespace(node));
            sockets.push(socket_in(&namespace).map_err(|cause| cannot_ping(node, &cause))?);
            addresses.extend(topology.ipv4(node));
        }
        Ok(Pinger { sockets, addresses, open: HashMap::new(), got: HashMap::new() })
    }

    /// Pings each pair `pings` times. Returns the round trips in nanoseconds by sender and receiver.
    fn ping(mut self, pings: u16, asked: &[Vec<Asked>]) -> Result<HashMap<(usize, usize), Vec<u64>>, Failure> {
        let sites = self.sockets.len();
        let longest = asked.iter().flatten().map(|asked| asked.round_trip_ns).fold(0.0, f64::max);
        let round = round_time(sites, asked);
        let start = Instant::now();
        let mut sequence = vec![0_u16; sites];
        let mut next = start;
        for number in 0..u32::from(pings) {
            next = next.max(start + round * number);
            // Consecutive requests go to different sites, so that no site answers several at once.
            for distance in 1..sites {
                for (from, last) in sequence.iter_mut().enumerate() {
                    self.receive_until(next)?;
                    let to = (from + distance) % sites;
                    *last = last.wrapping_add(1);
                    self.send(from, to, *last)?;
                    // After a late request, the next ones are not sent in a burst.
                    next = (next + STEP).max(Instant::now());
                }
            }
        }
        let end = Instant::now() + PATIENCE + Duration::from_nanos(longest as u64);
        while !self.open.is_empty() && Instant::now() < end {
            self.receive_until((Instant::now() + Duration::from_millis(20)).min(end))?;
        }
        Ok(self.got)
    }

    fn send(&mut self, from: usize, to: usize, sequence: u16) -> Result<(), Failure> {
        let mut request = [0; 8 + PAYLOAD];
        request[0] = ECHO_REQUEST;
        request[6..8].copy_from_slice(&sequence.to_be_bytes());
        let address = SockaddrIn::from(SocketAddrV4::new(self.addresses[to], 0));
        let now = wall_ns().map_err(Failure::new)?;
        match sendto(self.sockets[from].as_raw_fd(), &request, &address, MsgFlags::empty()) {
            Ok(_) => drop(self.open.insert((from, sequence), (to, now))),
            // The request counts as lost.
            Err(nix::Error::ENOBUFS | nix::Error::EAGAIN) => {}
            Err(cause) => return Err(Failure::new(format!("cannot ping {}: {cause}", self.addresses[to]))),
        }
        Ok(())
    }

    fn receive_until(&mut self, end: Instant) -> Result<(), Failure> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut polled: Vec<PollFd<'_>> =
                self.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
            match ppoll(&mut polled, Some(TimeSpec::from_duration(left)), None) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(cause) => return Err(Failure::new(format!("cannot wait for answers: {cause}"))),
            }
            let has = |poll: &PollFd<'_>| poll.revents().is_some_and(|events| !events.is_empty());
            let ready: Vec<usize> = (0..polled.len()).filter(|site| has(&polled[*site])).collect();
            for site in ready {
                while let Some((sequence, stamp)) = answer(&self.sockets[site])? {
                    if let Some((to, sent)) = self.open.remove(&(site, sequence)) {
                        self.got.entry((site, to)).or_default().push(stamp.saturating_sub(sent));
                    }
                }
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }
}

/// Minimum duration of a round of all pairs, so that a ping does not queue behind the previous one at the lowest rate.
fn round_time(sites: usize, asked: &[Vec<Asked>]) -> Duration {
    let pairs = u32::try_from(sites * (sites - 1)).unwrap_or(u32::MAX);
    // A round trip includes the transmission time of the frame at both rates.
    let longest = asked.iter().flatten().map(|asked| asked.round_trip_ns).fold(0.0, f64::max);
    (STEP * pairs).max(Duration::from_nanos((longest as u64).min(1_000_000_000)))
}

fn cannot_ping(node: Node, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot ping from {node}: {cause}: run it as root"))
}

/// An ICMP socket in a network namespace. A temporary thread enters the namespace to open it.
fn socket_in(namespace: &str) -> Result<OwnedFd, std::io::Error> {
    let open = || -> Result<OwnedFd, std::io::Error> {
        setns(File::open(namespace)?, CloneFlags::CLONE_NEWNET)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, SockProtocol::Icmp)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(socket)
    };
    let joined = thread::scope(|scope| thread::Builder::new().spawn_scoped(scope, open).map(|thread| thread.join()));
    joined?.unwrap_or_else(|_| Err(std::io::Error::other("the thread failed")))
}

/// The next answer on a socket: its sequence number and the kernel's stamp.
fn answer(socket: &OwnedFd) -> Result<Option<(u16, u64)>, Failure> {
    let mut bytes = [0; 8 + PAYLOAD];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut control = nix::cmsg_space!(TimeSpec);
    let message = match recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty()) {
        Ok(message) => message,
        Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
        Err(cause) => return Err(Failure::new(format!("cannot receive answers: {cause}"))),
    };
    let stamp = message.cmsgs().map_err(Failure::new)?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(ns_of(stamp)),
        _ => None,
    });
    let stamp = match stamp {
        Some(stamp) => stamp,
        None => wall_ns().map_err(Failure::new)?,
    };
    let is_answer = message.bytes >= 8 && bytes[0] == ECHO_REPLY;
    // Other messages get number 0, which is not in flight before the numbers wrap.
    Ok(Some((if is_answer { u16::from_be_bytes([bytes[6], bytes[7]]) } else { 0 }, stamp)))
}

fn wall_ns() -> nix::Result<u64> {
    clock_gettime(ClockId::CLOCK_REALTIME).map(ns_of)
}

fn ns_of(time: TimeSpec) -> u64 {
    time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned()
}

impl CheckReport {
    /// Prints the report. The status says whether all pairs are within the tolerance.
    pub(super) fn print(&self, json: bool) -> Result<ExitCode, Failure> {
        let text = if json { serde_json::to_string(self).map_err(Failure::new)? + "\n" } else { self.text() };
        output::print(&text)?;
        let all = self.pairs_within == self.pairs.len();
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(Failure::MISSED) })
    }

    fn text(&self) -> String {
        let mut worst: Vec<&PairResult> = self.pairs.iter().collect();
        let error = |pair: &PairResult| pair.error_ns.map_or(f64::INFINITY, f64::abs);
        if worst.len() > LISTED {
            worst.sort_by(|a, b| error(b).total_cmp(&error(a)));
        }
        let wide =
            |of: fn(&PairResult) -> &str| worst.iter().take(LISTED).map(|pair| of(pair).len()).max().unwrap_or(0);
        let (from, to) = (wide(|pair| &pair.from).max(4), wide(|pair| &pair.to).max(2));
        let mut text =
            format!("{:<from$}  {:<to$}  {:>14}  {:>14}  {:>12}  answered\n", "from", "to", "asked", "median", "error");
        for pair in worst.iter().take(LISTED) {
            let shown = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), time);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<from$}  {:<to$}  {:>14}  {:>14}  {:>12}  {} of {}{}",
                pair.from,
                pair.to,
                time(pair.asked_ns),
                shown(pair.median_ns),
                shown(pair.error_ns),
                pair.received,
                pair.sent,
                asked_loss(pair.asked_loss)
            );
        }
        let (pairs, lab) = (self.pairs.len(), &self.lab);
        if pairs > LISTED {
            let _ = writeln!(text, "The {LISTED} pairs with the largest errors; --json has all {pairs}.");
        }
        let worst = self
            .worst_error_ns
            .map_or_else(|| "no ping was answered".to_owned(), |ns| format!("largest error {}", time(ns)));
        let _ = writeln!(
            text,
            "lab {lab}: {} of {pairs} round trips are within {} of the asked ones in the median of {} pings; {worst}",
            self.pairs_within,
            time(self.tolerance_ns),
            self.pings_per_pair
        );
        if let Some(dropped) = self.unasked_drops() {
            let _ = writeln!(text, "The forwarder dropped frames since the lab is up: {dropped}.");
        }
        text
    }

    /// Drops other than the asked losses, if there are any.
    fn unasked_drops(&self) -> Option<String> {
        let drops = self.forwarder.as_ref()?.get("drops")?.as_object()?;
        let unasked = drops.iter().filter(|(reason, count)| *reason != "loss" && count.as_u64() != Some(0));
        let texts: Vec<String> = unasked.map(|(reason, count)| format!("{count} {reason}")).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

fn asked_loss(share: f64) -> String {
    if share > 0.0 { format!(" (asked loss {:.2} %)", share * 100.0) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3]).map(|ns| ns as u64), Some(3));
        assert_eq!(median(&[1, 2, 30]).map(|ns| ns as u64), Some(2));
        assert_eq!(median(&[1, 2, 4, 30]).map(|ns| ns as u64), Some(3));
    }

    #[test]
    fn all_pairs_are_ordered_pairs_of_different_sites() {
        assert_eq!(all_pairs(3).collect::<Vec<_>>(), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
    }
}

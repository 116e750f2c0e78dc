//! Ports, their threads and their traffic.

use crate::config::{Available, Config, DeviceTag, Interface, MOST_FLOWS, PlannedFlow, Sender};
use crate::flow::{FCS, Rate, Sizes};
use crate::frame::{FrameMaker, Payload};
use crate::meters::{FlowMeters, Transmission, now_ns};
use crate::reader::{Node, Problem};
use crate::receiver::{self, Awaited, Expected, Neighbours, Shared, lock};
use crate::sender::{self, Command, Departures};
use crate::wire::{Link, OpenPort};
use packet::{MacAddr, Requester, address_request};
use serde_json::json;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long to wait for the hardware address of a flow's next hop.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between repetitions of unanswered neighbour requests.
const ASK: Duration = Duration::from_millis(200);
/// Time limit for the answer to a ping.
const ECHO: Duration = Duration::from_secs(1);
/// Flows that start together start this long after the request, so that all senders have received the command.
const LEAD: Duration = Duration::from_millis(2);
/// Maximum delay of a frame in a receiver.
const SETTLE: Duration = Duration::from_millis(30);
/// Length of the window in which rates are measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Interval between samples of counters for rates.
const SAMPLE: Duration = Duration::from_millis(250);

/// A port with its threads.
struct Port {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
    link: Mutex<Box<dyn Link>>,
    threads: Vec<JoinHandle<()>>,
}

/// Counters at one instant, for rates: frames and bytes sent, frames and bytes received.
type Sample = [u64; 4];

struct Samples {
    at: Instant,
    flows: Vec<Sample>,
    ports: Vec<Sample>,
}

/// Rates per second over the last window: frames and bytes sent, frames and bytes received.
pub(crate) type Rates = [f64; 4];

/// A flow of the current configuration.
pub(crate) struct LiveFlow {
    pub(crate) planned: PlannedFlow,
    pub(crate) meters: Arc<FlowMeters>,
    pub(crate) stream: u16,
}

/// A flow and the makers of its frames, which are used in turn.
type ReadyFlow<'c> = (&'c LiveFlow, Vec<Arc<FrameMaker>>);

/// Why a flow cannot start, and whether it is worth waiting.
struct NotReady {
    wait: bool,
    problem: Problem,
}

/// The current configuration.
#[derive(Default)]
struct Current {
    config: Config,
    flows: Vec<LiveFlow>,
    /// The stream number of its first flow.
    first_stream: u16,
    /// The stream number of the next added flow, including flows of the next configuration.
    next_stream: u16,
    /// True if devices neither send nor answer requests.
    devices_stopped: bool,
}

/// The traffic of all ports.
pub(crate) struct Engine {
    pub(crate) available: Vec<Available>,
    ports: Vec<Port>,
    current: Mutex<Current>,
    neighbours: Arc<Neighbours>,
    samples: Mutex<VecDeque<Samples>>,
    ended: Arc<AtomicBool>,
}

impl Engine {
    /// Starts the threads of these ports.
    pub(crate) fn start(open: Vec<OpenPort>) -> std::io::Result<Engine> {
        let ended = Arc::new(AtomicBool::new(false));
        let neighbours = Arc::new(Neighbours::default());
        let mut engine = Engine {
            available: Vec::new(),
            ports: Vec::new(),
            current: Mutex::default(),
            neighbours,
            samples: Mutex::default(),
            ended,
        };
        for (n, port) in open.into_iter().enumerate() {
            let shared = Arc::new(Shared::default());
            let (commands, inbox) = mpsc::channel();
            let (transmit, receive) = (port.transmit, port.receive);
            let mut threads = Vec::new();
            let of_sender = Arc::clone(&shared);
            let named = |what: &str| thread::Builder::new().name(format!("{what}-{}", port.name));
            threads.push(named("tx").spawn(move || sender::run(transmit, &inbox, &of_sender.meters))?);
            let (of_receiver, neighbours, ended) =
                (Arc::clone(&shared), Arc::clone(&engine.neighbours), Arc::clone(&engine.ended));
            threads.push(named("rx").spawn(move || receiver::run(receive, n, &of_receiver, &neighbours, &ended))?);
            engine.ports.push(Port { commands, shared, link: Mutex::new(port.link), threads });
            engine.available.push(Available {
                name: port.name,
                text: port.text,
                mtu: port.mtu,
                line_bps: port.line_bps,
            });
        }
        Ok(engine)
    }

    /// Sends requests to neighbours that have not answered, and samples counters, until the engine ends. Run this on a
    /// separate thread.
    pub(crate) fn attend(&self) {
        let (mut asked, mut sampled) = (None::<Instant>, None::<Instant>);
        while !self.ended.load(Relaxed) {
            if asked.is_none_or(|at| at.elapsed() >= ASK) {
                self.ask_neighbours();
                asked = Some(Instant::now());
            }
            if sampled.is_none_or(|at| at.elapsed() >= SAMPLE) {
                self.sample();
                sampled = Some(Instant::now());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn send_command(&self, port: usize, command: Command) {
        // The channel is closed only if the sender has ended together with the engine.
        let _ended = self.ports[port].commands.send(command);
    }

    /// Waits until all senders have executed their commands.
    fn await_senders(&self) {
        let (done, all) = mpsc::channel();
        for port in 0..self.ports.len() {
            self.send_command(port, Command::Done(done.clone()));
        }
        drop(done);
        while all.recv().is_ok() {}
    }

    /// Stops the flows of the current configuration and replaces it.
    pub(crate) fn configure(&self, mut config: Config) -> Result<Vec<String>, Vec<Problem>> {
        let mut current = lock(&self.current);
        let first_stream = current.next_stream;
        let flows = live_flows(std::mem::take(&mut config.flows), first_stream);
        let next_stream = first_stream.wrapping_add(flows.len() as u16);
        let expected = self.expect(&config, flows.iter(), first_stream, next_stream, true)?;
        self.stop_all(&current.flows);
        self.neighbours.clear();
        self.set_known_neighbours(&config);
        for (of, (port, expected)) in self.ports.iter().zip(expected).enumerate() {
            *lock(&port.shared.expected) = Arc::new(expected);
            let settings = config.ports.iter().position(|port| port.of == of).and_then(|n| config.captures[n].clone());
            lock(&port.shared.capture).reset(settings);
            port.shared.meters.clear();
        }
        lock(&self.samples).clear();
        let warnings = std::mem::take(&mut config.warnings);
        *current = Current { config, flows, first_stream, next_stream, devices_stopped: false };
        drop(current);
        self.ask_neighbours();
        Ok(warnings)
    }

    /// What each port should expect from these flows, whose streams are numbered from `first_stream` up to, but not
    /// including, `next_stream`.
    fn expect<'f>(
        &self,
        config: &Config,
        flows: impl Iterator<Item = &'f LiveFlow>,
        first_stream: u16,
        next_stream: u16,
        devices_run: bool,
    ) -> Result<Vec<Expected>, Vec<Problem>> {
        let streams = usize::from(next_stream.wrapping_sub(first_stream));
        let one = || Expected { first_stream, flows: vec![None; streams], ..Expected::default() };
        let mut expected: Vec<Expected> = self.ports.iter().map(|_| one()).collect();
        let mut problems = Vec::new();
        for live in flows {
            let flow = &live.planned.flow;
            let signature = (!flow.is_stamped()).then(|| flow.maker.signature());
            for rx in &live.planned.rx {
                let port = &mut expected[config.ports[*rx].of];
                port.flows[usize::from(live.stream.wrapping_sub(first_stream))] = Some(Arc::clone(&live.meters));
                let trailer = flow.maker.trailer();
                if trailer > 0 && !port.trailers.contains(&trailer) {
                    port.trailers.push(trailer);
                }
                if let Some(signature) = &signature
                    && flow.metrics.enable
                    && !port.add_unstamped(signature.clone(), &live.meters)
                {
                    let needed = flow.maker.header_length() + packet::Stamp::LENGTH + FCS;
                    problems.push(Problem::new(&format!("{}.size", flow.path), format!(
                        "its frames have no room for a stamp, and they may look like those of another flow, so that arrivals cannot be counted: write {needed} B or more, or let a field differ"
                    )));
                }
            }
        }
        for (n, interface) in config.interfaces.iter().enumerate().filter(|_| devices_run) {
            expected[config.ports[interface.port].of].interfaces.push((n, interface.clone()));
        }
        if problems.is_empty() { Ok(expected) } else { Err(problems) }
    }

    /// Adds the flows of a configuration from number `known` on. The earlier ones are the current flows, which
    /// continue.
    pub(crate) fn append(&self, mut config: Config, known: usize) -> Result<Vec<String>, Vec<Problem>> {
        let mut current = lock(&self.current);
        let fresh = config.flows.split_off(known);
        let used = usize::from(current.next_stream.wrapping_sub(current.first_stream));
        if used + fresh.len() > MOST_FLOWS {
            return Err(vec![Problem::new(
                "",
                format!(
                    "there were {used} flows since the last configuration, and {MOST_FLOWS} are served: send the whole configuration again"
                ),
            )]);
        }
        let fresh = live_flows(fresh, current.next_stream);
        let next_stream = current.next_stream.wrapping_add(fresh.len() as u16);
        let flows = current.flows.iter().chain(&fresh);
        let expected = self.expect(&config, flows, current.first_stream, next_stream, !current.devices_stopped)?;
        self.await_flows(expected);
        current.flows.extend(fresh);
        current.next_stream = next_stream;
        Ok(std::mem::take(&mut config.warnings))
    }

    /// Stops and removes the flows with these names. The others continue.
    pub(crate) fn delete(&self, names: &HashSet<String>) {
        let mut current = lock(&self.current);
        let current = &mut *current;
        let is_gone = |flow: &LiveFlow| names.contains(&flow.planned.flow.name);
        let gone: Vec<&LiveFlow> = current.flows.iter().filter(|flow| is_gone(flow)).collect();
        self.group(current, &gone, Command::Stop);
        self.await_senders();
        current.flows.retain(|flow| !is_gone(flow));
        self.expect_again(current);
    }

    /// Starts or stops all devices. Stopped devices have no neighbours.
    pub(crate) fn set_devices(&self, run: bool) {
        let mut current = lock(&self.current);
        current.devices_stopped = !run;
        self.expect_again(&current);
        if !run {
            self.neighbours.clear();
        }
        self.set_known_neighbours(&current.config);
        drop(current);
        self.ask_neighbours();
    }

    /// Updates the receivers with the current flows and devices.
    fn expect_again(&self, current: &Current) {
        let Current { config, flows, first_stream, next_stream, devices_stopped } = current;
        // Flows that were accepted once are accepted again, even if some have been removed.
        if let Ok(expected) = self.expect(config, flows.iter(), *first_stream, *next_stream, !devices_stopped) {
            self.await_flows(expected);
        }
    }

    /// Sets the hardware addresses of gateways that are in the configuration.
    fn set_known_neighbours(&self, config: &Config) {
        for (n, interface) in config.interfaces.iter().enumerate() {
            for address in &interface.addresses {
                if let Some(mac) = address.gateway_mac {
                    self.neighbours.set(n, address.gateway, mac);
                }
            }
        }
    }

    /// Whether a flow has a tag with this name.
    pub(crate) fn has_tag(&self, name: &str) -> bool {
        lock(&self.current).flows.iter().any(|flow| flow.meters.tags().iter().any(|tag| tag.name == name))
    }

    /// Makes receivers count other flows. Restarts the measurement of rates, since flows have new numbers.
    fn await_flows(&self, expected: Vec<Expected>) {
        for (port, expected) in self.ports.iter().zip(expected) {
            *lock(&port.shared.expected) = Arc::new(expected);
        }
        lock(&self.samples).clear();
    }

    /// Stops all flows and captures. When it returns, frames in flight have arrived or are lost.
    fn stop_all(&self, flows: &[LiveFlow]) {
        let sends = flows.iter().any(|flow| flow.meters.state() != Transmission::Stopped);
        for (of, port) in self.ports.iter().enumerate() {
            let streams = flows.iter().map(|flow| flow.stream).collect();
            self.send_command(of, Command::Stop(streams));
            lock(&port.shared.capture).active = false;
        }
        self.await_senders();
        if sends {
            thread::sleep(SETTLE);
        }
    }

    /// The flows with these names; all flows if there are no names.
    fn chosen<'c>(current: &'c Current, names: &[String], path: &str) -> Result<Vec<&'c LiveFlow>, Vec<Problem>> {
        if names.is_empty() {
            return Ok(current.flows.iter().collect());
        }
        let by_name: HashMap<&String, &LiveFlow> =
            current.flows.iter().map(|flow| (&flow.planned.flow.name, flow)).collect();
        let find = |name: &String| {
            let found = by_name.get(name).copied();
            found.ok_or_else(|| vec![Problem::new(path, format!("there is no flow '{name}'"))])
        };
        names.iter().map(find).collect()
    }

    /// Starts flows from their first frame, or resumes paused flows.
    pub(crate) fn start_flows(&self, names: &[String], path: &str, resume: bool) -> Result<(), Vec<Problem>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let current = lock(&self.current);
            let chosen = Engine::chosen(&current, names, path)?;
            match self.ready(&current, &chosen) {
                Ok(makers) => {
                    self.start_ready(&current, chosen.into_iter().zip(makers).collect(), resume);
                    return Ok(());
                }
                Err(problem) if problem.wait && Instant::now() < end => {}
                Err(problem) => return Err(vec![problem.problem]),
            }
            // Releases the lock so that requests are repeated in the meantime.
            drop(current);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn start_ready(&self, current: &Current, chosen: Vec<ReadyFlow<'_>>, resume: bool) {
        let is_paused = |flow: &LiveFlow| resume && flow.meters.state() == Transmission::Paused;
        let paused: Vec<&LiveFlow> = chosen.iter().map(|(flow, _)| *flow).filter(|flow| is_paused(flow)).collect();
        let fresh: Vec<ReadyFlow<'_>> =
            chosen.into_iter().filter(|(flow, _)| !resume || flow.meters.state() == Transmission::Stopped).collect();
        let fresh_flows: Vec<&LiveFlow> = fresh.iter().map(|(flow, _)| *flow).collect();
        let were_sent = fresh_flows.iter().any(|flow| flow.meters.state() != Transmission::Stopped);
        self.group(current, &paused, Command::Resume);
        self.group(current, &fresh_flows, Command::Stop);
        self.await_senders();
        if were_sent {
            // Frames still in flight belong to the previous run.
            thread::sleep(SETTLE);
            lock(&self.samples).clear();
        }
        if !resume {
            if current.flows.iter().all(|flow| flow.meters.state() == Transmission::Stopped) {
                self.ports.iter().for_each(|port| port.shared.meters.clear());
            }
            fresh_flows.iter().for_each(|flow| flow.meters.clear());
        }
        let start = Instant::now() + LEAD;
        let mut by_port: Vec<Vec<ReadyFlow<'_>>> = self.ports.iter().map(|_| Vec::new()).collect();
        for (flow, makers) in fresh {
            by_port[current.config.ports[flow.planned.tx].of].push((flow, makers));
        }
        for (of, flows) in by_port.into_iter().enumerate().filter(|(_, flows)| !flows.is_empty()) {
            let rates: Vec<f64> = flows
                .iter()
                .map(|(flow, _)| flow.planned.rate.frames_per_second(flow.planned.flow.sizes.mean()))
                .collect();
            let departures =
                flows.into_iter().zip(sender::phases(&rates)).map(|((live, makers), phase_ps)| Departures {
                    meters: Arc::clone(&live.meters),
                    makers,
                    sizes: live.planned.flow.sizes.clone(),
                    rate: live.planned.rate,
                    duration: live.planned.flow.duration,
                    stream: live.stream,
                    phase_ps,
                });
            self.send_command(of, Command::Start(departures.collect(), start));
        }
        self.await_senders();
    }

    /// Builds the frames of flows with the hardware addresses of their next hops.
    fn ready(&self, current: &Current, flows: &[&LiveFlow]) -> Result<Vec<Vec<Arc<FrameMaker>>>, NotReady> {
        let of_sender = |live: &LiveFlow, sender: Option<Sender>| -> Result<Arc<FrameMaker>, NotReady> {
            let flow = &live.planned.flow;
            let mut maker = flow.maker.clone();
            let Some((interface, address)) = sender else { return Ok(Arc::new(maker)) };
            let of_interface = &current.config.interfaces[interface];
            maker.set_source_if_zero(of_interface.mac);
            if maker.wants_next_hop() {
                let not_ready = |wait, what| NotReady { wait, problem: Problem::new(&flow.path, what) };
                let address = address.map_or(of_interface.addresses.first(), |n| of_interface.addresses.get(n));
                let address = address.ok_or_else(|| {
                    not_ready(
                        false,
                        format!("'{}' has no address, so no next hop: write the destination", of_interface.name),
                    )
                })?;
                let mac = self.neighbours.get(interface, address.gateway).ok_or_else(|| {
                    not_ready(true, format!("the gateway {} of '{}' has not answered", address.gateway, address.name))
                })?;
                maker.set_next_hop(mac);
            }
            Ok(Arc::new(maker))
        };
        let of_flow = |live: &&LiveFlow| match &live.planned.senders[..] {
            [] => of_sender(live, None).map(|maker| vec![maker]),
            senders => senders.iter().map(|sender| of_sender(live, Some(*sender))).collect(),
        };
        flows.iter().map(of_flow).collect()
    }

    fn group(&self, current: &Current, flows: &[&LiveFlow], command: fn(Vec<u16>) -> Command) {
        for of in 0..self.ports.len() {
            let here = flows.iter().filter(|flow| current.config.ports[flow.planned.tx].of == of);
            let streams: Vec<u16> = here.map(|flow| flow.stream).collect();
            if !streams.is_empty() {
                self.send_command(of, command(streams));
            }
        }
    }

    /// Stops or pauses flows. Waits for frames in flight, so that they are counted.
    pub(crate) fn halt_flows(&self, names: &[String], path: &str, pause: bool) -> Result<(), Vec<Problem>> {
        let current = lock(&self.current);
        let chosen = Engine::chosen(&current, names, path)?;
        self.group(&current, &chosen, if pause { Command::Pause } else { Command::Stop });
        self.await_senders();
        drop(current);
        thread::sleep(SETTLE);
        Ok(())
    }

    /// Changes the sizes and rates of running flows.
    pub(crate) fn change_flows(&self, mut config: Config) {
        let mut current = lock(&self.current);
        let current = &mut *current;
        for planned in config.flows.drain(..) {
            let Some(live) = current.flows.iter_mut().find(|live| live.planned.flow.name == planned.flow.name) else {
                continue;
            };
            let of = current.config.ports[planned.tx].of;
            let (sizes, rate): (Sizes, Rate) = (planned.flow.sizes.clone(), planned.rate);
            let _ended = self.ports[of].commands.send(Command::Change(live.stream, sizes, rate));
            live.planned = planned;
        }
    }

    /// Starts or stops captures. A capture includes all frames that arrived before the stop.
    pub(crate) fn capture(&self, names: &[String], start: bool, path: &str) -> Result<(), Problem> {
        let current = lock(&self.current);
        let ports = self.named_ports(&current, names, path)?;
        if let Some(port) = ports.iter().find(|n| {
            !names.is_empty() && !lock(&self.ports[current.config.ports[**n].of].shared.capture).is_configured()
        }) {
            return Err(Problem::new(path, format!("no capture has the port '{}'", current.config.ports[*port].name)));
        }
        if !start {
            thread::sleep(SETTLE);
        }
        for n in ports {
            let mut capture = lock(&self.ports[current.config.ports[n].of].shared.capture);
            if !start {
                capture.active = false;
            } else if capture.is_configured() {
                capture.start(now_ns());
            }
        }
        Ok(())
    }

    fn named_ports(&self, current: &Current, names: &[String], path: &str) -> Result<Vec<usize>, Problem> {
        if names.is_empty() {
            return Ok((0..current.config.ports.len()).collect());
        }
        let find = |name: &String| {
            let found = current.config.ports.iter().position(|port| port.name == *name);
            found.ok_or_else(|| Problem::new(path, format!("there is no port '{name}'")))
        };
        names.iter().map(find).collect()
    }

    /// The capture of a port, as a file.
    pub(crate) fn captured(&self, name: &str, part: (usize, usize)) -> Result<Vec<u8>, Problem> {
        let current = lock(&self.current);
        let [port] = self.named_ports(&current, &[name.to_owned()], "port_name")?[..] else {
            return Err(Problem::new("port_name", "one port is wanted"));
        };
        let capture = lock(&self.ports[current.config.ports[port].of].shared.capture);
        if !capture.is_configured() {
            return Err(Problem::new("port_name", format!("no capture has the port '{name}'")));
        }
        Ok(capture.file(part))
    }

    /// Sets links up or down.
    pub(crate) fn set_links(&self, names: &[String], up: bool, path: &str) -> Result<(), Problem> {
        let current = lock(&self.current);
        for n in self.named_ports(&current, names, path)? {
            let port = &current.config.ports[n];
            lock(&self.ports[port.of].link)
                .set(up)
                .map_err(|why| Problem::new(path, format!("'{}': {why}", port.name)))?;
        }
        Ok(())
    }

    /// Sends requests for the addresses of gateways that have not answered.
    fn ask_neighbours(&self) {
        let current = lock(&self.current);
        for (n, interface) in current.config.interfaces.iter().enumerate().filter(|_| !current.devices_stopped) {
            for address in
                interface.addresses.iter().filter(|address| self.neighbours.get(n, address.gateway).is_none())
            {
                let frame = address_request_frame(interface, address.address, address.gateway);
                self.send_command(current.config.ports[interface.port].of, Command::Send(frame));
            }
        }
    }

    /// The hardware address of each gateway: interface, IP address of the gateway, and the hardware address if known.
    pub(crate) fn neighbours(
        &self,
        names: &[String],
        path: &str,
    ) -> Result<Vec<(String, IpAddr, Option<MacAddr>)>, Problem> {
        let current = lock(&self.current);
        let interfaces = &current.config.interfaces;
        if let Some(unknown) = names.iter().find(|name| !interfaces.iter().any(|interface| interface.name == **name)) {
            return Err(Problem::new(path, format!("no device has an interface '{unknown}'")));
        }
        let wanted =
            interfaces.iter().enumerate().filter(|(_, interface)| names.is_empty() || names.contains(&interface.name));
        let of_interface = |(n, interface): (usize, &Interface)| {
            let mut gateways: Vec<IpAddr> = interface.addresses.iter().map(|address| address.gateway).collect();
            gateways.sort_unstable();
            gateways.dedup();
            let name = interface.name.clone();
            gateways
                .into_iter()
                .map(move |gateway| (name.clone(), gateway, self.neighbours.get(n, gateway)))
                .collect::<Vec<_>>()
        };
        Ok(wanted.flat_map(of_interface).collect())
    }

    /// Whether `to` answers a ping from an address of a device.
    pub(crate) fn ping(&self, from: &str, to: IpAddr, identifier: u16, path: &str) -> Result<bool, Problem> {
        let (interface, number, own, of) = {
            let current = lock(&self.current);
            let found = current.config.interfaces.iter().enumerate().find_map(|(n, interface)| {
                let address = interface.addresses.iter().find(|address| address.name == from)?;
                Some((interface.clone(), n, address.clone()))
            });
            let Some((interface, n, address)) = found else {
                return Err(Problem::new(path, format!("no device has an address '{from}'")));
            };
            let of = current.config.ports[interface.port].of;
            (interface, n, address, of)
        };
        if own.address.is_ipv4() != to.is_ipv4() {
            return Err(Problem::new(path, format!("'{from}' has another IP version than {to}")));
        }
        let hop = if shares_prefix(own.address, to, own.prefix) { to } else { own.gateway };
        let awaited = &self.ports[of].shared.awaited;
        let tags = &interface.tags;
        let waiting = Awaited::Neighbour { interface: number, address: hop, tags: tags.clone() };
        lock(awaited).push(waiting.clone());
        self.send_command(of, Command::Send(address_request_frame(&interface, own.address, hop)));
        let mac = wait_for(ECHO, || self.neighbours.get(number, hop));
        lock(awaited).retain(|one| *one != waiting);
        let Some(mac) = mac else { return Ok(false) };
        let echo = |arrived| Awaited::Echo { from: own.address, to, identifier, tags: tags.clone(), arrived };
        lock(awaited).push(echo(false));
        self.send_command(of, Command::Send(echo_request(&interface, own.address, to, mac, identifier)));
        let arrived = wait_for(ECHO, || lock(awaited).contains(&echo(true)).then_some(()));
        lock(awaited).retain(|one| *one != echo(false) && *one != echo(true));
        Ok(arrived.is_some())
    }

    fn sample(&self) {
        let current = lock(&self.current);
        let of_flow = |flow: &LiveFlow| {
            let figures = flow.meters.figures();
            [figures.tx_frames, figures.tx_bytes, figures.rx_frames, figures.rx_bytes]
        };
        let of_port = |port: &Port| {
            let meters = &port.shared.meters;
            [&meters.tx_frames, &meters.tx_bytes, &meters.rx_frames, &meters.rx_bytes].map(|count| count.load(Relaxed))
        };
        let now = Samples {
            at: Instant::now(),
            flows: current.flows.iter().map(of_flow).collect(),
            ports: self.ports.iter().map(of_port).collect(),
        };
        let mut samples = lock(&self.samples);
        while samples.len() > 1 && samples[1].at.elapsed() > WINDOW {
            samples.pop_front();
        }
        samples.push_back(now);
    }

    /// Rates of all flows and of all ports.
    pub(crate) fn rates(&self) -> (Vec<Rates>, Vec<Rates>) {
        let samples = lock(&self.samples);
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else { return Default::default() };
        let seconds = last.at.duration_since(first.at).as_secs_f64();
        let rate = |(before, after): (&Sample, &Sample)| {
            std::array::from_fn(
                |n| if seconds > 0.0 { after[n].saturating_sub(before[n]) as f64 / seconds } else { 0.0 },
            )
        };
        let all = |before: &[Sample], after: &[Sample]| before.iter().zip(after).map(rate).collect();
        (all(&first.flows, &last.flows), all(&first.ports, &last.ports))
    }

    /// Calls `read` with the flows with these names that have metrics, and with their numbers.
    pub(crate) fn with_flows<T>(
        &self,
        names: &[String],
        path: &str,
        read: impl Fn(usize, &LiveFlow, &Config) -> T,
    ) -> Result<Vec<T>, Problem> {
        let current = lock(&self.current);
        let known: HashSet<&String> = current.flows.iter().map(|flow| &flow.planned.flow.name).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            return Err(Problem::new(path, format!("there is no flow '{name}'")));
        }
        let names: HashSet<&String> = names.iter().collect();
        let is_wanted = |flow: &LiveFlow| {
            flow.planned.flow.metrics.enable && (names.is_empty() || names.contains(&flow.planned.flow.name))
        };
        let wanted = current.flows.iter().enumerate().filter(|(_, flow)| is_wanted(flow));
        Ok(wanted.map(|(n, flow)| read(n, flow, &current.config)).collect())
    }

    /// Calls `read` with each port with these names: name and location, whether its link is up, whether it captures,
    /// whether it transmits, its counters and its number.
    pub(crate) fn with_ports<T>(
        &self,
        names: &[String],
        path: &str,
        read: impl Fn(&PortView<'_>) -> T,
    ) -> Result<Vec<T>, Problem> {
        let current = lock(&self.current);
        let of_port = |n: usize| {
            let port = &current.config.ports[n];
            let live = &self.ports[port.of];
            let sends = |flow: &LiveFlow| flow.planned.tx == n && flow.meters.state() == Transmission::Started;
            read(&PortView {
                of: port.of,
                name: &port.name,
                location: &port.location,
                line_bps: self.available[port.of].line_bps,
                is_up: lock(&live.link).is_up(),
                captures: lock(&live.shared.capture).active,
                transmits: current.flows.iter().any(sends),
                shared: &live.shared,
            })
        };
        Ok(self.named_ports(&current, names, path)?.into_iter().map(of_port).collect())
    }
}

/// The state of a port, for requests.
pub(crate) struct PortView<'p> {
    pub(crate) of: usize,
    pub(crate) name: &'p str,
    pub(crate) location: &'p str,
    pub(crate) line_bps: Option<u64>,
    pub(crate) is_up: bool,
    pub(crate) captures: bool,
    pub(crate) transmits: bool,
    pub(crate) shared: &'p Shared,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        for port in 0..self.ports.len() {
            self.send_command(port, Command::End);
        }
        for thread in self.ports.iter_mut().flat_map(|port| port.threads.drain(..)) {
            // The panic message has already been printed.
            let _panicked = thread.join();
        }
    }
}

impl Engine {
    /// Ends the thread in [`Engine::attend`].
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
    }
}

/// Flows and their meters, with stream numbers from `first_stream` on.
fn live_flows(flows: Vec<PlannedFlow>, first_stream: u16) -> Vec<LiveFlow> {
    let live = |(n, planned): (usize, PlannedFlow)| {
        let meters = Arc::new(FlowMeters::new(planned.flow.maker.tags.clone(), planned.flow.metrics.rx_name));
        LiveFlow { planned, meters, stream: first_stream.wrapping_add(n as u16) }
    };
    flows.into_iter().enumerate().map(live).collect()
}

fn wait_for<T>(longest: Duration, found: impl Fn() -> Option<T>) -> Option<T> {
    let end = Instant::now() + longest;
    loop {
        if let Some(found) = found() {
            return Some(found);
        }
        if Instant::now() > end {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn shares_prefix(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros() >= prefix.into(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros() >= prefix.into(),
        _ => false,
    }
}

/// The neighbour request for a hardware address.
fn address_request_frame(interface: &Interface, own: IpAddr, neighbour: IpAddr) -> Vec<u8> {
    let frame = address_request(&Requester { mac: interface.mac, address: own, vlans: [None; 2] }, neighbour);
    tagged(&frame, &interface.tags)
}

/// Adds the tags of a device to a frame.
fn tagged(frame: &[u8], tags: &[DeviceTag]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    let mut whole = addresses.to_vec();
    for tag in tags {
        whole.extend(tag.tpid.to_be_bytes());
        whole.extend(tag.tci.to_be_bytes());
    }
    whole.extend(rest);
    whole
}

fn echo_request(interface: &Interface, from: IpAddr, to: IpAddr, mac: MacAddr, identifier: u16) -> Vec<u8> {
    let (ip, icmp) = if from.is_ipv4() { ("ipv4", "icmp") } else { ("ipv6", "icmpv6") };
    let packet = json!([
        { "ethernet": { "dst": { "value": mac.to_string() }, "src": { "value": interface.mac.to_string() } } },
        { ip: { "src": { "value": from.to_string() }, "dst": { "value": to.to_string() } } },
        { icmp: { "echo": { "identifier": { "value": identifier }, "sequence_number": { "value": 1 } } } },
    ]);
    let nodes = Node::root(&packet).list().expect("it is a list");
    let maker = FrameMaker::read(&nodes, Payload::Bytes(true)).expect("an echo request is served");
    let mut frame = Vec::new();
    maker.make(0, 98, None, &mut frame);
    tagged(&frame, &interface.tags)
}

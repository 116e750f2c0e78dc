//! Diagnoses of a Linux receiver from files: recorded on this project's machine (`veth-6.18`, `virtio-6.18`), or
//! written in the formats of other drivers and kernels, with numbers that the tests check.

use measure::host::{Advice, HostReport, InterfaceSettings, InterfaceTexts, LossPoint, Settings, Snapshot, Texts};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A receiver at two instants.
struct Receiver {
    head: BTreeMap<String, String>,
    sections: BTreeMap<String, String>,
}

impl Receiver {
    fn open(name: &str) -> Receiver {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/receivers");
        let text = fs::read_to_string(folder.join(name)).expect("a fixture");
        let mut parts = text.split("### ");
        let lines = parts.next().expect("a head").lines();
        let word = |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let head = lines.filter_map(word).collect();
        let section = |part: &str| part.split_once('\n').map(|(name, text)| (name.trim().to_owned(), text.to_owned()));
        Receiver { head, sections: parts.filter_map(section).collect() }
    }

    fn head(&self, name: &str) -> Option<String> {
        self.head.get(name).cloned()
    }

    fn section(&self, name: &str) -> Option<String> {
        self.sections.get(name).cloned()
    }

    fn texts(&self, when: &str) -> Texts {
        let of = |name: &str| self.section(&format!("{when} {name}"));
        let statistics = of("statistics").unwrap_or_default();
        let statistics = statistics
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, value)| (name.to_owned(), value.parse().expect("a count")))
            .collect();
        Texts {
            softnet_stat: of("softnet_stat"),
            online_cpus: self.head("online"),
            snmp: of("snmp"),
            snmp6: of("snmp6"),
            udp: of("udp"),
            interrupts: of("interrupts"),
            softirqs: of("softirqs"),
            stat: of("stat"),
            interfaces: vec![InterfaceTexts {
                name: self.head("interface").expect("an interface"),
                device: self.head("device"),
                statistics,
                ethtool: of("ethtool"),
            }],
        }
    }

    fn settings(&self) -> Settings {
        let count = |name: &str| self.head(name).map(|value| value.parse().expect("a count"));
        let mut interface = InterfaceSettings { driver: self.head("driver"), ..InterfaceSettings::default() };
        for (name, read) in [
            ("ring", InterfaceSettings::read_ring as fn(&mut InterfaceSettings, &str)),
            ("channels", InterfaceSettings::read_channels),
            ("indirection", InterfaceSettings::read_indirection),
            ("hash", InterfaceSettings::read_udp_hash),
        ] {
            if let Some(text) = self.section(&format!("set {name}")) {
                read(&mut interface, &text);
            }
        }
        let mut settings = Settings {
            netdev_max_backlog: count("netdev_max_backlog"),
            netdev_budget: count("netdev_budget"),
            netdev_budget_usecs: count("netdev_budget_usecs"),
            rmem_default: count("rmem_default"),
            rmem_max: count("rmem_max"),
            cpus: measure::host::count_cpus(&self.head("online").expect("CPUs")),
            interfaces: BTreeMap::from([(self.head("interface").expect("an interface"), interface)]),
            ..Settings::default()
        };
        settings.read_owners(&self.section("set ss").unwrap_or_default());
        settings
    }

    fn seconds(&self) -> f64 {
        self.head("seconds").and_then(|text| text.parse().ok()).expect("a time")
    }

    fn report(&self) -> HostReport {
        self.report_of(&self.texts("before"), &self.texts("after"))
    }

    fn report_of(&self, before: &Texts, after: &Texts) -> HostReport {
        HostReport::between(&Snapshot::read(before), &Snapshot::read(after), self.seconds(), &self.settings())
    }
}

fn names(report: &HostReport) -> Vec<&'static str> {
    report.advice.iter().map(|advice| advice.name).collect()
}

#[track_caller]
fn advice<'a>(report: &'a HostReport, name: &str) -> &'a Advice {
    report
        .advice
        .iter()
        .find(|advice| advice.name == name)
        .unwrap_or_else(|| panic!("no {name} in {:?}", names(report)))
}

/// The case of docs/guide/receiver.md: one flow at 200 000 frames/s into a ring of 512, while the CPU has time left.
#[test]
fn small_ring_loses_bursts_while_its_cpu_is_idle() {
    let report = Receiver::open("i40e-4.15.txt").report();
    let of = &report.interfaces[0];
    assert_eq!((of.frames, of.bytes), (1_988_210, 1_988_210 * 64));
    assert!((of.fps - 198_821.0).abs() < 0.01 && (of.bps - 198_821.0 * 512.0).abs() < 1.0, "{of:?}");
    assert_eq!((report.lost.ring, report.lost.softnet, report.lost.interface), (Some(11_790), Some(0), Some(0)));
    assert_eq!(report.cpus[2].processed, Some(1_988_200), "a counter of 32 bits has wrapped");

    let ring = advice(&report, "ring-small");
    assert_eq!((ring.place, ring.frames, ring.interface.as_deref()), (LossPoint::Ring, Some(11_790), Some("eno1")));
    assert_eq!(ring.commands, ["ethtool -G eno1 rx 4096"]);
    assert!(ring.seen.contains("512 of 4096") && ring.seen.contains("CPU 2"), "{}", ring.seen);
    assert!(ring.seen.contains("idle for 60.00 %"), "{}", ring.seen);

    // That flow keeps one queue busy; RSS is set correctly, so only more flows help.
    let queue = advice(&report, "one-queue");
    assert!(queue.seen.starts_with("queue 2 of 4 took 99.99 %") && queue.seen.contains("one flow"), "{}", queue.seen);
    assert!(queue.commands[0].starts_with("netlathe gen"), "{queue:?}");
    // No host has the address, as in the reference.
    assert_eq!(advice(&report, "other-address").frames, Some(1_988_200));
    assert_eq!(names(&report), ["ring-small", "one-queue", "other-address"]);
    let interrupts = of.interrupts.as_ref().expect("named by the interface");
    assert_eq!(interrupts["i40e-eno1-TxRx-2"], 60_000);
}

#[test]
fn does_not_advise_enlarging_a_ring_of_maximum_size() {
    let report = Receiver::open("ixgbe-4.19.txt").report();
    assert_eq!(report.lost.ring, Some(3_000_000), "the largest of two names of the same frames");
    let ring = advice(&report, "ring-full");
    assert!(ring.seen.contains("4096 descriptors") && ring.seen.contains("CPU 5"), "{}", ring.seen);
    // All ports of two hosts use one queue, because the hash covers addresses only.
    let queue = advice(&report, "one-queue");
    assert!(queue.seen.contains("by addresses only"), "{}", queue.seen);
    for found in [ring, queue] {
        assert_eq!(found.commands, ["ethtool -N enp3s0f0 rx-flow-hash udp4 sdfn"]);
    }
    let budget = advice(&report, "budget");
    assert!(
        budget.seen.starts_with("CPUs stopped 4 000 times") && budget.seen.contains("netdev_budget is 300"),
        "{budget:?}"
    );
    assert_eq!(budget.commands, ["sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=16000"]);
    assert_eq!(advice(&report, "checksum").frames, Some(1_000));
    assert_eq!(report.lost.socket, Some(0), "wrong checksums are errors, but no full buffers");
    assert_eq!(names(&report), ["ring-full", "one-queue", "budget", "checksum"]);
}

#[test]
fn distinguishes_a_full_backlog_from_interface_drops() {
    let report = Receiver::open("ice-5.15.txt").report();
    assert_eq!((report.lost.ring, report.lost.softnet, report.lost.interface), (Some(0), Some(140_000), Some(0)));
    let cpus: Vec<usize> = report.cpus.iter().map(|cpu| cpu.cpu).collect();
    assert_eq!(cpus, [0, 1, 4, 5], "lines of softnet_stat bear the CPU's number");
    let backlog = advice(&report, "backlog");
    assert_eq!(backlog.frames, Some(140_000));
    assert!(
        backlog.seen.contains("that of CPU 4") && backlog.seen.contains("netdev_max_backlog is 1000"),
        "{backlog:?}"
    );
    assert!(backlog.seen.contains("200 of them to protect smaller flows"), "{backlog:?}");
    assert_eq!(backlog.commands, ["sysctl -w net.core.netdev_max_backlog=10000"], "its CPU was half idle");
    assert_eq!(names(&report), ["backlog"], "queues are even");
}

#[test]
fn advises_more_cpus_if_all_are_full() {
    let report = Receiver::open("mlx5-6.1.txt").report();
    assert_eq!(report.lost.ring, Some(5_000_000));
    assert!(report.cpus.iter().all(|cpu| cpu.busy_ratio.is_some_and(|busy| busy > 0.97)), "{:?}", report.cpus);
    assert!(report.cpus.iter().all(|cpu| cpu.interrupts_ratio.is_some_and(|share| (share - 0.97).abs() < 1e-9)));
    assert_eq!(names(&report), ["ring-full", "other-address"]);
    let ring = advice(&report, "ring-full");
    assert!(ring.seen.contains("every CPU") && ring.commands == ["perf top"], "{ring:?}");
    assert_eq!(report.interfaces[0].interrupts.as_ref().map(|found| found["mlx5_comp3@pci:0000:41:00.0"]), Some(500));
}

#[test]
fn gives_no_advice_without_losses() {
    let report = Receiver::open("igb-6.6.txt").report();
    assert_eq!(report.lost.places().map(|(_, lost)| lost), [Some(12), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    assert_eq!(names(&report), ["broken-frames"], "and its ring of 256 need not grow");
}

/// Recorded: 210 304 frames over veth, moved by RPS to CPU 1, to a Python reader with the default buffer.
#[test]
fn names_a_slow_reader() {
    let report = Receiver::open("veth-6.18.txt").report();
    assert_eq!((report.lost.wire, report.lost.ring), (None, None), "veth has neither, which is not zero");
    assert_eq!(report.lost.socket, Some(171_748));
    let sockets = report.sockets.as_ref().expect("sockets");
    assert_eq!(sockets.len(), 1);
    let socket = &sockets[0];
    assert_eq!((socket.local.as_str(), socket.drops, socket.buffer_bytes), ("0.0.0.0:9000", 171_748, Some(212_992)));
    assert_eq!(socket.program.as_deref(), Some("python3 (process 7428)"));
    assert!(report.cpus[1].received_rps.is_some_and(|times| times > 0) && report.cpus[0].processed == Some(0));
    let slow = advice(&report, "slow-reader");
    assert!(slow.seen.contains("171 748 frames (81.67 %)") && slow.seen.contains("python3"), "{}", slow.seen);
    assert!(slow.commands[0].starts_with("sysctl -w net.core.rmem_max=16777216"), "{slow:?}");
    assert_eq!(report.interfaces[0].queues, None, "veth's counters of queues do not count these frames");
    let json = serde_json::to_value(&report).expect("plain data");
    assert!(json["lost"]["ring"].is_null() && json["lost"]["socket"] == 171_748, "{json}");
    assert!(json["settings"]["netdev_max_backlog"].is_null(), "not to be seen in a network namespace");
    assert_eq!(json["advice"][0]["place"], "queue");
}

/// Recorded: an idle guest.
#[test]
fn gives_no_advice_to_an_idle_receiver() {
    let report = Receiver::open("virtio-6.18.txt").report();
    assert_eq!(names(&report), [""; 0]);
    let of = &report.interfaces[0];
    assert_eq!(of.ring.map(|ring| (ring.now, ring.max)), Some((256, Some(256))));
    assert!(of.interrupts.as_ref().is_some_and(|found| found.contains_key("virtio2-input.0")), "{of:?}");
    assert_eq!(report.lost.ring, None, "what finds no buffer here is dropped, and counted, by the host");
}

#[test]
fn unreadable_values_are_unknown() {
    let receiver = Receiver::open("i40e-4.15.txt");
    let (before, mut after) = (receiver.texts("before"), receiver.texts("after"));
    after.softnet_stat = Some("not a table".into());
    after.snmp = None;
    after.udp = None;
    after.interfaces[0].ethtool = None;
    let report = receiver.report_of(&before, &after);
    assert_eq!(
        (report.lost.ring, report.lost.softnet, report.lost.protocol, report.lost.socket),
        (None, None, None, None)
    );
    assert!(report.sockets.is_none() && report.interfaces[0].queues.is_none(), "{report:?}");
    assert_eq!(report.interfaces[0].frames, 1_988_210, "the rest is as it was");

    // A reloaded driver counts from zero, so the losses before are unknown.
    let report = receiver.report_of(&receiver.texts("after"), &receiver.texts("before"));
    assert_eq!((report.lost.ring, report.interfaces[0].frames), (None, 0));
    // Empty texts must not fail.
    let nothing = Texts::default();
    let report = receiver.report_of(&nothing, &nothing);
    assert!(report.interfaces.is_empty() && report.cpus.is_empty() && report.advice.is_empty());
}

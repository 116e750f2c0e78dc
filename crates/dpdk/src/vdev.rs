use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// The arguments of a virtual device with settings that serve us, under a name that is unique in
/// this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vdev(String);

// Beyond those that people use: `dpdk:net_null0` may be a port beside one of ours.
static NUMBER: AtomicU32 = AtomicU32::new(1000);

fn unique(driver: &str) -> String {
    format!("{driver}{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

impl Vdev {
    /// The interface through packet sockets, for frames of up to `mtu` + 18 bytes, with so many queues
    /// each way. One receives whatever the interface's queues get; several share it by flow.
    ///
    /// Rings of at least 5120 frames each way (10 ms at 512 kpps); sent frames pass the interface's
    /// queueing discipline by. The driver locks its rings in memory: a user without that privilege,
    /// as in a user namespace, gets rings that leave room for a second port within RLIMIT_MEMLOCK
    /// (768 frames each way of MTU 1500 at the usual 8 MiB).
    ///
    /// Limits of DPDK's driver, all versions: a received frame longer than the slots is cut short
    /// silently (GSO super-frames: turn offloads off); IP fragments arrive reassembled, since its
    /// sockets are in a fanout group with PACKET_FANOUT_FLAG_DEFRAG; two ports on one interface in
    /// one process share what arrives; frames that Linux itself sends on the interface are received too.
    #[must_use]
    pub fn af_packet(interface: &str, mtu: u16, queues: u16) -> Vdev {
        let most = lockable().map(|most| most / u64::from(queues.max(1)));
        let (frame, block, count) = af_packet_ring(mtu, most);
        let pairs = if queues > 1 { format!("qpairs={queues},") } else { String::new() };
        Vdev(format!(
            "{},iface={interface},{pairs}qdisc_bypass=1,blocksz={block},framesz={frame},framecnt={count}",
            unique("net_af_packet")
        ))
    }

    /// What a pool's buffers need, in bytes, to receive from [`af_packet`](Vdev::af_packet): the
    /// driver refuses smaller ones, whatever the MTU.
    #[must_use]
    pub fn af_packet_data_room(mtu: u16) -> u16 {
        // The slot less the header that the driver subtracts (TPACKET2_HDRLEN − sizeof(sockaddr_ll)).
        let (frame, _, _) = af_packet_ring(mtu, None);
        (frame - 32) as u16
    }

    /// The interface's first `queues` queues through XDP sockets. What arrives on others is not seen.
    ///
    /// It needs root outside of any user namespace. The buffers that it receives into are those of
    /// the pool, which must therefore fit a page, headers included: 3700 B of room start, 3800 B do
    /// not. veth refuses XDP above an MTU of about 3500 at its peer. Its link has to be up.
    ///
    /// Busy polling is off: on veth it was measured to make no difference (1.30 Mpps either way).
    #[must_use]
    pub fn af_xdp(interface: &str, queues: u16) -> Vdev {
        Vdev(format!("{},iface={interface},start_queue=0,queue_count={queues},busy_budget=0", unique("net_af_xdp")))
    }

    /// What a pool's buffers need, in bytes, to receive from [`af_xdp`](Vdev::af_xdp): the kernel
    /// keeps 256 B of each for itself. `None` for an MTU that XDP cannot carry.
    #[must_use]
    pub fn af_xdp_data_room(mtu: u16) -> Option<u16> {
        let needed = (u32::from(mtu) + 18 + 256).max(2048);
        (needed <= 3700).then_some(needed as u16)
    }

    /// A TAP device of that name, made by DPDK and gone with the port.
    #[must_use]
    pub fn tap(name: &str) -> Vdev {
        Vdev(format!("{},iface={name}", unique("net_tap")))
    }

    /// A port that swallows what it is sent and receives nothing.
    #[must_use]
    pub fn null() -> Vdev {
        Vdev(format!("{},no-rx=1", unique("net_null")))
    }

    /// A port that receives what it is sent: a ring of 1024 frames per queue.
    #[must_use]
    pub fn ring() -> Vdev {
        Vdev(unique("net_ring"))
    }

    /// A name for a ring of ours.
    pub(crate) fn ring_name() -> String {
        unique("netlathe")
    }

    /// The whole text, as `--vdev` takes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Vdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Vdev {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// What a slot is made for at most: a buffer must hold it, and DPDK's hold 65 407 B. Of the usual
/// interfaces only `lo` has more.
const MOST_MTU: u32 = 64_000;

/// Slot, block and number of slots of each of the two rings, given how many bytes both may have.
///
/// A slot holds the kernel's header (up to 80 B), Ethernet's and a tag. The driver takes slots to be
/// contiguous across blocks, so a block must be a whole number of them, and of pages.
fn af_packet_ring(mtu: u16, most: Option<u64>) -> (u32, u32, u32) {
    let needed = u32::from(mtu).min(MOST_MTU) + 14 + 4 + 80;
    let frame = needed.max(2048).next_multiple_of(1024);
    let per_block = if frame.is_multiple_of(2048) { 32 } else { 16 };
    let block = frame * per_block;
    let wanted = 5120_u32.div_ceil(per_block);
    let blocks = match most {
        Some(most) => wanted.min((most / 2 / u64::from(block)).min(u64::from(wanted)) as u32).max(1),
        None => wanted,
    };
    (frame, block, blocks * per_block)
}

/// How many bytes one port may lock; `None` when there is no limit.
fn lockable() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Only who has CAP_IPC_LOCK in the first user namespace may lock what he likes: root, but not that of most
    // containers.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let first_namespace = map.split_whitespace().eq(["0", "0", "4294967295"]);
    if first_namespace && may_lock(&status) {
        return None;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is written.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if rc < 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let locked_kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmLck:")?.trim().strip_suffix("kB")?.trim().parse().ok())
        .unwrap_or(0);
    // Two ports, and something for the rest of the process.
    let left = limit.rlim_cur.saturating_sub(locked_kib * 1024);
    Some(left.min(limit.rlim_cur / 8 * 3))
}

/// Whether a process has CAP_IPC_LOCK in its user namespace, by its `/proc/PID/status`.
fn may_lock(status: &str) -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.is_some_and(|capabilities| capabilities & 1 << CAP_IPC_LOCK != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_lock_is_told_by_capabilities() {
        // Root, root of a container as Docker makes it, and a user.
        for (mask, may) in [("000001ffffffffff", true), ("00000000a80425fb", false), ("0000000000000000", false)] {
            assert_eq!(may_lock(&format!("Name:\tnetlathe\nCapEff:\t{mask}\n")), may, "{mask}");
        }
        assert!(!may_lock(""));
    }

    #[test]
    fn slots_fill_blocks_exactly_at_every_mtu() {
        for mtu in 68..=u16::MAX {
            let (frame, block, count) = af_packet_ring(mtu, None);
            assert!(frame >= u32::from(mtu).min(MOST_MTU) + 98 && Vdev::af_packet_data_room(mtu) <= 65_407, "{mtu}");
            assert!(frame.is_multiple_of(16), "{mtu}");
            assert!(block.is_multiple_of(4096) && block.is_multiple_of(frame), "{mtu}");
            assert!(count >= 5000 && count.is_multiple_of(block / frame), "{mtu}");
            let (_, _, few) = af_packet_ring(mtu, Some(3 << 20));
            let bytes = u64::from(few) * u64::from(frame) * 2;
            assert!(
                few.is_multiple_of(block / frame) && few > 0 && (bytes <= 3 << 20 || few == block / frame),
                "{mtu}"
            );
        }
        assert_eq!(af_packet_ring(1500, Some(3 << 20)).2, 768);
    }

    #[test]
    fn arguments_and_names() {
        let vdev = Vdev::af_packet("veth0", 1500, 1);
        // How many slots there are depends on what this user may lock.
        assert!(vdev.as_str().contains(",iface=veth0,qdisc_bypass=1,blocksz=65536,framesz=2048,framecnt="), "{vdev}");
        assert!(Vdev::af_packet("v", 9000, 1).as_str().contains(",blocksz=147456,framesz=9216,framecnt="));
        assert_eq!((af_packet_ring(1500, None).2, af_packet_ring(9000, None).2), (5120, 5120));
        assert_eq!(Vdev::af_packet_data_room(1500), 2016);
        assert_eq!(Vdev::af_xdp_data_room(1500), Some(2048));
        assert_eq!((Vdev::af_xdp_data_room(3426), Vdev::af_xdp_data_room(3427)), (Some(3700), None));
        assert_ne!(Vdev::ring(), Vdev::ring());
        assert!(Vdev::af_xdp("v", 1).as_str().starts_with("net_af_xdp"));
        assert!(Vdev::tap("t0").as_str().ends_with(",iface=t0"));
    }
}

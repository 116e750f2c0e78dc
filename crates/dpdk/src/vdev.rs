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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_names() {
        assert_eq!(Vdev::af_xdp_data_room(1500), Some(2048));
        assert_eq!((Vdev::af_xdp_data_room(3426), Vdev::af_xdp_data_room(3427)), (Some(3700), None));
        assert_ne!(Vdev::ring(), Vdev::ring());
        assert!(Vdev::af_xdp("v", 1).as_str().starts_with("net_af_xdp"));
        assert!(Vdev::tap("t0").as_str().ends_with(",iface=t0"));
    }
}

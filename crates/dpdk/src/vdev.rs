use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Arguments of a virtual device with suitable settings, under a name that is unique in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vdev(String);

// Starts above the numbers that users choose, because `dpdk:net_null0` may be open at the same time as our ports.
static NUMBER: AtomicU32 = AtomicU32::new(1000);

fn unique(driver: &str) -> String {
    format!("{driver}{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

impl Vdev {
    /// The first `queues` queues of an interface through XDP sockets. Frames on other queues are not received.
    ///
    /// This needs root outside any user namespace. The driver receives into the pool's buffers, which must therefore
    /// fit a page including headers: 3700 B of room work, 3800 B do not. veth refuses XDP if its peer's MTU is above
    /// about 3500 B. The link must be up.
    ///
    /// Busy polling is off: on veth it made no measurable difference (1.30 Mpps either way).
    #[must_use]
    pub fn af_xdp(interface: &str, queues: u16) -> Vdev {
        Vdev(format!("{},iface={interface},start_queue=0,queue_count={queues},busy_budget=0", unique("net_af_xdp")))
    }

    /// The buffer size in bytes that a pool needs for [`af_xdp`](Vdev::af_xdp). The kernel reserves 256 B of each
    /// buffer. `None` if XDP cannot carry this MTU.
    #[must_use]
    pub fn af_xdp_data_room(mtu: u16) -> Option<u16> {
        let needed = (u32::from(mtu) + 18 + 256).max(2048);
        (needed <= 3700).then_some(needed as u16)
    }

    /// A TAP device with this name. DPDK creates it and removes it with the port.
    #[must_use]
    pub fn tap(name: &str) -> Vdev {
        Vdev(format!("{},iface={name}", unique("net_tap")))
    }

    /// A port that discards frames sent to it and receives nothing.
    #[must_use]
    pub fn null() -> Vdev {
        Vdev(format!("{},no-rx=1", unique("net_null")))
    }

    /// A port that receives the frames sent to it, through a ring of 1024 frames per queue.
    #[must_use]
    pub fn ring() -> Vdev {
        Vdev(unique("net_ring"))
    }

    /// A name for one of our rings.
    pub(crate) fn ring_name() -> String {
        unique("netlathe")
    }

    /// The full text, as `--vdev` takes it.
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

//! Settings that the kernel programs read while they run.

use std::time::Duration;

/// The part of a packet's path to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the send call to the driver.
    Tx = 1,
    /// From the receiver's queue to the return of the receive call.
    Rx = 2,
    /// Both. One record covers both if both ends are on this machine.
    Both = 3,
}

/// Which frames are traced. All given conditions must hold.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Either port.
    pub port: Option<u16>,
    /// One end is this process or one that it starts.
    pub pid: Option<u32>,
    /// One end is a process that we started: see [`Kernel::adopt`].
    pub family: bool,
    /// One end is a thread of this name.
    pub comm: Option<String>,
    /// The part of the path.
    pub direction: Direction,
}

/// `struct settings` of `bpf/maps.h`, as eight-byte words.
pub(crate) type Words = [u64; 7];

/// Which new frames are traced, and whether they are handed over.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// End of the tracing of new frames, in ns of `CLOCK_MONOTONIC`. The kernel programs enforce it even if this
    /// process wakes late.
    pub(crate) until: u64,
    /// Whether records are withheld.
    pub(crate) mute: bool,
    /// System calls are not traced.
    pub(crate) few: bool,
    /// How often the probes were detached.
    pub(crate) window: u32,
    pub(crate) filter: Filter,
}

impl Settings {
    /// Traces every frame and hands nothing over.
    pub(crate) fn new(few: bool) -> Settings {
        Settings { until: u64::MAX, mute: true, few, window: 0, filter: Filter::default() }
    }

    /// Whether an end of the frame must belong to the family of processes.
    pub(crate) fn by_family(&self) -> bool {
        self.filter.family || self.filter.pid.is_some()
    }

    pub(crate) fn words(&self) -> Words {
        let mut name = [0; 16];
        let comm = self.filter.comm.as_deref().unwrap_or_default().as_bytes();
        let length = comm.len().min(15);
        name[..length].copy_from_slice(&comm[..length]);
        let half = |at: usize| u64::from_ne_bytes(name[at..at + 8].try_into().expect("eight bytes"));
        [
            self.until,
            pair(u32::from(self.mute), u32::from(self.filter.port.unwrap_or(0))),
            pair(self.filter.direction as u32, u32::from(self.by_family())),
            pair(u32::from(self.filter.comm.is_some()), u32::from(self.few)),
            half(0),
            half(8),
            pair(self.window, 0),
        ]
    }
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { port: None, pid: None, family: false, comm: None, direction: Direction::Both }
    }
}

/// The time `time` from now, in ns of `CLOCK_MONOTONIC`. If the clock cannot be read, a time that has passed.
pub(crate) fn monotonic_in(time: Duration) -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from((now + time).as_nanos()).unwrap_or(u64::MAX)
}

/// Two words of four bytes, the first at the lower address.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b] = [first.to_ne_bytes(), second.to_ne_bytes()];
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_as_the_kernel_reads_them() {
        let filter = Filter { port: Some(443), comm: Some("nginx".into()), ..Filter::default() };
        let settings = Settings { mute: false, window: 7, filter, ..Settings::new(true) };
        let bytes: Vec<u8> = settings.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let named = [word(8), word(12), word(16), word(20), word(24), word(28), word(48)];
        assert_eq!(named, [0, 443, Direction::Both as u32, 0, 1, 1, 7]);
        assert_eq!(&bytes[32..48], b"nginx\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&bytes[..8], &[0xff; 8]);
    }
}

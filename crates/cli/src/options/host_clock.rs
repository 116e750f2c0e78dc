//! The clock of this host. Tests can make it differ from the clocks of other processes.

use super::start_at::unix_kernel_ns;
use crate::output::Failure;
use units::{PS_PER_NS, Span};

/// CLOCK_REALTIME plus the offset in [`HostClock::VARIABLE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    /// Added to the kernel's clock, in ns.
    pub(crate) injected_ns: i64,
}

impl HostClock {
    /// Environment variable for tests that simulate several hosts on one machine: a time such as `1.5ms` or `-40us`
    /// that this process adds to its clock, in `clock`, `--start-at` and the starts of reports.
    pub(crate) const VARIABLE: &str = "NETLATHE_CLOCK_OFFSET";

    /// Reads the offset from the environment.
    pub(crate) fn new() -> Result<Self, Failure> {
        let Some(text) = std::env::var_os(Self::VARIABLE).filter(|text| !text.is_empty()) else {
            return Ok(HostClock { injected_ns: 0 });
        };
        let text = text.to_string_lossy();
        let (sign, size) = match text.strip_prefix('-') {
            Some(size) => (-1, size),
            None => (1, text.strip_prefix('+').unwrap_or(&text)),
        };
        let size: Span = size.parse().map_err(|error| Failure::new(format!("{}: {error}", Self::VARIABLE)))?;
        Ok(HostClock { injected_ns: sign * (size.as_ps() / PS_PER_NS).cast_signed() })
    }

    /// Returns the current UNIX time in ns.
    pub(crate) fn now_ns(self) -> u64 {
        unix_kernel_ns().saturating_add_signed(self.injected_ns)
    }

    /// Converts a kernel stamp to this clock.
    #[cfg(feature = "live")]
    pub(crate) fn of_kernel_ns(self, ns: i64) -> i64 {
        ns.saturating_add(self.injected_ns)
    }

    /// Converts an instant of this clock to kernel time.
    #[cfg(feature = "live")]
    pub(crate) fn to_kernel_ns(self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.injected_ns.saturating_neg())
    }
}

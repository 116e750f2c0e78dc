use crate::error::errno_text;
use crate::nic::{self, Nic, pci_address};
use crate::{Error, Result};
use dpdk_sys as sys;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The source of EAL's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages if enough are free, otherwise ordinary pages.
    #[default]
    Auto,
    /// Huge pages. The start fails without them.
    Always,
    /// Ordinary pages, which work everywhere. Software ports are equally fast with them; physical NICs need huge pages
    /// or an IOMMU.
    Never,
}

/// The part of DPDK's log that is echoed to stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing. Errors still include DPDK's messages.
    #[default]
    Quiet,
    /// DPDK's default messages.
    Normal,
    /// All messages of all components.
    Debug,
}

/// Settings for starting DPDK.
#[derive(Clone, Debug)]
pub struct EalConfig {
    program: String,
    hugepages: HugePages,
    memory_mib: u32,
    devices: Vec<String>,
    pci: Vec<String>,
    log: LogLevel,
}

impl Default for EalConfig {
    fn default() -> Self {
        EalConfig::new("netlathe")
    }
}

impl EalConfig {
    /// The defaults: 256 MiB, huge pages if available, no devices, no log.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        EalConfig {
            program: program.into(),
            hugepages: HugePages::Auto,
            memory_mib: 256,
            devices: Vec::new(),
            pci: Vec::new(),
            log: LogLevel::Quiet,
        }
    }

    /// Sets the source of memory.
    #[must_use]
    pub fn hugepages(mut self, hugepages: HugePages) -> Self {
        self.hugepages = hugepages;
        self
    }

    /// Sets the memory for all pools and rings, in MiB. Ordinary pages are allocated only when touched.
    #[must_use]
    pub fn memory_mib(mut self, memory: u32) -> Self {
        self.memory_mib = memory;
        self
    }

    /// Adds a virtual device that EAL creates at start. [`Port::open`](crate::Port::open) can also create one later.
    #[must_use]
    pub fn vdev(mut self, arguments: impl Into<String>) -> Self {
        self.devices.push(arguments.into());
        self
    }

    /// Allows a PCI device (`0000:03:00.1` or `03:00.1`), once or several times. If none is allowed, the PCI bus is not
    /// scanned.
    #[must_use]
    pub fn pci(mut self, address: impl Into<String>) -> Self {
        let address = address.into();
        let address = pci_address(&address).unwrap_or(address);
        if !self.pci.contains(&address) {
            self.pci.push(address);
        }
        self
    }

    /// Sets the part of DPDK's log that is echoed.
    #[must_use]
    pub fn log(mut self, level: LogLevel) -> Self {
        self.log = level;
        self
    }

    /// EAL's arguments. `process` is the process ID, `cpu` the CPU of EAL's main thread during the start, and `huge`
    /// whether enough huge pages are free. The result depends only on the arguments and the settings.
    #[must_use]
    pub fn argv(&self, process: u32, cpu: usize, huge: bool) -> Vec<String> {
        let mut argv = vec![self.program.clone()];
        let mut add = |words: &[&str]| argv.extend(words.iter().map(|w| (*w).to_owned()));
        // One lcore: the workers are our threads and register later, so EAL starts none of its own. The lcore is always
        // number 0, because a CPU number may exceed RTE_MAX_LCORE.
        add(&["--lcores", &format!("0@{cpu}")]);
        let huge = match self.hugepages {
            HugePages::Auto => huge,
            HugePages::Always => true,
            HugePages::Never => false,
        };
        // Share nothing with other processes and leave nothing on disk, so that any number of processes can run at once
        // and none affects the next. Without huge pages memory is private anyway, and DPDK refuses --in-memory with
        // --no-huge.
        add(&[if huge { "--in-memory" } else { "--no-huge" }]);
        add(&["-m", &self.memory_mib.to_string()]);
        add(&["--no-shconf", "--no-telemetry"]);
        add(&["--file-prefix", &format!("netlathe-{process}")]);
        // Virtual addresses need no privilege. With NICs, the IOMMU translates them.
        if self.pci.is_empty() {
            add(&["--no-pci", "--iova-mode=va"]);
        }
        for address in &self.pci {
            add(&["-a", address]);
        }
        for device in &self.devices {
            add(&["--vdev", device]);
        }
        if self.log == LogLevel::Debug {
            add(&["--log-level=*:debug"]);
        }
        argv
    }
}

/// The running DPDK instance. It runs until the process ends.
#[derive(Debug)]
pub struct Eal {
    argv: Vec<String>,
    memory_mib: u32,
    /// The NICs of this process, until it ends.
    nics: Vec<Nic>,
    // Serialises attach, configure and detach. Holds the names of the open ports.
    control: Mutex<HashSet<String>>,
}

static STARTED: AtomicBool = AtomicBool::new(false);
static EAL: OnceLock<Eal> = OnceLock::new();

impl Eal {
    /// Starts DPDK. EAL pins the calling thread during the start; its CPU affinity is then restored. Threads started
    /// later inherit it. DPDK's own helper threads are not affected.
    ///
    /// Unless logging is on, no thread writes to stdout or stderr during the start, because DPDK prints its usage there
    /// when it refuses an argument.
    ///
    /// # Errors
    /// [`Error::EalTwice`] at the second call in a process, even if the first one failed; [`Error::NoNic`],
    /// [`Error::NicOfLinux`] and [`Error::NicInUse`] for the allowed PCI devices; [`Error::EalInit`] with DPDK's
    /// reason; [`Error::Nul`].
    pub fn init(config: &EalConfig) -> Result<&'static Eal> {
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(Error::EalTwice);
        }
        // Event devices on other buses are allowed the same way.
        let on_pci = config.pci.iter().filter_map(|address| pci_address(address));
        let nics = on_pci.map(|address| Nic::take(&address)).collect::<Result<Vec<Nic>>>()?;
        let before = affinity();
        let cpu = before.as_ref().and_then(first_cpu).unwrap_or(0);
        let argv = config.argv(std::process::id(), cpu, huge_pages_free_mib() >= u64::from(config.memory_mib));
        let mut pointers = Vec::with_capacity(argv.len() + 1);
        for word in &argv {
            let word = CString::new(word.as_str()).map_err(|_| Error::Nul { what: "an argument of DPDK" })?;
            // Never freed: EAL keeps pointers to the arguments and may change them.
            pointers.push(word.into_raw());
        }
        let count = pointers.len() as c_int;
        pointers.push(std::ptr::null_mut());
        let pointers: &'static mut [*mut c_char] = Vec::leak(pointers);

        crate::clock::calibration_begins();
        let echo = c_int::from(config.log != LogLevel::Quiet);
        // SAFETY: takes a number; called once, before EAL has threads.
        let captured = unsafe { sys::shim_log_capture(echo) };
        let mark = log_mark();
        // SAFETY: the first and only call, with `count` NUL-terminated, writable, never-freed strings followed by a
        // NULL.
        let rc = unsafe { sys::shim_eal_init(count, pointers.as_mut_ptr(), c_int::from(echo == 0)) };
        if let Some(before) = &before {
            // SAFETY: the kernel returned this set; 0 is this thread.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), before) };
        }
        if rc < 0 {
            let log = if captured < 0 { String::new() } else { log_since(mark) };
            return Err(Error::EalInit { reason: reason(rc, config.memory_mib, &log), log });
        }
        // SAFETY: takes no arguments; the drivers are loaded, and none of them runs yet.
        unsafe { sys::shim_log_capture_xdp() };
        Ok(EAL.get_or_init(|| Eal { argv, memory_mib: config.memory_mib, nics, control: Mutex::new(HashSet::new()) }))
    }

    /// The running DPDK instance, if DPDK was started.
    #[must_use]
    pub fn running() -> Option<&'static Eal> {
        EAL.get()
    }

    /// The arguments that EAL was started with.
    #[must_use]
    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    /// DPDK's version, such as `DPDK 22.11.11`. Works before the start too.
    #[must_use]
    pub fn version() -> String {
        // SAFETY: takes no arguments and returns a static string.
        let text = unsafe { sys::shim_version() };
        // SAFETY: the string is NUL-terminated and static.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// Registers the calling thread with DPDK until the guard is dropped. A registered thread has a cache in each pool,
    /// which makes allocating and freeing frames several times faster. Unregistered threads can use frames and ports
    /// too.
    ///
    /// # Errors
    /// [`Error::Register`] if DPDK's thread limit (128) is reached.
    pub fn register_thread(&self) -> Result<WorkerGuard> {
        // SAFETY: EAL runs, and the shim does not change a thread that is already registered.
        let rc = unsafe { sys::shim_thread_register() };
        if rc < 0 {
            return Err(Error::Register { reason: errno_text(rc) });
        }
        Ok(WorkerGuard { ours: rc == 1, not_send: PhantomData })
    }

    /// Whether PCI NICs are allowed. NICs access the memory of the pools by DMA.
    pub(crate) fn has_nics(&self) -> bool {
        !self.nics.is_empty()
    }

    /// Checks that a NIC (`on_pci`) or another device can use the pools' memory.
    ///
    /// # Errors
    /// [`Error::HugePages`] for a NIC that has no IOMMU to translate the addresses of ordinary pages, and for XDP
    /// sockets beside a NIC: on ordinary pages, their driver needs a pool without gaps, which a NIC cannot use.
    pub(crate) fn check_memory(&self, device: &str, on_pci: bool) -> Result<()> {
        // SAFETY: takes no arguments; EAL runs.
        let huge = unsafe { sys::shim_has_huge_pages() } != 0;
        // SAFETY: takes no arguments; EAL runs.
        let translated = unsafe { sys::shim_addresses_are_virtual() } != 0;
        let translated = translated && !self.nics.iter().any(Nic::is_by_uio);
        let refused = |why| Err(Error::HugePages { device: device.to_owned(), why, needed: self.memory_mib });
        match (huge, on_pci) {
            (true, _) => Ok(()),
            (false, true) if !translated => refused("no IOMMU translates addresses for it"),
            (false, false) if self.has_nics() && device.starts_with("net_af_xdp") => {
                refused("XDP sockets beside a NIC")
            }
            (false, _) => Ok(()),
        }
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, HashSet<String>> {
        // A panic elsewhere leaves the set consistent.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a thread registered with DPDK until dropped. Has no effect on a thread that is already registered or that
/// started DPDK.
#[derive(Debug)]
pub struct WorkerGuard {
    ours: bool,
    not_send: PhantomData<*const ()>,
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        if self.ours {
            // SAFETY: this guard registered the thread, and a guard cannot move to another thread.
            unsafe { sys::shim_thread_unregister() };
        }
    }
}

/// The text of an errno, with a remedy where known.
fn reason(rc: c_int, memory_mib: u32, log: &str) -> String {
    if let Some(remedy) = nic::remedy(log) {
        return format!("it cannot use a NIC{remedy}");
    }
    let remedy = match -rc {
        libc::EMFILE => "; it needs about 30 open files: `ulimit -n 1024`".to_owned(),
        libc::ENOMEM => format!("; it needs a little more than {memory_mib} MiB: see `ulimit -v` and `free -m`"),
        _ => String::new(),
    };
    errno_text(rc) + &remedy
}

/// A position in DPDK's log.
pub(crate) fn log_mark() -> u64 {
    // SAFETY: only takes a lock.
    unsafe { sys::shim_log_written() }
}

/// The log since `mark`, in one line of at most about 600 characters. Keeps the last messages, because the cause is
/// near the end, followed only by clean-up.
pub(crate) fn log_since(mark: u64) -> String {
    const ROOM: u32 = 4096;
    let mut text = vec![0_u8; ROOM as usize];
    // SAFETY: `text` has room for ROOM bytes.
    let count = unsafe { sys::shim_log_since(mark, text.as_mut_ptr().cast(), ROOM) };
    text.truncate(count as usize);
    one_line(&String::from_utf8_lossy(&text))
}

fn one_line(text: &str) -> String {
    const MOST: usize = 600;
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines.dedup();
    let mut first = lines.len();
    let mut length = 0;
    while first > 0 && (length == 0 || length + lines[first - 1].len() < MOST) {
        first -= 1;
        length += lines[first].len() + 2;
    }
    lines[first..].join("; ")
}

fn affinity() -> Option<libc::cpu_set_t> {
    // SAFETY: a cpu_set_t is a plain array, for which all zeros is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the given size; 0 is this thread.
    let rc = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    (rc == 0).then_some(set)
}

fn first_cpu(set: &libc::cpu_set_t) -> Option<usize> {
    (0..libc::CPU_SETSIZE as usize).find(|cpu| {
        // SAFETY: the number is below CPU_SETSIZE.
        unsafe { libc::CPU_ISSET(*cpu, set) }
    })
}

/// Free huge pages of all sizes, in MiB. hugetlbfs need not be mounted, because with `--in-memory` EAL maps huge pages
/// anonymously.
fn huge_pages_free_mib() -> u64 {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    sizes
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let kib: u64 = path.file_name()?.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let free: u64 = std::fs::read_to_string(path.join("free_hugepages")).ok()?.trim().parse().ok()?;
            Some(kib * free / 1024)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_for_virtual_devices() {
        let argv = EalConfig::new("netlathe").argv(42, 3, false);
        assert_eq!(
            argv.join(" "),
            "netlathe --lcores 0@3 --no-huge -m 256 --no-shconf --no-telemetry --file-prefix netlathe-42 --no-pci --iova-mode=va"
        );
    }

    #[test]
    fn huge_pages_are_used_when_free_and_not_forbidden() {
        let config = EalConfig::new("n").memory_mib(64);
        let argv = |huge: HugePages, free| config.clone().hugepages(huge).argv(1, 0, free).join(" ");
        assert!(!argv(HugePages::Auto, true).contains("--no-huge"));
        assert!(argv(HugePages::Auto, false).contains("--no-huge -m 64"));
        assert!(argv(HugePages::Never, true).contains("--no-huge -m 64"));
        assert!(!argv(HugePages::Always, false).contains("--no-huge"));
    }

    #[test]
    fn pci_devices_are_allowed_by_name_and_the_bus_is_then_scanned() {
        let argv = EalConfig::new("n").pci("0000:03:00.0").pci("0000:03:00.1").argv(1, 0, true);
        assert_eq!(
            argv.join(" "),
            "n --lcores 0@0 --in-memory -m 256 --no-shconf --no-telemetry --file-prefix netlathe-1 \
             -a 0000:03:00.0 -a 0000:03:00.1"
        );
    }

    #[test]
    fn vdevs_and_debugging_come_last() {
        let config = EalConfig::new("n").vdev("net_null0,size=64").vdev("net_ring0").log(LogLevel::Debug);
        let argv = config.argv(1, 0, false);
        assert!(argv.join(" ").ends_with("--vdev net_null0,size=64 --vdev net_ring0 --log-level=*:debug"), "{argv:?}");
    }

    #[test]
    fn a_log_becomes_one_line_of_its_end() {
        assert_eq!(one_line("EAL: a\n\n  EAL: b\nEAL: b\n"), "EAL: a; EAL: b");
        let long = (0..100).map(|n| format!("line {n} of a long log\n")).collect::<String>();
        let line = one_line(&long);
        assert!(line.ends_with("line 99 of a long log") && line.len() <= 620, "{line}");
        assert_eq!(one_line(&"x".repeat(2000)).len(), 2000, "the last line is kept whole");
    }
}

//! Disks for tests. Each has its own folders, which are removed with it.

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) fn netlathe() -> Command {
    // Reset SIGHUP to its default. Under nohup it would be ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_netlathe")]).stdin(Stdio::null());
    command
}

/// Whether this machine permits mounts. Prints the reason if not.
pub(crate) fn can_mount() -> bool {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(cause) = device {
        println!("SKIP: /dev/fuse: {cause}");
        return false;
    }
    let root = rustix::process::geteuid().is_root();
    if !root && !has("fusermount3") {
        println!("SKIP: neither root nor fusermount3");
        return false;
    }
    true
}

/// Whether a program is installed. Prints a message if not.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        println!("SKIP: there is no {program}");
    }
    found
}

/// A disk that is mounted until the test ends.
pub(crate) struct Disk {
    folder: TempDir,
    child: Option<Child>,
}

impl Disk {
    /// Mounts a folder with these options.
    pub(crate) fn mounted(options: &[&str]) -> Self {
        let mut disk = Self::new();
        disk.mount(options);
        disk
    }

    /// Mounts a folder that is on another disk of the test.
    pub(crate) fn mounted_on(below: &Disk, options: &[&str]) -> Self {
        let mut disk = Self::new();
        fs::remove_dir(disk.backing()).expect("it is empty");
        std::os::unix::fs::symlink(below.path(), disk.backing()).expect("nothing is there");
        disk.mount(options);
        disk
    }

    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["backing", "mount", "mirror"] {
            fs::create_dir(folder.path().join(name)).expect("it is empty");
        }
        Disk { folder, child: None }
    }

    /// Mounts the disk, also after it was unmounted.
    pub(crate) fn mount(&mut self, options: &[&str]) {
        self.mount_by(netlathe(), options);
    }

    /// Mounts a disk with a limit of `files` open files. Real root may raise the limit.
    pub(crate) fn limited(files: u32, options: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).stdin(Stdio::null());
        let mut disk = Self::new();
        disk.mount_by(command, options);
        disk
    }

    /// Mounts a disk whose netlathe reports ready at a socket.
    pub(crate) fn notifying(socket: &Path) -> Self {
        let mut command = netlathe();
        command.env("NOTIFY_SOCKET", socket);
        let mut disk = Self::new();
        disk.mount_by(command, &["-q"]);
        disk
    }

    /// Mounts a backing directory with the page cache. The directory holds a file of `length` bytes. A file size limit
    /// of `blocks` applies, in blocks of 512 or 1024 bytes depending on the shell.
    pub(crate) fn short(blocks: u32, file: &str, length: u64) -> Self {
        let mut disk = Self::new();
        fs::File::create(disk.backing().join(file)).and_then(|file| file.set_len(length)).expect("there is room");
        let mut command = Command::new("sh");
        let script = format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).stdin(Stdio::null());
        disk.mount_by(command, &["--cached"]);
        disk
    }

    fn mount_by(&mut self, mut command: Command, options: &[&str]) {
        command.arg("disk").arg("--backing").arg(self.backing()).arg("--mount").arg(self.path());
        command.args(options).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let start = Instant::now();
        while !self.is_mounted() {
            if child.try_wait().expect("it is ours").is_some() || start.elapsed() > Duration::from_secs(30) {
                let mut said = String::new();
                let _ = child.kill();
                child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
                panic!("it did not mount: {said}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child = Some(child);
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    pub(crate) fn backing(&self) -> PathBuf {
        self.folder.path().join("backing")
    }

    pub(crate) fn mirror(&self) -> PathBuf {
        self.folder.path().join("mirror")
    }

    /// Lets other users find the mount point.
    pub(crate) fn let_all_in(&self) {
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    pub(crate) fn is_mounted(&self) -> bool {
        is_mounted(&self.path())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Waits until the serving process ends.
    pub(crate) fn wait(&mut self) -> Output {
        self.child.take().expect("it runs").wait_with_output().expect("it is ours")
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Ends the disk as Ctrl-C does, and returns its report.
    pub(crate) fn report(mut self) -> Value {
        self.signal(rustix::process::Signal::INT);
        let output = self.wait();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!self.is_mounted());
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object on stdout");
        assert_eq!((&report["schema"], &report["command"]), (&2.into(), &"disk".into()));
        report
    }

    /// Runs `netlathe disk --unmount` on the mount point.
    pub(crate) fn unmount(&self) -> Output {
        netlathe().args(["disk", "--unmount"]).arg(self.path()).output().expect("the binary runs")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        while self.is_mounted() && self.unmount().status.success() {}
    }
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // Other mounts may have names that are not UTF-8.
    let table = fs::read("/proc/self/mountinfo").expect("it can be read");
    String::from_utf8_lossy(&table)
        .lines()
        .any(|line| line.split(' ').nth(4) == path.to_str() && line.contains("fuse.netlathe"))
}

/// A figure of a report.
pub(crate) fn figure(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} in {report}"))
}

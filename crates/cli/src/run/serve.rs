use crate::options::ctl::{default_socket, runtime_folder};
use crate::options::host_clock::HostClock;
use crate::options::serve::Serve;
use crate::output::{self, Failure};
use crate::plan::client_scenario::{file_in_value, permit, start_of};
use crate::run::child_processes;
use crate::run::readiness;
use crate::run::stop::Stop;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use service::{Address, Listener, SupervisorOptions, Token};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// A file that exists as long as the service.
struct Made(Option<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // It may already have been removed, which is fine.
            let _gone = fs::remove_file(path);
        }
    }
}

/// Opens the socket of `--listen`.
pub(crate) fn bind(address: &Address) -> Result<Listener, Failure> {
    Listener::bind(address).map_err(|cause| {
        let remedy = match cause.kind() {
            io::ErrorKind::AddrInUse => {
                "another service uses it, or a file is there: end that, or give --listen another address"
            }
            io::ErrorKind::PermissionDenied => "give --listen a socket in a folder of yours, or a port above 1023",
            _ => "give --listen another address",
        };
        Failure::new(format!("cannot listen on {address}: {cause}: {remedy}"))
    })
}

/// Removes token files that killed services of this user left behind. The number in the name is the process ID of the
/// service.
fn remove_dead_tokens() {
    let us = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(runtime_folder()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("netlathe-")?.strip_suffix(".token"));
        let Some(process) = number.and_then(|number| Pid::from_raw(number.parse().ok()?)) else { continue };
        let is_ours = || entry.metadata().is_ok_and(|found| found.is_file() && found.uid() == us);
        if test_kill_process(process) == Err(Errno::SRCH) && is_ours() {
            // A file that cannot be removed does no harm.
            let _removed = fs::remove_file(entry.path());
        }
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let clock = HostClock::new()?;
        let stop = Stop::on_signals()?;
        let address = self.listen.clone().unwrap_or_else(|| Address::Unix(default_socket()));
        let files = match &self.files {
            Some(folder) => Some(folder.canonicalize().ok().filter(|folder| folder.is_dir()).ok_or_else(|| {
                Failure::new(format!("--files {}: it is not a folder: name an existing folder", folder.display()))
            })?),
            None => None,
        };
        let listener = bind(&address)?;
        let (token, _made) = self.token(&listener)?;
        let options = SupervisorOptions {
            launch: {
                let files = files.clone();
                Box::new(move |run, start_at| {
                    let mut command = child_processes::netlathe()?;
                    command.arg("run").arg(&run.scenario).args(["--json", "--progress", "never"]);
                    command.arg("--control").arg(Address::Unix(run.socket.clone()).to_string());
                    command.arg("--report").arg(&run.page);
                    command.args(start_at.iter().flat_map(|at| ["--start-at", at]));
                    command.current_dir(files.as_deref().unwrap_or("/".as_ref()));
                    Ok(command)
                })
            },
            permit_value: Box::new(file_in_value),
            permit: Box::new(move |text, start_at| {
                let scenario = permit(text, files.as_deref())?;
                start_at.map(|at| start_of(&scenario, at, clock)).transpose()
            }),
            most: usize::from(self.most),
            page_changes: self.allow_changes,
        };
        output::note(format_args!("listening on {}", listener.address()));
        readiness::tell_starter("it listens");
        service::serve_runs(listener, token, options, || stop.asked())
            .map_err(|cause| Failure::new(format!("cannot serve: {cause}: start it again")))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The token, and its file if the service removes it at the end. With TCP there is always a token.
    fn token(&self, listener: &Listener) -> Result<(Option<Token>, Made), Failure> {
        let by_default = || runtime_folder().join(format!("netlathe-{}.token", std::process::id()));
        let path = match &self.token {
            Some(path) => path.clone(),
            None if listener.is_tcp() => by_default(),
            None => return Ok((None, Made(None))),
        };
        if self.token.is_none() {
            remove_dead_tokens();
        }
        let token = Token::open(&path).map_err(|cause| {
            let remedy = match cause.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    ": make its folder first, or name another one"
                }
                io::ErrorKind::PermissionDenied => ": name a file in a folder of yours",
                io::ErrorKind::IsADirectory => ": it is a folder: name a file in it",
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull => ": name a file on another disk",
                // Other errors name their remedy themselves.
                _ => "",
            };
            Failure::new(format!("--token {}: {cause}{remedy}", path.display()))
        })?;
        if token.is_made() {
            output::note(format_args!("the token is in {}", path.display()));
        }
        let goes = self.token.is_none().then_some(path);
        Ok((Some(token), Made(goes)))
    }
}

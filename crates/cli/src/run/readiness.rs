//! Reports readiness (frames pass, or the disk is mounted): by the protocol of systemd's sd_notify(3), and with `-v`
//! also as a line.

use crate::options::common::Common;
use crate::output;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{self, Command};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Environment variable with the path of the notification socket.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The message to send.
const READY: &[u8] = b"READY=1";
/// Time limit for the message. A listener that does not read must not delay the run.
const PATIENCE: Duration = Duration::from_millis(500);

/// Reports that frames pass. Called once per run.
pub(crate) fn tell(common: &Common) {
    tell_if(common.verbose > 0);
}

/// Reports that frames pass. Also prints a line if the run is `verbose`.
pub(crate) fn tell_if(verbose: bool) {
    if verbose {
        output::say("ready");
    }
    tell_starter("frames pass");
}

/// Runs `command`, a netlathe process, with `run`, and calls `ready` when it reports that frames pass. The process must
/// not report to our own service manager, because systemd accepts messages only from the process it started.
pub(crate) fn while_ready<T>(
    command: &mut Command,
    ready: impl FnOnce() + Send,
    run: impl FnOnce(&mut Command) -> T,
) -> T {
    let name = format!("netlathe/ready/{}", process::id());
    let address = SocketAddr::from_abstract_name(&name);
    let Ok((address, socket)) = address.and_then(|address| Ok((address.clone(), UnixDatagram::bind_addr(&address)?)))
    else {
        // Readiness is reported late rather than never.
        let result = run(command.env_remove(SOCKET));
        ready();
        return result;
    };
    command.env(SOCKET, format!("@{name}"));
    let ready = Mutex::new(Some(ready));
    let report = || {
        let ready = ready.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ready) = ready {
            ready();
        }
    };
    thread::scope(|scope| {
        let listening = thread::Builder::new().spawn_scoped(scope, || {
            let mut message = [0; READY.len()];
            if socket.recv(&mut message).is_ok_and(|length| message[..length] == *READY) {
                report();
            }
        });
        let result = run(command);
        if listening.is_err() {
            // Without a thread, readiness is reported late rather than never.
            report();
        }
        // The process has sent all of its messages, so this empty one ends the listening thread.
        let _ends = UnixDatagram::unbound().and_then(|end| end.send_to_addr(b"", &address));
        result
    })
}

/// Runs `command`, a netlathe process whose readiness is not reported.
pub(crate) fn unreported<T>(command: &mut Command, run: impl FnOnce(&mut Command) -> T) -> T {
    run(command.env_remove(SOCKET))
}

/// Reports readiness only by the protocol; `what` is the status text.
pub(crate) fn tell_starter(what: &str) {
    if let Some(socket) = env::var_os(SOCKET).filter(|socket| !socket.is_empty())
        && let Err(cause) = notify(&socket)
    {
        output::note(format!(
            "{SOCKET}: {}: cannot report that {what}, so systemd will end a service of Type=notify: {cause}",
            socket.display()
        ));
    }
}

fn notify(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(socket)?,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a path nor an abstract name such as @name",
            ));
        }
    };
    let from = UnixDatagram::unbound()?;
    from.set_write_timeout(Some(PATIENCE))?;
    from.send_to_addr(READY, &address).map(drop)
}

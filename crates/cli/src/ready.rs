//! Tells whoever started a run that frames pass now, or that the disk is there: by the protocol of systemd's
//! sd_notify(3), and with `-v` in a line.

use crate::commands::Common;
use crate::output;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Names the socket of who wants to know.
const SOCKET: &str = "NOTIFY_SOCKET";
/// One who does not listen must not hold up the run.
const PATIENCE: Duration = Duration::from_millis(500);

/// Says that frames pass. Told once in a run.
pub(crate) fn tell(common: &Common) {
    if common.verbose > 0 {
        output::say("ready");
    }
    tell_starter("frames pass");
}

/// Says it only by the protocol; `what` is the case from now on.
pub(crate) fn tell_starter(what: &str) {
    if let Some(socket) = env::var_os(SOCKET).filter(|socket| !socket.is_empty())
        && let Err(cause) = notify(&socket)
    {
        output::note(format!(
            "{SOCKET}: {}: cannot say there that {what}, and a service of Type=notify is ended for that: {cause}",
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
    from.send_to_addr(b"READY=1", &address).map(drop)
}

//! Sockets on which a service listens.

use crate::address::Address;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// An open socket to which clients can connect.
pub struct Listener {
    pub(crate) socket: Socket,
    /// The requested host, for TCP.
    pub(crate) host: Option<String>,
}

pub(crate) enum Socket {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A Unix socket, with the user ID if the kernel reports it.
    Unix { uid: Option<u32> },
    /// TCP.
    Tcp(SocketAddr),
}

impl Peer {
    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        match self {
            Peer::Unix { uid } => uid.map_or_else(|| "a client".to_owned(), |uid| format!("uid {uid}")),
            Peer::Tcp(address) => address.to_string(),
        }
    }
}

impl Listener {
    /// Opens a socket. A Unix socket has mode 0600 from its creation, and replaces one left behind by a killed service.
    ///
    /// # Errors
    /// The address is in use, or this user may not use it.
    pub fn bind(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Unix(path) => {
                remove_dead(path);
                let listener = bind_private(path)?;
                listener.set_nonblocking(true)?;
                Listener { socket: Socket::Unix(listener, SocketFile::of(path)?), host: None }
            }
            Address::Tcp(host, port) => {
                let addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
                let listener = TcpListener::bind(&addresses[..])?;
                listener.set_nonblocking(true)?;
                Listener { socket: Socket::Tcp(listener), host: Some(host.clone()) }
            }
        })
    }

    /// Whether the socket can be reached from other machines, or by other users of this machine.
    pub fn is_tcp(&self) -> bool {
        self.host.is_some()
    }

    /// The address of the socket. For port 0 it has the port that the kernel chose.
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Unix(_, file) => Address::Unix(file.path.clone()).to_string(),
            Socket::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string())
            }
        }
    }
}

/// Creates a socket whose file only its owner may use. The mode of the file is the mode of the socket before it is
/// bound. Other users therefore cannot connect at any moment, and the process's umask stays unchanged.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket.into())
}

/// Removes a socket without a listener.
fn remove_dead(path: &Path) {
    let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
    let refuses =
        || matches!(UnixStream::connect(path), Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && refuses() {
        // If it cannot be removed, binding reports that the address is in use.
        let _removed = fs::remove_file(path);
    }
}

/// The file of a socket. It is removed at the end, unless another socket has replaced it.
pub(crate) struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        Ok(SocketFile { path: std::path::absolute(path)?, file: (metadata.dev(), metadata.ino()) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            // An error cannot be handled here.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_private_is_removed_at_the_end_and_replaces_only_a_dead_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let address = Address::Unix(path.clone());
        let listener = Listener::bind(&address).expect("a socket");
        assert_eq!(path.metadata().expect("it is there").mode() & 0o777, 0o600);
        assert!(Listener::bind(&address).is_err(), "it is in use");
        drop(listener);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).expect("a socket that stays"));
        assert!(path.exists());
        drop(Listener::bind(&address).expect("the dead one is replaced"));
        fs::write(&path, "text").expect("a file");
        assert!(Listener::bind(&address).is_err() && path.exists(), "a file is left alone");
    }
}

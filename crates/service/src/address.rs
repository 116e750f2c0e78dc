//! The address of a service.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An address: `unix:PATH`, `HOST:PORT`, or `:PORT` for this machine only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host name or IP address, and a port.
    Tcp(String, u16),
}

/// Maximum length of a socket path, in bytes: `sun_path` without its terminating zero.
const LONGEST_PATH: usize = 107;

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err("no path follows 'unix:': write unix:/run/netlathe.sock".to_owned()),
                length if length > LONGEST_PATH => Err(format!(
                    "the path of a socket has at most {LONGEST_PATH} bytes, and this one {length}: name a shorter one"
                )),
                _ => Ok(Address::Unix(path.into())),
            };
        }
        let wrong =
            || format!("'{text}' is not an address: write unix:PATH, HOST:PORT, or :PORT for this machine only");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.contains(['/', ' ', '[', ']']) {
            return Err(wrong());
        }
        Ok(Address::Tcp(if host.is_empty() { "127.0.0.1" } else { host }.to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn reads_and_prints_addresses() {
        for (text, printed) in [
            ("unix:/run/n.sock", "unix:/run/n.sock"),
            (":80", "127.0.0.1:80"),
            ("[::1]:9", "[::1]:9"),
            ("lab-7.example:65535", "lab-7.example:65535"),
        ] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(printed.to_owned()));
        }
        for text in
            ["", "unix:", "80", "host:", "host:65536", "/run/n.sock", "a b:80", &format!("unix:{}", "x".repeat(108))]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}

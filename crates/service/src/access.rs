//! Access control: checks the peer of a socket, the token, and the host name in the address.

use crate::listen::Peer;
use crate::problem::Problem;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use subtle::ConstantTimeEq as _;

/// A secret that clients send as `Authorization: Bearer …`.
pub struct Token {
    secret: Vec<u8>,
    made: bool,
}

/// The minimum length of a token, in characters.
const SHORTEST: usize = 16;
/// Maximum size of a token file, in bytes.
const LONGEST: u64 = 4096;

impl Token {
    /// Reads the token. Creates the file with a random token if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read or created, can be read by other users, or contains no token.
    pub fn open(path: &Path) -> io::Result<Self> {
        match rustix::fs::open(
            path,
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        ) {
            Ok(file) => {
                let secret = random()?;
                let mut file = File::from(file);
                file.write_all(&secret)?;
                file.write_all(b"\n")?;
                Ok(Token { secret, made: true })
            }
            Err(rustix::io::Errno::EXIST) => Token::read(path),
            Err(cause) => Err(cause.into()),
        }
    }

    fn read(path: &Path) -> io::Result<Self> {
        // With O_NONBLOCK, opening a named pipe does not wait for its writer.
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let file = File::from(file);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a file: name one with a token, or one that is not there yet"));
        }
        let us = rustix::process::geteuid().as_raw();
        if metadata.mode() & 0o077 != 0 || ![us, 0].contains(&metadata.uid()) {
            return Err(io::Error::other("others may read or write it: chmod 600, and make it your own"));
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text)?;
        let secret = text.trim().as_bytes().to_vec();
        if secret.len() < SHORTEST || !secret.iter().all(u8::is_ascii_graphic) {
            let want = format!(
                "it holds no token: write one word of {SHORTEST} or more ASCII characters, or remove it to get a new one"
            );
            return Err(io::Error::other(want));
        }
        Ok(Token { secret, made: false })
    }

    /// Whether the file was created by [`Token::open`].
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// Compares in constant time.
    fn is(&self, sent: &[u8]) -> bool {
        self.secret.ct_eq(sent).into()
    }
}

/// 256 random bits in hexadecimal digits.
fn random() -> io::Result<Vec<u8>> {
    let mut bytes = [0_u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect())
}

/// The access rules for requests.
pub(crate) struct Access {
    pub(crate) token: Option<Token>,
    /// The host in the service's address, if it listens on TCP.
    pub(crate) host: Option<String>,
}

impl Access {
    /// Accepts a request, or returns why it is rejected.
    pub(crate) fn check(&self, peer: &Peer, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        if let Peer::Unix { uid } = peer
            && ![Some(rustix::process::geteuid().as_raw()), Some(0)].contains(uid)
        {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "this service is for the user who started it",
                "run the client as that user, or as root",
            ));
        }
        if let Some(host) = &self.host {
            check_host(host, uri, headers)?;
        }
        // The page is served without a token, because browsers send none for typed addresses. It asks for the token
        // itself.
        let is_page = uri.path() == "/" && [Method::GET, Method::HEAD].contains(method);
        let Some(token) = self.token.as_ref().filter(|_| !is_page) else { return Ok(()) };
        let sent = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let (scheme, sent) = sent.and_then(|value| value.split_at_checked(7)).unwrap_or_default();
        match scheme.eq_ignore_ascii_case(b"bearer ") && token.is(sent) {
            true => Ok(()),
            false => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong",
                "send the header Authorization: Bearer TOKEN, with the text of the token file",
            )),
        }
    }
}

/// Rejects host names other than ours. Another site may point its name to this machine (DNS rebinding), but the pages
/// of that site then send its name. An IP address is no name and therefore safe.
fn check_host(ours: &str, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let sent = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority: Option<axum::http::uri::Authority> = sent.parse().ok();
    // In HTTP/2 the host is part of the address.
    let host = uri.host().or(authority.as_ref().map(|authority| authority.host())).unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.parse::<IpAddr>().is_ok() || bare.eq_ignore_ascii_case("localhost") || bare.eq_ignore_ascii_case(ours) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "the Host header names another host",
        format!("call this service by its address, by localhost or by {ours}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn token_is_created_once_and_refused_if_others_may_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let first = Token::open(&path).expect("it is made");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        let again = Token::open(&path).expect("it is read");
        assert!(again.is(&first.secret) && !again.is(&first.secret[1..]) && !again.is_made() && first.is_made());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("it is ours");
        assert!(Token::open(&path).is_err());
        assert!(Token::open(folder.path()).is_err(), "a folder");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .expect("a pipe");
        assert!(Token::open(&pipe).is_err(), "a pipe without a writer");
        let short = folder.path().join("short");
        drop(Token::open(&short).expect("made"));
        fs::write(&short, "abc").expect("written");
        assert!(Token::open(&short).is_err());
    }

    #[test]
    fn only_names_of_this_service_are_taken() {
        let checked = |sent: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_str(sent).expect("a header"));
            check_host("bench.lab", &Uri::from_static("/"), &headers).is_ok()
        };
        assert!(["127.0.0.1:80", "[::1]:80", "localhost", "LOCALHOST:1", "bench.lab:8"].into_iter().all(checked));
        assert!(!["evil.example", "localhost.evil.example", "", "a b", "user@evil.example"].into_iter().any(checked));
        let of_http2 = |uri: &'static str| check_host("bench.lab", &Uri::from_static(uri), &HeaderMap::new()).is_ok();
        assert!(of_http2("http://[::1]:8080/config") && !of_http2("http://evil.example/config"));
    }
}

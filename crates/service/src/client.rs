//! A client of a service, over a Unix socket.

use crate::problem::ErrorBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Time limit for a response.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a response, in bytes: reports with plots have megabytes.
const LONGEST: usize = 256 << 20;

/// Why a request has no response.
#[derive(Debug)]
pub enum ClientError {
    /// There is no response on the socket.
    Io(io::Error),
    /// The service rejected the request.
    Refused(u16, ErrorBody),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Io(cause) => cause.fmt(f),
            ClientError::Refused(_, body) => {
                if let Some(at) = &body.error.at {
                    write!(f, "{at}: ")?;
                }
                write!(f, "{}: {}", body.error.message, body.error.remedy)
            }
        }
    }
}

impl From<io::Error> for ClientError {
    fn from(cause: io::Error) -> Self {
        ClientError::Io(cause)
    }
}

/// A client that waits for each response.
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

impl Client {
    /// A client of the service on this socket. Does not connect yet.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn new(socket: &Path) -> io::Result<Self> {
        Ok(Client { socket: socket.to_owned(), runtime: Builder::new_current_thread().enable_all().build()? })
    }

    /// Sends a request and returns the response as text.
    ///
    /// # Errors
    /// There is no response, or the service rejects the request.
    pub fn text(&self, method: &str, path: &str, json: Option<&str>) -> Result<String, ClientError> {
        let method = Method::from_bytes(method.as_bytes()).map_err(io::Error::other)?;
        self.runtime.block_on(text(&self.socket, method, path, json))
    }

    /// Starts a run of a scenario, given as the text of its file, optionally at an instant. Returns the run as JSON.
    ///
    /// # Errors
    /// There is no response, or the service rejects the request.
    pub fn start(&self, scenario: &str, start_at: Option<&str>) -> Result<String, ClientError> {
        let query = start_at.map(|at| format!("?start-at={}", utf8_percent_encode(at, NON_ALPHANUMERIC)));
        let path = format!("/v1/runs{}", query.unwrap_or_default());
        self.runtime.block_on(answer(&self.socket, Method::POST, &path, Some(("application/toml", scenario))))
    }

    /// Gets a resource and parses it.
    ///
    /// # Errors
    /// There is no response, the service rejects the request, or the response is of another type.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let text = self.text("GET", path, None)?;
        Ok(serde_json::from_str(&text).map_err(io::Error::other)?)
    }

    /// Calls `each` with the kind and the data of every event, until `each` returns false or the service ends.
    ///
    /// # Errors
    /// There is no response, or the service rejects the request.
    pub fn events(&self, mut each: impl FnMut(&str, &str) -> bool) -> Result<(), ClientError> {
        self.runtime.block_on(async {
            let response =
                timeout(PATIENCE, send(&self.socket, Method::GET, "/v1/events", None)).await.map_err(slow)??;
            if response.status() != StatusCode::OK {
                return read(response).await.map(drop);
            }
            let mut body = response.into_body();
            let (mut rest, mut kind) = (Vec::new(), String::new());
            while let Some(frame) = body.frame().await {
                // The service has ended.
                let Ok(frame) = frame else { break };
                rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                    rest.drain(..=end);
                    if let Some(name) = line.strip_prefix("event: ") {
                        name.clone_into(&mut kind);
                    } else if let Some(data) = line.strip_prefix("data: ")
                        && !each(&kind, data)
                    {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }
}

fn slow(_: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the service does not answer")
}

/// In a shared folder, another user may have created a socket at the path that we expect.
fn check_owner(uid: u32) -> io::Result<()> {
    let us = rustix::process::geteuid();
    if us.is_root() || uid == us.as_raw() || uid == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("it is a service of the user with number {uid}, neither yours nor root's")))
}

/// Sends a request, whose body has a content type, and returns the head of the response.
async fn send(socket: &Path, method: Method, path: &str, body: Option<(&str, &str)>) -> io::Result<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await?;
    check_owner(stream.peer_cred()?.uid())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // The caller that waits for the response sees any error.
        let _over = connection.await;
    });
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    if let Some((kind, _)) = body {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    let body = Full::new(Bytes::from(body.map_or("", |(_, body)| body).to_owned()));
    sender.send_request(request.body(body).map_err(io::Error::other)?).await.map_err(io::Error::other)
}

/// The text of a response, unless it is an error.
async fn read(response: Response<Incoming>) -> Result<String, ClientError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), LONGEST).collect().await.map_err(io::Error::other)?.to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    if status.is_success() {
        return Ok(text);
    }
    let body = serde_json::from_str(&text)
        .map_err(|_| io::Error::other(format!("the answer is {status}, and no error of netlathe")))?;
    Err(ClientError::Refused(status.as_u16(), body))
}

/// Sends a request and reads the response.
pub(crate) async fn text(socket: &Path, method: Method, path: &str, json: Option<&str>) -> Result<String, ClientError> {
    answer(socket, method, path, json.map(|json| ("application/json", json))).await
}

/// Like [`text`], with any content type.
async fn answer(socket: &Path, method: Method, path: &str, body: Option<(&str, &str)>) -> Result<String, ClientError> {
    let all = async { read(send(socket, method, path, body).await?).await };
    timeout(PATIENCE, all).await.map_err(slow)?
}

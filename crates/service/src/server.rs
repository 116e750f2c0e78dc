//! Serves each connection until its client or the service ends. The number of connections and the sizes of headers and
//! bodies are bounded, so a stalled client occupies one connection and nothing else.

use crate::access::{Access, Token};
use crate::control::ControlledRun;
use crate::events::{Hub, Watcher};
use crate::listen::{Listener, Peer, Socket};
use crate::problem::Problem;
use crate::routes::{self, Service};
use crate::runs::Runs;
use crate::supervisor::{Supervisor, SupervisorOptions};
use axum::Extension;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{interval, sleep, timeout};
use tower::ServiceExt as _;

/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 128;
/// Time limit for the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
/// Time limit for the body of a request to another API.
const BODY: Duration = Duration::from_secs(60);
/// Size above which bodies for another API are read and processed one at a time: parsed, they take many times their
/// size.
const LARGE_BODY: usize = 64 << 10;
/// A TCP client that reads nothing of a response for this time is disconnected.
const UNREAD_MS: u32 = 30_000;
/// Maximum number of concurrent streams of an HTTP/2 connection.
const STREAMS: u32 = 32;
/// Interval between comparisons of the runs.
const LOOK: Duration = Duration::from_millis(100);
/// Time for clients to read queued data when the service ends.
const FAREWELL: Duration = Duration::from_millis(300);
/// Niceness, so that the priority is below that of every thread that paces departures.
const NICE: i32 = 10;

/// The service for one run, on its own thread.
pub struct RunService {
    thread: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

/// Starts the service for one run, on a thread with a lower priority than others.
///
/// # Errors
/// The thread cannot be started.
pub fn serve_run(listener: Listener, token: Option<Token>, run: Arc<dyn ControlledRun>) -> io::Result<RunService> {
    let access = Access { token, host: listener.host.clone() };
    let service = Arc::new(Service { runs: Runs::One(run), hub: Hub::new(), access, page_changes: true });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel();
    let serve = move || {
        // On Linux this applies only to this thread. The service also works if it fails.
        let _lower = rustix::process::setpriority_process(None, NICE);
        let ended = async { drop(ended.await) };
        if let Err(cause) = runtime.block_on(serve(listener, &service, ended)) {
            // The run is more important than its service and continues.
            drop(cause);
        }
    };
    let thread = thread::Builder::new().name("control".to_owned()).spawn(serve)?;
    Ok(RunService { thread, end })
}

impl RunService {
    /// Sends the last events and ends the service. Does not wait for clients that do not read.
    pub fn finish(self) {
        // The service has already ended if it could not accept connections.
        let _asked = self.end.send(());
        let _ended = self.thread.join();
    }
}

/// Serves runs in separate processes until `is_over`, then ends them. The calling thread starts the processes, and must
/// live as long as this process, because the kernel ends them together with the thread.
///
/// # Errors
/// The socket cannot be used, or the folder for scenarios cannot be created.
pub fn serve_runs(
    listener: Listener,
    token: Option<Token>,
    options: SupervisorOptions,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    let access = Access { token, host: listener.host.clone() };
    let page_changes = options.page_changes;
    let supervisor = Supervisor::new(options)?;
    let service = Arc::new(Service { runs: Runs::Many(supervisor), hub: Hub::new(), access, page_changes });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let service_ends = Arc::clone(&service);
    let ended = async move {
        while !is_over() {
            sleep(Duration::from_millis(20)).await;
        }
        if let Runs::Many(runs) = &service_ends.runs {
            runs.end_all().await;
        }
    };
    runtime.block_on(serve(listener, &service, ended))
}

/// Serves until `ended`.
async fn serve(listener: Listener, service: &Arc<Service>, ended: impl Future<Output = ()>) -> io::Result<()> {
    let connections = Connections::new(routes::router(Arc::clone(service)), false);
    let mut watcher = Watcher::default();
    let accept = connections.accept_all(listener.socket);
    let look = async {
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            watcher.poll(&service.runs, &service.hub).await;
        }
    };
    let over = tokio::select! {
        over = accept => over,
        () = look => Ok(()),
        () = ended => Ok(()),
    };
    watcher.poll(&service.runs, &service.hub).await;
    service.hub.close();
    // Clients that have not read everything by then are disconnected.
    let _unread = timeout(FAREWELL, connections.graceful.shutdown()).await;
    over
}

/// Serves another API over HTTP/1.1 and HTTP/2 until `ended`. The limits and access rules are those of the service: the
/// user of a Unix socket, and the host name in the address. There is no token, so requests sent by pages of other sites
/// are rejected. Bodies have at most `largest` bytes.
///
/// # Errors
/// The socket cannot be used.
pub async fn serve_other(
    listener: Listener,
    router: Router,
    largest: usize,
    ended: impl Future<Output = ()>,
) -> io::Result<()> {
    let door = Arc::new(Door {
        access: Access { token: None, host: listener.host.clone() },
        largest,
        large: Semaphore::new(1),
    });
    let connections = Connections::new(router.layer(middleware::from_fn_with_state(door, let_in)), true);
    let over = tokio::select! {
        over = connections.accept_all(listener.socket) => over,
        () = ended => Ok(()),
    };
    let _unread = timeout(FAREWELL, connections.graceful.shutdown()).await;
    over
}

/// The checks for requests to another API.
struct Door {
    access: Access,
    largest: usize,
    /// A permit for a request with a large body.
    large: Semaphore,
}

/// Checks a request and reads its body.
async fn let_in(
    State(door): State<Arc<Door>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    door.access.check(&peer, request.method(), request.uri(), request.headers())?;
    if request.headers().contains_key(header::ORIGIN) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "pages of a browser may not use this interface",
            "send the request by a program, without the header Origin",
        ));
    }
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let (head, body) = request.into_parts();
    let is_small = length.is_some_and(|length: usize| length <= LARGE_BODY);
    let reading = async {
        let place = if is_small { None } else { door.large.acquire().await.ok() };
        to_bytes(body, door.largest).await.map(|bytes| (bytes, place))
    };
    let slow = |_| {
        let message = format!("the body took longer than {} s", BODY.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, message, "send it at once, and one large body at a time")
    };
    let read = timeout(BODY, reading).await.map_err(slow)?;
    let (bytes, place) = read.map_err(|_| {
        let message = format!("the body is truncated, or has more than {} bytes", door.largest);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message, "send fewer flows")
    })?;
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    drop(place);
    Ok(response)
}

struct Connections {
    router: Router,
    /// Whether clients may use HTTP/2.
    both_versions: bool,
    places: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

impl Connections {
    fn new(router: Router, both_versions: bool) -> Self {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        Connections { router, both_versions, places, graceful: GracefulShutdown::new() }
    }

    async fn accept_all(&self, socket: Socket) -> io::Result<()> {
        match socket {
            Socket::Unix(socket, file) => {
                let _goes_at_the_end = file;
                let socket = UnixListener::from_std(socket)?;
                self.accept(async || {
                    let (stream, _) = socket.accept().await?;
                    let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                    Ok((stream, Peer::Unix { uid }))
                })
                .await
            }
            Socket::Tcp(socket) => {
                let socket = TcpListener::from_std(socket)?;
                self.accept(async || {
                    let (stream, address) = socket.accept().await?;
                    // Events are short and must be sent immediately.
                    let _delayed = stream.set_nodelay(true);
                    // Without the timeout, a client could occupy its connection indefinitely by reading nothing.
                    let _kept = set_tcp_user_timeout(&stream, UNREAD_MS);
                    Ok((stream, Peer::Tcp(address)))
                })
                .await
            }
        }
    }

    async fn accept<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        mut next: impl AsyncFnMut() -> io::Result<(S, Peer)>,
    ) -> io::Result<()> {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
            match next().await {
                Ok((stream, peer)) => self.serve(stream, peer, place),
                // No file descriptors are left, or the client has disconnected.
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        peer: Peer,
        place: OwnedSemaphorePermit,
    ) {
        let router = self.router.clone();
        let asked = Arc::new(AtomicBool::new(false));
        let asks = Arc::clone(&asked);
        let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
            asks.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(peer.clone());
            router.clone().oneshot(request.map(Body::new))
        });
        let stream = TokioIo::new(stream);
        if !self.both_versions {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADERS);
            let connection = self.graceful.watch(builder.serve_connection(stream, answer));
            tokio::spawn(async move {
                // The client may have disconnected.
                let _over = connection.await;
                drop(place);
            });
            return;
        }
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .keep_alive_interval(HEADERS)
            .keep_alive_timeout(HEADERS);
        let connection = self.graceful.watch(builder.serve_connection(stream, answer).into_owned());
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            // The time limit for headers applies only once the HTTP version is known, so silent connections need this
            // one.
            let silent = async {
                sleep(HEADERS).await;
                if asked.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                _over = &mut connection => {}
                () = silent => {}
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    /// Starts another API that responds with the length of each body. Returns its address.
    fn start(largest: usize) -> String {
        let listener = Listener::bind(&Address::Tcp("127.0.0.1".to_owned(), 0)).expect("a port");
        let address = listener.address();
        async fn length(body: axum::body::Bytes) -> String {
            body.len().to_string()
        }
        let router = Router::new().route("/", axum::routing::post(length));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        thread::spawn(move || runtime.block_on(serve_other(listener, router, largest, std::future::pending())));
        address
    }

    /// Everything that is received until the connection ends.
    fn answer(address: &str, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut text = String::new();
        // The connection may be reset if the server has not read everything.
        let _over = stream.read_to_string(&mut text);
        text
    }

    fn posted(headers: &str, body: &str) -> String {
        let length = body.len();
        format!("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
    }

    #[test]
    fn pages_of_other_sites_and_long_bodies_are_refused() {
        let address = start(100);
        let status = |headers: &str, body: &str| {
            let text = answer(&address, &posted(headers, body));
            text.split(' ').nth(1).map(ToOwned::to_owned).unwrap_or_default()
        };
        assert!(answer(&address, &posted("Host: localhost\r\n", "four")).ends_with("\r\n\r\n4"));
        assert_eq!(status("Host: evil.example\r\n", ""), "421", "a name that was pointed to this machine");
        assert_eq!(status("", ""), "421");
        assert_eq!(status("Host: 127.0.0.1\r\nOrigin: http://evil.example\r\n", ""), "403");
        assert_eq!(status("Host: 127.0.0.1\r\n", &"x".repeat(101)), "413");
        let chunked = "POST / HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\nabc\r\n0\r\n\r\n";
        assert!(answer(&address, chunked).ends_with("\r\n\r\n3"), "a body of unknown length");
    }

    #[test]
    fn connections_that_say_nothing_are_given_up() {
        let address = start(100);
        thread::scope(|scope| {
            for begun in ["", "PRI * HTTP/2.0\r\n", "POST / HTTP/1.1\r\nHost: a\r\nX-A"] {
                // Reads until the service ends the connection. If it does not, the test hangs.
                scope.spawn(|| answer(&address, begun));
            }
        });
    }

    /// The service sends `100 Continue` when it starts to read a body.
    #[test]
    fn large_bodies_wait_for_each_other_and_small_ones_for_none() {
        const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let address = start(8 << 20);
        let begin = || {
            let mut stream = TcpStream::connect(&address).expect("it listens");
            let length = 2 << 20;
            let head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue";
            stream.write_all(format!("{head}\r\nContent-Length: {length}\r\n\r\n").as_bytes()).expect("it is read");
            (stream, vec![b'x'; length])
        };
        let go_on = |stream: &mut TcpStream| {
            let mut said = [0; GO_ON.len()];
            stream.read_exact(&mut said).map(|()| assert_eq!(said, GO_ON))
        };
        let (mut first, body) = begin();
        go_on(&mut first).expect("the first one may go on");
        let (mut second, _) = begin();
        second.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
        assert!(go_on(&mut second).is_err(), "the second large body waits");
        assert!(answer(&address, &posted("Host: localhost\r\n", "four")).ends_with("\r\n\r\n4"));
        second.set_read_timeout(None).expect("none");
        for stream in [&mut first, &mut second] {
            stream.write_all(&body).expect("it is read");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            assert!(text.ends_with(&body.len().to_string()), "{text}");
        }
    }
}

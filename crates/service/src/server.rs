//! Serves each connection until its client or the service ends. Connections, headers and bodies are bounded, so that a
//! stalled client occupies one connection and nothing else.

use crate::access::{Access, Token};
use crate::control::ControlledRun;
use crate::events::{Hub, Watcher};
use crate::listen::{Listener, Peer, Socket};
use crate::routes::{self, Service};
use crate::runs::Runs;
use crate::supervisor::{Supervisor, SupervisorOptions};
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{interval, sleep, timeout};
use tower::ServiceExt as _;

/// Limit on connections at a time.
const CONNECTIONS: usize = 128;
/// Time limit for the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
/// Between two looks at the runs.
const LOOK: Duration = Duration::from_millis(100);
/// How long clients may read queued data when the service ends.
const FAREWELL: Duration = Duration::from_millis(300);
/// Priority below that of every thread that makes departures.
const NICE: i32 = 10;

/// The service of one run, on its own thread.
pub struct RunService {
    thread: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

/// Starts the service of a run, on a thread with a lower priority than others.
///
/// # Errors
/// The thread cannot be started.
pub fn serve_run(listener: Listener, token: Option<Token>, run: Arc<dyn ControlledRun>) -> io::Result<RunService> {
    let access = Access { token, host: listener.host.clone() };
    let service = Arc::new(Service { runs: Runs::One(run), hub: Hub::new(), access, page_changes: true });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (end, ended) = oneshot::channel();
    let serve = move || {
        // On Linux this applies only to this thread. The service also works without it.
        let _lower = rustix::process::setpriority_process(None, NICE);
        let ended = async { drop(ended.await) };
        if let Err(cause) = runtime.block_on(serve(listener, &service, ended)) {
            // The run continues: it matters more than its service.
            drop(cause);
        }
    };
    let thread = thread::Builder::new().name("control".to_owned()).spawn(serve)?;
    Ok(RunService { thread, end })
}

impl RunService {
    /// Sends the last events and ends the service. Does not wait for clients that do not read.
    pub fn finish(self) {
        // It has already ended if it could not accept connections.
        let _asked = self.end.send(());
        let _ended = self.thread.join();
    }
}

/// Serves runs in separate processes until `is_over`, then ends them. The calling thread starts them, and must live as
/// long as the process, because the kernel ends them together with it.
///
/// # Errors
/// The socket cannot be used, or there is no place for scenarios.
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
    let connections = Connections {
        router: routes::router(Arc::clone(service)),
        places: Arc::new(Semaphore::new(CONNECTIONS)),
        graceful: GracefulShutdown::new(),
    };
    let mut watcher = Watcher::default();
    let accept = async {
        match listener.socket {
            Socket::Unix(socket, file) => {
                let _goes_at_the_end = file;
                let socket = UnixListener::from_std(socket)?;
                connections
                    .accept(async || {
                        let (stream, _) = socket.accept().await?;
                        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                        Ok((stream, Peer::Unix { uid }))
                    })
                    .await
            }
            Socket::Tcp(socket) => {
                let socket = TcpListener::from_std(socket)?;
                connections
                    .accept(async || {
                        let (stream, address) = socket.accept().await?;
                        // Events are short, and are to arrive at once.
                        let _delayed = stream.set_nodelay(true);
                        Ok((stream, Peer::Tcp(address)))
                    })
                    .await
            }
        }
    };
    let look = async {
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            watcher.look(&service.runs, &service.hub).await;
        }
    };
    let over = tokio::select! {
        over = accept => over,
        () = look => Ok(()),
        () = ended => Ok(()),
    };
    watcher.look(&service.runs, &service.hub).await;
    service.hub.close();
    // Clients that have not read everything by then are disconnected.
    let _unread = timeout(FAREWELL, connections.graceful.shutdown()).await;
    over
}

struct Connections {
    router: Router,
    places: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

impl Connections {
    async fn accept<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        mut next: impl AsyncFnMut() -> io::Result<(S, Peer)>,
    ) -> io::Result<()> {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
            match next().await {
                Ok((stream, peer)) => self.serve(stream, peer, place),
                // Out of descriptors, or the client has gone.
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
        let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            router.clone().oneshot(request.map(Body::new))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .serve_connection(TokioIo::new(stream), answer);
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off is no matter of ours.
            let _over = connection.await;
            drop(place);
        });
    }
}

//! Events for clients. All clients read from one ring, each at its own position. A client that reads too slowly loses
//! events and is sent their number; it does not delay other clients. An event is encoded once, and the same bytes are
//! sent to all clients.

use crate::answers::RunView;
use crate::control::{AppliedChange, Figures, RunState};
use crate::runs::Runs;
use futures_util::stream::{self, Stream};
use hyper::body::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::timeout;

/// Maximum number of queued events per client. A client that lags further loses events.
const WAITING: usize = 256;
/// Maximum number of clients that receive events at the same time.
const CLIENTS: usize = 64;
/// Interval between progress events of a run.
const PROGRESS: Duration = Duration::from_millis(500);
/// Interval after which a client without events is sent a comment: proxies close silent connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Distributes encoded events to clients. Without a sender the service is ending.
pub(crate) struct Hub(Mutex<Option<broadcast::Sender<Bytes>>>);

#[derive(Serialize)]
struct Progress<'a> {
    run: u64,
    state: RunState,
    figures: &'a Figures,
}

#[derive(Serialize)]
struct Changed<'a> {
    run: u64,
    change: &'a AppliedChange,
}

#[derive(Serialize)]
struct Skipped {
    events: u64,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Hub(Mutex::new(Some(broadcast::channel(WAITING).0)))
    }

    fn sender(&self) -> Option<broadcast::Sender<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_watched(&self) -> bool {
        self.sender().is_some_and(|sender| sender.receiver_count() > 0)
    }

    fn send(&self, kind: &'static str, data: &impl Serialize) {
        if let Some(sender) = self.sender() {
            // Fails only if there is no client.
            let _clients = sender.send(event(kind, data));
        }
    }

    /// Ends all streams once their clients have read the queued events.
    pub(crate) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The events from now on; `None` if there are too many clients, or the service is ending.
    pub(crate) fn subscribe(&self) -> Option<impl Stream<Item = Result<Bytes, Infallible>> + use<>> {
        let sender = self.sender().filter(|sender| sender.receiver_count() < CLIENTS)?;
        Some(stream::unfold(sender.subscribe(), |mut events| async {
            let bytes = match timeout(KEEP_ALIVE, events.recv()).await {
                Ok(Ok(event)) => event,
                Ok(Err(RecvError::Lagged(events))) => event("skipped", &Skipped { events }),
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => Bytes::from_static(b":\n\n"),
            };
            Some((Ok(bytes), events))
        }))
    }
}

/// Encodes an event.
fn event(kind: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("names and numbers are JSON always");
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}

/// The state of a run as last sent to clients.
struct Known {
    state: RunState,
    changes: u64,
    figures: Figures,
    progress: Instant,
}

/// Compares the runs with the state last sent to clients, and sends events for the differences.
#[derive(Default)]
pub(crate) struct Watcher {
    /// `None` while there is no client.
    known: Option<BTreeMap<u64, Known>>,
}

impl Watcher {
    /// Compares once.
    pub(crate) async fn poll(&mut self, runs: &Runs, hub: &Hub) {
        if !hub.is_watched() {
            self.known = None;
            return;
        }
        let views = runs.list().await;
        let Some(known) = &mut self.known else {
            // The state before the first client connected is not an event.
            self.known = Some(views.into_iter().map(|view| (view.id, Known::of(view))).collect());
            return;
        };
        known.retain(|id, _| views.iter().any(|view| view.id == *id));
        for mut view in views {
            let before = known.entry(view.id).or_insert_with(|| {
                hub.send("state", &view);
                // A run that has already ended still requires its end event.
                let state = if view.state == RunState::Ended { RunState::Running } else { view.state };
                Known { state, changes: 0, figures: Figures::default(), progress: Instant::now() }
            });
            if view.changes > before.changes {
                let applied = runs.applied(view.id, before.changes).await.unwrap_or_default();
                before.changes += applied.len() as u64;
                for change in &applied {
                    hub.send("change", &Changed { run: view.id, change });
                }
            }
            let is_over = view.state == RunState::Ended && before.state != RunState::Ended;
            let is_new = view.state != before.state;
            if is_over || (view.state != RunState::Ended && before.progress.elapsed() >= PROGRESS) {
                view.figures.since(&before.figures);
                before.figures = view.figures.clone();
                before.progress = Instant::now();
                hub.send("progress", &Progress { run: view.id, state: view.state, figures: &view.figures });
            }
            before.state = view.state;
            if is_new {
                hub.send(if is_over { "end" } else { "state" }, &view);
            }
        }
    }
}

impl Known {
    fn of(view: RunView) -> Self {
        Known { state: view.state, changes: view.changes, figures: view.figures, progress: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt as _;

    #[tokio::test]
    async fn a_client_that_does_not_read_loses_events_and_gets_their_number() {
        let hub = Hub::new();
        let mut slow = Box::pin(hub.subscribe().expect("a place"));
        for _ in 0..WAITING + 10 {
            hub.send("state", &RunView::default());
        }
        hub.close();
        let first = slow.next().await.expect("an event").expect("no error");
        assert_eq!(first, "event: skipped\ndata: {\"events\":10}\n\n");
        let mut rest = 0;
        while slow.next().await.is_some() {
            rest += 1;
        }
        assert_eq!(rest, WAITING);
        assert!(hub.subscribe().is_none(), "the service is ending");
    }

    #[test]
    fn clients_are_bounded() {
        let hub = Hub::new();
        let all: Vec<_> = (0..CLIENTS).map(|_| hub.subscribe().expect("a place")).collect();
        assert!(hub.subscribe().is_none());
        drop(all);
        assert!(hub.subscribe().is_some());
    }
}

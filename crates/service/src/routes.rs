//! The routes, and their description as OpenAPI.

use crate::access::Access;
use crate::answers::{ChangeList, ChangeRequest, NewRun, RunList, RunView, SettingList};
use crate::control::{Accepted, Change};
use crate::events::Hub;
use crate::listen::Peer;
use crate::metrics::{self, Format};
use crate::problem::{ErrorBody, ErrorDetail, Problem};
use crate::runs::{Ending, Runs};
use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http_body_util::LengthLimitError;
use percent_encoding::percent_decode_str;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// Maximum size of a request body, in bytes.
const LARGEST_BODY: usize = 1 << 20;
/// Time limit for reading a body.
const SLOWEST_BODY: Duration = Duration::from_secs(10);

/// State shared by the routes.
pub(crate) struct Service {
    pub(crate) runs: Runs,
    pub(crate) hub: Hub,
    pub(crate) access: Access,
    /// Whether the page shows controls.
    pub(crate) page_changes: bool,
}

/// All routes.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/openapi.json", get(document))
        .route("/metrics", get(metrics))
        .route("/v1/events", get(events))
        .route("/v1/runs", get(runs).post(create))
        .route("/v1/runs/{id}", get(run).delete(end))
        .route("/v1/runs/{id}/report", get(report))
        .route("/v1/runs/{id}/page", get(drawn_report))
        .route("/v1/runs/{id}/settings", get(settings).patch(change))
        .route("/v1/runs/{id}/changes", get(changes))
        .route("/v1/runs/{id}/pause", post(pause))
        .route("/v1/runs/{id}/resume", post(resume))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&service), let_in))
        .with_state(service)
}

/// The OpenAPI 3.1 document of all routes, in JSON.
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().expect("a description is JSON") + "\n"
}

#[derive(OpenApi)]
#[openapi(
    info(title = "netlathe", description = "Control of netlathe's runs: start, watch, change, end. Errors are JSON that says what is wrong, where, and how to fix it."),
    paths(page, document, metrics, events, runs, create, run, end, report, drawn_report, settings, change, changes, pause, resume),
    modifiers(&BearerToken),
    security(("token" = []), ())
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let mut scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        scheme.description = Some("Required over TCP, or if the service was given a token.".to_owned());
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Checks access. Rejects queries on routes that have none, so that a misspelt query is not ignored.
async fn let_in(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    service.access.check(&peer, request.method(), request.uri(), request.headers())?;
    let path = request.uri().path();
    // For the list of runs, only POST has a query. Methods that the path does not have are rejected later, with their
    // own error.
    let lists = matches!(*request.method(), Method::GET | Method::HEAD);
    let takes_query = path.ends_with("/changes") || path == "/v1/runs" && !lists;
    if request.uri().query().is_some() && !takes_query {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "this route takes no query",
            "leave out what follows the '?'",
        ));
    }
    let mut response = next.run(request).await;
    // Browsers must neither cache responses nor guess their type.
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

async fn no_route() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is no such path", "GET /openapi.json lists all paths")
}

async fn no_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not take that method",
        "GET /openapi.json lists the methods of each path",
    )
}

/// The number of a run in a path.
struct RunId(u64);

impl<S: Send + Sync> FromRequestParts<S> for RunId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let written: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, state).await;
        let Ok(Path(written)) = written else { return Err(Problem::no_run("of this name")) };
        let digits = !written.is_empty() && written.bytes().all(|byte| byte.is_ascii_digit());
        let id = written.parse().ok().filter(|_| digits);
        id.map(RunId).ok_or_else(|| Problem::no_run(&format!("{written:?}")))
    }
}

/// The page
#[utoipa::path(get, path = "/", operation_id = "page", responses(
    (status = 200, description = "A page that shows the runs", content_type = "text/html", body = String),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn page(State(service): State<Arc<Service>>) -> Response {
    let changes = if service.page_changes { "yes" } else { "no" };
    let text = include_str!("page.html").replacen("data-changes=\"no\"", &format!("data-changes=\"{changes}\""), 1);
    let mut response = Html(text).into_response();
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}

/// This description
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", responses(
    (status = 200, description = "The OpenAPI document", content_type = "application/json", body = Object),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi()).into_response()
}

/// Figures for Prometheus
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", responses(
    (status = 200, description = "The figures of all runs, as OpenMetrics, or as protobuf with native histograms for a client that prefers it",
        content((String = "application/openmetrics-text"), (String = "application/vnd.google.protobuf"))),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn metrics(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    // Writing to memory cannot fail.
    let text = metrics::write(service.runs.list().await, format).unwrap_or_default();
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

/// Events of all runs, as they come
///
/// Server-sent events. `state`, `end`: a run as `GET /v1/runs/{id}` gives it. `progress`: `{run, state, figures}`, twice a
/// second, with rates since the event before. `change`: `{run, change}`. `skipped`: `{events}`, when this client read too slowly.
#[utoipa::path(get, path = "/v1/events", operation_id = "events", responses(
    (status = 200, description = "A stream without an end", content_type = "text/event-stream", body = String),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
    (status = 429, description = "Too many clients are watching", body = ErrorBody),
))]
async fn events(State(service): State<Arc<Service>>) -> Result<Response, Problem> {
    let busy = || Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many clients are watching", "close one of them");
    let events = service.hub.subscribe().ok_or_else(busy)?;
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(events)).into_response())
}

/// All runs
#[utoipa::path(get, path = "/v1/runs", operation_id = "listRuns", responses(
    (status = 200, description = "The runs, in the order of their start", body = RunList),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn runs(State(service): State<Arc<Service>>) -> Json<RunList> {
    Json(RunList { runs: service.runs.list().await })
}

/// Start a run
///
/// The body is a scenario: the text of a scenario file, or the same as JSON. With `start-at` the run is armed, and its first
/// frame departs at that instant; the report has the miss in `start`.
#[utoipa::path(post, path = "/v1/runs", operation_id = "startRun",
    params(("start-at" = Option<String>, Query, description = "When live pipelines start, by the clock of the service: UTC such as 2026-11-25T18:00:00Z, TAI such as 2026-11-25T18:00:37TAI, or +5s from this request; at once if omitted", example = "+5s")),
    request_body(content((NewRun = "application/json"), (String = "application/toml"))),
    responses(
    (status = 201, description = "The run was started", body = RunView, headers(("Location" = String, description = "The URL of the run"))),
    (status = 400, description = "The query is wrong, or the body is truncated", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 408, description = "The body took too long", body = ErrorBody),
    (status = 409, description = "This service belongs to one run", body = ErrorBody),
    (status = 413, description = "The scenario is too long", body = ErrorBody),
    (status = 415, description = "The content type is neither TOML nor JSON", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
    (status = 422, description = "The scenario has errors, or names what clients may not use, or it cannot start at that instant", body = ErrorBody),
    (status = 429, description = "Too many runs are active", body = ErrorBody),
    (status = 500, description = "The process could not be started", body = ErrorBody),
))]
async fn create(State(service): State<Arc<Service>>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let kind = content_type(&parts.headers);
    let is_json = match kind.as_str() {
        "application/json" => true,
        "application/toml" => false,
        _ => return Err(unsupported(&kind, "application/toml for the text of a scenario, or application/json")),
    };
    let start_at = parts.uri.query().map(start_of).transpose()?;
    let text = text_of(body).await?;
    let scenario = if is_json { from_json(&text)? } else { text };
    let view = service.runs.create(&scenario, start_at.as_deref()).await?;
    let place = format!("/v1/runs/{}", view.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(view)).into_response())
}

/// The instant in the query of a request that starts a run. Its characters may be percent-encoded.
fn start_of(query: &str) -> Result<String, Problem> {
    let wrong = || {
        let remedy = "write ?start-at=INSTANT once, such as ?start-at=+5s or ?start-at=2026-11-25T18:00:00Z";
        Problem::new(StatusCode::BAD_REQUEST, "the query is wrong", remedy).at("start-at")
    };
    let written = query.strip_prefix("start-at=").filter(|written| !written.contains('&')).ok_or_else(wrong)?;
    // In forms, '+' stands for a space. Other plus signs start a delay such as +5s, or an offset from UTC.
    let written = written.replace("+TAI", " TAI");
    percent_decode_str(&written).decode_utf8().map(String::from).map_err(|_| wrong())
}

/// A run
#[utoipa::path(get, path = "/v1/runs/{id}", operation_id = "getRun", params(("id" = u64, Path, description = "The number of the run", minimum = 1)), responses(
    (status = 200, description = "State, warnings, caveats and figures", body = RunView),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn run(State(service): State<Arc<Service>>, RunId(id): RunId) -> Result<Json<RunView>, Problem> {
    service.runs.get(id).await.map(Json)
}

/// End a run, or forget one that has ended
#[utoipa::path(delete, path = "/v1/runs/{id}", operation_id = "endRun", params(("id" = u64, Path, description = "The number of the run", minimum = 1)), responses(
    (status = 202, description = "The run is still active and was asked to end; its report stays until it is deleted again", body = RunView),
    (status = 204, description = "The run had ended and was removed"),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn end(State(service): State<Arc<Service>>, RunId(id): RunId) -> Result<Response, Problem> {
    Ok(match service.runs.end(id).await? {
        Ending::Asked(view) => (StatusCode::ACCEPTED, Json(*view)).into_response(),
        Ending::Forgotten => StatusCode::NO_CONTENT.into_response(),
    })
}

/// The report of a run that has ended
#[utoipa::path(get, path = "/v1/runs/{id}/report", operation_id = "getReport", params(("id" = u64, Path, description = "The number of the run", minimum = 1)), responses(
    (status = 200, description = "The report, as --json prints it; its schema is in docs/reference/report.schema.json", content_type = "application/json", body = Object),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 409, description = "The run has not ended, or has no report because it failed", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn report(State(service): State<Arc<Service>>, RunId(id): RunId) -> Result<Response, Problem> {
    let report = service.runs.report(id)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], report).into_response())
}

/// The report of a run that has ended, drawn
#[utoipa::path(get, path = "/v1/runs/{id}/page", operation_id = "getPage", params(("id" = u64, Path, description = "The number of the run", minimum = 1)), responses(
    (status = 200, description = "The page that --report writes: HTML that needs nothing else", content_type = "text/html", body = String),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 409, description = "The run has not ended, or has no page because it failed, or this service belongs to one run", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn drawn_report(State(service): State<Arc<Service>>, RunId(id): RunId) -> Result<Response, Problem> {
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = [(header::CONTENT_SECURITY_POLICY, policy)];
    Ok((headers, Html(service.runs.page(id)?)).into_response())
}

/// What can be changed in a run
#[utoipa::path(get, path = "/v1/runs/{id}/settings", operation_id = "getSettings", params(("id" = u64, Path, description = "The number of the run", minimum = 1)), responses(
    (status = 200, description = "All settings with their values; none in virtual time", body = SettingList),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 409, description = "The run is starting", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn settings(State(service): State<Arc<Service>>, RunId(id): RunId) -> Result<Json<SettingList>, Problem> {
    Ok(Json(SettingList { settings: service.runs.settings(id).await? }))
}

/// Change settings of a run
///
/// All of them take effect at one instant between two frames, or none does.
#[utoipa::path(patch, path = "/v1/runs/{id}/settings", operation_id = "changeSettings", params(("id" = u64, Path, description = "The number of the run", minimum = 1)),
    request_body(content = ChangeRequest, content_type = "application/json"),
    responses(
    (status = 202, description = "The change was checked and will take effect", body = Accepted),
    (status = 400, description = "A query was given, or the body is truncated", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 408, description = "The body took too long", body = ErrorBody),
    (status = 409, description = "The run is starting, has ended, or cannot be changed", body = ErrorBody),
    (status = 413, description = "The body is too long", body = ErrorBody),
    (status = 415, description = "The content type is not JSON", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
    (status = 422, description = "A path or value is wrong; nothing was changed", body = ErrorBody),
))]
async fn change(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    RunId(id): RunId,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let kind = content_type(&parts.headers);
    if kind != "application/json" {
        return Err(unsupported(&kind, "application/json"));
    }
    let text = text_of(body).await?;
    let asked: ChangeRequest = serde_json::from_str(&text).map_err(|error| {
        let remedy = r#"write {"set": {"down.rate": "5Gbps"}}, with "at_ns" for an instant"#;
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string(), remedy)
    })?;
    if asked.set.is_empty() {
        let remedy = r#"write {"set": {"down.rate": "5Gbps"}}"#;
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "no setting is named", remedy).at("set"));
    }
    let change = Change { set: asked.set, at_ns: asked.at_ns, by: peer.name() };
    Ok((StatusCode::ACCEPTED, Json(service.runs.change(id, change).await?)).into_response())
}

/// The changes that have taken effect
#[utoipa::path(get, path = "/v1/runs/{id}/changes", operation_id = "getChanges",
    params(("id" = u64, Path, description = "The number of the run", minimum = 1), ("after" = Option<u64>, Query, description = "Leave out the first changes")),
    responses(
    (status = 200, description = "The changes, in the order in which they took effect", body = ChangeList),
    (status = 400, description = "The query is wrong", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 409, description = "The run is starting", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn changes(
    State(service): State<Arc<Service>>,
    RunId(id): RunId,
    request: Request,
) -> Result<Json<ChangeList>, Problem> {
    let wrong = || {
        Problem::new(StatusCode::BAD_REQUEST, "the query is wrong", "write ?after=N, with a whole number").at("after")
    };
    let after = match request.uri().query() {
        None => 0,
        Some(query) => {
            let digits = query.strip_prefix("after=").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            let number = digits.and_then(|digits| digits.parse::<i64>().ok());
            number.and_then(|number| u64::try_from(number).ok()).ok_or_else(wrong)?
        }
    };
    Ok(Json(ChangeList { changes: service.runs.applied(id, after).await? }))
}

/// Pause departures
#[utoipa::path(post, path = "/v1/runs/{id}/pause", operation_id = "pauseRun", params(("id" = u64, Path, description = "The number of the run", minimum = 1)), responses(
    (status = 202, description = "Departures will pause", body = Accepted),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 409, description = "The run is starting, has ended, or cannot be paused", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn pause(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    RunId(id): RunId,
) -> Result<Response, Problem> {
    Ok((StatusCode::ACCEPTED, Json(service.runs.pause(id, &peer.name(), false).await?)).into_response())
}

/// Resume departures
#[utoipa::path(post, path = "/v1/runs/{id}/resume", operation_id = "resumeRun", params(("id" = u64, Path, description = "The number of the run", minimum = 1)), responses(
    (status = 202, description = "Departures will resume", body = Accepted),
    (status = 400, description = "A query was given", body = ErrorBody),
    (status = 401, description = "The token is missing or wrong", body = ErrorBody),
    (status = 403, description = "Another user's service", body = ErrorBody),
    (status = 404, description = "There is no such run", body = ErrorBody),
    (status = 409, description = "The run is starting, has ended, or cannot be paused", body = ErrorBody),
    (status = 421, description = "The Host header names another host", body = ErrorBody),
))]
async fn resume(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    RunId(id): RunId,
) -> Result<Response, Problem> {
    Ok((StatusCode::ACCEPTED, Json(service.runs.pause(id, &peer.name(), true).await?)).into_response())
}

/// The content type without its parameters, in lower case.
fn content_type(headers: &HeaderMap) -> String {
    let written = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    written.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn unsupported(kind: &str, takes: &str) -> Problem {
    let message =
        if kind.is_empty() { "there is no content type".to_owned() } else { format!("{kind:?} is not taken") };
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message, format!("send {takes}")).at("Content-Type")
}

/// Reads a complete body.
async fn text_of(body: Body) -> Result<String, Problem> {
    let slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took longer than 10 s", "send it at once");
    let read = timeout(SLOWEST_BODY, to_bytes(body, LARGEST_BODY)).await.map_err(slow)?;
    let bytes = read.map_err(|error| match error.source().is_some_and(|cause| cause.is::<LengthLimitError>()) {
        true => {
            let message = format!("the body has more than {LARGEST_BODY} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message, "put long tables into files")
        }
        false => Problem::new(
            StatusCode::BAD_REQUEST,
            "the body is truncated",
            "send as many bytes as Content-Length states",
        ),
    })?;
    String::from_utf8(bytes.into()).map_err(|error| {
        let message = format!("the body is not text: {}", error.utf8_error());
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message, "send UTF-8")
    })
}

/// Converts a scenario from JSON to the text of a scenario file.
///
/// # Errors
/// The text is not a JSON object, or has values that are not possible in a scenario.
pub fn scenario_from_json(text: &str) -> Result<String, ErrorDetail> {
    from_json(text).map_err(Problem::into_detail)
}

/// The same, with the error as a response.
fn from_json(text: &str) -> Result<String, Problem> {
    let wrong = |what: String| {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            what,
            "send the tables and values of a scenario as one JSON object, without null",
        )
    };
    // A serde value would accept duplicate names.
    let table: toml::Table = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    if let Some(number) = table.values().find_map(beyond_64_bits) {
        return Err(wrong(format!("{number:e} does not fit into 64 bits")));
    }
    toml::to_string(&table).map_err(|error| wrong(error.to_string()))
}

/// The first whole number that exceeds 64 bits. The JSON reader has already rounded it to a float.
fn beyond_64_bits(value: &toml::Value) -> Option<f64> {
    const FIRST_BEYOND: f64 = (1u64 << 63) as f64;
    match value {
        toml::Value::Float(number) => Some(*number).filter(|number| number.abs() >= FIRST_BEYOND),
        toml::Value::Array(values) => values.iter().find_map(beyond_64_bits),
        toml::Value::Table(table) => table.values().find_map(beyond_64_bits),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_becomes_the_same_scenario() {
        let text = from_json(r#"{"schema": 1, "pipeline": [{"name": "a", "gap": "10us"}]}"#).expect("a scenario");
        let table: toml::Table = text.parse().expect("TOML");
        assert_eq!(table["pipeline"][0]["gap"].as_str(), Some("10us"));
        for text in
            ["", "[]", "{\"a\": null}", "{\"a\": 1", "1", "{\"a\": 99999999999999999999}", "{\"a\": [{\"b\": -1e19}]}"]
        {
            assert!(from_json(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_instant_is_read_from_the_query_however_its_signs_are_written() {
        for (query, wanted) in [
            ("start-at=+5s", Some("+5s")),
            ("start-at=%2B5s", Some("+5s")),
            ("start-at=2026-11-25T19:00:00+01:00", Some("2026-11-25T19:00:00+01:00")),
            ("start-at=2026-11-25T19%3A00%3A00%2B01%3A00", Some("2026-11-25T19:00:00+01:00")),
            ("start-at=2026-11-25T18:00:37+TAI", Some("2026-11-25T18:00:37 TAI")),
            ("start-at=2026-11-25T18:00:37%20TAI", Some("2026-11-25T18:00:37 TAI")),
            ("start-at=", Some("")),
            ("start_at=+5s", None),
            ("start-at", None),
            ("", None),
            ("start-at=+5s&start-at=+6s", None),
            ("start-at=%ff", None),
        ] {
            assert_eq!(start_of(query).ok().as_deref(), wanted, "{query}");
        }
    }

    #[test]
    fn each_answer_that_is_an_error_has_the_same_body() {
        let document: serde_json::Value = serde_json::from_str(&openapi()).expect("JSON");
        let mut errors = 0;
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                for (status, answer) in operation["responses"].as_object().expect("answers") {
                    if status.starts_with('4') || status.starts_with('5') {
                        let schema = &answer["content"]["application/json"]["schema"]["$ref"];
                        assert_eq!(schema, "#/components/schemas/ErrorBody", "{method} {path} {status}");
                        errors += 1;
                    }
                }
            }
        }
        assert!(errors > 50);
    }
}

//! The API over HTTP.

use crate::api::{Api, Reply, Request};
use crate::grpc;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use serde_json::{Value, json};
use std::sync::Arc;

/// The largest body of a request in bytes: a configuration of some 10 000 flows.
pub const LARGEST_BODY: usize = 16 << 20;

/// The routes of the API, including its gRPC calls.
pub fn router(api: Arc<Api>) -> Router {
    let serve = |request| move |State(api): State<Arc<Api>>, body: Bytes| handle(api, request, body);
    Router::new()
        .route(
            "/config",
            get(serve(Request::GetConfig)).post(serve(Request::SetConfig)).patch(serve(Request::UpdateConfig)),
        )
        .route("/config/append", patch(serve(Request::AppendConfig)))
        .route("/config/delete", patch(serve(Request::DeleteConfig)))
        .route("/control/state", post(serve(Request::SetControlState)))
        .route("/control/action", post(serve(Request::SetControlAction)))
        .route("/monitor/metrics", post(serve(Request::GetMetrics)))
        .route("/monitor/states", post(serve(Request::GetStates)))
        .route("/monitor/capture", post(serve(Request::GetCapture)))
        .route("/capabilities/version", get(serve(Request::GetVersion)))
        .route("/otg.Openapi/{call}", post(grpc::call))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(api)
}

async fn unknown(method: Method, uri: Uri) -> Response {
    error(StatusCode::NOT_FOUND, &format!("netlathe does not serve {method} {}", uri.path()))
}

fn error(status: StatusCode, text: &str) -> Response {
    json_response(status, &json!({ "code": status.as_u16(), "kind": "validation", "errors": [text] }))
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn handle(api: Arc<Api>, request: Request, body: Bytes) -> Response {
    // Requests wait for senders and neighbours, so they must not block the thread that serves connections.
    let done = tokio::task::spawn_blocking(move || {
        let value = if body.is_empty() { Ok(json!({})) } else { serde_json::from_slice(&body) };
        match value {
            Err(why) => error(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {why}")),
            Ok(value) => match api.handle(request, &value) {
                Ok(Reply::Json(value)) => json_response(StatusCode::OK, &value),
                Ok(Reply::Bytes(bytes)) => {
                    ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
                }
                Err(refusal) => json_response(StatusCode::BAD_REQUEST, &refusal.json()),
            },
        }
    });
    done.await.unwrap_or_else(|_| {
        json_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({ "code": 500, "kind": "internal", "errors": ["the request failed: see the messages of netlathe"] }),
        )
    })
}

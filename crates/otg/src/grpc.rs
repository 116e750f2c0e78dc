//! The interface over gRPC: the same requests as over HTTP, on the same port. A call is a POST of HTTP/2 whose body is one
//! message with a prefix of five bytes.

use crate::api::{Api, Refusal, Reply, Request};
use crate::proto::SCHEMA;
use crate::reader::Problem;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

const OK: u8 = 0;
const INVALID_ARGUMENT: u8 = 3;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
/// Length of the prefix: a compression flag and the length of the message.
const PREFIX: usize = 5;

/// Serves a call.
pub(crate) async fn call(State(api): State<Arc<Api>>, Path(name): Path<String>, body: Bytes) -> Response {
    let done = tokio::task::spawn_blocking(move || carry_out(&api, &name, &body)).await;
    done.unwrap_or_else(|_| failed(INTERNAL, "the request failed: see the messages of netlathe"))
}

fn carry_out(api: &Api, name: &str, body: &[u8]) -> Response {
    let request = match name {
        "SetConfig" => Request::SetConfig,
        "GetConfig" => Request::GetConfig,
        "UpdateConfig" => Request::UpdateConfig,
        "SetControlState" => Request::SetControlState,
        "SetControlAction" => Request::SetControlAction,
        "GetMetrics" => Request::GetMetrics,
        "GetStates" => Request::GetStates,
        "GetCapture" => Request::GetCapture,
        "GetVersion" => Request::GetVersion,
        _ => return failed(UNIMPLEMENTED, &format!("netlathe does not serve the call {name}")),
    };
    let Some((asks, answers)) = SCHEMA.call(name) else {
        return failed(UNIMPLEMENTED, &format!("netlathe does not serve the call {name}"));
    };
    let message = match body.split_at_checked(PREFIX) {
        Some(([0, length @ ..], message))
            if u32::from_be_bytes(*length.first_chunk().unwrap_or(&[0; 4])) as usize == message.len() =>
        {
            message
        }
        Some(([1, ..], _)) => return failed(UNIMPLEMENTED, "compressed messages are not served"),
        _ => return failed(INVALID_ARGUMENT, "the body is not one message"),
    };
    let handled = decoded(asks, message).map_err(Refusal::from).and_then(|value| api.handle(request, &value));
    let mut answer = Vec::new();
    match handled {
        Err(refusal) => return failed(INVALID_ARGUMENT, &refusal.json().to_string()),
        Ok(Reply::Bytes(file)) => SCHEMA.encode_file(answers, &file, &mut answer),
        Ok(Reply::Json(value)) => {
            let field = SCHEMA.wrapped(answers).unwrap_or_default();
            SCHEMA.encode(answers, &json!({ field: value }), &mut answer);
        }
    }
    let mut framed = vec![0];
    framed.extend((answer.len() as u32).to_be_bytes());
    framed.extend(answer);
    let trailers = std::future::ready(Some(Ok::<_, Infallible>(status(OK, ""))));
    response(HeaderMap::new(), Body::new(Full::new(Bytes::from(framed)).with_trailers(trailers)))
}

/// The message inside that of a call, with paths as over HTTP.
fn decoded(message: &str, bytes: &[u8]) -> Result<Value, Problem> {
    let Some(field) = SCHEMA.wrapped(message) else { return SCHEMA.decode(message, bytes, "") };
    let mut whole = SCHEMA.decode(message, bytes, "").map_err(|problem| {
        let path = problem.path.strip_prefix(field).map(|path| path.trim_start_matches('.').to_owned());
        Problem { path: path.unwrap_or(problem.path), what: problem.what }
    })?;
    Ok(whole.get_mut(field).map_or_else(|| json!({}), Value::take))
}

fn failed(code: u8, text: &str) -> Response {
    response(status(code, text), Body::empty())
}

fn status(code: u8, text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    // As the protocol has it: bytes other than printable ASCII, and %, are in hexadecimal.
    let mut message = String::new();
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            message.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _written = write!(message, "%{byte:02X}");
        }
    }
    if let Ok(message) = HeaderValue::from_str(&message) {
        headers.insert("grpc-message", message);
    }
    headers
}

fn response(headers: HeaderMap, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

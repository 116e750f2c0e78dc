//! The API over gRPC: the same requests as over HTTP, on the same port. A call is an HTTP/2 POST whose body is one
//! message with a prefix of five bytes. In calls whose names begin with `stream`, the request or the response consists
//! of several messages, each with a part of one message or file.

use crate::api::{Api, Refusal, Reply, Request};
use crate::proto::SCHEMA;
use crate::reader::{Problem, Read};
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
/// The message that contains a part of another message, or of a file.
const PARTS: &str = "Data";
/// Maximum size of a part in bytes. Clients accept messages of up to 4 MiB by default.
const PART: usize = 1 << 20;

/// Maximum number of characters of an error text. Clients reject headers of more than 8 KiB.
const LONGEST_MESSAGE: usize = 4 << 10;

/// Serves a call.
pub(crate) async fn call(State(api): State<Arc<Api>>, Path(name): Path<String>, body: Bytes) -> Response {
    let done = tokio::task::spawn_blocking(move || carry_out(&api, &name, &body)).await;
    done.unwrap_or_else(|_| failed(INTERNAL, "the request failed: see the messages of netlathe"))
}

fn carry_out(api: &Api, name: &str, body: &[u8]) -> Response {
    let plain = name.strip_prefix("stream").unwrap_or(name);
    let request = match plain {
        "SetConfig" => Request::SetConfig,
        "GetConfig" => Request::GetConfig,
        "UpdateConfig" => Request::UpdateConfig,
        "AppendConfig" => Request::AppendConfig,
        "DeleteConfig" => Request::DeleteConfig,
        "SetControlState" => Request::SetControlState,
        "SetControlAction" => Request::SetControlAction,
        "GetMetrics" => Request::GetMetrics,
        "GetStates" => Request::GetStates,
        "GetCapture" => Request::GetCapture,
        "GetVersion" => Request::GetVersion,
        _ => return failed(UNIMPLEMENTED, &format!("netlathe does not serve the call {name}")),
    };
    let (Some((asks, answers)), Some((plain_asks, plain_answers))) = (SCHEMA.call(name), SCHEMA.call(plain)) else {
        return failed(UNIMPLEMENTED, &format!("netlathe does not serve the call {name}"));
    };
    let messages = match messages(body) {
        Ok(messages) => messages,
        Err((code, why)) => return failed(code, why),
    };
    let value = if asks == PARTS {
        let parts = messages.iter().map(|message| SCHEMA.decode_file(PARTS, message)).collect::<Read<Vec<_>>>();
        let inner = SCHEMA.content_of(plain_asks).unwrap_or_default();
        parts.and_then(|parts| SCHEMA.decode(inner, &parts.concat(), ""))
    } else {
        match messages[..] {
            [message] => decoded(asks, message),
            _ => return failed(INVALID_ARGUMENT, "the body is not one message"),
        }
    };
    let mut answer = Vec::new();
    let in_parts = answers == PARTS;
    match value.map_err(Refusal::from).and_then(|value| api.handle(request, &value)) {
        Err(refusal) => return failed(INVALID_ARGUMENT, &short_json(&refusal)),
        Ok(Reply::Bytes(file)) if in_parts => answer = file,
        Ok(Reply::Bytes(file)) => SCHEMA.encode_file(answers, &file, &mut answer),
        Ok(Reply::Json(value)) if in_parts => {
            SCHEMA.encode(SCHEMA.content_of(plain_answers).unwrap_or_default(), &value, &mut answer);
        }
        Ok(Reply::Json(value)) => {
            let field = SCHEMA.wrapped(answers).unwrap_or_default();
            SCHEMA.encode(answers, &json!({ field: value }), &mut answer);
        }
    }
    let mut framed = Vec::new();
    let mut frame = |message: &[u8]| {
        framed.push(0);
        framed.extend((message.len() as u32).to_be_bytes());
        framed.extend(message);
    };
    if in_parts {
        for part in answer.chunks(PART) {
            let mut message = Vec::new();
            SCHEMA.encode_file(answers, part, &mut message);
            frame(&message);
        }
    } else {
        frame(&answer);
    }
    let trailers = std::future::ready(Some(Ok::<_, Infallible>(status(OK, ""))));
    response(HeaderMap::new(), Body::new(Full::new(Bytes::from(framed)).with_trailers(trailers)))
}

/// The messages of a body, without their prefixes.
fn messages(body: &[u8]) -> Result<Vec<&[u8]>, (u8, &'static str)> {
    let (mut messages, mut rest) = (Vec::new(), body);
    while !rest.is_empty() {
        let cut = (INVALID_ARGUMENT, "a message of the body is cut");
        let (prefix, behind) = rest.split_first_chunk::<PREFIX>().ok_or(cut)?;
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err((UNIMPLEMENTED, "compressed messages are not served"));
        }
        let (message, behind) = behind.split_at_checked(u32::from_be_bytes(length) as usize).ok_or(cut)?;
        messages.push(message);
        rest = behind;
    }
    Ok(messages)
}

/// Decodes the message inside that of a call, with the same paths as over HTTP.
fn decoded(message: &str, bytes: &[u8]) -> Read<Value> {
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

/// The error object of the model, short enough for a header. The first problems are complete, the others are only
/// counted.
fn short_json(refusal: &Refusal) -> String {
    let mut shown = refusal.0.len();
    loop {
        let mut problems = refusal.0[..shown].to_vec();
        let rest = refusal.0.len() - shown;
        if rest > 0 {
            problems.push(Problem::new("", format!("problems not shown here: {rest}. Over HTTP all are listed")));
        }
        let text = Refusal(problems).json().to_string();
        if shown == 0 || header_text(&text).len() <= LONGEST_MESSAGE {
            return text;
        }
        shown = if shown == refusal.0.len() { shown.min(16) - 1 } else { shown - 1 };
    }
}

/// Encodes text for a header: `%` and all bytes except printable ASCII become hexadecimal.
fn header_text(text: &str) -> String {
    let mut message = String::new();
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            message.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _written = write!(message, "%{byte:02X}");
        }
    }
    message
}

fn status(code: u8, text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", HeaderValue::from(u16::from(code)));
    if let Ok(message) = HeaderValue::from_str(&header_text(text)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_fit_a_header() {
        let problem = |n: usize, length: usize| Problem::new(&format!("flows[{n}]"), "é".repeat(length));
        for (count, length) in [(1, 10), (500, 10), (40, 400), (1, 9_000)] {
            let refusal = Refusal((0..count).map(|n| problem(n, length)).collect());
            let text = short_json(&refusal);
            assert!(header_text(&text).len() <= LONGEST_MESSAGE, "{count} of {length}");
            let read: Value = serde_json::from_str(&text).expect("JSON");
            let errors = read["errors"].as_array().expect("a list");
            let last = errors.last().and_then(Value::as_str).expect("a text");
            match last.strip_prefix("problems not shown here: ").and_then(|rest| rest.split_once('.')) {
                Some((rest, _)) => assert_eq!(errors.len() - 1 + rest.parse::<usize>().expect("a number"), count),
                None => assert_eq!(errors.len(), count),
            }
        }
    }
}

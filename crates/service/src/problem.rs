//! Errors for clients: a status, and JSON with the problem, its position and the remedy.

use crate::control::{Refusal, RefusalKind};
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// What is wrong, where, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// What is wrong.
    pub message: String,
    /// Where: a path, a field, a line of the scenario.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// How to fix it.
    pub remedy: String,
}

/// An error of a request.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: ErrorDetail,
    is_early: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Problem {
            status,
            detail: ErrorDetail { message: message.into(), at: None, remedy: remedy.into() },
            is_early: false,
        }
    }

    pub(crate) fn into_detail(self) -> ErrorDetail {
        self.detail
    }

    pub(crate) fn at(mut self, at: impl Into<String>) -> Self {
        self.detail.at = Some(at.into());
        self
    }

    pub(crate) fn no_run(id: &str) -> Self {
        Problem::new(StatusCode::NOT_FOUND, format!("there is no run {id}"), "GET /v1/runs lists all runs")
    }

    /// Forwards an error response of the service of a run.
    pub(crate) fn passed_on(status: StatusCode, body: ErrorBody) -> Self {
        Problem { status, detail: body.error, is_early: false }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.kind {
            RefusalKind::Unknown | RefusalKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            RefusalKind::Conflict | RefusalKind::Early | RefusalKind::Unsupported => StatusCode::CONFLICT,
        };
        let is_early = refusal.kind == RefusalKind::Early;
        let detail = ErrorDetail { message: refusal.message, at: refusal.at, remedy: refusal.remedy };
        Problem { status, detail, is_early }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorBody { error: self.detail })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.is_early {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

//! Owns the format of every error: a code for programs, a message and a hint for people. Never knows a route.

use serde::Serialize;
use utoipa::ToSchema;

/// What every reply that is not a success holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct Failure {
    pub error: ErrorBody,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// For programs: invalid, unauthenticated, forbidden, password (to be changed first), not_found, exists, busy, unsupported, no_room, too_large,
    /// rate_limited, failed, unreachable (another node of the cluster), timeout, loading, stopping.
    pub code: &'static str,
    /// For people, with the calculation if there is one.
    pub message: String,
    /// What to do; may be empty.
    pub hint: String,
    /// Which fields of the request are wrong, and why.
    pub fields: Vec<FieldError>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

#[derive(Debug)]
pub struct ApiError {
    pub status: u16,
    pub body: Box<ErrorBody>,
    /// For status 429: after how many seconds to try again.
    pub retry_after_s: Option<u64>,
}

impl ApiError {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        let body = ErrorBody { code, message: message.into(), hint: String::new(), fields: Vec::new() };
        ApiError { status, body: Box::new(body), retry_after_s: None }
    }

    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "invalid", message)
    }

    /// One field of the request is wrong.
    pub fn field(field: &str, message: impl Into<String>) -> ApiError {
        let message = message.into();
        let mut error = ApiError::invalid(format!("{field}: {message}"));
        error.body.fields.push(FieldError { field: field.to_owned(), message });
        error
    }

    pub fn unauthenticated(message: impl Into<String>) -> ApiError {
        ApiError::new(401, "unauthenticated", message)
    }

    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(403, "forbidden", message)
    }

    /// The user's role is too low.
    pub fn role(needed: &str, user: &str, role: &str) -> ApiError {
        ApiError::forbidden(format!("this needs the role {needed}, and {user} is {role}")).hint("ask an administrator")
    }

    /// The user's password was chosen by somebody else and must be changed first.
    pub fn password(user: &str) -> ApiError {
        ApiError::new(403, "password", format!("{user} must choose a new password first"))
            .hint("on the page Account, or by flintkv user passwd NAME, or PUT /api/v1/session/password")
    }

    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(404, "not_found", message)
    }

    pub fn exists(message: impl Into<String>) -> ApiError {
        ApiError::new(409, "exists", message)
    }

    pub fn busy(message: impl Into<String>) -> ApiError {
        ApiError::new(409, "busy", message)
    }

    pub fn unsupported(message: impl Into<String>) -> ApiError {
        ApiError::new(422, "unsupported", message)
    }

    pub fn no_room(message: impl Into<String>) -> ApiError {
        ApiError::new(422, "no_room", message).hint(
            "ask for less, or shrink or delete another database first: flintkv node show, or GET /api/v1/node, shows what each database has",
        )
    }

    pub fn too_large(message: impl Into<String>) -> ApiError {
        ApiError::new(413, "too_large", message)
    }

    pub fn rate_limited(message: impl Into<String>, retry_after_s: u64) -> ApiError {
        let mut error = ApiError::new(429, "rate_limited", message);
        error.retry_after_s = Some(retry_after_s.max(1));
        error
    }

    /// A failure on the server's side: a file, or a connection to the database.
    pub fn failed(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "failed", message)
    }

    pub fn timeout(message: impl Into<String>) -> ApiError {
        ApiError::new(504, "timeout", message)
    }

    /// Another node of the cluster does not answer this one.
    pub fn unreachable(message: impl Into<String>) -> ApiError {
        ApiError::new(502, "unreachable", message)
    }

    /// The node is still loading its datasets.
    pub fn loading(message: impl Into<String>) -> ApiError {
        ApiError::new(503, "loading", message)
            .hint("try again: flintkv database list, or GET /api/v1/databases, shows the progress")
    }

    pub fn stopping() -> ApiError {
        ApiError::new(503, "stopping", "the node is stopping").hint("try again after the node has started")
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> ApiError {
        self.body.hint = hint.into();
        self
    }

    #[must_use]
    pub fn at(mut self, field: &str) -> ApiError {
        let message = self.body.message.clone();
        self.body.fields.push(FieldError { field: field.to_owned(), message });
        self
    }

    pub fn message(&self) -> &str {
        &self.body.message
    }
}

impl From<node::NodeError> for ApiError {
    fn from(error: node::NodeError) -> ApiError {
        use node::NodeError;
        let text = error.to_string();
        match error {
            NodeError::Invalid { field, message } => ApiError::field(field, message),
            NodeError::NoRoom { .. } => ApiError::no_room(text),
            NodeError::Exists(_) => ApiError::exists(text),
            NodeError::NotFound(_) => ApiError::not_found(text),
            NodeError::Unsupported { field, .. } => ApiError::unsupported(text).at(field),
            NodeError::Busy(_) => ApiError::busy(text).hint("try again when that change is done"),
            NodeError::Io(_) => ApiError::failed(text),
        }
    }
}

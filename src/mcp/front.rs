//! Front: takes an HTTP request of any MCP client and picks the SDK service that serves it.
//!
//! The SDK serves clients that keep a session and clients that do not by different rules, and is strict
//! about headers that plain clients leave out. The front reads just enough of a request to choose, and
//! answers what is no JSON-RPC request itself, as JSON-RPC.

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    response::Response,
};
use bytes::BytesMut;
use http::{HeaderValue, Method, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{local::LocalSessionManager, never::NeverSessionManager},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Handler, tools::upload_file};
use crate::config::Config;

/// Sessions at one time. Each holds some 50 KB for as long as its client stays away.
const MAX_SESSIONS: usize = 1_000;

/// How much longer than the longest run a silent session is kept: a client may think between calls.
const SESSION_GRACE: Duration = Duration::from_secs(600);

/// Room in a request for everything but the code or the file.
const ENVELOPE_BYTES: usize = 256 << 10;

/// Longest pause within a request's body.
const BODY_PAUSE: Duration = Duration::from_secs(15);

/// Longest time for a request's body: the largest upload over a slow line.
const BODY_LIMIT: Duration = Duration::from_secs(300);

/// Session id header, from revision 2025-03-26 to 2025-11-25.
const SESSION_HEADER: &str = "mcp-session-id";

/// What the SDK asks every client to accept.
const BOTH_FORMS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Both services behind one endpoint.
#[derive(Clone)]
pub(crate) struct Front {
    with_session: StreamableHttpService<Handler, LocalSessionManager>,
    without_session: StreamableHttpService<Handler, NeverSessionManager>,
    sessions: Arc<LocalSessionManager>,
    max_body_bytes: usize,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Front")
            .field("max_body_bytes", &self.max_body_bytes)
            .finish_non_exhaustive()
    }
}

impl Front {
    /// A front that ends its sessions when `stop` fires.
    pub(crate) fn new(config: &Config, handler: &Handler, stop: &CancellationToken) -> Self {
        // The largest file in base64, or the longest code with every byte escaped.
        let max_file_bytes = upload_file::max_bytes(config.max_upload_bytes);
        let max_body_bytes =
            (max_file_bytes / 3 * 4).max(config.max_code_bytes * 6) + ENVELOPE_BYTES;
        let rules = StreamableHttpServerConfig::default()
            .with_allowed_hosts(&config.allowed_hosts)
            .with_allowed_origins(&config.allowed_origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(max_body_bytes)
            .with_cancellation_token(stop.clone());
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(config.limits.timeout_max + SESSION_GRACE);
        let sessions = Arc::new(sessions);
        let factory = {
            let handler = handler.clone();
            move || Ok::<_, io::Error>(handler.clone())
        };
        Self {
            with_session: StreamableHttpService::new(
                factory.clone(),
                Arc::clone(&sessions),
                rules.clone(),
            ),
            without_session: StreamableHttpService::new(
                factory,
                Arc::new(NeverSessionManager::default()),
                rules
                    .with_legacy_session_mode(false)
                    .with_json_response(true),
            ),
            sessions,
            max_body_bytes,
        }
    }

    /// The whole body, as long as it keeps coming and stays within the limit.
    async fn read(&self, mut body: Body) -> Result<Bytes, Response> {
        let broke_off = || {
            refuse(
                StatusCode::BAD_REQUEST,
                -32700,
                "the request broke off",
                &Value::Null,
            )
        };
        let mut bytes = BytesMut::new();
        while let Some(frame) = timeout(BODY_PAUSE, body.frame())
            .await
            .map_err(|_| broke_off())?
        {
            let data = frame
                .map_err(|_| broke_off())?
                .into_data()
                .unwrap_or_default();
            if bytes.len() + data.len() > self.max_body_bytes {
                let message = format!(
                    "the request is larger than {} bytes; larger files come in through create_upload_url",
                    self.max_body_bytes
                );
                return Err(refuse(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    -32600,
                    &message,
                    &Value::Null,
                ));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }

    async fn post(&self, mut parts: Parts, body: Body) -> Response {
        let body = match timeout(BODY_LIMIT, self.read(body)).await {
            Ok(Ok(body)) => body,
            Ok(Err(refusal)) => return refusal,
            Err(_) => {
                return refuse(
                    StatusCode::REQUEST_TIMEOUT,
                    -32700,
                    "the request took too long",
                    &Value::Null,
                );
            }
        };
        let message = match Message::parse(&body) {
            Ok(message) => message,
            Err((code, reason)) => {
                return refuse(StatusCode::BAD_REQUEST, code, reason, &Value::Null);
            }
        };
        let takes_events = accepts_events(&parts);
        parts.headers.insert(header::ACCEPT, BOTH_FORMS);
        let opens_session = message.method.as_deref() == Some("initialize") && takes_events;
        if opens_session && self.sessions.sessions.read().await.len() >= MAX_SESSIONS {
            let id = &message.id.unwrap_or_default();
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                -32000,
                "too many sessions; try again later",
                id,
            );
        }
        let in_session = opens_session || parts.headers.contains_key(SESSION_HEADER);
        let request = http::Request::from_parts(parts, Full::new(body));
        let response = if in_session {
            self.with_session.handle(request).await
        } else {
            self.without_session.handle(request).await
        };
        as_json_rpc(response.map(Body::new))
    }
}

/// Serves `/mcp`.
pub(crate) async fn serve(State(front): State<Front>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method == Method::POST {
        front.post(parts, body).await
    } else {
        let request = Request::from_parts(parts, body);
        as_json_rpc(front.with_session.handle(request).await.map(Body::new))
    }
}

/// The SDK answers in words what it cannot take for a request. Clients expect JSON-RPC.
fn as_json_rpc(response: Response) -> Response {
    let status = response.status();
    let media_type = response.headers().get(header::CONTENT_TYPE);
    if !status.is_client_error()
        || media_type.is_some_and(|form| form.as_bytes().starts_with(b"application/json"))
    {
        return response;
    }
    let (status, code, message) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => (
            StatusCode::BAD_REQUEST,
            -32600,
            "this is not a request that MCP knows, sent as application/json",
        ),
        // The status is what tells clients to open a new session.
        StatusCode::NOT_FOUND => (
            status,
            -32001,
            "there is no such session; initialize a new one",
        ),
        StatusCode::FORBIDDEN => (
            status,
            -32600,
            "the Host or Origin header is not one of ALLOWED_HOSTS or ALLOWED_ORIGINS",
        ),
        _ => (
            status,
            -32600,
            status
                .canonical_reason()
                .unwrap_or("the request was refused"),
        ),
    };
    refuse(status, code, message, &Value::Null)
}

/// Plain clients, and curl with its `*/*`, want one JSON answer.
fn accepts_events(parts: &Parts) -> bool {
    let accepted = parts
        .headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|form| form.trim().starts_with("text/event-stream"))
}

/// What the front must know of a message; the SDK parses the rest.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    method: Option<Cow<'a, str>>,
    #[serde(default)]
    id: Option<Value>,
}

impl<'a> Message<'a> {
    fn parse(body: &'a Bytes) -> Result<Self, (i32, &'static str)> {
        let message: Self =
            serde_json::from_slice(body).map_err(|error| match error.classify() {
                serde_json::error::Category::Data if body.trim_ascii_start().starts_with(b"[") => (
                    -32600,
                    "batches are not supported; send one request at a time",
                ),
                serde_json::error::Category::Data => (-32600, "the body is not a JSON-RPC message"),
                _ => (-32700, "the body is not JSON"),
            })?;
        match message.jsonrpc.as_deref() {
            Some("2.0") => Ok(message),
            _ => Err((-32600, "the member jsonrpc must be \"2.0\"")),
        }
    }
}

fn refuse(status: StatusCode, code: i32, message: &str, id: &Value) -> Response {
    let error =
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let body = Bytes::from(bytes);
            if let Ok(message) = Message::parse(&body) {
                prop_assert_eq!(message.jsonrpc.as_deref(), Some("2.0"));
            }
        }

        #[test]
        fn almost_messages_are_told_from_messages(
            members in proptest::collection::vec(
                ("(jsonrpc|method|id|params|x)", "(\"2\\.0\"|\"initialize\"|null|1|-1\\.5|\\[\\]|\\{\\}|\"\\\\ud800\")"),
                0..6,
            ),
        ) {
            let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let body = Bytes::from(format!("{{{}}}", members.join(",")));
            let named: Vec<_> = members.iter().filter(|member| member.starts_with("\"jsonrpc\"")).collect();
            if Message::parse(&body).is_ok() {
                prop_assert_eq!(named, ["\"jsonrpc\":\"2.0\""]);
            }
        }
    }
}

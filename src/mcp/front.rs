//! Front: takes an HTTP request of any MCP client and picks the SDK service that serves it.
//!
//! The SDK serves clients that keep a session and clients that do not by different rules, and is strict
//! about headers that plain clients leave out. The front reads just enough of a request to choose, and
//! answers what is no JSON-RPC request itself, as JSON-RPC.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    response::Response,
};
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Full, Limited};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{local::LocalSessionManager, never::NeverSessionManager},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    Handler,
    message::{Malformed, Message},
    sessions::Sessions,
    tools::upload_file,
};
use crate::config::Config;

/// Sessions at one time beyond those that may be busy. Each holds some 50 KB, and many short ones leave as much
/// again behind in the allocator.
const THINKING_SESSIONS: usize = 12;

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
    sessions: Arc<Sessions>,
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
        // One for every run that is under way or waits, and some whose clients think.
        let limit = config.admission.running + config.admission.queued + THINKING_SESSIONS;
        let keep_alive = config.limits.timeout_max + SESSION_GRACE;
        let sessions = Arc::new(Sessions::new(limit, keep_alive));
        let factory = {
            let handler = handler.clone();
            move || Ok::<_, io::Error>(handler.clone())
        };
        Self {
            with_session: StreamableHttpService::new(
                factory.clone(),
                sessions.manager(),
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
            Err(Malformed { code, reason, id }) => {
                return refuse(StatusCode::BAD_REQUEST, code, reason, &id);
            }
        };
        let takes_events = accepts_events(&parts);
        parts.headers.insert(header::ACCEPT, BOTH_FORMS);
        if !takes_events {
            parts.extensions.insert(OneAnswer);
        }
        let opens_session = message.method.as_deref() == Some("initialize") && takes_events;
        if opens_session {
            let id = message.id.unwrap_or_default();
            return self.open_session(parts, body, &id).await;
        }
        if let Some(session) = session_of(&parts.headers) {
            let in_use = self.sessions.enter(&session);
            let request = http::Request::from_parts(parts, Full::new(body));
            let response = self.with_session.handle(request).await.map(Body::new);
            return as_json_rpc(keep_until_sent(in_use, response)).await;
        }
        let request = http::Request::from_parts(parts, Full::new(body));
        as_json_rpc(self.without_session.handle(request).await.map(Body::new)).await
    }

    async fn open_session(&self, parts: Parts, body: Bytes, id: &Value) -> Response {
        let Some(_opening) = self.sessions.make_room().await else {
            return refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                -32000,
                "too many sessions, and all of them busy; try again in a moment",
                id,
            );
        };
        let request = http::Request::from_parts(parts, Full::new(body));
        let response = self.with_session.handle(request).await.map(Body::new);
        as_json_rpc(match session_of(response.headers()) {
            Some(session) => keep_until_sent(self.sessions.enter(&session), response),
            None => response,
        })
        .await
    }
}

/// Serves `/mcp`.
pub(crate) async fn serve(State(front): State<Front>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method == Method::POST {
        return front.post(parts, body).await;
    }
    // A client that only listens is idle, for as long as it may.
    let _used = session_of(&parts.headers).map(|session| front.sessions.enter(&session));
    let ends_session = parts.method == Method::DELETE;
    let request = Request::from_parts(parts, body);
    let mut response = as_json_rpc(front.with_session.handle(request).await.map(Body::new)).await;
    // The SDK says 202, as if there were more to do; clients take that for a failure.
    if ends_session && response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response
}

/// Marks a request whose client wants one JSON answer: a notification before it would make it a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneAnswer;

fn session_of(headers: &HeaderMap) -> Option<String> {
    let session = headers.get(SESSION_HEADER)?.to_str().ok()?;
    Some(session.to_owned())
}

/// Holds `guard` until the response's body has been sent or given up.
fn keep_until_sent(guard: impl Send + 'static, response: Response) -> Response {
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &guard;
            frame
        }))
    })
}

/// The SDK answers in words what it cannot take for a request. Clients expect JSON-RPC.
async fn as_json_rpc(response: Response) -> Response {
    let status = response.status();
    let media_type = response.headers().get(header::CONTENT_TYPE);
    if !status.is_client_error()
        || media_type.is_some_and(|form| form.as_bytes().starts_with(b"application/json"))
    {
        return response;
    }
    let allow = response.headers().get(header::ALLOW).cloned();
    let said = Limited::new(response.into_body(), MAX_WORDS)
        .collect()
        .await;
    let said = said.map(|words| String::from_utf8_lossy(&words.to_bytes()).into_owned());
    let (status, code, message) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => (
            StatusCode::BAD_REQUEST,
            -32600,
            "this is not a request that MCP knows, sent as application/json".to_owned(),
        ),
        // The status is what tells clients to open a new session.
        StatusCode::NOT_FOUND => (
            status,
            -32001,
            "there is no such session; initialize a new one".to_owned(),
        ),
        StatusCode::FORBIDDEN => (
            status,
            -32600,
            "the Host or Origin header is not one of ALLOWED_HOSTS or ALLOWED_ORIGINS".to_owned(),
        ),
        _ => (status, -32600, said.unwrap_or_default()),
    };
    let mut refusal = refuse(status, code, &message, &Value::Null);
    if let Some(allow) = allow {
        refusal.headers_mut().insert(header::ALLOW, allow);
    }
    refusal
}

/// Bytes of the SDK's own words that are passed on.
const MAX_WORDS: usize = 4 << 10;

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

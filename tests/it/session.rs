//! Session: a client that keeps one, and reads its answers from streams of events.

use reqwest::Response;
use serde_json::{Value, json};

use crate::server::{Caller, TOKEN};

/// What clients that take streams say.
pub(crate) const BOTH_FORMS: &str = "application/json, text/event-stream";

/// A client that keeps a session.
#[derive(Debug)]
pub(crate) struct Session {
    client: reqwest::Client,
    url: String,
    id: String,
}

impl Session {
    /// Opens one, and returns it with the server's answer.
    pub(crate) async fn open(server: &Caller) -> (Self, Value) {
        let mut session = Self {
            client: reqwest::Client::new(),
            url: format!("{}/mcp", server.base_url()),
            id: String::new(),
        };
        let opened = session.post(&initialize()).await;
        assert_eq!(opened.headers()["content-type"], "text/event-stream");
        session.id = opened.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let hello = Events::of(opened).last().await;
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(&initialized).await.status(), 202);
        (session, hello)
    }

    pub(crate) async fn post(&self, body: &Value) -> Response {
        let mut request = self
            .client
            .post(&self.url)
            .bearer_auth(TOKEN)
            .header("content-type", "application/json")
            .header("accept", BOTH_FORMS)
            .body(body.to_string());
        if !self.id.is_empty() {
            request = request
                .header("mcp-session-id", &self.id)
                .header("mcp-protocol-version", "2025-06-18");
        }
        request.send().await.unwrap()
    }

    /// Takes up a stream where it was after the event `last`.
    pub(crate) async fn resume(&self, last: &str) -> Response {
        let request = self
            .client
            .get(&self.url)
            .bearer_auth(TOKEN)
            .header("accept", "text/event-stream")
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", "2025-06-18")
            .header("last-event-id", last);
        request.send().await.unwrap()
    }

    /// Ends it.
    pub(crate) async fn close(&self) {
        let close = self
            .client
            .delete(&self.url)
            .bearer_auth(TOKEN)
            .header("mcp-session-id", &self.id);
        assert_eq!(close.send().await.unwrap().status(), 204);
    }
}

/// The request that opens a session.
pub(crate) fn initialize() -> Value {
    let parameters = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" },
    });
    request(0, "initialize", &parameters)
}

pub(crate) fn request(id: u32, method: &str, parameters: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters })
}

/// A call of `run_code` that asks for progress.
pub(crate) fn run_bash(id: u32, code: &str) -> Value {
    let arguments = json!({ "language": "bash", "code": code });
    let parameters =
        json!({ "name": "run_code", "arguments": arguments, "_meta": { "progressToken": id } });
    request(id, "tools/call", &parameters)
}

/// The events of an answer, as they come (WHATWG HTML, server-sent events).
#[derive(Debug)]
pub(crate) struct Events {
    response: Response,
    unread: String,
}

/// One event with a message.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) message: Value,
}

impl Events {
    pub(crate) fn of(response: Response) -> Self {
        Self {
            response,
            unread: String::new(),
        }
    }

    /// The next one that has a message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.unread.find("\n\n") {
                let block: String = self.unread.drain(..end + 2).collect();
                if let Some(event) = event(&block) {
                    return Some(event);
                }
            }
            let chunk = self.response.chunk().await.ok()??;
            self.unread.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The message of the last one.
    pub(crate) async fn last(mut self) -> Value {
        let mut last = Value::Null;
        while let Some(event) = self.next().await {
            last = event.message;
        }
        last
    }
}

fn event(block: &str) -> Option<Event> {
    let field = |name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().to_owned())
    };
    let data = field("data:").filter(|data| !data.is_empty())?;
    Some(Event {
        id: field("id:"),
        message: serde_json::from_str(&data).unwrap(),
    })
}

//! MCP: plain clients, clients with a session, and what is no request.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    engine::{containers_of, docker},
    server::{TOKEN, TestServer},
};

#[tokio::test]
async fn plain_curl_needs_neither_accept_nor_initialize_nor_session() {
    let server = TestServer::start().await;
    for accept in [None, Some("*/*"), Some("application/json")] {
        let mut request = server.post(r#"{"jsonrpc":"2.0","id":"x","method":"tools/list"}"#);
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let response = request.send().await.unwrap();
        assert_eq!(
            response.headers()["content-type"],
            "application/json",
            "{accept:?}"
        );
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["id"], "x");
        let tools = answer["result"]["tools"].as_array().unwrap();
        let names: Vec<_> = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["run_code", "upload_file", "list_runners"]);
    }
}

/// A client that keeps a session.
struct Session {
    client: reqwest::Client,
    url: String,
    id: String,
}

impl Session {
    /// Opens one, and returns it with the server's answer.
    async fn open(server: &TestServer) -> (Self, Value) {
        let mut session = Self {
            client: reqwest::Client::new(),
            url: format!("{}/mcp", server.base_url()),
            id: String::new(),
        };
        let parameters = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" },
        });
        let opened = session.post(&request(0, "initialize", &parameters)).await;
        assert_eq!(opened.headers()["content-type"], "text/event-stream");
        session.id = opened.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let hello = last_event(&opened.text().await.unwrap());
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(&initialized).await.status(), 202);
        (session, hello)
    }

    async fn post(&self, body: &Value) -> reqwest::Response {
        let mut request = self
            .client
            .post(&self.url)
            .bearer_auth(TOKEN)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        if !self.id.is_empty() {
            request = request
                .header("mcp-session-id", &self.id)
                .header("mcp-protocol-version", "2025-06-18");
        }
        request.send().await.unwrap()
    }
}

fn request(id: u32, method: &str, parameters: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters })
}

fn run_bash(id: u32, code: &str) -> Value {
    let arguments = json!({ "language": "bash", "code": code });
    request(
        id,
        "tools/call",
        &json!({ "name": "run_code", "arguments": arguments }),
    )
}

#[tokio::test]
async fn a_session_is_opened_used_and_closed() {
    let server = TestServer::start().await;
    let (session, hello) = Session::open(&server).await;
    assert_eq!(hello["result"]["serverInfo"]["name"], "mcp-code-sandbox");
    assert!(
        hello["result"]["instructions"]
            .as_str()
            .unwrap()
            .contains("/data")
    );

    let run = session.post(&run_bash(1, "echo in session")).await;
    let run = last_event(&run.text().await.unwrap());
    assert_eq!(run["result"]["structuredContent"]["output"], "in session\n");

    let close = session
        .client
        .delete(&session.url)
        .bearer_auth(TOKEN)
        .header("mcp-session-id", &session.id);
    assert!(close.send().await.unwrap().status().is_success());
    let stale = session.post(&request(2, "tools/list", &json!({}))).await;
    assert_eq!(stale.status(), 404);
    let stale: Value = stale.json().await.unwrap();
    assert_eq!(stale["error"]["code"], -32001, "{stale}");
}

#[tokio::test]
async fn a_cancelled_call_of_a_session_ends_its_container_within_a_second() {
    let server = TestServer::start().await;
    let instance = server.instance();
    let (session, _) = Session::open(&server).await;
    let _call = session.post(&run_bash(7, "sleep 60")).await;
    let asked = Instant::now();
    while containers_of(&instance).is_empty() {
        assert!(
            asked.elapsed() < Duration::from_secs(10),
            "no container was made"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Until the program runs.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    assert_eq!(session.post(&cancel).await.status(), 202);
    let cancelled = Instant::now();
    let running = || {
        docker(&[
            "ps",
            "--quiet",
            "--filter",
            &format!("label=sandbox.owner={instance}"),
        ])
    };
    while !running().is_empty() {
        assert!(
            cancelled.elapsed() < Duration::from_secs(2),
            "the container still runs"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn last_event(stream: &str) -> Value {
    let mut data = stream.lines().filter_map(|line| line.strip_prefix("data:"));
    serde_json::from_str(data.next_back().unwrap().trim()).unwrap()
}

#[tokio::test]
async fn what_is_no_request_is_answered_as_json_rpc() {
    let server =
        TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "1m"), ("MAX_CODE_BYTES", "1m")]).await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = "x".repeat(8 << 20);
    for (body, status, code) in [
        ("", 400, -32700),
        ("{", 400, -32700),
        ("hello", 400, -32700),
        ("[]", 400, -32600),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#,
            400,
            -32600,
        ),
        ("3", 400, -32600),
        ("{}", 400, -32600),
        (r#"{"id":1,"method":"tools/list"}"#, 400, -32600),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#,
            400,
            -32600,
        ),
        (deep.as_str(), 400, -32600),
        (huge.as_str(), 413, -32600),
    ] {
        let response = server.post(body.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), status, "{body:.60}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{body:.60}: {answer}");
        assert_eq!(answer["jsonrpc"], "2.0");
    }
}

#[tokio::test]
async fn what_is_not_there_is_method_not_found() {
    let server = TestServer::start().await;
    for method in [
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "no/such",
    ] {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
        let answer: Value = server
            .post(request.to_string())
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "no_such" } });
    let answer: Value = server
        .post(request.to_string())
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_turned_away() {
    let server = TestServer::start().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (name, value, status) in [
        ("host", "evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:3000", 200),
        ("origin", server.base_url(), 200),
        ("host", "localhost", 200),
    ] {
        let response = server.post(body).header(name, value).send().await.unwrap();
        assert_eq!(response.status(), status, "{name}: {value}");
    }
}

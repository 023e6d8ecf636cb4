//! MCP: plain clients, clients with a session, and what is no request.

use serde_json::{Value, json};

use crate::server::{TOKEN, TestServer};

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

#[tokio::test]
async fn a_session_is_opened_used_and_closed() {
    let server = TestServer::start().await;
    let client = reqwest::Client::new();
    let url = format!("{}/mcp", server.base_url());
    let post = |session: Option<&str>, body: Value| {
        let mut request = client
            .post(&url)
            .bearer_auth(TOKEN)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        if let Some(session) = session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-06-18");
        }
        async { request.send().await.unwrap() }
    };
    let opened = post(None, json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" },
        },
    }))
    .await;
    assert_eq!(opened.headers()["content-type"], "text/event-stream");
    let session = opened.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let hello = last_event(&opened.text().await.unwrap());
    assert_eq!(hello["result"]["serverInfo"]["name"], "mcp-code-sandbox");
    assert!(
        hello["result"]["instructions"]
            .as_str()
            .unwrap()
            .contains("/data")
    );

    let accepted = post(
        Some(&session),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
    )
    .await;
    assert_eq!(accepted.status(), 202);
    let run = post(Some(&session), json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": { "language": "bash", "code": "echo in session" } },
    }))
    .await;
    let run = last_event(&run.text().await.unwrap());
    assert_eq!(run["result"]["structuredContent"]["output"], "in session\n");

    let closed = client
        .delete(&url)
        .bearer_auth(TOKEN)
        .header("mcp-session-id", &session)
        .send()
        .await
        .unwrap();
    assert!(closed.status().is_success());
    let stale = post(
        Some(&session),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    )
    .await;
    assert_eq!(stale.status(), 404);
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

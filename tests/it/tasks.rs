//! Tasks: long runs of clients that would rather ask again than wait.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{engine::containers_of, server::TestServer};

/// A request of revision 2026-07-28 by a client that knows tasks.
async fn ask(server: &TestServer, method: &str, name: Option<&str>, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut request = server
        .post(body.to_string())
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    if let Some(name) = name {
        request = request.header("mcp-name", name);
    }
    request.send().await.unwrap().json().await.unwrap()
}

async fn run(server: &TestServer, code: &str) -> Value {
    let arguments = json!({ "language": "bash", "code": code, "timeoutSeconds": 60 });
    let params = json!({ "name": "run_code", "arguments": arguments });
    ask(server, "tools/call", Some("run_code"), params).await["result"].clone()
}

async fn task(server: &TestServer, method: &str, id: &str) -> Value {
    ask(server, method, Some(id), json!({ "taskId": id })).await
}

#[tokio::test]
async fn only_a_long_run_becomes_a_task_and_the_task_has_its_result() {
    let server = TestServer::start().await;
    let quick = run(&server, "echo quick").await;
    assert_eq!(quick["structuredContent"]["output"], "quick\n");

    let long = run(&server, "sleep 12; echo long").await;
    assert_eq!(long["resultType"], "task", "{long}");
    let id = long["taskId"].as_str().unwrap();
    let asked = Instant::now();
    let done = loop {
        let state = task(&server, "tasks/get", id).await["result"].clone();
        match state["status"].as_str() {
            Some("working") => {}
            Some("completed") => break state,
            _ => panic!("{state}"),
        }
        assert!(asked.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(
        done["result"]["structuredContent"]["output"], "long\n",
        "{done}"
    );
    let unknown = task(&server, "tasks/get", "no-such-task").await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test]
async fn a_cancelled_task_leaves_no_container() {
    let server = TestServer::start().await;
    let long = run(&server, "sleep 50").await;
    let id = long["taskId"].as_str().unwrap();
    assert!(!containers_of(&server.instance()).is_empty());
    let cancelled = task(&server, "tasks/cancel", id).await;
    assert!(cancelled["error"].is_null(), "{cancelled}");
    let asked = Instant::now();
    while !containers_of(&server.instance()).is_empty() {
        assert!(asked.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let state = task(&server, "tasks/get", id).await;
    assert_eq!(state["result"]["status"], "cancelled", "{state}");
}

//! Callers: named tokens, and that their holders share nothing.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    server::{BinaryServer, TOKEN},
    session::{BOTH_FORMS, Session, initialize, request},
};

#[tokio::test]
async fn a_session_is_its_callers_alone() {
    let root = tempfile::tempdir().unwrap();
    let server = BinaryServer::start(root.path(), &[("MCP_API_TOKENS", "n8n:first-token")]).await;
    let (session, _) = Session::open(&server).await;
    let ping = request(5, "ping", &json!({})).to_string();
    let as_other = |method| {
        reqwest::Client::new()
            .request(method, format!("{}/mcp", server.base_url()))
            .bearer_auth("first-token")
            .header("content-type", "application/json")
            .header("accept", BOTH_FORMS)
            .header("mcp-session-id", session.id())
            .body(ping.clone())
    };
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let answer = as_other(method.clone()).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{method}");
    }
    // However many he opens, only his own go.
    for _ in 0..200 {
        let opened = as_other(Method::POST).body(initialize().to_string());
        assert_eq!(opened.send().await.unwrap().status(), 200);
    }
    assert_eq!(
        session.post(&request(6, "ping", &json!({}))).await.status(),
        200
    );
}

#[tokio::test]
async fn callers_of_different_names_share_no_files_and_are_named_in_the_log() {
    let root = tempfile::tempdir().unwrap();
    let tokens = [("MCP_API_TOKENS", "n8n:first-token,claude:second-token")];
    let server = BinaryServer::start(root.path(), &tokens).await;
    let run = async |token: &str, code: &str| {
        let arguments = json!({ "conversationId": "same", "language": "bash", "code": code });
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "run_code", "arguments": arguments },
        });
        let request = reqwest::Client::new()
            .post(format!("{}/mcp", server.base_url()))
            .header("content-type", "application/json")
            .bearer_auth(token)
            .body(call.to_string());
        let response = request.send().await.unwrap();
        let status = response.status();
        let answer = response.json().await.unwrap_or(Value::Null);
        (status, answer["result"]["structuredContent"].clone())
    };
    for token in [TOKEN, "first-token", "second-token"] {
        let (_, result) = run(token, "ls; touch mine").await;
        assert_eq!(result["output"], "", "{token} must begin with nothing");
    }
    for token in [TOKEN, "first-token", "second-token"] {
        let (_, result) = run(token, "ls").await;
        assert_eq!(result["output"], "mine\n");
    }
    let (status, _) = run("n8n", "true").await;
    assert_eq!(status, 401);
    let log = server.log();
    for caller in ["caller=\"default\"", "caller=\"n8n\"", "caller=\"claude\""] {
        assert!(log.contains(caller), "{caller}: {log}");
    }
    assert!(
        !log.contains("first-token") && !log.contains("same"),
        "{log}"
    );

    // A run's line names the request that it came with.
    let run = log
        .lines()
        .find(|line| line.contains("run ended") && line.contains("caller=\"n8n\""));
    let (_, id) = run.unwrap().split_once("request.id=").unwrap();
    let id = id.split(' ').next().unwrap();
    let request = log
        .lines()
        .find(|line| line.contains("request answered") && line.contains(id));
    let request = request.unwrap();
    for field in [
        "caller=\"n8n\"",
        "route=\"/mcp\"",
        "status=200",
        "method=POST",
    ] {
        assert!(request.contains(field), "{field}: {request}");
    }
}

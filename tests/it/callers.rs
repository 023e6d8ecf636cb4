//! Callers: named tokens, and that their holders share nothing.

use serde_json::{Value, json};

use crate::server::{BinaryServer, TOKEN};

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
}

//! Clients: what users connect with, from hello to a call that is given up.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    client::{Client, endpoint, installed, node, ours, python},
    engine::containers_of,
    server::{TOKEN, TestServer, instance_of},
};

/// Time from a client's giving up to the end of its container.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// Follows a client from its first step to its last, and returns what it complained of.
async fn tour(command: Command, revision: &str, root: &Path) -> String {
    let mut client = Client::start(command);

    let connect = client.tells("connect").await;
    assert_eq!(connect["protocol"], revision);
    assert_eq!(connect["server"], "mcp-code-sandbox");

    let tools = client.tells("tools").await;
    let names: BTreeSet<_> = tools["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert!(
        names.is_superset(&["run_code", "upload_file", "list_runners"].into()),
        "{names:?}"
    );

    let runners = client.tells("runners").await;
    assert!(
        runners["languages"]
            .as_array()
            .unwrap()
            .contains(&json!("bash")),
        "{runners}"
    );

    let upload = client.tells("upload").await;
    assert_eq!(
        upload["message"],
        "File 'data.csv' uploaded successfully (18 bytes)"
    );

    let run = client.tells("run").await;
    assert_eq!(run["result"]["output"], "Alice,30\n", "{run}");
    assert_eq!(run["result"]["newFiles"], json!(["last.csv"]), "{run}");
    assert_eq!(run["content"], json!(["text", "resource_link"]));

    let resource = client.tells("resource").await;
    assert_eq!(resource["text"], "Alice,30\n");

    let refusal = client.tells("refusal").await;
    assert_eq!(refusal["isError"], true);
    let refusal: Value = serde_json::from_str(refusal["text"].as_str().unwrap()).unwrap();
    assert_eq!(refusal["error"]["code"], "unknown_language");

    let progress = client.tells("progress").await;
    assert_eq!(progress["output"], "first\nlast\n");
    check_progress(progress["told"].as_array().unwrap());

    let given_up = client.tells("timeout").await;
    assert!(
        given_up["error"].as_str().unwrap().contains("timed out"),
        "{given_up}"
    );
    assert!(
        has_file(root, "begun"),
        "the run had not begun when the client gave up"
    );
    no_container_is_left(root).await;

    client.let_go();
    client.tells("closed").await;
    let (rest, complaints) = client.end().await;
    assert_eq!(rest, "");
    complaints
}

/// Progress counts up, and shows what a program printed while it still ran.
fn check_progress(told: &[Value]) {
    let counts: Vec<_> = told
        .iter()
        .map(|one| one["progress"].as_f64().unwrap())
        .collect();
    assert!(counts.is_sorted_by(|one, next| one < next), "{told:?}");
    assert!(told.iter().all(|one| one["total"].is_null()), "{told:?}");
    let mut messages = told.iter().filter_map(|one| one["message"].as_str());
    assert!(
        messages.any(|message| message.contains("first") && !message.contains("last")),
        "no progress shows the first line before the last: {told:?}"
    );
}

fn has_file(root: &Path, name: &str) -> bool {
    let mut entries = fs::read_dir(root).unwrap();
    entries.any(|entry| entry.unwrap().path().join(name).exists())
}

async fn no_container_is_left(root: &Path) {
    let instance = instance_of(root);
    let since = Instant::now();
    while !containers_of(&instance).is_empty() {
        assert!(
            since.elapsed() < CANCEL_LIMIT,
            "the run goes on though its client gave up"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn tour_over_http(mut command: Command, revision: &str) {
    let server = TestServer::start().await;
    command.args([&endpoint(&server), TOKEN]);
    let complaints = tour(command, revision, server.root()).await;
    assert_eq!(complaints, "", "the client complains of the server");
}

#[tokio::test]
async fn python_sdk_without_a_session() {
    let mut command = python("python_mcp.py");
    command.arg("auto");
    tour_over_http(command, "2026-07-28").await;
}

#[tokio::test]
async fn python_sdk_in_a_session() {
    let mut command = python("python_mcp.py");
    command.arg("legacy");
    tour_over_http(command, "2025-11-25").await;
}

#[tokio::test]
async fn fastmcp() {
    tour_over_http(python("python_fastmcp.py"), "2026-07-28").await;
}

#[tokio::test]
async fn typescript_sdk_1() {
    tour_over_http(node(ours("node_sdk.mjs")), "2025-11-25").await;
}

#[tokio::test]
async fn typescript_sdk_2_without_a_session() {
    let mut command = node(ours("node_client.mjs"));
    command.arg("auto");
    tour_over_http(command, "2026-07-28").await;
}

#[tokio::test]
async fn typescript_sdk_2_in_a_session() {
    let mut command = node(ours("node_client.mjs"));
    command.arg("legacy");
    tour_over_http(command, "2025-11-25").await;
}

#[tokio::test]
async fn mcp_remote() {
    let server = TestServer::start().await;
    let memory = tempfile::tempdir().unwrap();
    let mut command = python("python_mcp.py");
    command
        .arg("legacy")
        .arg(installed("node_modules/.bin/node"))
        .arg(installed("node_modules/mcp-remote/dist/proxy.js"))
        .args([
            &endpoint(&server),
            "--allow-http",
            "--transport",
            "http-only",
        ])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        // Not the developer's own, which may know this port.
        .env("MCP_REMOTE_CONFIG_DIR", memory.path());
    tour(command, "2025-11-25", server.root()).await;
}

#[tokio::test]
async fn python_sdk_that_starts_the_server() {
    for (mode, revision) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let home = tempfile::tempdir().unwrap();
        let mut command = python("python_mcp.py");
        command
            .args([mode, env!("CARGO_BIN_EXE_mcp-code-sandbox"), "stdio"])
            .current_dir(&home)
            .env_clear()
            .env("HOME", home.path())
            .env("WARM_POOL_SIZE", "0")
            .env("WARM_CONVERSATIONS", "0");
        let root = home.path().join(".local/share/mcp-code-sandbox/workspaces");
        tour(command, revision, &root).await;
    }
}

/// What the inspector prints for `arguments`; it must complain of nothing.
async fn inspect(server: &TestServer, era: &str, arguments: &[&str]) -> Value {
    let launcher = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = node(installed(launcher));
    command
        .args([
            "--cli",
            &endpoint(server),
            "--transport",
            "http",
            "--protocol-era",
            era,
        ])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(arguments);
    let (printed, complaints) = Client::start(command).end().await;
    assert_eq!(complaints, "", "{era} {arguments:?}");
    serde_json::from_str(&printed).unwrap()
}

#[tokio::test]
async fn inspector() {
    let server = TestServer::start().await;
    for era in ["legacy", "modern"] {
        let list = inspect(&server, era, &["--method", "tools/list", "--strict"]).await;
        assert_eq!(list["tools"][0]["name"], "run_code");
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            "run_code",
            "--tool-arg",
            "language=bash",
            "code=pwd",
        ];
        let run = inspect(&server, era, &call).await;
        assert_eq!(run["structuredContent"]["output"], "/data\n", "{run}");
    }
}

/// Calls as n8n makes them, each a step with its session and its output.
async fn n8n(server: &TestServer, ending: &[&str]) -> Vec<Value> {
    let mut command = node(ours("n8n.mjs"));
    command.args([&endpoint(server), TOKEN]).args(ending);
    let (printed, complaints) = Client::start(command).end().await;
    assert_eq!(complaints, "");
    let calls: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let outputs: Vec<_> = calls
        .iter()
        .map(|call| call["output"].as_str().unwrap())
        .collect();
    let counts = (1..=10).map(|number| format!("{number}\n"));
    assert!(counts.eq(outputs[..10].iter().copied()), "{outputs:?}");
    assert_eq!(
        outputs[10..],
        ["", "", "", "1 2 3 4 5 6 7 8 9 10 11 12 13 "]
    );
    let sessions: BTreeSet<_> = calls
        .iter()
        .map(|call| call["session"].as_str().unwrap())
        .collect();
    assert_eq!(sessions.len(), calls.len(), "a session was used twice");
    calls
}

async fn is_open(server: &TestServer, session: &str) -> bool {
    let request = server
        .post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-session-id", session);
    match request.send().await.unwrap().status().as_u16() {
        200 => true,
        404 => false,
        status => panic!("{status}"),
    }
}

#[tokio::test]
async fn n8n_leaves_its_sessions_open() {
    let server = TestServer::start().await;
    for call in n8n(&server, &[]).await {
        assert!(
            is_open(&server, call["session"].as_str().unwrap()).await,
            "{call}"
        );
    }
}

#[tokio::test]
async fn sessions_that_a_client_ends_are_gone() {
    let server = TestServer::start().await;
    for call in n8n(&server, &["end"]).await {
        assert!(
            !is_open(&server, call["session"].as_str().unwrap()).await,
            "{call}"
        );
    }
}

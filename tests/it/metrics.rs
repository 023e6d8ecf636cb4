//! Metrics: what a Prometheus reads of a server.

use std::{
    collections::BTreeSet,
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::server::{TOKEN, TestServer};

async fn metrics(server: &TestServer) -> String {
    let response = server.get("/metrics").bearer_auth(TOKEN).send().await;
    let response = response.unwrap();
    assert_eq!(response.status(), 200);
    let media_type = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        media_type.starts_with("text/plain; version=0.0.4"),
        "{media_type}"
    );
    response.text().await.unwrap()
}

/// A server that has done some of everything.
async fn used_server() -> TestServer {
    let server = TestServer::with_settings(&[("WARM_POOL_SIZE", "1")]).await;
    server.run("bash", "true").await;
    server.run("bash", "exit 3").await;
    let file = json!({ "conversationId": "c", "filename": "a.txt", "text": "hello" });
    let written = server.call_ok("write_file", file).await;
    let url = written["file"]["url"].as_str().unwrap().to_owned();
    server.download(&url).await.text().await.unwrap();
    server
}

#[tokio::test]
async fn what_happened_is_counted_and_only_the_token_opens_it() {
    let server = used_server().await;
    let unknown = server.get("/no/such/secret").send().await.unwrap();
    assert_eq!(unknown.status(), 404);
    let text = metrics(&server).await;
    for (line, value) in [
        ("sandbox_runs_total{language=\"bash\",status=\"ok\"", " 1"),
        (
            "sandbox_runs_total{language=\"bash\",status=\"error\"",
            " 1",
        ),
        (
            "sandbox_run_duration_seconds_count{language=\"bash\"}",
            " 2",
        ),
        ("sandbox_queue_duration_seconds_count", " 2"),
        (
            "sandbox_call_duration_seconds_count{tool=\"run_code\"}",
            " 2",
        ),
        ("sandbox_runs_running", " 0"),
        ("sandbox_downloads_total", " 1"),
        ("sandbox_download_bytes_total", " 5"),
        ("sandbox_docker_calls_total{call=\"create container\"}", ""),
        (
            "sandbox_docker_errors_total{call=\"create container\"}",
            " 0",
        ),
        ("sandbox_build_info{commit=", " 1"),
        ("process_resident_memory_bytes", ""),
    ] {
        let found = text.lines().find(|found| found.starts_with(line));
        let found = found.unwrap_or_else(|| panic!("{line}: {text}"));
        assert!(found.ends_with(value), "{found}");
    }
    assert!(!text.contains("/no/such/secret") && !text.contains(TOKEN));
    let refused = server.get("/metrics").send().await.unwrap();
    assert_eq!(refused.status(), 401);
}

#[tokio::test]
async fn prometheus_own_check_finds_nothing() {
    let server = used_server().await;
    let text = metrics(&server).await;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool must be installed: see ./test.sh");
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.is_empty(), "{said}");
}

#[tokio::test]
async fn the_dashboard_asks_for_what_there_is() {
    let text = metrics(&used_server().await).await;
    let dashboard = include_str!("../../deploy/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let queries: Vec<&str> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    let asked: BTreeSet<&str> = queries
        .iter()
        .flat_map(|query| query.split(|other: char| !other.is_alphanumeric() && other != '_'))
        .filter(|word| word.starts_with("sandbox_") || word.starts_with("process_"))
        .collect();
    assert!(asked.len() > 20, "{asked:?}");
    let missing: Vec<_> = asked
        .iter()
        .filter(|name| {
            let is_there = |rest: &str| rest.starts_with([' ', '{']);
            !text
                .lines()
                .any(|line| line.strip_prefix(**name).is_some_and(is_there))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {text}");
}

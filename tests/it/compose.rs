//! Compose: the real compose file, as an operator starts it.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{engine::unique_name, server::TOKEN};

/// A server started by docker-compose; dropping it takes it down.
struct Composed {
    project: String,
    directory: tempfile::TempDir,
    port: u16,
}

impl Composed {
    fn up() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let composed = Self {
            project: unique_name("compose"),
            directory: tempfile::tempdir().unwrap(),
            port,
        };
        let settings = format!(
            "MCP_API_TOKEN={TOKEN}\nFILE_SECRET={}\nPUBLIC_BASE_URL={}\nSANDBOX_ROOT=./data\n",
            "0123456789abcdef".repeat(2),
            composed.base_url(),
        );
        fs::write(composed.settings(), settings).unwrap();
        composed.compose(&["up", "--detach", "--no-build"]);
        composed
    }

    fn settings(&self) -> PathBuf {
        self.directory.path().join("env")
    }

    fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn compose(&self, arguments: &[&str]) {
        // "docker compose" where Compose is a plugin of the client; ./test.sh says which there is.
        let compose = std::env::var("COMPOSE").unwrap_or_else(|_| "docker-compose".to_owned());
        let output = Command::new("timeout")
            .arg("120")
            .args(compose.split_whitespace())
            .args(["--project-name", &self.project])
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("ENV_FILE", self.settings())
            .env("HTTP_PORT", format!("127.0.0.1:{}", self.port))
            .env("SANDBOX_HOST_PATH", self.directory.path().join("data"))
            .output()
            .expect("Compose must be installed: see ./test.sh");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    async fn wait_until_ready(&self) {
        let asked = Instant::now();
        let ready = format!("{}/readyz", self.base_url());
        while !reqwest::get(&ready)
            .await
            .is_ok_and(|answer| answer.status() == 200)
        {
            assert!(
                asked.elapsed() < Duration::from_secs(30),
                "the server does not get ready"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Composed {
    fn drop(&mut self) {
        self.compose(&["down", "--timeout", "20"]);
    }
}

#[tokio::test]
async fn a_server_in_a_container_runs_code_and_serves_what_it_wrote() {
    let server = Composed::up();
    server.wait_until_ready().await;
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": {
            "language": "python", "code": "print('composed')\nopen('made.txt', 'w').write('by a run')",
        } },
    });
    let answer = reqwest::Client::new()
        .post(format!("{}/mcp", server.base_url()))
        .bearer_auth(TOKEN)
        .header("content-type", "application/json")
        .body(request.to_string())
        .send()
        .await
        .unwrap();
    let answer: Value = answer.json().await.unwrap();
    let run = &answer["result"]["structuredContent"];
    assert_eq!(run["output"], "composed\n", "{answer}");
    let file = reqwest::get(run["files"][0]["url"].as_str().unwrap())
        .await
        .unwrap();
    assert_eq!(file.text().await.unwrap(), "by a run");
}

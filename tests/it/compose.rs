//! Compose: the real compose files, as an operator starts them.

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
    file: &'static str,
    project: String,
    directory: tempfile::TempDir,
    port: u16,
}

impl Composed {
    fn up(file: &'static str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let composed = Self {
            file,
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
        compose(self.file)
            .args(["--project-name", &self.project])
            .args(arguments)
            .env("ENV_FILE", self.settings())
            .env("HTTP_PORT", format!("127.0.0.1:{}", self.port))
            .env("SANDBOX_HOST_PATH", self.directory.path().join("data"))
            .succeed();
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

/// Compose with one of our files.
fn compose(file: &str) -> Command {
    // "docker compose" where Compose is a plugin of the client; ./test.sh says which there is.
    let compose = std::env::var("COMPOSE").unwrap_or_else(|_| "docker-compose".to_owned());
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .args(compose.split_whitespace())
        .args(["--file", file])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

trait Succeed {
    /// Runs the command, which must succeed; what it printed.
    fn succeed(&mut self) -> String;
}

impl Succeed for Command {
    fn succeed(&mut self) -> String {
        let output = self.output().expect("must be installed: see ./test.sh");
        assert!(
            output.status.success(),
            "{self:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Composed {
    fn drop(&mut self) {
        self.compose(&["down", "--volumes", "--timeout", "20"]);
    }
}

/// A run through the server, and the file that it wrote.
async fn run_and_download(server: &Composed) {
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

#[tokio::test]
async fn a_server_in_a_container_runs_code_and_serves_what_it_wrote() {
    let server = Composed::up("docker-compose.yml");
    server.wait_until_ready().await;
    run_and_download(&server).await;
}

/// Asks the engine, through the proxy, as whoever took over the server would.
const ASK: &str = r#"
import http.client, socket, sys
for call in sys.argv[1:]:
    connection = http.client.HTTPConnection("engine")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect("/run/engine/docker.sock")
    connection.request(*call.split())
    print(connection.getresponse().status)
"#;

#[tokio::test]
async fn a_server_behind_the_socket_proxy_runs_code_and_can_do_nothing_else() {
    let server = Composed::up("docker-compose-socket-proxy.yml");
    server.wait_until_ready().await;
    run_and_download(&server).await;

    let run = "sandbox-0123456789abcdef0123456789abcdef";
    let calls = [
        ("GET /version", 200),
        ("GET /v1.41/version", 200),
        (&format!("GET /containers/{run}/json"), 404),
        (&format!("GET /containers/{run}/archive?path=/"), 403),
        (&format!("POST /containers/{run}/exec"), 403),
        (&format!("POST /containers/{run}/start/../exec"), 403),
        (&format!("POST /containers/{run}%2Fexec"), 403),
        ("GET /containers/postgres/json", 403),
        ("DELETE /containers/postgres", 403),
        ("POST /containers/prune", 403),
        ("POST /build", 403),
        ("POST /images/create?fromImage=x", 403),
        ("GET /secrets", 403),
        ("GET /info", 403),
    ];
    let answers = Command::new("timeout")
        .args(["60", "docker", "run", "--rm", "--network", "none"])
        .args([
            "--volume",
            &format!("{}_engine:/run/engine", server.project),
        ])
        .args(["--user", "0", "--entrypoint", "python3"])
        .arg("mcp-code-sandbox-python")
        .args(["-c", ASK])
        .args(calls.map(|(call, _)| call))
        .succeed();
    let answers = answers.lines().map(|status| status.parse().unwrap());
    assert_eq!(
        calls
            .map(|(call, _)| call)
            .into_iter()
            .zip(answers)
            .collect::<Vec<_>>(),
        calls
    );
}

#[test]
fn the_file_for_a_tunnel_asks_for_its_token() {
    let config = |token| {
        compose("docker-compose-cloudflare.yml")
            .args(["config", "--quiet"])
            .env("ENV_FILE", ".env.example")
            .env("TUNNEL_TOKEN", token)
            .output()
            .unwrap()
    };
    let without = config("");
    assert!(!without.status.success());
    assert!(String::from_utf8_lossy(&without.stderr).contains("TUNNEL_TOKEN"));
    assert!(config("a-token").status.success());
}

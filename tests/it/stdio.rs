//! Stdio: the server as a user's own client starts it, with no settings at all.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    engine::containers_of,
    session::{initialize, request, run_bash},
};

/// A process, and the lines it answers with.
struct StdioServer {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::sync::mpsc::Receiver<String>,
    log: PathBuf,
}

impl StdioServer {
    fn start(home: &Path, settings: &[(&str, &str)]) -> Self {
        let log = home.join(format!("log-{}", uuid::Uuid::new_v4()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_mcp-code-sandbox"))
            .arg("stdio")
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let (sender, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            lines,
            log,
        }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next message that is not a notification.
    fn answer(&self) -> Value {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(20));
            let line = line.unwrap_or_else(|_| panic!("no answer: {}", self.log()));
            let message: Value = serde_json::from_str(&line).expect("stdout is for MCP alone");
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    fn initialize(&mut self) -> Value {
        self.send(&initialize());
        let hello = self.answer();
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        hello
    }

    fn call(&mut self, message: &Value) -> Value {
        self.send(message);
        self.answer()["result"]["structuredContent"].clone()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Closes its input and waits for its end.
    fn close(&mut self) {
        drop(self.input.take());
        let asked = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(
                asked.elapsed() < Duration::from_secs(15),
                "it does not end: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for StdioServer {
    fn drop(&mut self) {
        // As a client does, so that it takes its containers along; what does not end is ended.
        drop(self.input.take());
        let asked = Instant::now();
        while self.child.try_wait().unwrap().is_none() && asked.elapsed() < Duration::from_secs(15)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn data(home: &TempDir) -> PathBuf {
    home.path().join(".local/share/mcp-code-sandbox")
}

#[test]
fn without_settings_it_runs_code_keeps_files_and_links_to_them_on_this_machine() {
    let home = home();
    // Somebody else's, in whose project the client happens to be.
    std::fs::write(
        home.path().join(".env"),
        "SANDBOX_ROOT=/nowhere\nDOCKER_HOST=tcp://x\n",
    )
    .unwrap();
    let mut server = StdioServer::start(home.path(), &[]);
    let hello = server.initialize();
    let instructions = hello["result"]["instructions"].as_str().unwrap();
    assert!(instructions.contains("file://"), "{instructions}");
    let mut run = run_bash(1, "echo kept > 'a b.txt'");
    run["params"]["arguments"]["conversationId"] = json!("mine");
    let result = server.call(&run);
    let url = result["files"][0]["url"].as_str().unwrap();
    let path = url.strip_prefix("file://").unwrap().replace("%20", " ");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\n");
    assert!(path.starts_with(data(&home).join("workspaces").to_str().unwrap()));
    server.send(&request(2, "resources/read", &json!({ "uri": url })));
    assert_eq!(server.answer()["result"]["contents"][0]["text"], "kept\n");
    server.close();

    // The next one, in another window, finds them under the same link.
    let mut again = StdioServer::start(home.path(), &[]);
    again.initialize();
    run["params"]["arguments"]["code"] = json!("cat *.txt");
    let result = again.call(&run);
    assert_eq!(result["output"], "kept\n");
    assert_eq!(result["files"][0]["url"], url);
}

#[test]
fn its_end_is_its_clients_end_and_leaves_no_container() {
    let home = home();
    let mut server = StdioServer::start(home.path(), &[]);
    server.initialize();
    server.send(&run_bash(1, "sleep 60"));
    let instance = || std::fs::read_to_string(data(&home).join("workspaces/.instance")).unwrap();
    let asked = Instant::now();
    while containers_of(&instance()).is_empty() {
        assert!(asked.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(50));
    }
    server.close();
    assert_eq!(containers_of(&instance()), Vec::<String>::new());
}

#[test]
fn two_windows_do_not_take_each_others_containers_away() {
    let home = home();
    let mut first = StdioServer::start(home.path(), &[]);
    first.initialize();
    first.send(&run_bash(1, "sleep 3; echo first"));
    std::thread::sleep(Duration::from_millis(500));
    let mut second = StdioServer::start(home.path(), &[]);
    second.initialize();
    assert_eq!(
        second.call(&run_bash(1, "echo second"))["output"],
        "second\n"
    );
    second.close();
    let answer = first.answer();
    assert_eq!(
        answer["result"]["structuredContent"]["output"], "first\n",
        "{answer}"
    );
}

#[test]
fn with_an_address_it_serves_http_as_well() {
    let home = home();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (addr, url) = (
        format!("127.0.0.1:{port}"),
        format!("http://127.0.0.1:{port}"),
    );
    let settings = [
        ("MCP_HTTP_ADDR", addr.as_str()),
        ("PUBLIC_BASE_URL", url.as_str()),
        ("MCP_API_TOKEN", "token"),
    ];
    let mut server = StdioServer::start(home.path(), &settings);
    server.initialize();
    let result = server.call(&run_bash(1, "echo hi > hi.txt"));
    let link = result["files"][0]["url"].as_str().unwrap();
    assert!(link.starts_with(&url), "{link}");
    let downloaded = Command::new("curl").args(["-s", link]).output().unwrap();
    assert_eq!(downloaded.stdout, b"hi\n");
    server.close();
}

//! Server: a real one on a free port of loopback, with a data directory of its own.

use std::{
    collections::HashMap,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use jsonschema::Validator;
use mcp_code_sandbox::{
    config::{Config, Source},
    server::Server,
};
use reqwest::{Client, RequestBuilder, Response};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use tokio::{net::TcpListener, sync::OnceCell};
use tokio_util::sync::CancellationToken;

/// Token of every test server.
pub(crate) const TOKEN: &str = "test-token";

/// File secret of every test server.
pub(crate) const FILE_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A client of one server.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    base_url: String,
    client: Client,
    /// What the tools say their results are, by tool.
    schemas: Arc<OnceCell<HashMap<String, Validator>>>,
}

/// A server that runs until it is dropped, and leaves no container behind.
#[derive(Debug)]
pub(crate) struct TestServer {
    caller: Caller,
    root: TempDir,
    shutdown: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// A server with the default settings.
    pub(crate) async fn start() -> Self {
        Self::with_settings(&[]).await
    }

    /// A server with these settings changed.
    pub(crate) async fn with_settings(settings: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let root = tempfile::tempdir().unwrap();
        let source = Source::from_pairs([
            ("MCP_API_TOKEN", TOKEN),
            ("FILE_SECRET", FILE_SECRET),
            ("PUBLIC_BASE_URL", &base_url),
            ("SANDBOX_ROOT", root.path().to_str().unwrap()),
            // Fifty servers that each keep containers waiting would test the machine, not the code.
            ("WARM_POOL_SIZE", "0"),
            ("WARM_CONVERSATIONS", "0"),
        ]);
        let source = settings
            .iter()
            .fold(source, |source, (name, value)| source.with(*name, *value));
        let config = Config::from_source(&source).unwrap();
        let shutdown = CancellationToken::new();
        let listener = listener.into_std().unwrap();
        // A runtime of its own, so that it lives on while a failed test unwinds and can clean up.
        let thread = std::thread::spawn({
            let shutdown = shutdown.clone();
            move || serve(&config, listener, shutdown)
        });
        let server = Self {
            caller: Caller::new(base_url),
            root,
            shutdown,
            thread: Some(thread),
        };
        server.wait_until_ready().await;
        server
    }

    /// Ends the server as SIGTERM does, and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server must not panic");
        }
    }

    /// Directory of the workspaces.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Label of this server's containers.
    pub(crate) fn instance(&self) -> String {
        instance_of(self.root())
    }

    /// Directory of the conversation that `result` names a file of, or ran in.
    pub(crate) fn workspaces(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.root())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .filter(|path| path.file_name().unwrap().len() == 64)
            .collect()
    }
}

/// Label of the containers of the server whose workspaces are in `root`.
pub(crate) fn instance_of(root: &Path) -> String {
    std::fs::read_to_string(root.join(".instance")).unwrap()
}

impl Deref for TestServer {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl Caller {
    fn new(base_url: String) -> Self {
        Self {
            base_url,
            client: Client::new(),
            schemas: Arc::default(),
        }
    }

    async fn wait_until_ready(&self) {
        let asked = Instant::now();
        while self.get("/readyz").send().await.is_err() {
            assert!(
                asked.elapsed() < Duration::from_secs(10),
                "the server does not start"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Where the server listens, as a socket takes it.
    pub(crate) fn address(&self) -> &str {
        self.base_url.strip_prefix("http://").unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.base_url))
    }

    /// A POST to `/mcp` as plain curl sends it: no Accept that names a form, no session.
    pub(crate) fn post(&self, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.client
            .post(format!("{}/mcp", self.base_url))
            .bearer_auth(TOKEN)
            .header("content-type", "application/json")
            .body(body)
    }

    /// The answer to a tool call by plain curl.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let request = json!({
            "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments },
        });
        let response = self.post(request.to_string()).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["id"], 7, "{answer}");
        answer["result"].clone()
    }

    /// The structured result of a call that must not be refused, and must be as the tool declares it.
    pub(crate) async fn call_ok(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await;
        assert_eq!(result["isError"], false, "{result}");
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(
            text, result["structuredContent"],
            "text and structured content must be the same"
        );
        let schemas = self.schemas.get_or_init(|| self.output_schemas()).await;
        let problems: Vec<String> = schemas[tool]
            .iter_errors(&text)
            .map(|problem| problem.to_string())
            .collect();
        assert!(problems.is_empty(), "{problems:?}: {text}");
        text
    }

    async fn output_schemas(&self) -> HashMap<String, Validator> {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let answer: Value = self
            .post(request)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let tools = answer["result"]["tools"].as_array().unwrap();
        let schema = |tool: &Value| {
            // Closed, so that what is answered but not declared is found as well.
            let mut schema = tool["outputSchema"].clone();
            // An installer's result is declared in part.
            if tool["name"] != "install_packages" {
                schema["additionalProperties"] = json!(false);
            }
            let name = tool["name"].as_str().unwrap().to_owned();
            (name, jsonschema::validator_for(&schema).unwrap())
        };
        tools.iter().map(schema).collect()
    }

    /// Code and message of the refusal that a call must meet.
    pub(crate) async fn refusal(&self, tool: &str, arguments: Value) -> (String, String) {
        let result = self.call(tool, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        let refusal: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(refusal["success"], false);
        let part = |name: &str| refusal["error"][name].as_str().unwrap().to_owned();
        (part("code"), part("message"))
    }

    /// The result of a run in a new conversation.
    pub(crate) async fn run(&self, language: &str, code: &str) -> Value {
        self.call_ok("run_code", json!({ "language": language, "code": code }))
            .await
    }

    /// The result of a run in the conversation `name`.
    pub(crate) async fn run_in(&self, conversation: &str, language: &str, code: &str) -> Value {
        let arguments =
            json!({ "conversationId": conversation, "language": language, "code": code });
        self.call_ok("run_code", arguments).await
    }

    /// Downloads a URL that a result named.
    pub(crate) async fn download(&self, url: &str) -> Response {
        self.client.get(url).send().await.unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the server must not panic"
            );
        }
    }
}

fn serve(config: &Config, listener: std::net::TcpListener, shutdown: CancellationToken) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = Server::new(config)
            .await
            .expect("Docker must run: see ./test.sh");
        server
            .listen(TcpListener::from_std(listener).unwrap(), shutdown)
            .await;
    });
}

/// The real binary as a process of its own, on workspaces that outlive it.
#[derive(Debug)]
pub(crate) struct BinaryServer {
    caller: Caller,
    child: Child,
    log: NamedTempFile,
}

impl BinaryServer {
    /// A process whose workspaces are in `root`.
    pub(crate) async fn start(root: &Path, settings: &[(&str, &str)]) -> Self {
        // Free when it was asked for; nothing else here takes ports at random.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let base_url = format!("http://127.0.0.1:{port}");
        let log = NamedTempFile::new().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_mcp-code-sandbox"))
            // No .env of the checkout.
            .current_dir(root)
            .env("MCP_HTTP_ADDR", format!("127.0.0.1:{port}"))
            .env("PUBLIC_BASE_URL", &base_url)
            .env("MCP_API_TOKEN", TOKEN)
            .env("FILE_SECRET", FILE_SECRET)
            .env("WARM_POOL_SIZE", "0")
            .env("WARM_CONVERSATIONS", "0")
            .env("SANDBOX_ROOT", root)
            .envs(settings.iter().copied())
            .stdout(Stdio::null())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap();
        let caller = Caller::new(base_url);
        let server = Self { caller, child, log };
        server.wait_until_ready().await;
        server
    }

    /// Ends the process as nothing it can notice does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the process as an operator does.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        if self.child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        }
        self.child.wait().unwrap()
    }

    /// What it wrote to its log.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.log.path()).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Bytes of memory it holds now.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most it ever held.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(what))
            .unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib << 10
    }
}

impl Deref for BinaryServer {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl Drop for BinaryServer {
    fn drop(&mut self) {
        self.terminate();
    }
}

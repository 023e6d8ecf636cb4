//! Client: a program of `tests/clients`, or a client that is a program itself, under way.
//!
//! A program prints a line of JSON for each of its steps, and stays connected until its standard input ends.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::server::TestServer;

/// Time for one step of a client: loading a large SDK on a busy machine is the longest.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// A client under way. Dropping it kills it, and whatever it started; a test that fails shows what it said.
pub(crate) struct Client {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    told: Vec<String>,
    errors: NamedTempFile,
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Self {
        let errors = NamedTempFile::new().unwrap();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.reopen().unwrap())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            told: Vec::new(),
            errors,
        }
    }

    /// The facts of its next step, which must be `step`.
    pub(crate) async fn tells(&mut self, step: &str) -> Value {
        let line = timeout(STEP_LIMIT, self.lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else {
            panic!("the client did not get to {step:?}: {line:?}");
        };
        self.told.push(line.clone());
        match serde_json::from_str::<Value>(&line) {
            Ok(facts) if facts["step"] == step => facts,
            _ => panic!("expected {step:?}, not {line}"),
        }
    }

    /// Lets it disconnect.
    pub(crate) fn let_go(&mut self) {
        drop(self.child.stdin.take());
    }

    /// What else it prints, and what it wrote to its standard error, when it ends well.
    pub(crate) async fn end(mut self) -> (String, String) {
        self.let_go();
        let before = self.told.len();
        let status = self.ended().await;
        assert!(status.success(), "the client failed: {status}");
        (self.told[before..].join("\n"), self.complaints())
    }

    /// Reads until its end, however it ends.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ending = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.told.push(line);
            }
            self.child.wait().await.unwrap()
        };
        let Ok(status) = timeout(2 * STEP_LIMIT, ending).await else {
            panic!("the client does not end");
        };
        status
    }

    /// What it wrote to its standard error.
    fn complaints(&self) -> String {
        let bytes = fs::read(self.errors.path()).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[expect(clippy::print_stderr, reason = "seen where a test fails")]
    fn show(&self) {
        let (told, errors) = (self.told.join("\n"), self.complaints());
        eprintln!("--- the client printed\n{told}\n--- and to its standard error\n{errors}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show();
        }
        // Once it was waited for, its id may be another's.
        if let Some(id) = self.child.id() {
            let group = Pid::from_raw(id.try_into().unwrap()).unwrap();
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

/// What `tests/clients/install.sh` installed.
pub(crate) fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(".build/clients")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing; tests/clients/install.sh puts it there, and so does ./test.sh",
        path.display()
    );
    path
}

/// A file of `tests/clients`.
pub(crate) fn ours(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(file)
}

/// One of our programs, by the pinned Python packages.
pub(crate) fn python(program: &str) -> Command {
    let mut command = Command::new(installed("venv/bin/python"));
    command.arg(ours(program));
    command
}

/// A program, by the pinned Node.
pub(crate) fn node(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(installed("node_modules/.bin/node"));
    command.arg(program.as_ref());
    command
}

/// What clients are told to connect to.
pub(crate) fn endpoint(server: &TestServer) -> String {
    format!("{}/mcp", server.base_url())
}

//! Smoke: runs a runner's cases through the real executor and compares what comes out.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use mcp_code_sandbox::{
    caller::Caller,
    config::{Config, Source},
    conversation::ConversationId,
    executor::{Program, Progress, RunReport, RunRequest},
    sandbox::Sandbox,
    server, telemetry,
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// One case of a `smoke.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    request: Request,
    expect: Expectation,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    language: String,
    code: String,
    #[serde(default)]
    network: bool,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    timeout_seconds: Option<f64>,
}

/// What is not named is not compared.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expectation {
    status: Option<String>,
    exit_code: Option<i32>,
    output: Option<String>,
    output_contains: Option<String>,
    stderr: Option<String>,
    stderr_contains: Option<String>,
    new_files: Option<Vec<String>>,
}

/// Runs the cases of `files`, each in a conversation of its own.
pub(crate) async fn run(files: &[PathBuf]) -> anyhow::Result<()> {
    let root = std::env::temp_dir().join(format!("mcp-code-sandbox-smoke-{}", Uuid::new_v4()));
    let config = config(&root)?;
    telemetry::init(&config);
    let sandbox = server::sandbox(&config).await?;
    let ended = run_all(&sandbox, files).await;
    sandbox.executor.stop().await;
    tokio::fs::remove_dir_all(&root)
        .await
        .context("failed to remove the temporary workspaces")?;
    match ended? {
        0 => Ok(()),
        failed => bail!("{failed} smoke cases failed"),
    }
}

/// The operator's settings, but for what must not be his: secrets and workspaces.
fn config(root: &Path) -> anyhow::Result<Config> {
    let source = Source::from_environment()?
        .with("MCP_API_TOKEN", "unused")
        .with("FILE_SECRET", Uuid::new_v4().to_string())
        .with("SANDBOX_ROOT", root.to_string_lossy())
        .with("SANDBOX_HOST_PATH", "");
    let source = if source.get("RUST_LOG").is_some() {
        source
    } else {
        source.with("RUST_LOG", "warn")
    };
    Ok(Config::from_source(&source)?)
}

async fn run_all(sandbox: &Sandbox, files: &[PathBuf]) -> anyhow::Result<usize> {
    let mut failed = 0;
    for file in files {
        let text = tokio::fs::read(file)
            .await
            .with_context(|| format!("failed to read {}", file.display()))?;
        let cases: Vec<Case> = serde_json::from_slice(&text)
            .with_context(|| format!("failed to parse {}", file.display()))?;
        for case in cases {
            let name = format!("{} {}", case.request.language, case.name);
            let report = sandbox
                .executor
                .run(
                    case.request.into(),
                    &Progress::default(),
                    CancellationToken::new(),
                )
                .await;
            let differences = match &report {
                Ok(report) => case.expect.differences(report),
                Err(error) => vec![error.to_string()],
            };
            failed += usize::from(!differences.is_empty());
            print(&name, &differences);
        }
    }
    Ok(failed)
}

#[expect(clippy::print_stdout, reason = "the result of this command")]
fn print(name: &str, differences: &[String]) {
    let verdict = if differences.is_empty() {
        "ok"
    } else {
        "FAILED"
    };
    println!("{verdict:<6} {name}");
    for difference in differences {
        println!("       {difference}");
    }
}

impl From<Request> for RunRequest {
    fn from(request: Request) -> Self {
        Self {
            request_id: None,
            conversation: ConversationId::random(Caller::default()),
            language: request.language,
            program: Program::Code(request.code),
            network: request.network,
            environment: request.environment,
            timeout: request.timeout_seconds.map(Duration::from_secs_f64),
        }
    }
}

impl Expectation {
    fn differences(&self, report: &RunReport) -> Vec<String> {
        let new_files: Vec<String> = report
            .new_files
            .iter()
            .map(|file| file.path.display())
            .collect();
        let (stdout, stderr) = (&report.stdout.text, &report.stderr.text);
        let mut found = Vec::new();
        let mut compare = |what: &str,
                           holds: Option<bool>,
                           expected: &dyn std::fmt::Debug,
                           got: &dyn std::fmt::Debug| {
            if holds == Some(false) {
                found.push(format!("{what}: expected {expected:?}, got {got:?}"));
            }
        };
        let status = report.status.as_str();
        compare(
            "status",
            self.status.as_ref().map(|s| s == status),
            &self.status,
            &(status, stderr),
        );
        compare(
            "exitCode",
            self.exit_code.map(|code| Some(code) == report.exit_code),
            &self.exit_code,
            &report.exit_code,
        );
        compare(
            "output",
            self.output.as_ref().map(|text| text == stdout),
            &self.output,
            stdout,
        );
        let contains = self
            .output_contains
            .as_ref()
            .map(|part| stdout.contains(part));
        compare("outputContains", contains, &self.output_contains, stdout);
        compare(
            "stderr",
            self.stderr.as_ref().map(|text| text == stderr),
            &self.stderr,
            stderr,
        );
        let contains = self
            .stderr_contains
            .as_ref()
            .map(|part| stderr.contains(part));
        compare("stderrContains", contains, &self.stderr_contains, stderr);
        compare(
            "newFiles",
            self.new_files.as_ref().map(|names| *names == new_files),
            &self.new_files,
            &new_files,
        );
        found
    }
}

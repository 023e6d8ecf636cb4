//! `run_code`: runs a program in a fresh container.

use std::{collections::BTreeMap, time::Duration};

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply};
use crate::{
    executor::{Captured, RunReport, RunRequest, Status},
    mcp::reply::{File, rfc3339},
    runner::Runners,
    sandbox::Sandbox,
};

/// Files listed in a result; more would drown the output.
const MAX_FILES: usize = 200;

/// Bytes of all variables together: the kernel refuses to start a program with much more.
const MAX_ENVIRONMENT_BYTES: usize = 64 << 10;

const ABOUT: &str = "\
Run a program in a fresh, isolated container and return its output. The conversation's files are in /data, the \
working directory; they persist between calls, variables do not: save to a file what the next call needs. Files \
saved to /data come back with a url: give the user that url, never a sandbox: or /mnt/data path. Images saved to \
/data are shown to you. Languages and installed packages: ";

/// Characters of a language's packages that are told here; `list_runners` has all.
const MAX_PACKAGES_CHARS: usize = 400;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation whose files are in /data. Left out: a new one, whose id is returned.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Language of the code, such as python, typescript or bash; see `list_runners`.
    language: String,
    /// The program. Print what you want to see; save files to /data.
    code: String,
    /// Whether the program may use the network. Default: false.
    #[serde(default)]
    #[schemars(with = "bool")]
    network: Option<bool>,
    /// Environment variables of the program.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    environment: Option<BTreeMap<String, String>>,
    /// Time limit in seconds. Default: 30, unless the operator chose another.
    #[serde(default)]
    #[schemars(with = "f64")]
    timeout_seconds: Option<f64>,
}

/// The result of one run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RunResult {
    /// Whether status is ok.
    success: bool,
    /// How the program ended.
    status: StatusName,
    /// The program's exit code; absent where it never exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    exit_code: Option<i32>,
    /// Standard output.
    output: String,
    /// Standard error.
    stderr: String,
    /// Files in /data, by name; at most 200.
    files: Vec<File>,
    /// Names of the files that this run made or changed.
    new_files: Vec<String>,
    conversation_id: String,
    run_id: String,
    /// Language that ran, by its own name.
    language: String,
    /// Time the program took.
    duration_ms: u64,
    /// Processor time it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    cpu_ms: Option<u64>,
    /// Most memory it used at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    peak_memory_bytes: Option<u64>,
    /// Whether a middle part of output or stderr is left out.
    truncated: bool,
    /// URL of the long output, to 8 MiB, where a part of output is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    output_file: Option<String>,
    /// The same of stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    stderr_file: Option<String>,
    /// The next step, where the program failed and one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    hint: Option<String>,
    /// When the conversation's files are deleted if nobody uses them before, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    expires_at: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StatusName {
    Ok,
    Error,
    Timeout,
    Oom,
    Killed,
    DiskQuota,
    Cancelled,
}

pub(super) fn definition(runners: &Runners) -> Tool {
    Tool::new(
        "run_code",
        format!("{ABOUT}{}", languages(runners)),
        serde_json::Map::new(),
    )
    .with_title("Run code")
    .with_input_schema::<Arguments>()
    .with_output_schema::<RunResult>()
    .with_annotations(
        ToolAnnotations::new()
            .read_only(false)
            .destructive(true)
            .idempotent(false)
            .open_world(true),
    )
}

/// What there is to run, such as `bash 5.2 (coreutils, jq); python 3.13 (numpy, pandas).`
fn languages(runners: &Runners) -> String {
    let described = runners.in_use().map(|runner| {
        let version = runner.version.as_deref().unwrap_or_default();
        let packages = runner.packages.as_deref().unwrap_or("see list_runners");
        let told: String = packages.chars().take(MAX_PACKAGES_CHARS).collect();
        let more = if told.len() < packages.len() {
            " …"
        } else {
            ""
        };
        format!("{} {version} ({told}{more})", runner.language)
    });
    match described.collect::<Vec<_>>() {
        none if none.is_empty() => "see list_runners.".to_owned(),
        some => format!("{}.", some.join("; ")),
    }
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.conversation(arguments.conversation_id)?;
    let request = RunRequest {
        conversation: conversation.clone(),
        language: arguments.language,
        code: arguments.code,
        network: arguments.network.unwrap_or(false),
        environment: environment(arguments.environment.unwrap_or_default())?,
        timeout: arguments.timeout_seconds.map(timeout).transpose()?,
    };
    let report = sandbox
        .executor
        .run(request, &call.progress, call.cancel)
        .await?;

    let shown = &report.new_files[..report.new_files.len().min(MAX_FILES)];
    let result = RunResult::new(sandbox, conversation.as_str(), &report);
    Ok(Reply::new(&result)
        .attach(sandbox, &report.workspace, shown)
        .await)
}

fn environment(variables: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    let bytes: usize = variables
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2)
        .sum();
    if bytes > MAX_ENVIRONMENT_BYTES {
        return Err(Refusal::invalid_argument(format!(
            "environment has {bytes} bytes; at most {MAX_ENVIRONMENT_BYTES} fit, put more into a file"
        )));
    }
    for (name, value) in &variables {
        if name.is_empty() || name.contains('=') || name.chars().any(char::is_control) {
            return Err(Refusal::invalid_argument(
                "environment names must not be empty nor contain = or control characters",
            ));
        }
        if value.contains('\0') {
            return Err(Refusal::invalid_argument(
                "environment values must not contain NUL",
            ));
        }
    }
    Ok(variables)
}

fn timeout(seconds: f64) -> Result<Duration, Refusal> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        _ => Err(Refusal::invalid_argument(
            "timeoutSeconds must be a number above 0",
        )),
    }
}

impl RunResult {
    fn new(sandbox: &Sandbox, conversation: &str, report: &RunReport) -> Self {
        let workspace = report.workspace.hash();
        let link = |stream: &Captured| Some(sandbox.links.file(workspace, stream.file.as_ref()?));
        Self {
            success: report.status == Status::Ok,
            status: report.status.into(),
            exit_code: report.exit_code,
            output: report.stdout.text.clone(),
            stderr: report.stderr.text.clone(),
            files: report
                .files
                .entries()
                .take(MAX_FILES)
                .map(|file| File::new(sandbox, workspace, &file))
                .collect(),
            new_files: report
                .new_files
                .iter()
                .take(MAX_FILES)
                .map(|file| file.path.display())
                .collect(),
            conversation_id: conversation.to_owned(),
            run_id: report.run_id.to_string(),
            language: report.language.clone(),
            duration_ms: milliseconds(report.duration),
            cpu_ms: report.usage.map(|usage| milliseconds(usage.cpu)),
            peak_memory_bytes: report.usage.map(|usage| usage.peak_memory),
            truncated: report.stdout.truncated || report.stderr.truncated,
            output_file: link(&report.stdout),
            stderr_file: link(&report.stderr),
            hint: report.hint.clone(),
            expires_at: report.expires_at.map(rfc3339),
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<Status> for StatusName {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::Error => Self::Error,
            Status::Timeout => Self::Timeout,
            Status::OutOfMemory => Self::Oom,
            Status::Killed => Self::Killed,
            Status::DiskQuota => Self::DiskQuota,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

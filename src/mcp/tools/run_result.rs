//! Run result: what callers are told of a run that took place, of a program's or an installer's.

use std::time::Duration;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Serialize;

use super::Reply;
use crate::{
    conversation::ConversationId,
    executor::{Captured, RunReport, Status},
    file::{File, rfc3339},
    sandbox::Sandbox,
};

/// Files listed in a result; more would drown the output.
const MAX_FILES: usize = 200;

/// The result of one run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunResult {
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
    /// Files in /data, by name; at most 200. Each as in `list_files`.
    #[schemars(with = "Vec<JsonObject>")]
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
pub(super) enum StatusName {
    Ok,
    Error,
    Timeout,
    Oom,
    Killed,
    DiskQuota,
    Cancelled,
}

impl RunResult {
    /// The answer that tells of `report`, with the new files attached.
    pub(super) async fn reply(
        sandbox: &Sandbox,
        conversation: &ConversationId,
        report: &RunReport,
    ) -> Reply {
        let attached = &report.new_files[..report.new_files.len().min(MAX_FILES)];
        Reply::new(&Self::new(sandbox, conversation.as_str(), report))
            .attach(sandbox, &report.workspace, attached)
            .await
    }

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

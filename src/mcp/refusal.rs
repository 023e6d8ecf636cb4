//! Refusal: a tool call that was not carried out, as the caller is told of it.
//!
//! The message says what to do next. Causes inside this server go to the log, once, here.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::json;

use crate::{
    conversation::InvalidConversationId,
    executor::{BackendError, RunError},
    workspace::WorkspaceError,
};

/// Why a tool call was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: &'static str,
    message: String,
    hint: Option<String>,
}

impl Refusal {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// An argument is missing or does not fit.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new("invalid_argument", message)
    }

    /// A file is larger than may be uploaded.
    pub(crate) fn file_too_large(bytes: usize, limit: usize) -> Self {
        Self::new(
            "file_too_large",
            format!("the file has {bytes} bytes; at most {limit} can be uploaded"),
        )
    }

    /// The content is not what the caller says it is.
    pub(crate) fn checksum_mismatch(actual: &str) -> Self {
        Self::new(
            "checksum_mismatch",
            format!(
                "the decoded content has the sha256 {actual}; it was cut or changed on its way, send it again"
            ),
        )
    }

    fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(%cause, "tool call failed");
        Self::new(
            "internal",
            "the server failed to carry this out; its log says why. Try again later",
        )
    }

    fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn into_result(self) -> CallToolResult {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(hint) = self.hint {
            error["hint"] = hint.into();
        }
        let refusal = json!({ "success": false, "error": error });
        CallToolResult::error(vec![ContentBlock::text(refusal.to_string())])
    }
}

impl From<InvalidConversationId> for Refusal {
    fn from(error: InvalidConversationId) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

impl From<WorkspaceError> for Refusal {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::InvalidPath(reason) => Self::invalid_argument(reason),
            WorkspaceError::NotFound => Self::new(
                "file_not_found",
                "there is no such file, or a link on the way to it leads out of /data",
            ),
            WorkspaceError::NotRegular => Self::new(
                "not_a_regular_file",
                "the name belongs to something that is not a file; choose another one",
            ),
            WorkspaceError::QuotaExceeded => Self::new("quota_exceeded", error.to_string())
                .with_hint("delete files that are not needed any more, for example with run_code"),
            WorkspaceError::InUse => Self::new(
                "busy",
                "a run or a download of this conversation is under way; try again when it has ended",
            ),
            WorkspaceError::DiskFull => Self::new("quota_exceeded", error.to_string())
                .with_hint("tell the operator, who can free space or lower MIN_FREE_DISK_BYTES"),
            WorkspaceError::Io(cause) => Self::internal(&cause),
        }
    }
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Unavailable { .. } | BackendError::Slow { .. } => {
                tracing::error!(%error, "Docker is not available");
                Self::new(
                    "docker_unavailable",
                    "the container engine does not answer; try again in a moment",
                )
            }
            BackendError::RunnerUnavailable { .. } => {
                tracing::error!(%error, "runner did not start");
                Self::new(
                    "runner_unavailable",
                    "the runner of this language does not start; tell the operator",
                )
            }
            BackendError::NoRunner => Self::new("runner_unavailable", error.to_string()),
            BackendError::Refused { .. } => Self::internal(&error),
        }
    }
}

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Self {
        match error {
            RunError::UnknownLanguage { .. } => Self::new("unknown_language", error.to_string()),
            RunError::CodeTooLarge { .. } => Self::new("code_too_large", error.to_string())
                .with_hint("put long data into a file in /data and read it from there"),
            RunError::Busy { .. } | RunError::NotStarted => Self::new("busy", error.to_string()),
            RunError::NoInstaller { .. } => Self::invalid_argument(error.to_string())
                .with_hint("write what is needed in run_code, or pass network: true and fetch it"),
            RunError::TimeoutTooLong { .. } => Self::invalid_argument(error.to_string()),
            RunError::NetworkNotAllowed => Self::new("network_not_allowed", error.to_string())
                .with_hint("leave out network, or ask the operator to set NETWORK_POLICY=allow"),
            RunError::Workspace(error) => error.into(),
            RunError::Backend(error) => error.into(),
        }
    }
}

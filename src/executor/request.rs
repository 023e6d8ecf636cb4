//! Request: one run, as a caller asks for it, and why it may not take place.

use std::{collections::BTreeMap, time::Duration};

use super::{BackendError, admission::Busy};
use crate::{
    conversation::ConversationId, package::Package, runner::Runners, telemetry::RequestId,
    workspace::WorkspaceError,
};

/// One run, as a caller asked for it.
#[derive(Debug)]
pub struct RunRequest {
    /// The request that it came with, for the log; `None` where it came another way.
    pub request_id: Option<RequestId>,
    /// Whose files it works on.
    pub conversation: ConversationId,
    /// Name or alias of a language.
    pub language: String,
    /// What to run.
    pub program: Program,
    /// Whether it asks for the network.
    pub network: bool,
    /// Its environment, besides the runner's own.
    pub environment: BTreeMap<String, String>,
    /// Its time limit; `None` for the default one.
    pub timeout: Option<Duration>,
}

/// What to run.
#[derive(Debug)]
pub enum Program {
    /// A program of the caller's.
    Code(String),
    /// The language's package installer, which gets the network and more time.
    Installer(Vec<Package>),
}

impl Program {
    /// What goes to the runner's standard input.
    pub(super) fn source(&self) -> &str {
        match self {
            Self::Code(code) => code,
            Self::Installer(_) => "",
        }
    }
}

/// Why a run did not take place.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No runner has that language.
    #[error("there is no runner for the language {asked:?}; known: {known}")]
    UnknownLanguage {
        /// What was asked for.
        asked: String,
        /// What there is, with aliases.
        known: String,
    },
    /// The language's runner cannot install anything.
    #[error("the runner of {language} has no package installer")]
    NoInstaller {
        /// The language.
        language: String,
    },
    /// The code is longer than `MAX_CODE_BYTES`.
    #[error("the code is {bytes} bytes long; the limit is {limit}")]
    CodeTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The time limit asked for is longer than `RUN_TIMEOUT_MAX_SECONDS`.
    #[error("timeoutSeconds must be at most {}", .limit.as_secs())]
    TimeoutTooLong {
        /// The limit.
        limit: Duration,
    },
    /// There are too many runs.
    #[error("there are too many runs; try again in {} s", .retry_after.as_secs())]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// The caller went away, or the server is shutting down, before it started.
    #[error("the run was given up before it started")]
    NotStarted,
    /// The operator allows no network.
    #[error("this server does not allow runs to use the network")]
    NetworkNotAllowed,
    /// The workspace could not be used.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The backend could not run it.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl RunError {
    /// No runner of `runners` has the language that was asked for.
    pub(super) fn unknown_language(language: &str, runners: &Runners) -> Self {
        let names = runners
            .languages()
            .into_iter()
            .map(|(language, aliases)| match aliases {
                [] => language.to_owned(),
                _ => format!("{language} ({})", aliases.join(", ")),
            });
        RunError::UnknownLanguage {
            asked: language.chars().take(64).collect(),
            known: names.collect::<Vec<_>>().join(", "),
        }
    }
}

impl From<Busy> for RunError {
    fn from(busy: Busy) -> Self {
        Self::Busy {
            retry_after: busy.retry_after,
        }
    }
}

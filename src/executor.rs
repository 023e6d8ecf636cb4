//! Executor: takes one run from its request to its outcome.
//!
//! The steps are those of [`Executor::run`], in order. Where the run happens is the [`Backend`]'s
//! affair; what the caller is told of it, the reply's.

mod backend;
mod output;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::{
    backend::{Backend, BackendError, Exit, RunId, RunInput, RunSpec, Usage},
    output::{Captured, Output},
};
use crate::{
    config::{Config, NetworkPolicy, RunLimits},
    conversation::ConversationId,
    runner::{Protocol, Runners},
    workspace::{FilePath, Listing, Workspace, WorkspaceError, Workspaces},
};

/// One run, as a caller asked for it.
#[derive(Debug)]
pub struct RunRequest {
    /// Whose files it works on.
    pub conversation: ConversationId,
    /// Name or alias of a language.
    pub language: String,
    /// The program.
    pub code: String,
    /// Whether it asks for the network.
    pub network: bool,
    /// Its environment, besides the runner's own.
    pub environment: BTreeMap<String, String>,
    /// Its time limit; `None` for the default one.
    pub timeout: Option<Duration>,
}

/// How a run ended. A failing program is an outcome, never an error of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It exited with 0.
    Ok,
    /// It exited with something else.
    Error,
    /// Its time was up.
    Timeout,
    /// It needed more memory than it had.
    OutOfMemory,
    /// A signal ended it.
    Killed,
    /// The caller cancelled it or went away.
    Cancelled,
}

/// A run that took place.
#[derive(Debug)]
pub struct RunReport {
    /// The run's name in logs and on its container.
    pub run_id: RunId,
    /// Language that ran, by its own name.
    pub language: String,
    /// How it ended.
    pub status: Status,
    /// The program's own exit code; `None` where it never exited.
    pub exit_code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// From taking the code to its end.
    pub duration: Duration,
    /// What it used, where the runner says so.
    pub usage: Option<Usage>,
    /// Where its files are.
    pub workspace: Workspace,
    /// All files after the run.
    pub files: Listing,
    /// The files that it made or changed.
    pub new_files: Vec<FilePath>,
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

/// Runs code. See the module's words.
#[derive(Debug)]
pub struct Executor<B> {
    backend: B,
    workspaces: Arc<Workspaces>,
    runners: RwLock<Arc<Runners>>,
    limits: RunLimits,
    network: NetworkPolicy,
    pass_through_env: BTreeMap<String, String>,
    max_code_bytes: usize,
    max_output_bytes: usize,
    stopping: CancellationToken,
}

impl<B: Backend> Executor<B> {
    /// An executor on `backend` with the limits of `config`.
    pub fn new(config: &Config, backend: B, workspaces: Arc<Workspaces>) -> Self {
        Self {
            backend,
            workspaces,
            runners: RwLock::default(),
            limits: config.limits,
            network: config.network.clone(),
            pass_through_env: config.pass_through_env.clone(),
            max_code_bytes: config.max_code_bytes,
            max_output_bytes: config.max_output_bytes,
            stopping: CancellationToken::new(),
        }
    }

    /// Runs `request` to its end, or until `cancel`.
    ///
    /// # Errors
    /// When the run does not take place. Once it has started, every ending is a report.
    pub async fn run(
        &self,
        request: RunRequest,
        cancel: CancellationToken,
    ) -> Result<RunReport, RunError> {
        let timeout = self.allowed_timeout(&request)?;
        let network = self.allowed_network(&request)?;
        let runners = self.runners_with(&request.language).await?;
        let runner = runners
            .find(&request.language)
            .ok_or_else(|| unknown(&request.language, &runners))?;

        let workspace = self.workspaces.open(&request.conversation).await?;
        let run_id = RunId::random();
        let mut environment = self.pass_through_env.clone();
        environment.extend(request.environment);
        let spec = RunSpec {
            run_id,
            runner: runner.clone(),
            workspace: workspace.hash().clone(),
            owner: self.workspaces.owner(),
            network,
            limits: self.limits,
            // A framed runner gets it with the code, so that its container can be made before the call.
            environment: match runner.protocol {
                Protocol::Plain => environment.clone(),
                Protocol::Framed => BTreeMap::new(),
            },
        };
        let (prepared, before) = tokio::join!(self.backend.prepare(spec), workspace.list());
        let (prepared, before) = (prepared?, before?);

        let input = RunInput {
            code: request.code,
            environment,
            timeout,
        };
        let stop = self.stopping.child_token();
        let mut output = Output::new(self.max_output_bytes);
        let started = Instant::now();
        let exit = tokio::select! {
            exit = self.backend.run(prepared, input, &mut output, stop.clone()) => exit?,
            never = forward(&cancel, &stop) => match never {},
        };
        let duration = started.elapsed();

        let files = workspace.list().await?;
        let new_files = files.new_since(&before).cloned().collect();
        let (stdout, stderr) = output.finish();
        let report = RunReport {
            run_id,
            language: runner.language.clone(),
            status: Status::from(exit),
            exit_code: exit.code(),
            stdout,
            stderr,
            duration,
            usage: exit.usage(),
            workspace,
            files,
            new_files,
        };
        report.log();
        Ok(report)
    }

    /// Asks the backend which runners there are.
    ///
    /// # Errors
    /// When the backend does not answer.
    pub async fn discover(&self) -> Result<Arc<Runners>, BackendError> {
        let found = Arc::new(self.backend.runners().await?);
        *self.runners.write().await = Arc::clone(&found);
        Ok(found)
    }

    /// Whether the backend answers and has a runner.
    ///
    /// # Errors
    /// Says what is missing.
    pub async fn ready(&self) -> Result<(), BackendError> {
        if self.discover().await?.is_empty() {
            Err(BackendError::NoRunner)
        } else {
            Ok(())
        }
    }

    /// Ends all runs as cancelled and waits until nothing of them is left, at most as long as the
    /// backend's own limits.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.backend.stop().await;
    }

    fn allowed_timeout(&self, request: &RunRequest) -> Result<Duration, RunError> {
        if request.code.len() > self.max_code_bytes {
            return Err(RunError::CodeTooLarge {
                bytes: request.code.len(),
                limit: self.max_code_bytes,
            });
        }
        match request.timeout {
            None => Ok(self.limits.timeout),
            Some(timeout) if timeout <= self.limits.timeout_max => Ok(timeout),
            Some(_) => Err(RunError::TimeoutTooLong {
                limit: self.limits.timeout_max,
            }),
        }
    }

    fn allowed_network(&self, request: &RunRequest) -> Result<Option<String>, RunError> {
        match &self.network {
            _ if !request.network => Ok(None),
            NetworkPolicy::Allow(network) => Ok(Some(network.clone())),
            NetworkPolicy::Deny => Err(RunError::NetworkNotAllowed),
        }
    }

    /// The runners known; asked for anew where `language` is not among them, as an image may have been built since.
    async fn runners_with(&self, language: &str) -> Result<Arc<Runners>, BackendError> {
        let known = Arc::clone(&*self.runners.read().await);
        if known.find(language).is_some() {
            Ok(known)
        } else {
            self.discover().await
        }
    }
}

/// Passes a cancellation on. Never returns.
async fn forward(from: &CancellationToken, to: &CancellationToken) -> std::convert::Infallible {
    from.cancelled().await;
    to.cancel();
    std::future::pending().await
}

fn unknown(language: &str, runners: &Runners) -> RunError {
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

impl From<Exit> for Status {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Exited { code: 0, .. } => Self::Ok,
            Exit::Exited { .. } => Self::Error,
            Exit::Signalled => Self::Killed,
            Exit::OutOfMemory => Self::OutOfMemory,
            Exit::TimedOut => Self::Timeout,
            Exit::Cancelled => Self::Cancelled,
        }
    }
}

impl Status {
    /// Its name in results, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "oom",
            Self::Killed => "killed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl RunReport {
    fn log(&self) {
        info!(
            run_id = %self.run_id,
            workspace = self.workspace.hash().short(),
            language = self.language,
            status = self.status.as_str(),
            duration_ms = self.duration.as_millis(),
            "run ended"
        );
    }
}

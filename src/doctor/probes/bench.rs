//! Bench: where probes run. It has the real executor and workspaces of its own beneath `SANDBOX_ROOT`, and
//! is cleared away afterwards.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use mcp_code_sandbox::{
    caller::Caller,
    config::Config,
    conversation::ConversationId,
    executor::{BackendError, Program, Progress, RunReport, RunRequest, Status},
    runner::Runners,
    sandbox::Sandbox,
    server,
    workspace::FilePath,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{evidence::Evidence, judge, programs::Programs};

/// Time of a probe within its container; the longest takes 7 s where nothing answers.
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// Time of a run with all that the engine does for it.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Memory of a probe: a host need not lose gigabytes to see that a limit holds.
const MEMORY_LIMIT: u64 = 256 << 20;

/// One program and how it is run.
pub(super) struct Probe {
    language: &'static str,
    code: &'static str,
    network: bool,
    variable: Option<(String, String)>,
}

impl Probe {
    /// `code` is one of `programs`.
    pub(super) fn new(programs: &Programs, code: &'static str) -> Self {
        Self {
            language: programs.language,
            code,
            network: false,
            variable: None,
        }
    }

    pub(super) fn with(mut self, name: &str, value: &impl ToString) -> Self {
        self.variable = Some((name.to_owned(), value.to_string()));
        self
    }

    pub(super) fn with_network(self) -> Self {
        Self {
            network: true,
            ..self
        }
    }
}

/// What the run that looked around has seen.
pub(super) struct Look {
    pub(super) language: &'static str,
    pub(super) duration: Duration,
    /// Whether what the server wrote was read in the run, and the other way round.
    pub(super) mounted: bool,
    pub(super) evidence: Evidence,
}

/// A place to run probes in.
pub(super) struct Bench {
    sandbox: Sandbox,
    config: Config,
    /// Directory of the probes' workspaces.
    root: PathBuf,
    /// Fires when the operator has had enough.
    stop: CancellationToken,
}

impl Bench {
    pub(super) async fn set_up(config: &Config, stop: CancellationToken) -> anyhow::Result<Self> {
        // In the real place, as only that shows whether the engine mounts what the server writes.
        let name = format!(".doctor-{}", Uuid::new_v4());
        let mut config = config.clone();
        config.sandbox_root = std::path::absolute(&config.sandbox_root)?.join(&name);
        config.sandbox_host_path = config.sandbox_host_path.map(|path| path.join(&name));
        // The limits of runs are what is looked at; those of the server must not be in the way.
        config.limits.memory = config.limits.memory.min(MEMORY_LIMIT);
        config.limits.timeout = PROBE_LIMIT;
        config.limits.timeout_max = PROBE_LIMIT;
        config.disk.min_free = 0;
        config.disk.workspace.bytes = config.disk.workspace.bytes.max(1 << 20);
        config.disk.workspace.files = config.disk.workspace.files.max(100);
        config.max_code_bytes = config.max_code_bytes.max(100 << 10);
        config.max_output_bytes = config.max_output_bytes.max(100 << 10);
        config.pass_through_env.clear();
        Ok(Self {
            sandbox: Box::pin(server::sandbox(&config)).await?,
            root: config.sandbox_root.clone(),
            config,
            stop,
        })
    }

    pub(super) async fn clear_away(self) {
        self.sandbox.executor.stop().await;
        if let Err(error) = tokio::fs::remove_dir_all(&self.root).await {
            tracing::error!(directory = %self.root.display(), %error, "doctor's directory is left");
        }
        // Only if it is empty, that is if doctor made it.
        if let Some(root) = self.root.parent() {
            let _kept = tokio::fs::remove_dir(root).await;
        }
    }

    /// The settings that probes run by, which are not quite the operator's.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) async fn discover(&self) -> Result<Arc<Runners>, BackendError> {
        self.sandbox.executor.discover().await
    }

    /// The run that looks around it; or why it did not say what it was asked.
    pub(super) async fn look(&self, programs: &Programs) -> Result<Look, String> {
        let written = Uuid::new_v4().to_string();
        let conversation = ConversationId::random(Caller::default());
        let ran = async {
            let workspace = self.sandbox.workspaces.open(&conversation).await?;
            let name = FilePath::for_new_file("from-host")?;
            workspace
                .write_file(name, written.clone().into_bytes())
                .await?;
            let look = Probe::new(programs, programs.look);
            self.run_in(conversation.clone(), look).await
        };
        let report = ran.await.map_err(|error| format!("{error:#}"))?;
        let evidence: Evidence =
            serde_json::from_str(report.stdout.text.trim()).map_err(|_| judge::told(&report))?;
        let back = self
            .root
            .join(report.workspace.hash().as_str())
            .join("from-run");
        let back = tokio::fs::read_to_string(back).await.unwrap_or_default();
        Ok(Look {
            language: programs.language,
            duration: report.duration,
            mounted: evidence.from_host == written && back.trim() == written,
            evidence,
        })
    }

    /// Runs a program in a conversation of its own.
    pub(super) async fn run(&self, probe: Probe) -> anyhow::Result<RunReport> {
        self.run_in(ConversationId::random(Caller::default()), probe)
            .await
    }

    /// Runs a program, within a time limit of its own.
    async fn run_in(
        &self,
        conversation: ConversationId,
        probe: Probe,
    ) -> anyhow::Result<RunReport> {
        let request = RunRequest {
            request_id: None,
            conversation,
            language: probe.language.to_owned(),
            program: Program::Code(probe.code.to_owned()),
            network: probe.network,
            environment: probe.variable.into_iter().collect(),
            timeout: None,
        };
        let progress = Progress::default();
        let executor = &self.sandbox.executor;
        let run = Box::pin(executor.run(request, &progress, self.stop.child_token()));
        let report = timeout(RUN_LIMIT, run)
            .await
            .with_context(|| format!("no answer within {} s", RUN_LIMIT.as_secs()))??;
        if report.status == Status::Cancelled {
            bail!("interrupted");
        }
        Ok(report)
    }
}

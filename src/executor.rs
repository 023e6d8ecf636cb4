//! Executor: takes one run from its request to its outcome.
//!
//! The steps are those of [`Executor::run`], in order. Where the run happens is the [`Backend`]'s
//! affair; what the caller is told of it, the reply's.

mod activity;
mod admission;
mod audit;
mod backend;
mod catalog;
mod hint;
mod output;
mod pool;
mod progress;
mod report;
mod request;
mod terms;
mod warm;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::{
    activity::Activity,
    admission::{Admission, Permit},
    catalog::Catalog,
    pool::Pool,
    terms::{Terms, remove_installer_dir},
    warm::Place,
};
pub use self::{
    activity::{Ended, Running},
    backend::{Backend, BackendError, Ending, Exit, RunId, RunInput, RunSpec, Usage},
    output::{Captured, Output},
    pool::Warm,
    progress::{Progress, Stage},
    report::{RunReport, Status},
    request::{Program, RunError, RunRequest},
};
use crate::{
    config::{Config, NetworkPolicy, RunLimits},
    conversation::ConversationId,
    metrics::{EndedRun, Metrics},
    runner::{Protocol, Runner},
    workspace::{Allowance, DataDir, Listing, Workspace, WorkspaceError, Workspaces},
};

/// Runs code. See the module's words.
#[derive(Debug)]
pub struct Executor<B: Backend> {
    backend: B,
    workspaces: Arc<Workspaces>,
    catalog: Catalog,
    admission: Admission,
    pool: Pool<B::Prepared>,
    activity: Activity,
    metrics: Arc<Metrics>,
    limits: RunLimits,
    network: NetworkPolicy,
    pass_through_env: BTreeMap<String, String>,
    max_code_bytes: usize,
    max_output_bytes: usize,
    stopping: CancellationToken,
}

impl<B: Backend> Executor<B> {
    /// An executor on `backend` with the limits of `config`.
    pub fn new(
        config: &Config,
        backend: B,
        workspaces: Arc<Workspaces>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let admission = &config.admission;
        Self {
            backend,
            workspaces,
            catalog: Catalog::default(),
            pool: Pool::new(config.warm),
            activity: Activity::default(),
            metrics,
            admission: Admission::new(admission.running, admission.queued, admission.queue_timeout),
            limits: config.limits,
            network: config.network.clone(),
            pass_through_env: config.pass_through_env.clone(),
            max_code_bytes: config.max_code_bytes,
            max_output_bytes: config.max_output_bytes,
            stopping: CancellationToken::new(),
        }
    }

    /// Runs `request` to its end, or until `cancel`, and tells `progress` of it meanwhile.
    ///
    /// # Errors
    /// When the run does not take place. Once it has started, every ending is a report.
    pub async fn run(
        &self,
        request: RunRequest,
        progress: &Progress,
        cancel: CancellationToken,
    ) -> Result<RunReport, RunError> {
        let mut terms = self.terms(&request).await?;
        let placing = async {
            self.make_installer_dir(&request).await?;
            match self.place(&request, &terms, progress).await {
                // The image may have lost its name to a newer build just now.
                Err(RunError::Backend(BackendError::RunnerUnavailable { .. })) => {
                    self.discover().await?;
                    terms = self.terms(&request).await?;
                    self.place(&request, &terms, progress).await
                }
                placed => placed,
            }
        };
        let (_permit, place) = tokio::select! {
            placed = placing => placed?,
            () = cancel.cancelled() => return Err(RunError::NotStarted),
            () = self.stopping.cancelled() => return Err(RunError::NotStarted),
        };
        let Place {
            run_id,
            workspace,
            container,
            was_warm,
        } = place;
        let entry = self.activity.enter(Running {
            run_id,
            caller: request.conversation.caller().clone(),
            workspace: workspace.hash().clone(),
            language: terms.runner.language.clone(),
            since: SystemTime::now(),
        });
        let (before, allowance) = tokio::join!(workspace.list(), workspace.allowance());
        let (before, allowance) = (before?, allowance?);

        let input = RunInput {
            code: request.program.source().to_owned(),
            environment: terms.environment.clone(),
            timeout: terms.timeout,
        };
        let mut output = Output::new(self.max_output_bytes, &workspace, run_id, progress.clone());
        progress.enter(Stage::Running);
        let started = Instant::now();
        let (exit, status) = self
            .supervise(
                container,
                input,
                &mut output,
                &cancel,
                &workspace,
                allowance,
            )
            .await?;
        let duration = started.elapsed();
        entry.ends(status, duration, was_warm);
        self.metrics.run_ended(EndedRun {
            language: &terms.runner.language,
            status: status.as_str(),
            was_warm,
            caller: request.conversation.caller(),
            duration,
        });

        remove_installer_dir(&request, &workspace).await;
        let files = after_the_run(&workspace).await;
        let new_files = files.new_since(&before).collect();
        let (stdout, stderr) = output.finish().await;
        let mut report = RunReport {
            run_id,
            language: terms.runner.language.clone(),
            status,
            exit_code: exit.code(),
            stdout,
            stderr,
            duration,
            usage: exit.usage,
            hint: None,
            expires_at: self.workspaces.expiry_from_now(),
            workspace,
            files,
            new_files,
        };
        report.hint = hint::of(&report, &terms, &self.limits);
        audit::log(&request, &terms, &self.limits, &report, was_warm);
        if report.status == Status::DiskQuota || allowance.for_tidying {
            // Containers made before could write more into it.
            self.pool.forget(report.workspace.hash());
        } else {
            self.pool.want_next(report.workspace.clone(), terms.next);
        }
        Ok(report)
    }

    fn spec(
        &self,
        run_id: RunId,
        data: DataDir,
        runner: &Runner,
        network: Option<String>,
        environment: BTreeMap<String, String>,
    ) -> RunSpec {
        RunSpec {
            run_id,
            runner: runner.clone(),
            data,
            owner: self.workspaces.owner(),
            network,
            limits: self.limits,
            tidies_only: false,
            // A framed runner gets it with the code, so that its container can be made before the call.
            environment: match runner.protocol {
                Protocol::Plain => environment,
                Protocol::Framed => BTreeMap::new(),
            },
        }
    }

    /// A container for the run, warm or made now, and the permit to use it.
    async fn place(
        &self,
        request: &RunRequest,
        terms: &Terms,
        progress: &Progress,
    ) -> Result<(Permit, Place<B::Prepared>), RunError> {
        let conversation = &request.conversation;
        let asked = Instant::now();
        // Waiting costs the run none of its time.
        let permit = self
            .admission
            .enter(&self.workspaces.hash(conversation), || {
                progress.enter(Stage::Queued);
            })
            .await?;
        self.metrics.run_waited(asked.elapsed());
        let placing = Instant::now();
        if terms.can_be_warm
            && let Some(place) = self.warm_place(conversation, &terms.runner).await?
        {
            self.metrics.run_started(true, placing.elapsed());
            return Ok((permit, place));
        }
        progress.enter(Stage::Starting);
        let spec = |run_id, data| {
            let (network, environment) = (terms.network.clone(), terms.environment.clone());
            self.spec(run_id, data, &terms.runner, network, environment)
        };
        let place = self.cold_place(conversation, spec).await?;
        self.metrics.run_started(false, placing.elapsed());
        Ok((permit, place))
    }

    /// Lets the backend run it, and stops it where it must not go on.
    async fn supervise(
        &self,
        prepared: B::Prepared,
        input: RunInput,
        output: &mut Output,
        cancel: &CancellationToken,
        workspace: &Workspace,
        allowance: Allowance,
    ) -> Result<(Exit, Status), BackendError> {
        let stop = CancellationToken::new();
        let run = self.backend.run(prepared, input, output, stop.clone());
        tokio::pin!(run);
        let stopped_as = tokio::select! {
            exit = &mut run => return exit.map(|exit| (exit, Status::from(exit.ending))),
            () = cancel.cancelled() => Status::Cancelled,
            () = self.stopping.cancelled() => Status::Cancelled,
            () = workspace.overflows(allowance) => Status::DiskQuota,
        };
        stop.cancel();
        let exit = run.await?;
        // It may have ended by itself in that very moment.
        let status = if exit.ending == Ending::Stopped {
            stopped_as
        } else {
            exit.ending.into()
        };
        Ok((exit, status))
    }

    /// Removes containers that an earlier life of this server left behind, and only those.
    ///
    /// # Errors
    /// When the backend does not answer.
    pub async fn reap(&self) -> Result<(), BackendError> {
        self.backend.reap().await
    }

    /// Ends all runs as cancelled and waits until nothing of them is left, at most as long as the
    /// backend's own limits.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.pool.clear();
        self.backend.stop().await;
    }

    /// The runs under way, those of one conversation if it is named, in no order.
    pub fn running(&self, conversation: Option<&ConversationId>) -> Vec<Running> {
        let hash = conversation.map(|conversation| self.workspaces.hash(conversation));
        self.activity.running(hash.as_ref())
    }

    /// The last runs, newest first.
    pub fn ended(&self) -> Vec<Ended> {
        self.activity.ended()
    }

    /// How many runs wait for a place.
    pub fn queued(&self) -> usize {
        self.admission.queued()
    }

    /// How many containers wait for runs.
    pub fn waiting(&self) -> Warm {
        self.pool.count()
    }

    /// Deletes a conversation's workspace and returns how many files it had.
    ///
    /// # Errors
    /// [`WorkspaceError::InUse`] while a run or a download goes on.
    pub async fn close(&self, conversation: &ConversationId) -> Result<u64, WorkspaceError> {
        let hash = self.workspaces.hash(conversation);
        let asked = Instant::now();
        loop {
            // A container that waits for the next run holds the workspace; one that is being made is let go as
            // soon as it is there.
            self.pool.forget(&hash);
            match self.workspaces.remove(conversation).await {
                Err(WorkspaceError::InUse)
                    if self.activity.running(Some(&hash)).is_empty()
                        && asked.elapsed() < CLOSE_LIMIT =>
                {
                    sleep(CLOSE_PAUSE).await;
                }
                removed => return removed,
            }
        }
    }
}

/// Time for whatever still holds a workspace that is to be closed, and time between two tries.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
const CLOSE_PAUSE: Duration = Duration::from_millis(20);

/// Tidies up and lists what there is. The run took place, so its report is not lost over this.
async fn after_the_run(workspace: &Workspace) -> Listing {
    let listed = async {
        workspace.tidy().await?;
        workspace.list().await
    };
    listed.await.unwrap_or_else(|error| {
        tracing::error!(%error, "files could not be listed after a run");
        Listing::default()
    })
}

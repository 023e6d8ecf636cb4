//! Warm: why a call takes milliseconds. Containers are made, started and loaded before the call.
//!
//! One is prepared at a time, behind the runs that are under way. A container that is not at hand, or
//! not usable any more, only costs the call the time to make one.

use std::{convert::Infallible, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    Backend, Executor, RunError, RunId, RunSpec,
    pool::{Arrival, Job, Waiting},
};
use crate::{
    conversation::ConversationId,
    runner::Runner,
    workspace::{DataDir, Workspace, WorkspaceError},
};

/// Time between two looks for idle and dead containers.
const TIDY_PAUSE: Duration = Duration::from_secs(10);

/// Time that a call waits for a container that is being prepared, before it makes its own.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);

/// Time between two looks whether runs still wait for a place.
const GIVE_WAY_PAUSE: Duration = Duration::from_millis(20);

/// Where a run takes place.
pub(super) struct Place<P> {
    pub(super) run_id: RunId,
    pub(super) workspace: Workspace,
    pub(super) container: P,
    /// Whether the container waited for the run.
    pub(super) was_warm: bool,
}

impl<B: Backend> Executor<B> {
    /// The workspace of `conversation`. One that begins takes a spare along, so that its first run is warm.
    ///
    /// # Errors
    /// When the workspace cannot be made or opened.
    pub async fn workspace(
        &self,
        conversation: &ConversationId,
    ) -> Result<Workspace, WorkspaceError> {
        if let Some((waiting, workspace)) = self.adopt(conversation, None).await? {
            self.pool.put_next(waiting, workspace.clone());
            return Ok(workspace);
        }
        self.workspaces.open(conversation).await
    }

    /// A container that waits for this very run, if there is one.
    pub(super) async fn warm_place(
        &self,
        conversation: &ConversationId,
        runner: &Runner,
    ) -> Result<Option<Place<B::Prepared>>, WorkspaceError> {
        let hash = self.workspaces.hash(conversation);
        while let Some((waiting, workspace)) = self.pool.take_next(&hash, runner) {
            if workspace.is_there().await
                && let Some(place) = self.alive(waiting, workspace).await
            {
                return Ok(Some(place));
            }
        }
        match self.adopt(conversation, Some(runner)).await? {
            Some((waiting, workspace)) => Ok(self.alive(waiting, workspace).await),
            None => Ok(None),
        }
    }

    /// Makes a spare the workspace of a conversation that begins; `None` where it exists or there is no spare.
    async fn adopt(
        &self,
        conversation: &ConversationId,
        runner: Option<&Runner>,
    ) -> Result<Option<(Waiting<B::Prepared>, Workspace)>, WorkspaceError> {
        while let Some((mut waiting, dir)) = self.pool.take_spare(runner) {
            match waiting.arrival() {
                Arrival::Here => {}
                Arrival::Never => continue,
                // Not worth waiting for where it would be of no use.
                Arrival::Coming if self.workspaces.exists(conversation).await => {
                    self.pool.put_spare(waiting, dir);
                    return Ok(None);
                }
                // The directory must keep its name until the container has it mounted.
                Arrival::Coming => match timeout(ARRIVAL_LIMIT, waiting.arrives()).await {
                    Ok(true) => {}
                    _ => continue,
                },
            }
            match self.workspaces.adopt(conversation, dir).await {
                Ok(Ok(workspace)) => return Ok(Some((waiting, workspace))),
                Ok(Err(dir)) => {
                    self.pool.put_spare(waiting, dir);
                    return Ok(None);
                }
                // Somebody tidied up on the disk: the next spare may still have its directory.
                Err(WorkspaceError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// A container made for this run, now.
    pub(super) async fn cold_place(
        &self,
        conversation: &ConversationId,
        spec: impl FnOnce(RunId, DataDir) -> RunSpec,
    ) -> Result<Place<B::Prepared>, RunError> {
        let workspace = self.workspaces.open(conversation).await?;
        let run_id = RunId::random();
        let mut spec = spec(run_id, workspace.data_dir());
        spec.tidies_only = workspace.allowance().await?.for_tidying;
        let container = self.backend.prepare(spec).await?;
        Ok(Place {
            run_id,
            workspace,
            container,
            was_warm: false,
        })
    }

    async fn alive(
        &self,
        waiting: Waiting<B::Prepared>,
        workspace: Workspace,
    ) -> Option<Place<B::Prepared>> {
        let run_id = waiting.run_id;
        let mut container = timeout(ARRIVAL_LIMIT, waiting.container()).await.ok()??;
        self.backend.is_alive(&mut container).then_some(Place {
            run_id,
            workspace,
            container,
            was_warm: true,
        })
    }

    /// Keeps containers waiting. Never returns; may be dropped at any await.
    pub async fn keep_warm(&self) -> Infallible {
        loop {
            let runners = self.catalog.last();
            self.pool
                .tidy(&runners, |container| self.backend.is_alive(container));
            let Some(job) = self.pool.next_job(&runners) else {
                tokio::select! {
                    () = self.pool.changed() => {}
                    () = sleep(TIDY_PAUSE) => {}
                }
                continue;
            };
            while self.admission.queued() > 0 {
                sleep(GIVE_WAY_PAUSE).await;
            }
            let language = job.language().to_owned();
            match self.prepare_ahead(job).await {
                Ok(()) => self.pool.works(&language),
                Err(error) => {
                    if self.pool.fails(language.clone()) {
                        tracing::warn!(language, %error, "no container could be prepared ahead; trying again");
                    }
                }
            }
        }
    }

    async fn prepare_ahead(&self, job: Job) -> Result<(), RunError> {
        let run_id = RunId::random();
        let (sender, waiting) = Waiting::new(run_id, job.runner().clone());
        let spec = |data| {
            self.spec(
                run_id,
                data,
                job.runner(),
                None,
                self.pass_through_env.clone(),
            )
        };
        // Kept before it is prepared: a call that comes meanwhile waits for this one instead of making its own.
        let spec = match &job {
            Job::Next(workspace, _) => {
                self.pool.put_next(waiting, workspace.clone());
                spec(workspace.data_dir())
            }
            Job::Spare(_) => {
                let dir = self.workspaces.create_spare().await?;
                let spec = spec(dir.data_dir());
                self.pool.put_spare(waiting, dir);
                spec
            }
        };
        let container = self.backend.prepare(spec).await?;
        // Where nobody waits for it any more, dropping it removes it.
        let _unwanted = sender.send(container);
        Ok(())
    }
}

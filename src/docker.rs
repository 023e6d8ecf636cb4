//! Docker: the [`Backend`] that runs code in containers of a Docker (or Podman) engine.
//!
//! Every call to the engine has a time limit of its own: a stuck runtime can make a single removal
//! hang for ever, and must hold up neither an answer, nor another run, nor shutdown.

mod container;
mod facts;
mod frame;
mod roster;
mod runners;
mod spec;
mod streams;

use std::{collections::BTreeMap, future::Future, path::PathBuf, sync::Arc, time::Duration};

use bollard::{Docker as Client, errors::Error};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use self::{container::Container, roster::Roster};
pub use self::{
    container::Prepared,
    facts::{EngineFacts, HostFacts, engine_facts},
};
use crate::{
    config::Config,
    executor::{Backend, BackendError, Exit, Output, RunInput, RunSpec},
    metrics::Metrics,
    runner::Runners,
};

/// Time for questions that the engine answers from memory.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Time to make, attach to or start a container: 170 ms on an idle machine, seconds on a busy one.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Time for all containers to be gone at shutdown.
const STOP_LIMIT: Duration = Duration::from_secs(8);

/// Bytes that one file may have beyond the quota, for the watch to see.
const BEYOND_QUOTA: u64 = 16 << 20;

/// An engine, and what every container on it has in common.
#[derive(Debug)]
pub struct Docker {
    engine: Engine,
    site: spec::Site,
    extra_runners: BTreeMap<String, String>,
    roster: Roster,
}

impl Docker {
    /// Connects to the engine that `config` names.
    ///
    /// `instance` marks this server's containers; `workspaces` is the directory of the workspaces as
    /// this process sees it.
    ///
    /// # Errors
    /// When the engine cannot be reached.
    pub async fn connect(
        config: &Config,
        instance: String,
        workspaces: PathBuf,
        metrics: Arc<Metrics>,
    ) -> Result<Self, BackendError> {
        let connect = async {
            Client::connect_with_host(&config.docker_host)?
                .negotiate_version()
                .await
        };
        let client = within(ASK_LIMIT, "version", connect).await?;
        let engine = Engine { client, metrics };
        let site = spec::Site {
            instance,
            workspaces: config.sandbox_host_path.clone().unwrap_or(workspaces),
            runtime: config.runtime.clone(),
            // More than the quota, so that a run that fills it is stopped for that and not by a signal.
            largest_file: config.disk.workspace.bytes.saturating_add(BEYOND_QUOTA),
        };
        Ok(Self {
            site,
            extra_runners: config.extra_runners.clone(),
            roster: Roster::new(engine.clone()),
            engine,
        })
    }
}

impl Backend for Docker {
    type Prepared = Prepared;

    async fn runners(&self) -> Result<Runners, BackendError> {
        runners::discover(&self.engine, &self.extra_runners).await
    }

    async fn prepare(&self, spec: RunSpec) -> Result<Prepared, BackendError> {
        let body = spec::container(&self.site, &spec);
        let container = Container::new(self.engine.clone(), self.roster.clone(), spec.run_id);
        // In a task of its own: a caller who goes away between the engine's making the container and
        // its saying so would leave one that nobody knows of.
        let preparing = self
            .roster
            .tasks()
            .spawn(container.prepare(body, spec.runner.protocol));
        preparing.await.unwrap_or_else(|panicked| {
            Err(BackendError::RunnerUnavailable {
                cause: panicked.to_string(),
            })
        })
    }

    async fn run(
        &self,
        prepared: Prepared,
        input: RunInput,
        output: &mut Output,
        stop: CancellationToken,
    ) -> Result<Exit, BackendError> {
        prepared.run(input, output, stop).await
    }

    fn is_alive(&self, prepared: &mut Prepared) -> bool {
        prepared.is_alive()
    }

    fn image_changes(&self) -> impl Stream<Item = ()> + Send {
        runners::changes(&self.engine.client)
    }

    async fn reap(&self) -> Result<(), BackendError> {
        self.roster.reap(&self.site.instance).await
    }

    async fn stop(&self) {
        self.roster.tasks().close();
        // What is left after that, the next start's reaper removes.
        if tokio::time::timeout(STOP_LIMIT, self.roster.tasks().wait())
            .await
            .is_err()
        {
            tracing::warn!(
                limit_s = STOP_LIMIT.as_secs(),
                "containers are left: Docker did not remove them in time"
            );
        }
    }
}

/// The engine's API: every call has a limit, and is counted.
#[derive(Debug, Clone)]
struct Engine {
    client: Client,
    metrics: Arc<Metrics>,
}

impl Engine {
    async fn within<T>(
        &self,
        limit: Duration,
        call: &'static str,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, BackendError> {
        let answer = within(limit, call, answer).await;
        self.metrics.engine_called(call, answer.is_ok());
        answer
    }
}

/// Waits for a call to the engine, but no longer than `limit`.
async fn within<T>(
    limit: Duration,
    call: &'static str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, BackendError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Error::DockerResponseServerError {
            status_code,
            message,
        })) => Err(BackendError::Refused {
            call,
            cause: format!("{status_code}: {}", message.trim()),
        }),
        Ok(Err(error)) => Err(BackendError::Unavailable {
            call,
            cause: error.to_string(),
        }),
        Err(_) => Err(BackendError::Slow { call, limit }),
    }
}

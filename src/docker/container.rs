//! Container: one run's container, from its making to its removal.
//!
//! Whoever holds a [`Container`] holds its end: dropping it, on whichever path, removes the container in
//! a tracked task. Nobody waits for the engine's teardown but shutdown.

use std::time::Duration;

use bollard::{
    container::AttachContainerResults,
    errors::Error,
    models::ContainerCreateBody,
    query_parameters::{
        AttachContainerOptions, CreateContainerOptions, InspectContainerOptions,
        KillContainerOptions, StartContainerOptions, StatsOptions, WaitContainerOptions,
    },
};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    ASK_LIMIT, Engine, START_LIMIT,
    frame::{self, Token},
    roster::{Place, Roster},
    streams::{End, Reader, feed},
};
use crate::{
    executor::{BackendError, Ending, Exit, Output, RunId, RunInput, Usage},
    runner::Protocol,
};

/// Time to say what a container used: no answer waits for it longer.
const USAGE_LIMIT: Duration = Duration::from_millis(500);

/// Time to kill a container; after it, removal goes on trying.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Time for the engine to say how a container ended whose streams are closed.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// A container that exists, or may.
#[derive(Debug)]
pub(super) struct Container {
    engine: Engine,
    roster: Roster,
    /// Taken when it goes.
    place: Option<Place>,
    name: String,
}

impl Container {
    /// A container that is yet to be made.
    pub(super) fn new(engine: Engine, roster: Roster, run: RunId) -> Self {
        let name = format!("sandbox-{run}");
        Self {
            place: Some(roster.enter(name.clone())),
            engine,
            roster,
            name,
        }
    }

    /// Makes it, attaches to it and starts it, in that order so that no output is missed.
    pub(super) async fn prepare(
        self,
        body: ContainerCreateBody,
        protocol: Protocol,
    ) -> Result<Prepared, BackendError> {
        let create = CreateContainerOptions {
            name: Some(self.name.clone()),
            ..Default::default()
        };
        self.engine
            .within(
                START_LIMIT,
                "create container",
                self.engine.client.create_container(Some(create), body),
            )
            .await
            .map_err(runner_unavailable)?;
        let attach = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..Default::default()
        };
        let streams = self
            .engine
            .within(
                START_LIMIT,
                "attach container",
                self.engine
                    .client
                    .attach_container(&self.name, Some(attach)),
            )
            .await?;
        self.engine
            .within(
                START_LIMIT,
                "start container",
                self.engine
                    .client
                    .start_container(&self.name, None::<StartContainerOptions>),
            )
            .await
            .map_err(runner_unavailable)?;
        Ok(Prepared {
            container: self,
            protocol,
            streams,
        })
    }

    async fn kill(&self) {
        let kill = KillContainerOptions {
            signal: "SIGKILL".to_owned(),
        };
        let killed = self
            .engine
            .within(
                KILL_LIMIT,
                "kill container",
                self.engine.client.kill_container(&self.name, Some(kill)),
            )
            .await;
        // It may have ended by itself just now; and removal kills what still runs.
        if let Err(error) = killed {
            tracing::debug!(container = self.name, %error, "kill failed");
        }
    }

    /// How a program ended that left no exit line.
    async fn ending(&self, protocol: Protocol) -> Result<Ending, BackendError> {
        let mut wait = self
            .engine
            .client
            .wait_container(&self.name, None::<WaitContainerOptions>);
        let ended = async {
            match wait.next().await {
                Some(Ok(ended)) => Ok(ended.status_code),
                Some(Err(Error::DockerContainerWaitError { code, .. })) => Ok(code),
                Some(Err(error)) => Err(error),
                None => Err(Error::RequestTimeoutError),
            }
        };
        let code = self
            .engine
            .within(EXIT_LIMIT, "wait for container", ended)
            .await?;
        if code == KILLED && self.ran_out_of_memory().await? {
            return Ok(Ending::OutOfMemory);
        }
        // Docker's init answers 128 + n for a program that signal n ended. A program of protocol 1 may
        // have chosen that number itself, and shells do: there it is only an exit code.
        let signalled = protocol == Protocol::Framed && (129..=192).contains(&code);
        Ok(if signalled {
            Ending::Signalled
        } else {
            Ending::Exited(i32::try_from(code).unwrap_or(i32::MAX))
        })
    }

    /// What the container has used until now; `None` where it is gone already.
    async fn usage(&self) -> Option<Usage> {
        let options = StatsOptions {
            stream: false,
            one_shot: true,
        };
        let mut stats = self.engine.client.stats(&self.name, Some(options));
        let answer = async {
            stats
                .next()
                .await
                .unwrap_or(Err(Error::RequestTimeoutError))
        };
        let stats = self
            .engine
            .within(USAGE_LIMIT, "container stats", answer)
            .await
            .ok()?;
        let cpu = stats
            .cpu_stats?
            .cpu_usage?
            .total_usage
            .filter(|nanoseconds| *nanoseconds > 0)?;
        let memory = stats.memory_stats?;
        // Only cgroup v1 keeps the peak.
        let peak_memory = memory.max_usage.or(memory.usage)?;
        Some(Usage {
            cpu: Duration::from_nanos(cpu),
            peak_memory,
        })
    }

    async fn ran_out_of_memory(&self) -> Result<bool, BackendError> {
        let inspect = self
            .engine
            .client
            .inspect_container(&self.name, None::<InspectContainerOptions>);
        let container = self
            .engine
            .within(ASK_LIMIT, "inspect container", inspect)
            .await?;
        Ok(container
            .state
            .and_then(|state| state.oom_killed)
            .unwrap_or(false))
    }
}

/// Exit code of a program ended by SIGKILL, which is also the kernel's for want of memory.
const KILLED: i64 = 128 + 9;

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.roster.remove(place);
        }
    }
}

/// A refusal to make or start a container is the image's or the runtime's fault.
fn runner_unavailable(error: BackendError) -> BackendError {
    match error {
        BackendError::Refused { cause, .. } => BackendError::RunnerUnavailable { cause },
        other => other,
    }
}

/// A started container that waits for its one run.
pub struct Prepared {
    container: Container,
    protocol: Protocol,
    streams: AttachContainerResults,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Prepared")
            .field("container", &self.container.name)
            .finish_non_exhaustive()
    }
}

impl Prepared {
    /// See [`crate::executor::Backend::is_alive`].
    pub(super) fn is_alive(&mut self) -> bool {
        // The engine closes the connection when the container ends. A runner that waits says nothing.
        self.streams.output.next().now_or_never().is_none()
    }

    /// See [`crate::executor::Backend::run`].
    pub(super) async fn run(
        self,
        input: RunInput,
        output: &mut Output,
        stop: CancellationToken,
    ) -> Result<Exit, BackendError> {
        let Self {
            container,
            protocol,
            streams,
        } = self;
        let token = Token::random();
        let (request, marked_by) = match protocol {
            Protocol::Plain => (input.code.into_bytes(), None),
            Protocol::Framed => (
                frame::request(&token, &input.code, &input.environment),
                Some(&token),
            ),
        };
        let mut reader = Reader::new(streams.output, output, marked_by);
        let mut usage = None;
        let ending = tokio::select! {
            end = reader.until_end() => match end {
                End::ExitLine(line) => {
                    return Ok(Exit { ending: line.ending(), usage: Some(line.usage()) });
                }
                End::Closed => container.ending(protocol).await?,
            },
            // Beside the reading: a program may write more than the pipes hold before it has read all.
            never = feed(streams.input, request, protocol) => match never {},
            never = sample(&container, &mut usage) => match never {},
            () = sleep(input.timeout) => Ending::TimedOut,
            () = stop.cancelled() => Ending::Stopped,
        };
        if matches!(ending, Ending::TimedOut | Ending::Stopped) {
            usage = container.usage().await.or(usage);
            container.kill().await;
            reader.drain().await;
        }
        Ok(Exit { ending, usage })
    }
}

/// Looks from time to time what a run uses, for one that ends without saying so. Never returns.
async fn sample(container: &Container, usage: &mut Option<Usage>) -> std::convert::Infallible {
    let mut pause = FIRST_SAMPLE;
    loop {
        sleep(pause).await;
        *usage = container.usage().await.or(*usage);
        pause = SAMPLE_PAUSE;
    }
}

/// Time to the first look: short runs say themselves what they used, or are not worth asking the engine.
const FIRST_SAMPLE: Duration = Duration::from_millis(100);

/// Time between later ones.
const SAMPLE_PAUSE: Duration = Duration::from_millis(500);

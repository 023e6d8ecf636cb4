//! Container: one run's container, from its making to its removal.
//!
//! Whoever holds a [`Container`] holds its end: dropping it, on whichever path, removes the container in
//! a tracked task. Nobody waits for the engine's teardown but shutdown.

use std::time::Duration;

use bollard::{
    Docker as Client,
    container::AttachContainerResults,
    errors::Error,
    models::ContainerCreateBody,
    query_parameters::{
        AttachContainerOptions, CreateContainerOptions, InspectContainerOptions,
        KillContainerOptions, RemoveContainerOptions, StartContainerOptions, WaitContainerOptions,
    },
};
use futures_util::StreamExt as _;
use tokio::time::{sleep, timeout};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use super::{
    ASK_LIMIT, START_LIMIT,
    frame::{self, Token},
    streams::{End, Reader, feed},
    within,
};
use crate::{
    executor::{BackendError, Exit, Output, RunId, RunInput},
    runner::Protocol,
};

/// Time to kill a container; after it, removal goes on trying.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Time for one removal, and the number of tries. A stuck runtime needs more than either: then the
/// container stays for the reaper.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);
const REMOVE_TRIES: u32 = 3;

/// Time for the engine to say how a container ended whose streams are closed.
const EXIT_LIMIT: Duration = Duration::from_secs(5);

/// A container that exists, or may.
#[derive(Debug)]
pub(super) struct Container {
    client: Client,
    name: String,
    removals: TaskTracker,
    /// Shutdown waits for containers that live, and then for their removals.
    _alive: TaskTrackerToken,
    /// Whether the engine may know of it.
    asked_for: bool,
}

impl Container {
    /// A container that is yet to be made.
    pub(super) fn new(client: Client, removals: TaskTracker, run: RunId) -> Self {
        Self {
            client,
            name: format!("sandbox-{run}"),
            _alive: removals.token(),
            removals,
            asked_for: false,
        }
    }

    /// Makes it, attaches to it and starts it, in that order so that no output is missed.
    pub(super) async fn prepare(
        mut self,
        body: ContainerCreateBody,
        protocol: Protocol,
    ) -> Result<Prepared, BackendError> {
        let create = CreateContainerOptions {
            name: Some(self.name.clone()),
            ..Default::default()
        };
        self.asked_for = true;
        within(
            START_LIMIT,
            "create container",
            self.client.create_container(Some(create), body),
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
        let streams = within(
            START_LIMIT,
            "attach container",
            self.client.attach_container(&self.name, Some(attach)),
        )
        .await?;
        within(
            START_LIMIT,
            "start container",
            self.client
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
        let killed = within(
            KILL_LIMIT,
            "kill container",
            self.client.kill_container(&self.name, Some(kill)),
        )
        .await;
        // It may have ended by itself just now; and removal kills what still runs.
        if let Err(error) = killed {
            tracing::debug!(container = self.name, %error, "kill failed");
        }
    }

    /// How a program ended that left no exit line.
    async fn exit(&self, protocol: Protocol) -> Result<Exit, BackendError> {
        let mut wait = self
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
        let code = within(EXIT_LIMIT, "wait for container", ended).await?;
        if code == KILLED && self.ran_out_of_memory().await? {
            return Ok(Exit::OutOfMemory);
        }
        // Docker's init answers 128 + n for a program that signal n ended. A program of protocol 1 may
        // have chosen that number itself, and shells do: there it is only an exit code.
        let signalled = protocol == Protocol::Framed && (129..=192).contains(&code);
        let code = i32::try_from(code).unwrap_or(i32::MAX);
        Ok(if signalled {
            Exit::Signalled
        } else {
            Exit::Exited { code, usage: None }
        })
    }

    async fn ran_out_of_memory(&self) -> Result<bool, BackendError> {
        let inspect = self
            .client
            .inspect_container(&self.name, None::<InspectContainerOptions>);
        let container = within(ASK_LIMIT, "inspect container", inspect).await?;
        Ok(container
            .state
            .and_then(|state| state.oom_killed)
            .unwrap_or(false))
    }
}

/// Answers to a removal that need no other: no such container, and a removal under way.
const GONE_OR_GOING: [u16; 2] = [404, 409];

/// Exit code of a program ended by SIGKILL, which is also the kernel's for want of memory.
const KILLED: i64 = 128 + 9;

impl Drop for Container {
    fn drop(&mut self) {
        if self.asked_for {
            self.removals
                .spawn(remove(self.client.clone(), std::mem::take(&mut self.name)));
        }
    }
}

async fn remove(client: Client, name: String) {
    for attempt in 1..=REMOVE_TRIES {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            link: false,
        };
        match timeout(REMOVE_LIMIT, client.remove_container(&name, Some(options))).await {
            Ok(Ok(())) => return,
            Ok(Err(Error::DockerResponseServerError { status_code, .. }))
                if GONE_OR_GOING.contains(&status_code) =>
            {
                return;
            }
            Ok(Err(error)) => {
                tracing::warn!(container = name, attempt, %error, "container was not removed");
            }
            Err(_) => tracing::warn!(
                container = name,
                attempt,
                "container was not removed in time"
            ),
        }
        sleep(Duration::from_secs(attempt.into())).await;
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
    /// See [`crate::executor::Backend::run`].
    pub(super) async fn run(
        self,
        input: RunInput,
        output: &mut Output,
        cancel: CancellationToken,
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
        let stopped = tokio::select! {
            end = reader.until_end() => match end {
                End::ExitLine(line) => return Ok(Exit::Exited { code: line.code(), usage: Some(line.usage()) }),
                End::Closed => return container.exit(protocol).await,
            },
            // Beside the reading: a program may write more than the pipes hold before it has read all.
            never = feed(streams.input, request, protocol) => match never {},
            () = sleep(input.timeout) => Exit::TimedOut,
            () = cancel.cancelled() => Exit::Cancelled,
        };
        container.kill().await;
        reader.drain().await;
        Ok(stopped)
    }
}

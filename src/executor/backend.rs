//! Backend: the place where containers are. Docker today; a cluster can be another.
//!
//! Preparing and running are two steps because the first takes a hundred times as long as the second
//! and needs nothing of the call.

use std::{collections::BTreeMap, fmt, future::Future, time::Duration};

use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Output;
use crate::{
    config::RunLimits,
    runner::{Runner, Runners},
    workspace::{DataDir, Owner},
};

/// A place where containers are.
pub trait Backend: Send + Sync + 'static {
    /// A container that waits for its one and only run. Dropping it removes it.
    type Prepared: Send;

    /// The runners that there are now.
    fn runners(&self) -> impl Future<Output = Result<Runners, BackendError>> + Send;

    /// Makes a container and starts it. Dropping the future leaves nothing behind.
    fn prepare(
        &self,
        spec: RunSpec,
    ) -> impl Future<Output = Result<Self::Prepared, BackendError>> + Send;

    /// Whether a prepared container still waits.
    fn is_alive(&self, prepared: &mut Self::Prepared) -> bool;

    /// Yields at once, and whenever images may have come, gone or changed, be it only because the backend
    /// itself is gone or back. Never ends.
    fn image_changes(&self) -> impl Stream<Item = ()> + Send;

    /// Hands the code over, passes the output on as it comes, and says how the run ended. The container
    /// runs nothing any more when this returns, or when the future is dropped.
    fn run(
        &self,
        prepared: Self::Prepared,
        input: RunInput,
        output: &mut Output,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<Exit, BackendError>> + Send;

    /// Removes containers that an earlier life of this server left behind, and only those.
    fn reap(&self) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Waits until all containers are removed, within a limit of its own.
    fn stop(&self) -> impl Future<Output = ()> + Send;
}

/// Name of one run, unguessable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunId(Uuid);

impl RunId {
    /// A new one.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(formatter)
    }
}

/// What must be known to make a run's container.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The run it is for.
    pub run_id: RunId,
    /// The image.
    pub runner: Runner,
    /// The directory that becomes `/data`.
    pub data: DataDir,
    /// The user it runs as.
    pub owner: Owner,
    /// The network it is attached to, if any.
    pub network: Option<String>,
    /// What it may use.
    pub limits: RunLimits,
    /// Whether it may write no file of any size, as its workspace is full already.
    pub tidies_only: bool,
    /// Variables that the container is made with.
    pub environment: BTreeMap<String, String>,
}

/// What a prepared container is given to run.
pub struct RunInput {
    /// The program.
    pub code: String,
    /// Its environment, for runners that take it with the code.
    pub environment: BTreeMap<String, String>,
    /// Time from handing over the code to the kill.
    pub timeout: Duration,
}

/// Code and environment are the caller's secrets: not for logs.
impl fmt::Debug for RunInput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RunInput")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What a run used: by its runner's own account, or the engine's last look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Processor time.
    pub cpu: Duration,
    /// Most memory at one time, in bytes.
    pub peak_memory: u64,
}

/// How a run ended, as the backend saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// What ended it.
    pub ending: Ending,
    /// What it used, as far as anyone could tell.
    pub usage: Option<Usage>,
}

impl Exit {
    /// The program's own exit code, where it exited.
    pub fn code(self) -> Option<i32> {
        match self.ending {
            Ending::Exited(code) => Some(code),
            _ => None,
        }
    }
}

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The program itself, with this exit code.
    Exited(i32),
    /// A signal, of its own or of a sibling's.
    Signalled,
    /// The kernel, for want of memory.
    OutOfMemory,
    /// We, when its time was up.
    TimedOut,
    /// We, when the caller of [`Backend::run`] said so.
    Stopped,
}

/// Why the backend could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// It cannot be reached.
    #[error("failed to reach Docker for {call}: {cause}")]
    Unavailable {
        /// What it was asked for.
        call: &'static str,
        /// What went wrong.
        cause: String,
    },
    /// It did not answer in time.
    #[error("Docker did not answer {call} within {} s", .limit.as_secs())]
    Slow {
        /// What it was asked for.
        call: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The image or its runtime does not start.
    #[error("failed to start the runner: {cause}")]
    RunnerUnavailable {
        /// What went wrong.
        cause: String,
    },
    /// There is no image with the label `sandbox.runner=true`.
    #[error("there is no runner image; build one with ./build.sh")]
    NoRunner,
    /// It refused something it should not have.
    #[error("Docker refused {call}: {cause}")]
    Refused {
        /// What it was asked for.
        call: &'static str,
        /// What it said.
        cause: String,
    },
}

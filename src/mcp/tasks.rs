//! Tasks: long calls of clients that would rather ask again than wait
//! (the extension `io.modelcontextprotocol/tasks` of revision 2026-07-28).
//!
//! A call is answered directly while that is quick, which nearly all are; only one that takes long
//! becomes a task. Its id, which nobody can guess, is all that is needed to ask for it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::{
    ErrorData,
    model::{CallToolResponse, CallToolResult, CreateTaskResult, GetTaskResult},
    task_manager::{TaskExit, TaskManager, TaskOptions},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Time that a call is waited for before it becomes a task: less than clients' and proxies' own limits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a client should ask.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The calls that became tasks.
#[derive(Clone)]
pub(super) struct Tasks {
    manager: TaskManager,
    /// Longest life of a task, and time that its result is kept.
    ttl: Duration,
}

impl Tasks {
    /// No tasks yet; each is kept for `ttl`, which must be more than any call takes.
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            manager: TaskManager::new(),
            ttl,
        }
    }

    /// The result of `call`, or, where that takes long, a task that will have it.
    ///
    /// `cancel` ends the call; `gone` says that the client no longer waits for the answer, which matters only
    /// until there is a task.
    pub(super) async fn answer(
        &self,
        mut call: BoxFuture<'static, Result<CallToolResult, ErrorData>>,
        cancel: CancellationToken,
        gone: CancellationToken,
    ) -> Result<CallToolResponse, ErrorData> {
        tokio::select! {
            result = &mut call => return result.map(CallToolResponse::from),
            () = gone.cancelled() => {
                cancel.cancel();
                return call.await.map(CallToolResponse::from);
            }
            () = sleep(PATIENCE) => {}
        }
        let options = TaskOptions::new()
            .with_ttl_ms(milliseconds(self.ttl))
            .with_poll_interval_ms(milliseconds(POLL_INTERVAL));
        let task = self.manager.spawn(options, |task| {
            Box::pin(async move {
                tokio::select! {
                    result = &mut call => result.map_err(TaskExit::Error),
                    () = task.cancelled() => {
                        cancel.cancel();
                        // Until nothing of the run is left; its result is of no interest any more.
                        let _result = call.await;
                        Err(TaskExit::Cancelled)
                    }
                }
            })
        });
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    /// How far a task is, and its result once there is one.
    pub(super) fn get(&self, id: &str) -> Result<GetTaskResult, ErrorData> {
        self.manager.get_task(id).map(GetTaskResult::new)
    }

    /// Ends a task's call.
    pub(super) fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        self.manager.cancel_task(id)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tasks")
            .field("running", &self.manager.running_task_count())
            .finish_non_exhaustive()
    }
}

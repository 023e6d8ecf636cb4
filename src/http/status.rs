//! Status: what the server does now and what it did last, as JSON, for whoever has the token.
//!
//! It names no conversation, no file and no code: a workspace is told by the few digits that logs show of it,
//! which open nothing.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::header;
use serde::Serialize;

use crate::{
    config::Config,
    executor::{Ended, Running, Warm},
    file::rfc3339,
    sandbox::Sandbox,
};

/// What the status is of.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    sandbox: Arc<Sandbox>,
    places: usize,
    started: Instant,
}

impl Watched {
    /// A server that starts now.
    pub(super) fn new(config: &Config, sandbox: &Arc<Sandbox>) -> Self {
        Self {
            sandbox: Arc::clone(sandbox),
            places: config.admission.running,
            started: Instant::now(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    version: &'static str,
    /// RFC 3339, as all times here: ages are counted from it, whatever the reader's clock says.
    time: String,
    uptime_seconds: u64,
    /// Why nothing can be run, as `/readyz` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// How many runs there can be at one time.
    places: usize,
    queued: usize,
    warm: WarmContainers,
    /// Oldest first.
    running: Vec<RunningRun>,
    /// Newest first.
    recent: Vec<RecentRun>,
}

#[derive(Debug, Serialize)]
struct WarmContainers {
    /// For conversations that do not exist yet.
    spares: usize,
    /// For the next call of one that does.
    next: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunningRun {
    run_id: String,
    language: String,
    workspace: String,
    caller: String,
    since: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RecentRun {
    #[serde(flatten)]
    run: RunningRun,
    /// As results name it.
    status: &'static str,
    duration_ms: u64,
    /// Whether a container waited for it.
    warm: bool,
}

/// Serves `GET /status`.
pub(super) async fn serve(State(watched): State<Watched>) -> Response {
    let status = Json(Status::of(&watched).await);
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, status).into_response()
}

impl Status {
    async fn of(watched: &Watched) -> Self {
        let executor = &watched.sandbox.executor;
        // Asked before the rest is looked at: an engine that hangs takes its time.
        let problem = executor.ready().await.err();
        let mut running = executor.running(None);
        running.sort_by_key(|run| run.since);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            time: rfc3339(SystemTime::now()),
            uptime_seconds: watched.started.elapsed().as_secs(),
            problem: problem.map(|problem| problem.to_string()),
            places: watched.places,
            queued: executor.queued(),
            warm: executor.waiting().into(),
            running: running.iter().map(RunningRun::from).collect(),
            recent: executor.ended().iter().map(RecentRun::from).collect(),
        }
    }
}

impl From<Warm> for WarmContainers {
    fn from(Warm { spares, next }: Warm) -> Self {
        Self { spares, next }
    }
}

impl From<&Running> for RunningRun {
    fn from(run: &Running) -> Self {
        Self {
            run_id: run.run_id.to_string(),
            language: run.language.clone(),
            workspace: run.workspace.short().to_owned(),
            caller: run.caller.to_string(),
            since: rfc3339(run.since),
        }
    }
}

impl From<&Ended> for RecentRun {
    fn from(ended: &Ended) -> Self {
        Self {
            run: RunningRun::from(&ended.run),
            status: ended.status.as_str(),
            duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
            warm: ended.was_warm,
        }
    }
}

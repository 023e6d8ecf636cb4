//! Health: whether the process lives, and whether it can run anything.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;

use crate::sandbox::Sandbox;

/// 200 as long as the process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// 200 where Docker answers and there is a runner, else 503 with the reason.
pub(super) async fn ready(State(sandbox): State<Arc<Sandbox>>) -> (StatusCode, String) {
    match sandbox.executor.ready().await {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

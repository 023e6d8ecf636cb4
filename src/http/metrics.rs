//! Metrics: their text for Prometheus.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;

use crate::{
    metrics::{MEDIA_TYPE, Now},
    sandbox::Sandbox,
};

/// Serves `GET /metrics`.
pub(super) async fn serve(State(sandbox): State<Arc<Sandbox>>) -> Response {
    let executor = &sandbox.executor;
    let text = sandbox.metrics.text(Now {
        running: executor.running(None).len(),
        queued: executor.queued(),
        warm: executor.waiting(),
    });
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response()
}

//! Metrics: their text for Prometheus, and the count of requests by route.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::header;

use crate::{
    metrics::{MEDIA_TYPE, Now},
    sandbox::Sandbox,
};

/// Route of what matched none.
const NO_ROUTE: &str = "none";

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

/// Counts a request by its route, never by its path: paths hold secrets, and callers choose them.
pub(super) async fn count(
    State(sandbox): State<Arc<Sandbox>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    sandbox
        .metrics
        .request_answered(route, response.status().as_u16());
    response
}

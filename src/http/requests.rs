//! Requests: each is counted, and logged in one line.
//!
//! By its route, never by its path: paths hold secrets, and callers choose them.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use tracing::{debug, info};

use crate::{caller::Caller, sandbox::Sandbox, telemetry::RequestId};

/// Route of what matched none.
const NO_ROUTE: &str = "none";

/// Routes that are asked every few seconds by what watches the server, and tell nothing when they are answered.
const WATCHED: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/status"];

/// Gives the request an id, and counts and logs it when its answer begins.
pub(super) async fn record(
    State(sandbox): State<Arc<Sandbox>>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let id = RequestId::random();
    request.extensions_mut().insert(id);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let status = response.status().as_u16();
    sandbox.metrics.request_answered(route, status);
    let caller = response.extensions().get::<Caller>();
    let caller = caller.map(Caller::as_str);
    let duration_ms = began.elapsed().as_millis();
    if WATCHED.contains(&route) {
        debug!(request.id = %id, caller, %method, route, status, duration_ms, "request answered");
    } else {
        info!(request.id = %id, caller, %method, route, status, duration_ms, "request answered");
    }
    response
}

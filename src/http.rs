//! HTTP: the routes, and what stands before each of them.

mod auth;
pub(crate) mod connections;
mod conversation;
mod files;
mod health;
mod home;
mod metrics;
mod page;
mod requests;
mod status;
mod uploads;
mod words;

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{any, get},
};

use crate::{
    config::Config,
    mcp::front::{self, Front},
    sandbox::Sandbox,
};

/// All routes of the server.
pub(crate) fn router(config: &Config, sandbox: Arc<Sandbox>, front: Front) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics::serve))
        .with_state(Arc::clone(&sandbox))
        .merge(
            Router::new()
                .route("/mcp", any(front::serve))
                .with_state(front)
                .route("/status", get(status::serve))
                .with_state(status::Watched::new(config, &sandbox)),
        )
        // Before anything of the request is read.
        .layer(middleware::from_fn_with_state(
            auth::Bearer::new(&config.tokens),
            auth::require,
        ));
    let open = Router::new()
        .route("/", get(home::serve))
        .with_state(home::Home::new(config, &sandbox))
        // The hash in the path is the capability.
        .route("/files/{*path}", get(files::serve))
        // The token in the path is the capability.
        .route(
            "/uploads/{token}",
            get(uploads::show).put(uploads::put).post(uploads::post),
        )
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .with_state(Arc::clone(&sandbox));
    Router::new()
        .merge(guarded)
        .merge(open)
        .layer(middleware::from_fn_with_state(sandbox, requests::record))
}

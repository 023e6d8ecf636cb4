//! Upkeep: what a server does between calls. A failure is logged and tried again at the next round.

use std::{convert::Infallible, time::Duration};

use tokio::time::interval;
use tracing::{info, warn};

use crate::sandbox::Sandbox;

/// Time between two looks for containers left behind by failed removals.
const REAP_PAUSE: Duration = Duration::from_secs(60);

/// Time between two looks for expired workspaces, and at what all of them take; what they count in is hours.
const EXPIRY_PAUSE: Duration = Duration::from_secs(600);

/// Keeps the house. Never returns; may be dropped at any await.
pub(crate) async fn keep(sandbox: &Sandbox) -> Infallible {
    // Side by side: a stuck removal must not keep containers from being prepared.
    let (never, ..) = tokio::join!(
        sandbox.executor.keep_warm(),
        sandbox.executor.watch_images(),
        reap(sandbox),
        expire(sandbox)
    );
    never
}

async fn reap(sandbox: &Sandbox) -> Infallible {
    let mut rounds = interval(REAP_PAUSE);
    loop {
        // The first one comes at once: a start cleans up after the last end.
        rounds.tick().await;
        if let Err(error) = sandbox.executor.reap().await {
            warn!(%error, "containers left behind could not be looked for");
        }
    }
}

async fn expire(sandbox: &Sandbox) -> Infallible {
    let mut rounds = interval(EXPIRY_PAUSE);
    loop {
        rounds.tick().await;
        match sandbox.workspaces.remove_expired().await {
            Ok(0) => {}
            Ok(count) => info!(count, "expired workspaces deleted"),
            Err(error) => warn!(%error, "expired workspaces could not be looked for"),
        }
        match sandbox.workspaces.measure().await {
            Ok((count, usage)) => sandbox.metrics.workspaces_measured(count, usage),
            Err(error) => warn!(%error, "workspaces could not be measured"),
        }
    }
}

//! Upkeep: what a server does between calls. A failure is logged and tried again at the next round.

use std::{convert::Infallible, time::Duration};

use tokio::time::interval;
use tracing::{info, warn};

use crate::sandbox::Sandbox;

/// Time between two looks for containers left behind by failed removals.
const REAP_PAUSE: Duration = Duration::from_secs(60);

/// Time between two looks for expired workspaces; what they count in is hours.
const EXPIRY_PAUSE: Duration = Duration::from_secs(600);

/// Keeps the house. Never returns; may be dropped at any await.
pub(crate) async fn keep(sandbox: &Sandbox) -> Infallible {
    let (mut reap, mut expire) = (interval(REAP_PAUSE), interval(EXPIRY_PAUSE));
    let mut warming = std::pin::pin!(sandbox.executor.keep_warm());
    loop {
        tokio::select! {
            never = &mut warming => match never {},
            // The first tick comes at once: a start cleans up after the last end.
            _ = reap.tick() => {
                if let Err(error) = sandbox.executor.reap().await {
                    warn!(%error, "containers left behind could not be looked for");
                }
            }
            _ = expire.tick() => match sandbox.workspaces.remove_expired().await {
                Ok(0) => {}
                Ok(count) => info!(count, "expired workspaces deleted"),
                Err(error) => warn!(%error, "expired workspaces could not be looked for"),
            },
        }
    }
}

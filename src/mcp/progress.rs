//! Progress: tells the client of a call what its run is doing, as MCP progress notifications.

use std::{convert::Infallible, future::pending, time::Instant};

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio::time::{Duration, sleep, timeout};

use crate::executor::Progress;

/// Time between two notifications: quick enough for a person to watch, ten a second at the most.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest silence. Clients and proxies give up on a stream that says nothing for much longer.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Time for a client to take a notification. One that does not is told nothing more.
const NOTIFY_LIMIT: Duration = Duration::from_secs(10);

/// Whom to tell, and under which token of his.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) peer: Peer<RoleServer>,
    pub(super) token: ProgressToken,
}

impl Listener {
    /// Tells of `progress`: of each notification, `progress` is the seconds since the call, and `message` what
    /// is new. Never returns; may be dropped at any await.
    pub(super) async fn tell(self, progress: &Progress) -> Infallible {
        let began = Instant::now();
        loop {
            let news = timeout(HEARTBEAT, progress.news()).await;
            let message = news.unwrap_or_else(|_| "still running".to_owned());
            let seconds = began.elapsed().as_secs_f64();
            let notification =
                ProgressNotificationParam::new(self.token.clone(), seconds).with_message(message);
            match timeout(NOTIFY_LIMIT, self.peer.notify_progress(notification)).await {
                Ok(Ok(())) => sleep(PAUSE).await,
                // Whether the run goes on without him is not decided here.
                Ok(Err(_)) | Err(_) => return pending().await,
            }
        }
    }
}

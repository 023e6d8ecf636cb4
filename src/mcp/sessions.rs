//! Sessions: those that clients opened, and how many there may be.
//!
//! Many clients open one for every call and never close it. Where there are too many, the one that was
//! idle for longest goes: its client, if it still lives, is told so by a 404 and opens another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rmcp::transport::streamable_http_server::session::{
    SessionId, SessionManager as _,
    local::{LocalSessionManager, SessionConfig},
};

use super::events::Events;

/// What the SDK buffers of a session's messages, in each direction: the default takes memory that nobody
/// needs, as a client's requests each have a stream of their own.
const CHANNEL_CAPACITY: usize = 4;

/// The sessions there are.
#[derive(Debug)]
pub(super) struct Sessions {
    manager: Arc<LocalSessionManager>,
    limit: usize,
    uses: Mutex<HashMap<SessionId, Use>>,
    /// Held while one is opened, so that many at once do not all find the last place free.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Use {
    last: Instant,
    /// Requests under way.
    open: usize,
}

/// A request of a session that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct InUse {
    sessions: Arc<Sessions>,
    id: SessionId,
}

impl Sessions {
    /// No sessions, and at most `limit`; a silent one is kept for `keep_alive`.
    pub(super) fn new(limit: usize, keep_alive: Duration) -> Self {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(keep_alive);
        config.channel_capacity = CHANNEL_CAPACITY;
        let mut manager =
            LocalSessionManager::default().with_event_store(Arc::new(Events::default()));
        manager.session_config = config;
        Self {
            manager: Arc::new(manager),
            limit,
            uses: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// The SDK's own view of them.
    pub(super) fn manager(&self) -> Arc<LocalSessionManager> {
        Arc::clone(&self.manager)
    }

    /// Makes room for one more, to be opened while the guard is held; `None` where all are busy.
    pub(super) async fn make_room(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let opening = self.opening.lock().await;
        let there: Vec<SessionId> = self.manager.sessions.read().await.keys().cloned().collect();
        if there.len() < self.limit {
            return Some(opening);
        }
        let idle = {
            let mut uses = self.lock();
            // The SDK ends silent ones without saying so.
            uses.retain(|id, _| there.contains(id));
            let idle = uses.iter().filter(|(_, session)| session.open == 0);
            let longest = idle.min_by_key(|(_, session)| session.last);
            let longest = longest.map(|(id, _)| id.clone());
            longest.inspect(|id| {
                uses.remove(id);
            })
        };
        if let Err(error) = self.manager.close_session(&idle?).await {
            tracing::debug!(%error, "an idle session was not closed");
        }
        Some(opening)
    }

    /// Notes that a request of the session `id` is under way, until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>, id: &str) -> InUse {
        let id = SessionId::from(id);
        let mut uses = self.lock();
        let session = uses.entry(id.clone()).or_insert_with(|| Use {
            last: Instant::now(),
            open: 0,
        });
        session.open += 1;
        drop(uses);
        InUse {
            sessions: Arc::clone(self),
            id,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Use>> {
        // Each change is one step: a panic elsewhere leaves it right.
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.lock().get_mut(&self.id) {
            session.open -= 1;
            session.last = Instant::now();
        }
    }
}

//! Catalog: the runners that are known, and whether that still holds.
//!
//! While the backend tells of every change, what was found last holds until the next one, and nobody
//! needs to ask again.

use std::{
    convert::Infallible,
    sync::{Arc, PoisonError, RwLock},
};

use futures_util::StreamExt as _;

use super::{Backend, BackendError, Executor};
use crate::runner::Runners;

/// The runners that are known.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    found: Arc<Runners>,
    holds: bool,
    /// Counts changes, so that what was asked for before one is not taken for what was after it.
    changes: u64,
}

impl Catalog {
    /// What was found last, whether it still holds or not.
    pub(super) fn last(&self) -> Arc<Runners> {
        Arc::clone(&self.read().found)
    }

    /// What was found last, if it still holds.
    pub(super) fn current(&self) -> Option<Arc<Runners>> {
        let state = self.read();
        state.holds.then(|| Arc::clone(&state.found))
    }

    /// Notes that there may be other runners now, and returns how many such changes there were.
    pub(super) fn changed(&self) -> u64 {
        let mut state = self.write();
        state.holds = false;
        state.changes += 1;
        state.changes
    }

    /// Keeps what was found by somebody who asks once.
    pub(super) fn put(&self, found: Arc<Runners>) {
        let mut state = self.write();
        if !state.holds {
            state.found = found;
        }
    }

    /// Keeps what was found after the change of that number. It holds until the next one.
    pub(super) fn put_after(&self, change: u64, found: Arc<Runners>) {
        let mut state = self.write();
        state.found = found;
        state.holds = state.changes == change;
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        // Each change is one step: a panic elsewhere leaves it right.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Executor<B> {
    /// Asks the backend which runners there are.
    ///
    /// # Errors
    /// When the backend does not answer.
    pub async fn discover(&self) -> Result<Arc<Runners>, BackendError> {
        let found = Arc::new(self.backend.runners().await?);
        self.catalog.put(Arc::clone(&found));
        Ok(found)
    }

    /// The runners there are, from memory while [`Executor::watch_images`] knows of every change.
    ///
    /// # Errors
    /// When the backend must be asked and does not answer.
    pub async fn runners(&self) -> Result<Arc<Runners>, BackendError> {
        match self.catalog.current() {
            Some(runners) => Ok(runners),
            None => self.discover().await,
        }
    }

    /// The runners that were found last, without asking anyone.
    pub fn known_runners(&self) -> Arc<Runners> {
        self.catalog.last()
    }

    /// Keeps what is known of the runners true. Never returns; may be dropped at any await.
    pub async fn watch_images(&self) -> Infallible {
        let mut changes = std::pin::pin!(self.backend.image_changes());
        loop {
            changes.next().await;
            let change = self.catalog.changed();
            match self.backend.runners().await {
                Ok(found) => {
                    self.catalog.put_after(change, Arc::new(found));
                    self.pool.look_again();
                }
                Err(error) => tracing::debug!(%error, "runners could not be looked for"),
            }
        }
    }

    /// Whether the backend answers and has a runner.
    ///
    /// # Errors
    /// Says what is missing.
    pub async fn ready(&self) -> Result<(), BackendError> {
        if self.discover().await?.is_empty() {
            Err(BackendError::NoRunner)
        } else {
            Ok(())
        }
    }
}

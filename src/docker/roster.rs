//! Roster: the containers of this process, from before they are made until they are removed.
//!
//! What has this server's label on the engine and is not on the roster was left behind by an earlier life
//! of it, or by a removal that failed: the reaper takes it away. Other servers' containers have another
//! label and are never looked at.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bollard::{
    errors::Error,
    query_parameters::{ListContainersOptions, RemoveContainerOptions},
};
use tokio::{sync::Semaphore, time::sleep};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use super::{ASK_LIMIT, Engine, spec::OWNER_LABEL};
use crate::executor::BackendError;

/// Time for one removal, and the number of tries. A stuck runtime needs more than either: then the
/// container stays for the reaper.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);
const REMOVE_TRIES: u32 = 3;

/// Removals at one time: they are nobody's hurry, and the engine has runs to start.
const REMOVALS_AT_ONCE: usize = 16;

/// Answers to a removal that need no other: no such container, and a removal under way.
const GONE_OR_GOING: [u16; 2] = [404, 409];

/// The containers of this process.
#[derive(Debug, Clone)]
pub(super) struct Roster {
    engine: Engine,
    names: Arc<Mutex<HashSet<String>>>,
    tasks: TaskTracker,
    turns: Arc<Semaphore>,
}

/// One container's place on the roster, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    name: String,
    names: Arc<Mutex<HashSet<String>>>,
    /// Shutdown waits for it.
    _token: TaskTrackerToken,
}

impl Roster {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            names: Arc::default(),
            tasks: TaskTracker::new(),
            turns: Arc::new(Semaphore::new(REMOVALS_AT_ONCE)),
        }
    }

    /// Enters a container that is about to be made.
    pub(super) fn enter(&self, name: String) -> Place {
        lock(&self.names).insert(name.clone());
        Place {
            name,
            names: Arc::clone(&self.names),
            _token: self.tasks.token(),
        }
    }

    /// The tasks that shutdown waits for.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Removes a container in the background; it stays on the roster until then.
    pub(super) fn remove(&self, place: Place) {
        let (engine, turns) = (self.engine.clone(), Arc::clone(&self.turns));
        self.tasks.spawn(async move {
            // The semaphore is never closed: there is always a turn.
            let _turn = turns.acquire().await;
            remove(&engine, &place.name).await;
        });
    }

    /// Removes what an earlier life of the server `instance` left behind.
    pub(super) async fn reap(&self, instance: &str) -> Result<(), BackendError> {
        let ours = HashMap::from([(
            "label".to_owned(),
            vec![format!("{OWNER_LABEL}={instance}")],
        )]);
        let options = ListContainersOptions {
            all: true,
            filters: Some(ours),
            ..Default::default()
        };
        let listed = self
            .engine
            .within(
                ASK_LIMIT,
                "list containers",
                self.engine.client.list_containers(Some(options)),
            )
            .await?;
        for container in listed {
            let names = container.names.unwrap_or_default();
            let known = names
                .iter()
                .any(|name| lock(&self.names).contains(name.trim_start_matches('/')));
            if let (false, Some(id)) = (known, container.id) {
                tracing::info!(container = ?names.first(), "removing a container left behind");
                remove(&self.engine, &id).await;
            }
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.names).remove(&self.name);
    }
}

fn lock(names: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    // Each change is one step: a panic elsewhere leaves the set right.
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn remove(engine: &Engine, container: &str) {
    for attempt in 1..=REMOVE_TRIES {
        let options = RemoveContainerOptions {
            force: true,
            v: true,
            link: false,
        };
        let removal = async {
            match engine
                .client
                .remove_container(container, Some(options))
                .await
            {
                Err(Error::DockerResponseServerError { status_code, .. })
                    if GONE_OR_GOING.contains(&status_code) =>
                {
                    Ok(())
                }
                removed => removed,
            }
        };
        match engine
            .within(REMOVE_LIMIT, "remove container", removal)
            .await
        {
            Ok(()) => return,
            Err(error) => tracing::warn!(container, attempt, %error, "container was not removed"),
        }
        sleep(Duration::from_secs(attempt.into())).await;
    }
}

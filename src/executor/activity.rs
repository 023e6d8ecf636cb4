//! Activity: the runs under way, and the last ones that ended, for whoever asks how things are.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use super::{RunId, Status};
use crate::{caller::Caller, workspace::WorkspaceHash};

/// Ended runs that are remembered: as many as fit on a page.
const MAX_ENDED: usize = 50;

/// What a server's runs are and were.
#[derive(Debug, Default)]
pub(super) struct Activity {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<RunId, Running>,
    /// Newest first.
    ended: VecDeque<Ended>,
}

/// A run under way.
#[derive(Debug, Clone)]
pub struct Running {
    /// The run's name.
    pub run_id: RunId,
    /// Who called.
    pub caller: Caller,
    /// Where its files are.
    pub workspace: WorkspaceHash,
    /// Language that runs.
    pub language: String,
    /// When it took its place.
    pub since: SystemTime,
}

/// A run that ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What it was.
    pub run: Running,
    /// How it ended.
    pub status: Status,
    /// From taking the code to its end.
    pub duration: Duration,
    /// Whether a container waited for it.
    pub was_warm: bool,
}

/// A run's entry. It is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    state: Arc<Mutex<State>>,
    run_id: RunId,
}

impl Activity {
    /// Enters a run.
    pub(super) fn enter(&self, run: Running) -> Entry {
        let run_id = run.run_id;
        lock(&self.state).running.insert(run_id, run);
        Entry {
            state: Arc::clone(&self.state),
            run_id,
        }
    }

    /// The runs under way, those of one workspace if it is named, in no order.
    pub(super) fn running(&self, workspace: Option<&WorkspaceHash>) -> Vec<Running> {
        let state = lock(&self.state);
        let runs = state.running.values();
        runs.filter(|run| workspace.is_none_or(|hash| run.workspace == *hash))
            .cloned()
            .collect()
    }

    /// The last runs, newest first.
    pub(super) fn ended(&self) -> Vec<Ended> {
        lock(&self.state).ended.iter().cloned().collect()
    }
}

impl Entry {
    /// Notes how the run ended.
    pub(super) fn ends(&self, status: Status, duration: Duration, was_warm: bool) {
        let mut state = lock(&self.state);
        let Some(run) = state.running.remove(&self.run_id) else {
            return;
        };
        state.ended.push_front(Ended {
            run,
            status,
            duration,
            was_warm,
        });
        state.ended.truncate(MAX_ENDED);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.state).running.remove(&self.run_id);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A panic between two changes loses an entry at the most.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Lease: says that a workspace is in use, so that it is not taken away.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::WorkspaceHash;

/// Which workspaces are in use, and how often.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Mutex<HashMap<WorkspaceHash, usize>>,
}

/// One use of a workspace, until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    leases: Arc<Leases>,
    hash: WorkspaceHash,
}

impl Leases {
    /// Registers a use. From here on the workspace stays.
    pub(super) fn take(self: &Arc<Self>, hash: WorkspaceHash) -> Lease {
        *self.lock().entry(hash.clone()).or_default() += 1;
        Lease {
            leases: Arc::clone(self),
            hash,
        }
    }

    /// Does `work` if nobody uses the workspace; nobody can begin to meanwhile.
    pub(super) fn unless_held<T>(
        &self,
        hash: &WorkspaceHash,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let held = self.lock();
        (!held.contains_key(hash)).then(work)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceHash, usize>> {
        // Counts are changed in one step: a panic elsewhere leaves them right.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut held = self.leases.lock();
        if let Some(count) = held.get_mut(&self.hash) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_free_when_its_last_use_ends() {
        let leases = Arc::new(Leases::default());
        let hash = WorkspaceHash::parse(&"a".repeat(64)).unwrap();
        let first = leases.take(hash.clone());
        let second = leases.take(hash.clone());
        drop(first);
        assert_eq!(leases.unless_held(&hash, || ()), None);
        drop(second);
        assert_eq!(leases.unless_held(&hash, || ()), Some(()));
    }
}

//! Lease: says that a workspace is in use, so that it is not taken away.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cap_std::fs::Dir;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, openat},
    io::Errno,
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

    /// Does `work` if nobody uses the workspace in `root`, another server included; nobody of this one can begin
    /// to meanwhile.
    pub(super) fn unless_held<T>(
        &self,
        hash: &WorkspaceHash,
        root: &Dir,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let held = self.lock();
        let here = held.contains_key(hash);
        // One that cannot be opened is not in use, or is opened up first by who uses it.
        let elsewhere = root.open_dir(hash.as_str()).is_ok_and(|dir| {
            lock(&dir, FlockOperation::NonBlockingLockExclusive).err() == Some(Errno::WOULDBLOCK)
        });
        (!here && !elsewhere).then(work)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceHash, usize>> {
        // Counts are changed in one step: a panic elsewhere leaves them right.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a workspace is in use to other servers that share the directory, as long as it is held.
#[derive(Debug)]
pub(super) struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// Locks the workspace `dir`; `None` where that cannot be.
    ///
    /// User code can lock its directory as well: that keeps it while the run lasts, and stops nobody from using it.
    pub(super) fn shared(dir: &Dir) -> Option<Self> {
        lock(dir, FlockOperation::NonBlockingLockShared)
            .inspect_err(|error| tracing::debug!(%error, "a workspace could not be locked"))
            .ok()
    }
}

/// `dir` itself need not be open for reading, which locks ask for.
fn lock(dir: &Dir, operation: FlockOperation) -> Result<Lock, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = openat(dir, ".", flags, Mode::empty())?;
    flock(&file, operation)?;
    Ok(Lock { _file: file })
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
        let directory = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(directory.path(), cap_std::ambient_authority()).unwrap();
        let first = leases.take(hash.clone());
        let second = leases.take(hash.clone());
        drop(first);
        assert_eq!(leases.unless_held(&hash, &root, || ()), None);
        drop(second);
        assert_eq!(leases.unless_held(&hash, &root, || ()), Some(()));
    }
}

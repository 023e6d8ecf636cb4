//! Instance: which of the servers that share a `SANDBOX_ROOT` this one is.
//!
//! Each holds a lock on a file there that keeps its id. A server that was killed loses the lock, not the
//! file: the next one to start takes its id over, and with it the containers it left behind.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

use uuid::Uuid;

/// File of the first server; further ones have a number behind it.
const FILE: &str = ".instance";

/// Servers that may share a directory: every window of a user's client may start one.
const MAX_INSTANCES: usize = 100;

/// This server's id, its own as long as this is held.
#[derive(Debug)]
pub(super) struct Instance {
    id: Uuid,
    _locked: File,
}

impl Instance {
    /// Takes the first id that no living server has.
    pub(super) fn take(root: &Path) -> io::Result<Self> {
        for number in 0..MAX_INSTANCES {
            let name = match number {
                0 => FILE.to_owned(),
                _ => format!("{FILE}-{number}"),
            };
            let path = root.join(name);
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let id = kept_id(&mut file).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
            return Ok(Self { id, _locked: file });
        }
        Err(io::Error::other(format!(
            "{MAX_INSTANCES} servers use it already"
        )))
    }

    pub(super) fn id(&self) -> Uuid {
        self.id
    }
}

fn kept_id(file: &mut File) -> io::Result<Uuid> {
    let mut kept = String::new();
    file.read_to_string(&mut kept)?;
    if kept.is_empty() {
        let id = Uuid::new_v4();
        file.rewind()?;
        file.write_all(id.to_string().as_bytes())?;
        return Ok(id);
    }
    Uuid::try_parse(kept.trim()).map_err(|_| io::Error::other("holds no UUID; remove the file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_live_have_ids_of_their_own_and_those_of_the_dead_are_taken_over() {
        let root = tempfile::tempdir().unwrap();
        let first = Instance::take(root.path()).unwrap();
        let second = Instance::take(root.path()).unwrap();
        assert_ne!(first.id(), second.id());
        let id = first.id();
        drop(first);
        assert_eq!(Instance::take(root.path()).unwrap().id(), id);
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join(FILE), "notes").unwrap();
        Instance::take(root.path()).unwrap_err();
        let kept = std::fs::read_to_string(root.path().join(FILE)).unwrap();
        assert_eq!(kept, "notes");
    }
}

//! Spare: a directory that becomes the workspace of a conversation that does not exist yet.
//!
//! A bind mount follows the directory, not its name: a container that was started with the spare as its
//! `/data` sees the workspace once the spare has been renamed to it.

use std::{fmt, io, sync::Arc};

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _};
use rustix::fs::{RenameFlags, renameat_with};
use uuid::Uuid;

use super::{Owner, WorkspaceHash};

/// Directory of the spares.
const SPARES: &str = ".warm";

/// The directory that a container mounts as `/data`, named relative to `SANDBOX_ROOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataDir {
    /// A conversation's.
    Workspace(WorkspaceHash),
    /// One that is yet to become a conversation's, of the server that `instance` names.
    Spare {
        /// Whose it is: each server tidies up after itself only.
        instance: Uuid,
        /// Its own name.
        id: Uuid,
    },
}

impl fmt::Display for DataDir {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace(hash) => formatter.write_str(hash.as_str()),
            Self::Spare { instance, id } => {
                write!(formatter, "{SPARES}/{}-{}", instance.simple(), id.simple())
            }
        }
    }
}

/// A spare. Dropping it removes it.
#[derive(Debug)]
pub struct SpareDir {
    root: Arc<Dir>,
    instance: Uuid,
    id: Uuid,
}

impl SpareDir {
    pub(super) fn create(root: Arc<Dir>, instance: Uuid, owner: Owner) -> io::Result<Self> {
        root.create_dir_all(SPARES)?;
        let spare = Self {
            root,
            instance,
            id: Uuid::new_v4(),
        };
        let name = spare.data_dir().to_string();
        spare
            .root
            .create_dir_with(&name, DirBuilder::new().mode(0o700))?;
        owner.take(&spare.root, &name)?;
        Ok(spare)
    }

    /// What a container mounts to wait on it.
    pub fn data_dir(&self) -> DataDir {
        DataDir::Spare {
            instance: self.instance,
            id: self.id,
        }
    }

    /// Gives it the workspace's name, unless that exists.
    pub(super) fn become_workspace(&self, hash: &WorkspaceHash) -> io::Result<()> {
        let name = self.data_dir().to_string();
        Ok(renameat_with(
            &*self.root,
            name,
            &*self.root,
            hash.as_str(),
            RenameFlags::NOREPLACE,
        )?)
    }

    /// Deletes the spares of an earlier life of the server `instance`: nothing was ever written to them.
    pub(super) fn remove_all(root: &Dir, instance: Uuid) -> io::Result<()> {
        let spares = match root.open_dir(SPARES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let ours = instance.simple().to_string();
        for entry in spares.entries()? {
            let name = entry?.file_name();
            if name.to_string_lossy().starts_with(&ours) {
                spares.remove_dir_all(name)?;
            }
        }
        Ok(())
    }
}

impl Drop for SpareDir {
    fn drop(&mut self) {
        // One that became a workspace has another name by now.
        let _gone = self.root.remove_dir(self.data_dir().to_string());
    }
}

//! Remove: deletes directories that user code filled.

use std::{ffi::OsStr, io, ops::ControlFlow};

use cap_std::fs::{Dir, FileTypeExt as _};

use super::{
    FilePath, WorkspaceError, file,
    incoming::{is_abandoned, is_temporary},
    walk::{Enter, open_up, walk},
};

/// Deletes the directory `name` of `trash` and all in it.
///
/// Directories nested deeper than a walk goes are moved up into `trash` and deleted from there.
pub(super) fn remove_dir(trash: &Dir, name: &OsStr) -> io::Result<()> {
    let dir = trash.open_dir(name)?;
    let (mut dirs, mut moved) = (Vec::new(), Vec::new());
    let _all = walk(&dir, &mut |entry| {
        if entry.too_deep {
            let place = uuid::Uuid::new_v4().simple().to_string();
            if entry.dir.rename(entry.name, trash, &place).is_ok() {
                moved.push(place);
            }
        } else if entry.metadata.is_dir() {
            dirs.push(entry.path.clone());
        } else {
            // One that cannot be deleted keeps its directory, which says so below.
            let _deleted = entry.dir.remove_file(entry.name);
        }
        ControlFlow::Continue(Enter::Yes)
    })?;
    // Directories were visited before what is in them, so backwards they are empty.
    for path in dirs.iter().rev() {
        dir.remove_dir(path.as_path())?;
    }
    trash.remove_dir(name)?;
    moved
        .iter()
        .try_for_each(|place| remove_dir(trash, OsStr::new(place)))
}

/// Where what is to be deleted goes first, in one step; what a crash leaves there is deleted later.
pub(super) const TRASH: &str = ".trash";

/// Something in the trash.
#[derive(Debug)]
pub(super) struct Trashed {
    trash: Dir,
    place: String,
}

impl Trashed {
    /// Moves `name` of `dir` into the trash of `root`, the directory of all workspaces. A link is moved itself.
    pub(super) fn take(dir: &Dir, name: &OsStr, root: &Dir) -> io::Result<Self> {
        root.create_dir_all(TRASH)?;
        let trash = root.open_dir(TRASH)?;
        let place = uuid::Uuid::new_v4().simple().to_string();
        dir.rename(name, &trash, &place)?;
        Ok(Self { trash, place })
    }

    /// How many files there are in it, if it is a directory.
    pub(super) fn files(&self) -> io::Result<u64> {
        let mut files = 0;
        let _all = walk(&self.trash.open_dir(&self.place)?, &mut |entry| {
            files += u64::from(entry.metadata.is_file());
            ControlFlow::Continue(Enter::Yes)
        })?;
        Ok(files)
    }

    pub(super) fn delete(self) -> io::Result<()> {
        if self.trash.symlink_metadata(&self.place)?.is_dir() {
            remove_dir(&self.trash, OsStr::new(&self.place))
        } else {
            self.trash.remove_file(&self.place)
        }
    }
}

/// Deletes what has the name `path` beneath `dir`: a directory with all in it, a link itself.
pub(super) fn delete(dir: &Dir, root: &Dir, path: &FilePath) -> Result<(), WorkspaceError> {
    let (parent, name) = file::existing_parent_of(path, dir)?;
    let trashed = match Trashed::take(&parent, name, root) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // User code may have closed the directory to its owner, who the server may be.
            open_up(&parent, OsStr::new("."))?;
            if parent.symlink_metadata(name)?.is_dir() {
                open_up(&parent, name)?;
            }
            Trashed::take(&parent, name, root)
        }
        taken => taken,
    };
    match trashed {
        Ok(trashed) => Ok(trashed.delete()?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(WorkspaceError::NotFound),
        Err(error) => Err(error.into()),
    }
}

/// Deletes what is neither file, directory nor link, and directories too deep to be looked into: nobody
/// can use the former once its run has ended, and the latter would hide from the quota. So would what a
/// crash left of an upload, from its owner.
///
/// What is deep goes through the trash of `root`, the directory of all workspaces.
pub(super) fn tidy(dir: &Dir, root: &Dir) -> io::Result<()> {
    let mut deep = Vec::new();
    let _all = walk(dir, &mut |entry| {
        let kind = entry.metadata.file_type();
        let special =
            kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device();
        if special || (is_temporary(entry.path) && is_abandoned(entry.metadata)) {
            let _deleted = entry.dir.remove_file(entry.name);
        } else if entry.too_deep {
            let place = uuid::Uuid::new_v4().simple().to_string();
            if root
                .create_dir_all(TRASH)
                .and_then(|()| {
                    entry
                        .dir
                        .rename(entry.name, root, format!("{TRASH}/{place}"))
                })
                .is_ok()
            {
                deep.push(place);
            }
        }
        ControlFlow::Continue(Enter::Yes)
    })?;
    if deep.is_empty() {
        return Ok(());
    }
    let trash = root.open_dir(TRASH)?;
    deep.iter()
        .try_for_each(|place| remove_dir(&trash, OsStr::new(place)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn deep_and_closed_directories_are_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let trash = Dir::open_ambient_dir(root, ambient_authority()).unwrap();
        fs::create_dir_all(root.join("x").join("d/".repeat(300))).unwrap();
        fs::write(root.join("x/file"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("x/link")).unwrap();
        remove_dir(&trash, OsStr::new("x")).unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
        assert!(fs::exists("/etc/passwd").unwrap());
    }

    #[test]
    fn what_is_too_deep_to_count_goes() {
        let (workspace, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(workspace.path().join("d/".repeat(200))).unwrap();
        fs::write(workspace.path().join("d/d/kept"), "x").unwrap();
        let open = |directory: &tempfile::TempDir| {
            Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap()
        };
        tidy(&open(&workspace), &open(&root)).unwrap();
        assert!(
            !super::super::DiskUsage::of(&open(&workspace), super::super::DiskUsage::UNLIMITED)
                .unwrap()
                .too_deep
        );
        assert!(fs::exists(workspace.path().join("d/d/kept")).unwrap());
        assert_eq!(fs::read_dir(root.path().join(TRASH)).unwrap().count(), 0);
    }

    #[test]
    fn special_files_go_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("sub/kept"), "x").unwrap();
        let dir = Dir::open_ambient_dir(root, ambient_authority()).unwrap();
        rustix::fs::mknodat(
            &dir,
            "sub/fifo",
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        tidy(&dir, &dir).unwrap();
        assert_eq!(fs::read_dir(root.join("sub")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(root).unwrap().count(), 1);
    }
}

//! File: opening one regular file beneath a workspace's handle, and finding the place of a new one.

use std::{
    io::{self, Read as _},
    time::SystemTime,
};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::OFlags;

use super::{FilePath, Owner, WorkspaceError};

/// An open regular file and what `fstat` said of it after it was opened.
#[derive(Debug)]
pub struct OpenFile {
    /// For reading.
    pub file: std::fs::File,
    /// Bytes when it was opened; user code may change it at any time.
    pub size: u64,
    /// Time of the last change of its bytes.
    pub modified: SystemTime,
}

impl OpenFile {
    /// Reads the first `limit` bytes, fewer where the file ends before.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read_up_to(self, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

pub(super) fn open(dir: &Dir, path: &FilePath) -> Result<OpenFile, WorkspaceError> {
    let mut options = OpenOptions::new();
    // Without O_NONBLOCK, opening a FIFO waits for a writer that never comes.
    options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = dir
        .open_with(path.as_path(), &options)
        .map_err(not_found_unless_broken)?
        .into_std();
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(WorkspaceError::NotRegular);
    }
    Ok(OpenFile {
        size: metadata.len(),
        modified: metadata.modified()?,
        file,
    })
}

/// The directory that `path` is in, made if needed, and the file's name there.
pub(super) fn parent_of<'a>(
    path: &'a FilePath,
    dir: &Dir,
    owner: Owner,
) -> Result<(Dir, &'a std::ffi::OsStr), WorkspaceError> {
    let path = path.as_path();
    let parent = match path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        None => dir.try_clone()?,
        Some(parent) => open_or_make_dir(dir, parent, owner)?,
    };
    let name = path
        .file_name()
        .expect("invariant: a FilePath has a last segment");
    Ok((parent, name))
}

/// Directory of the workspace that keeps long output.
const OUTPUT_DIR: &str = ".runs";

pub(super) fn create_output(
    dir: &Dir,
    name: &str,
    owner: Owner,
) -> Result<(FilePath, std::fs::File), WorkspaceError> {
    let path = FilePath::from_bytes(format!("{OUTPUT_DIR}/{name}").into_bytes())?;
    let parent = open_or_make_dir(dir, std::path::Path::new(OUTPUT_DIR), owner)?;
    let file = parent
        .open_with(name, OpenOptions::new().write(true).create_new(true))?
        .into_std();
    owner.take_open(&file)?;
    Ok((path, file))
}

/// The directory `path`, made segment by segment so that each new one gets its owner.
fn open_or_make_dir(
    dir: &Dir,
    path: &std::path::Path,
    owner: Owner,
) -> Result<Dir, WorkspaceError> {
    let mut current = dir.try_clone()?;
    for segment in path {
        match current.create_dir(segment) {
            Ok(()) => owner.take(&current, segment)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        current = current.open_dir(segment).map_err(not_found_unless_broken)?;
    }
    Ok(current)
}

/// What stands in the way of a name is the caller's affair; a failing disk is ours.
fn not_found_unless_broken(error: io::Error) -> WorkspaceError {
    use rustix::io::Errno;
    match Errno::from_io_error(&error) {
        Some(Errno::IO | Errno::MFILE | Errno::NFILE | Errno::NOMEM) => WorkspaceError::Io(error),
        // A socket cannot be opened at all.
        Some(Errno::NXIO | Errno::ISDIR) => WorkspaceError::NotRegular,
        // Includes names that resolve out of the workspace.
        _ => WorkspaceError::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use cap_std::ambient_authority;
    use tempfile::TempDir;

    use super::*;

    fn workspace() -> (TempDir, Dir) {
        let directory = tempfile::tempdir().unwrap();
        let handle = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        (directory, handle)
    }

    fn path(name: &str) -> FilePath {
        FilePath::for_new_file(name).unwrap()
    }

    #[test]
    fn links_that_lead_out_do_not_resolve() {
        let (directory, dir) = workspace();
        symlink("/etc/passwd", directory.path().join("absolute")).unwrap();
        symlink("../../../../etc/passwd", directory.path().join("relative")).unwrap();
        symlink("/etc", directory.path().join("middle")).unwrap();
        for name in ["absolute", "relative", "middle/passwd"] {
            assert!(
                matches!(open(&dir, &path(name)), Err(WorkspaceError::NotFound)),
                "{name}"
            );
        }
        assert!(matches!(
            parent_of(&path("middle/new"), &dir, Owner::of_this_process()),
            Err(WorkspaceError::NotFound)
        ));
    }

    #[test]
    fn what_is_not_a_file_is_said_at_once() {
        let (directory, dir) = workspace();
        rustix::fs::mknodat(&dir, "fifo", rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket =
            std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
        std::fs::create_dir(directory.path().join("directory")).unwrap();
        for name in ["fifo", "socket", "directory"] {
            assert!(
                matches!(open(&dir, &path(name)), Err(WorkspaceError::NotRegular)),
                "{name}"
            );
        }
    }
}

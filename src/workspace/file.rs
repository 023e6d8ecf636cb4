//! File: opening one regular file beneath a workspace's handle, and finding the place of a new one.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    time::SystemTime,
};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::OFlags;

use super::{FileEntry, FilePath, Owner, WorkspaceError};

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
    /// Reads `limit` bytes from `offset` on, fewer where the file ends before.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read_part(&self, offset: u64, limit: u64) -> io::Result<Vec<u8>> {
        let (mut bytes, mut file) = (Vec::new(), &self.file);
        file.seek(SeekFrom::Start(offset))?;
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

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
pub(super) fn existing_parent_of<'a>(
    path: &'a FilePath,
    dir: &Dir,
) -> Result<(Dir, &'a OsStr), WorkspaceError> {
    let (parent, name) = path.split();
    let parent = match parent {
        None => dir.try_clone()?,
        Some(parent) => dir.open_dir(parent).map_err(not_found_unless_broken)?,
    };
    Ok((parent, name))
}

/// The same, made if it does not exist.
pub(super) fn parent_of<'a>(
    path: &'a FilePath,
    dir: &Dir,
    owner: Owner,
) -> Result<(Dir, &'a OsStr), WorkspaceError> {
    let (parent, name) = path.split();
    let parent = match parent {
        None => dir.try_clone()?,
        Some(parent) => open_or_make_dir(dir, parent, owner)?,
    };
    Ok((parent, name))
}

/// Appends `content` to the file, which is made if it does not exist. Where the disk fails, it keeps the length it
/// had.
pub(super) fn append(
    dir: &Dir,
    path: &FilePath,
    content: &[u8],
    owner: Owner,
) -> Result<FileEntry, WorkspaceError> {
    let (parent, name) = parent_of(path, dir, owner)?;
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .custom_flags(flags.bits().cast_signed());
    let opened = parent.open_with(name, &options);
    let mut file = opened.map_err(not_regular_if_link)?.into_std();
    let before = file.metadata()?;
    if !before.is_file() {
        return Err(WorkspaceError::NotRegular);
    }
    owner.take_open(&file)?;
    if let Err(error) = file.write_all(content) {
        file.set_len(before.len())?;
        return Err(error.into());
    }
    let after = file.metadata()?;
    Ok(FileEntry {
        path: path.clone(),
        size: after.len(),
        modified: after.modified()?,
    })
}

/// A link in the file's own place is something that stands in the way, whatever it leads to.
fn not_regular_if_link(error: io::Error) -> WorkspaceError {
    match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::LOOP) => WorkspaceError::NotRegular,
        _ => not_found_unless_broken(error),
    }
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
pub(super) fn open_or_make_dir(
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

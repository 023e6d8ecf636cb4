//! File: opening and writing one regular file beneath a workspace's handle.

use std::{
    io::{self, Read as _, Write as _},
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

pub(super) fn write(
    dir: &Dir,
    path: &FilePath,
    content: &[u8],
    owner: Owner,
) -> Result<FileEntry, WorkspaceError> {
    let path_ref = path.as_path();
    let parent = match path_ref
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        None => dir.try_clone()?,
        Some(parent) => open_or_make_dir(dir, parent, owner)?,
    };
    let name = path_ref
        .file_name()
        .expect("invariant: a FilePath has a last segment");
    let temporary = format!(".{}.part", uuid::Uuid::new_v4().simple());
    let written = write_new(&parent, &temporary, content, owner).and_then(|()| {
        // Rename replaces the name itself, be it a link, a FIFO or a file; a directory it leaves alone.
        parent.rename(&temporary, &parent, name)
    });
    if let Err(error) = written {
        // The file was never made, or is useless: whether this succeeds changes nothing for the caller.
        let _removed = parent.remove_file(&temporary);
        return Err(match error.kind() {
            io::ErrorKind::IsADirectory | io::ErrorKind::DirectoryNotEmpty => {
                WorkspaceError::NotRegular
            }
            _ => WorkspaceError::Io(error),
        });
    }
    Ok(FileEntry {
        path: path.clone(),
        size: content.len() as u64,
        modified: SystemTime::now(),
    })
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
    let file = parent.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    owner.take(&parent, name)?;
    Ok((path, file.into_std()))
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

fn write_new(parent: &Dir, name: &str, content: &[u8], owner: Owner) -> io::Result<()> {
    let mut file = parent.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    owner.take(parent, name)?;
    file.write_all(content)
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

    fn workspace() -> (TempDir, Dir, Owner) {
        let directory = tempfile::tempdir().unwrap();
        let handle = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        (directory, handle, Owner::of_this_process())
    }

    fn path(name: &str) -> FilePath {
        FilePath::for_new_file(name).unwrap()
    }

    #[test]
    fn a_written_file_reads_back_and_leaves_nothing_beside_it() {
        let (directory, dir, owner) = workspace();
        write(&dir, &path("a/b/c.txt"), b"one", owner).unwrap();
        write(&dir, &path("a/b/c.txt"), b"two", owner).unwrap();
        assert_eq!(
            open(&dir, &path("a/b/c.txt"))
                .unwrap()
                .read_up_to(10)
                .unwrap(),
            b"two"
        );
        assert_eq!(
            std::fs::read_dir(directory.path().join("a/b"))
                .unwrap()
                .count(),
            1
        );
    }

    #[test]
    fn links_that_lead_out_do_not_resolve() {
        let (directory, dir, owner) = workspace();
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
            write(&dir, &path("middle/new"), b"x", owner),
            Err(WorkspaceError::NotFound)
        ));
    }

    #[test]
    fn writing_replaces_a_planted_link_and_spares_its_target() {
        let (directory, dir, owner) = workspace();
        std::fs::write(directory.path().join("target"), "kept").unwrap();
        symlink("target", directory.path().join("link")).unwrap();
        write(&dir, &path("link"), b"new", owner).unwrap();
        assert_eq!(
            std::fs::read(directory.path().join("target")).unwrap(),
            b"kept"
        );
        assert_eq!(
            std::fs::read(directory.path().join("link")).unwrap(),
            b"new"
        );
    }

    #[test]
    fn what_is_not_a_file_is_said_at_once() {
        let (directory, dir, owner) = workspace();
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
        assert!(matches!(
            write(&dir, &path("directory"), b"x", owner),
            Err(WorkspaceError::NotRegular)
        ));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
    }
}

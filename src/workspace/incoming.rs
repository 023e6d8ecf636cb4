//! Incoming: a file on its way into a workspace, hidden under a temporary name until it is whole.
//!
//! The bytes go to a handle, never again to a name: what user code does to the temporary name meanwhile
//! changes nothing but what it ends up with itself.

use std::{
    fs::File,
    io::{self, Write as _},
    time::{Duration, SystemTime},
};

use cap_std::fs::{MetadataExt as _, OpenOptions};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use super::{
    DiskUsage, FileEntry, FilePath, Workspace, WorkspaceError, blocking, file, free_bytes,
};

/// Start of a temporary name at the top of a workspace. Random digits follow.
const TEMPORARY: &str = ".upload-";

/// Age at which a temporary file is what a crash left behind: no upload may take so long.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// Bytes written between two looks at the room there is, which others take as well.
const MEASURE_BYTES: u64 = 32 << 20;

/// Bytes gathered for one write: what a trip to a thread that may block is worth.
const BUFFER_BYTES: usize = 256 << 10;

/// Whether `path` is a file that is not whole yet, or never became so.
pub(super) fn is_temporary(path: &FilePath) -> bool {
    path.as_bytes()
        .strip_prefix(TEMPORARY.as_bytes())
        .is_some_and(|digits| digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Whether nobody writes to a temporary file any more that last changed as `metadata` says.
pub(super) fn is_abandoned(metadata: &cap_std::fs::Metadata) -> bool {
    let changed = Duration::from_secs(u64::try_from(metadata.ctime()).unwrap_or(0));
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH + changed)
        .is_ok_and(|age| age > ABANDONED)
}

/// The file, where file system work may block. Dropping it removes it, unless it was committed.
#[derive(Debug)]
pub(super) struct Incoming {
    workspace: Workspace,
    path: FilePath,
    temporary: String,
    file: File,
    size: u64,
    room: Room,
    committed: bool,
}

impl Incoming {
    /// Begins the file `path`, of which `expected` bytes are known to come.
    pub(super) fn begin(
        workspace: Workspace,
        path: FilePath,
        expected: u64,
    ) -> Result<Self, WorkspaceError> {
        let room = Room::measure(&workspace, 1)?;
        room.check(expected)?;
        let temporary = format!("{TEMPORARY}{}", uuid::Uuid::new_v4().simple());
        // Only a file that did not exist: no link is followed, whatever its name.
        let options = OpenOptions::new().write(true).create_new(true).clone();
        let file = workspace.dir.open_with(&temporary, &options)?.into_std();
        let incoming = Self {
            workspace,
            path,
            temporary,
            file,
            size: 0,
            room,
            committed: false,
        };
        incoming.workspace.owner.take_open(&incoming.file)?;
        Ok(incoming)
    }

    /// Appends `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), WorkspaceError> {
        let count = bytes.len() as u64;
        if self.room.measured_for >= MEASURE_BYTES {
            self.room = Room::measure(&self.workspace, 0)?;
        }
        self.room.take(count)?;
        self.file.write_all(bytes).map_err(full_or_broken)?;
        self.size += count;
        Ok(())
    }

    /// Gives the file its name, replacing another one of that name at once.
    pub(super) fn commit(mut self) -> Result<FileEntry, WorkspaceError> {
        let modified = self.file.metadata()?.modified()?;
        let dir = &self.workspace.dir;
        let (parent, name) = file::parent_of(&self.path, dir, self.workspace.owner)?;
        // Rename replaces the name itself, be it a link, a FIFO or a file; a directory it leaves alone.
        dir.rename(&self.temporary, &parent, name)
            .map_err(|error| match error.kind() {
                io::ErrorKind::IsADirectory | io::ErrorKind::DirectoryNotEmpty => {
                    WorkspaceError::NotRegular
                }
                _ => WorkspaceError::Io(error),
            })?;
        self.committed = true;
        Ok(FileEntry {
            path: self.path.clone(),
            size: self.size,
            modified,
        })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.committed {
            // Whoever took the name away has done the work.
            let _removed = self.workspace.dir.remove_file(&self.temporary);
        }
    }
}

/// Bytes that a workspace may still take, as far as is known.
#[derive(Debug)]
pub(super) struct Room {
    quota: u64,
    disk: u64,
    /// Bytes taken since it was measured.
    measured_for: u64,
}

impl Room {
    /// Room beside what is there now, for `files` more files.
    pub(super) fn measure(workspace: &Workspace, files: u64) -> Result<Self, WorkspaceError> {
        let limit = workspace.limits.workspace;
        let mut usage = DiskUsage::of(&workspace.dir, limit)?;
        usage.files = usage.files.saturating_add(files);
        if usage.exceeds(limit) {
            return Err(WorkspaceError::QuotaExceeded);
        }
        Ok(Self {
            quota: limit.bytes - usage.bytes,
            disk: free_bytes(&workspace.dir)?.saturating_sub(workspace.limits.min_free),
            measured_for: 0,
        })
    }

    pub(super) fn check(&self, bytes: u64) -> Result<(), WorkspaceError> {
        if bytes > self.quota {
            return Err(WorkspaceError::QuotaExceeded);
        }
        if bytes > self.disk {
            return Err(WorkspaceError::DiskFull);
        }
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), WorkspaceError> {
        self.check(bytes)?;
        self.quota -= bytes;
        self.disk -= bytes;
        self.measured_for += bytes;
        Ok(())
    }
}

fn full_or_broken(error: io::Error) -> WorkspaceError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WorkspaceError::DiskFull,
        _ => WorkspaceError::Io(error),
    }
}

/// A file that is being received. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct IncomingFile {
    /// `None` from the first failure on, which took the file away.
    incoming: Option<Incoming>,
    digest: Sha256,
    buffer: Vec<u8>,
}

/// A file that was received.
#[derive(Debug)]
pub struct ReceivedFile {
    /// What is in the workspace now.
    pub entry: FileEntry,
    /// SHA-256 of its bytes, in lower-case hexadecimal.
    pub sha256: String,
}

impl IncomingFile {
    pub(super) async fn begin(
        workspace: Workspace,
        path: FilePath,
        expected: u64,
    ) -> Result<Self, WorkspaceError> {
        let incoming = blocking(move || Incoming::begin(workspace, path, expected)).await?;
        Ok(Self {
            incoming: Some(incoming),
            digest: Sha256::new(),
            buffer: Vec::with_capacity(BUFFER_BYTES),
        })
    }

    /// Appends `bytes`. Not to be called again once it failed or was cancelled.
    ///
    /// # Errors
    /// [`WorkspaceError::QuotaExceeded`] or [`WorkspaceError::DiskFull`] where there is no room for them.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), WorkspaceError> {
        while !bytes.is_empty() {
            let fitting = bytes.len().min(BUFFER_BYTES - self.buffer.len());
            self.buffer.extend_from_slice(&bytes[..fitting]);
            bytes = &bytes[fitting..];
            if self.buffer.len() == BUFFER_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Gives the file its name, replacing another one of that name at once.
    ///
    /// # Errors
    /// Nothing is changed then. [`WorkspaceError::NotRegular`] where a directory has the name.
    pub async fn commit(mut self) -> Result<ReceivedFile, WorkspaceError> {
        self.flush().await?;
        let incoming = self.incoming.take().ok_or_else(broken)?;
        let entry = blocking(move || incoming.commit()).await?;
        let sha256 = hex::encode(std::mem::take(&mut self.digest).finalize());
        Ok(ReceivedFile { entry, sha256 })
    }

    async fn flush(&mut self) -> Result<(), WorkspaceError> {
        let mut incoming = self.incoming.take().ok_or_else(broken)?;
        let mut digest = std::mem::take(&mut self.digest);
        let mut buffer = std::mem::take(&mut self.buffer);
        // What is moved in is dropped in there where it fails, or where nobody waits for it any more.
        let written = blocking(move || {
            incoming.write(&buffer)?;
            digest.update(&buffer);
            buffer.clear();
            Ok((incoming, digest, buffer))
        });
        let (incoming, digest, buffer) = written.await?;
        (self.incoming, self.digest, self.buffer) = (Some(incoming), digest, buffer);
        Ok(())
    }
}

impl Drop for IncomingFile {
    fn drop(&mut self) {
        let incoming = self.incoming.take();
        // Removing a large file takes a while. Where the runtime has ended, nobody waits.
        if let (Some(_), Ok(runtime)) = (&incoming, Handle::try_current()) {
            runtime.spawn_blocking(move || drop(incoming));
        }
    }
}

fn broken() -> WorkspaceError {
    WorkspaceError::Io(io::Error::other("an earlier write failed"))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
    };

    use tempfile::TempDir;

    use super::*;
    use crate::{config::DiskLimits, conversation::ConversationId, workspace::Workspaces};

    /// A workspace of at most 4 MiB and 5 files, and where it is.
    async fn workspace() -> (TempDir, PathBuf, Workspace) {
        let root = tempfile::tempdir().unwrap();
        let limits = DiskLimits {
            workspace: DiskUsage::at_most(4 << 20, 5),
            min_free: 0,
            ttl: None,
        };
        let all = Workspaces::open_root(root.path(), "secret".into(), limits).unwrap();
        let workspace = all
            .open(&ConversationId::random(crate::caller::Caller::default()))
            .await
            .unwrap();
        let place = root.path().join(workspace.hash().as_str());
        (root, place, workspace)
    }

    fn path(name: &str) -> FilePath {
        FilePath::for_new_file(name).unwrap()
    }

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_file_that_comes_in_pieces_is_seen_when_it_is_whole() {
        let (_root, place, workspace) = workspace().await;
        workspace
            .write_file(path("a/b"), b"old".to_vec())
            .await
            .unwrap();
        let mut file = workspace.receive_file(path("a/b"), 0).await.unwrap();
        let piece = vec![b'x'; 100_001];
        for _ in 0..10 {
            file.write(&piece).await.unwrap();
        }
        assert_eq!(fs::read(place.join("a/b")).unwrap(), b"old");
        assert_eq!(workspace.list().await.unwrap().entries().count(), 1);
        let received = file.commit().await.unwrap();
        let content = fs::read(place.join("a/b")).unwrap();
        assert_eq!(content, piece.repeat(10));
        assert_eq!(received.sha256, hex::encode(Sha256::digest(&content)));
        let listed = workspace.list().await.unwrap().entries().next();
        assert_eq!(Some(received.entry), listed);
        assert_eq!(names(&place), ["a"]);
    }

    #[tokio::test]
    async fn a_file_that_does_not_become_whole_leaves_nothing() {
        let (_root, place, workspace) = workspace().await;
        let mut file = workspace.receive_file(path("a/b/c"), 0).await.unwrap();
        file.write(&vec![0; 1 << 20]).await.unwrap();
        assert_eq!(names(&place).len(), 1);
        drop(file);
        let gone = async {
            while !names(&place).is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), gone)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn names_that_others_planted_are_replaced_and_not_followed() {
        let (_root, place, workspace) = workspace().await;
        fs::write(place.join("target"), "kept").unwrap();
        symlink("target", place.join("link")).unwrap();
        fs::create_dir(place.join("directory")).unwrap();
        symlink("/tmp", place.join("out")).unwrap();
        for (name, expected) in [
            ("link", None),
            ("directory", Some("not a regular file")),
            ("out/x", Some("no such file")),
            ("target/x", Some("no such file")),
        ] {
            let written = workspace.write_file(path(name), b"new".to_vec()).await;
            let refused = written.err().map(|error| error.to_string());
            assert_eq!(refused.as_deref(), expected, "{name}");
        }
        assert_eq!(fs::read(place.join("target")).unwrap(), b"kept");
        assert_eq!(
            fs::symlink_metadata(place.join("link")).unwrap().len(),
            "new".len() as u64
        );
        assert_eq!(names(&place), ["directory", "link", "out", "target"]);
    }

    #[tokio::test]
    async fn a_link_put_in_the_temporary_names_place_is_not_written_through() {
        let (root, place, workspace) = workspace().await;
        let victim = root.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        let mut file = workspace.receive_file(path("a"), 0).await.unwrap();
        let temporary = place.join(&names(&place)[0]);
        fs::remove_file(&temporary).unwrap();
        symlink(&victim, &temporary).unwrap();
        file.write(&vec![0; 1 << 20]).await.unwrap();
        file.commit().await.unwrap();
        assert_eq!(fs::read(victim).unwrap(), b"kept");
        // All that came of it is a link of his own, which is not served.
        workspace.open_file(path("a")).await.unwrap_err();
    }

    #[tokio::test]
    async fn room_is_looked_at_before_and_while_a_file_comes() {
        let (_root, place, workspace) = workspace().await;
        let refused = workspace.receive_file(path("a"), 5 << 20).await;
        assert!(matches!(refused, Err(WorkspaceError::QuotaExceeded)));

        let mut file = workspace.receive_file(path("a"), 0).await.unwrap();
        file.write(&vec![1; 3 << 20]).await.unwrap();
        let over = file.write(&vec![1; 2 << 20]).await;
        assert!(matches!(over, Err(WorkspaceError::QuotaExceeded)));
        assert!(file.commit().await.is_err());

        for name in 0..5 {
            fs::write(place.join(name.to_string()), "").unwrap();
        }
        let refused = workspace.receive_file(path("a"), 0).await;
        assert!(matches!(refused, Err(WorkspaceError::QuotaExceeded)));
        assert_eq!(names(&place).len(), 5);
    }

    #[tokio::test]
    async fn what_a_crash_left_goes_when_it_is_old() {
        let (_root, place, workspace) = workspace().await;
        let left = format!("{TEMPORARY}{}", "0".repeat(32));
        fs::write(place.join(&left), "").unwrap();
        workspace.tidy().await.unwrap();
        // Its change time cannot be set back; that of an upload under way is as new as this one's.
        assert_eq!(names(&place), [&*left]);
        assert!(is_temporary(&path(&left)));
        for name in [".upload-", ".upload-0", &format!("a/{left}"), &left[1..]] {
            assert!(!is_temporary(&path(name)), "{name}");
        }
    }
}

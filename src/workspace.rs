//! Workspace: a conversation's directory, `SANDBOX_ROOT/<hash>`, mounted in runners as `/data`.
//!
//! User code owns the directory, so every name in it is hostile. All access goes through a handle
//! on the directory that resolves names beneath it (`openat2` with `RESOLVE_BENEATH`, by cap-std):
//! a link that leads out does not resolve, whenever it was planted. Nothing is checked first and
//! opened later; what was opened is what is looked at.

mod expiry;
mod file;
mod hash;
mod lease;
mod listing;
mod path;
mod remove;
mod spare;
mod usage;
mod walk;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, DirBuilderExt as _, MetadataExt as _},
};
use rustix::{
    fs::{AtFlags, Gid, Uid},
    process::{getegid, geteuid},
};
use secrecy::SecretString;

use self::lease::{Lease, Leases};
pub use self::{
    file::OpenFile,
    hash::WorkspaceHash,
    listing::{FileEntry, Listing},
    path::FilePath,
    spare::{DataDir, SpareDir},
    usage::DiskUsage,
};
use crate::{config::DiskLimits, conversation::ConversationId};

/// The user that runners run as when the server is root: not root, and the usual first user.
const RUNNER_UID: u32 = 1000;

/// Why a workspace or a file in it could not be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The caller's name for a file cannot be one.
    #[error("{0}")]
    InvalidPath(&'static str),
    /// There is nothing of that name, or it leads out of the workspace.
    #[error("no such file")]
    NotFound,
    /// There is something else than a file: a directory, FIFO, socket or device.
    #[error("not a regular file")]
    NotRegular,
    /// The workspace would take more than it may.
    #[error("the conversation's files take too much room")]
    QuotaExceeded,
    /// The server keeps the rest of the disk for the host.
    #[error("the server's disk is nearly full")]
    DiskFull,
    /// The disk or its permissions failed.
    #[error("workspace is not accessible: {0}")]
    Io(#[from] io::Error),
}

/// Who owns the files of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User id that runners run as.
    pub uid: u32,
    /// Group id that runners run as.
    pub gid: u32,
    /// Whether files must be handed over to that user, who is not the server's own.
    hand_over: bool,
}

impl Owner {
    /// This user, to whom nothing is handed over.
    #[cfg(test)]
    pub(crate) fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            hand_over: false,
        }
    }

    /// uid 1000 where the server may hand files over, else the server's own user.
    fn of_this_process() -> Self {
        let (uid, gid) = (geteuid(), getegid());
        if uid.is_root() {
            Self {
                uid: RUNNER_UID,
                gid: RUNNER_UID,
                hand_over: true,
            }
        } else {
            Self {
                uid: uid.as_raw(),
                gid: gid.as_raw(),
                hand_over: false,
            }
        }
    }

    /// Gives `name` in `dir` to this user; of a link, the link itself.
    fn take(self, dir: &Dir, name: impl rustix::path::Arg) -> io::Result<()> {
        if self.hand_over {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// All workspaces of this server.
#[derive(Debug)]
pub struct Workspaces {
    root: Arc<Dir>,
    root_path: PathBuf,
    secret: SecretString,
    owner: Owner,
    limits: DiskLimits,
    leases: Arc<Leases>,
}

/// One workspace that exists, and goes on existing as long as this is held.
#[derive(Debug, Clone)]
pub struct Workspace {
    hash: WorkspaceHash,
    root: Arc<Dir>,
    dir: Arc<Dir>,
    owner: Owner,
    limits: DiskLimits,
    _lease: Arc<Lease>,
}

impl Workspaces {
    /// Opens `root`, making it if needed.
    ///
    /// # Errors
    /// When it cannot be made, opened or written to.
    pub fn open_root(root: &Path, secret: SecretString, limits: DiskLimits) -> io::Result<Self> {
        // Others on the host need not see which conversations there are.
        std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o711)
            .recursive(true)
            .create(root)?;
        let root_path = root.canonicalize()?;
        let dir = Dir::open_ambient_dir(&root_path, ambient_authority())?;
        SpareDir::remove_all(&dir)?;
        Ok(Self {
            root: Arc::new(dir),
            root_path,
            secret,
            owner: Owner::of_this_process(),
            limits,
            leases: Arc::default(),
        })
    }

    /// Absolute path of the directory that holds the workspaces.
    pub fn root_path(&self) -> &Path {
        &self.root_path
    }

    /// The user that runs must run as to own what they write.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Name of the conversation's workspace, which need not exist.
    pub fn hash(&self, conversation: &ConversationId) -> WorkspaceHash {
        WorkspaceHash::of(conversation, &self.secret)
    }

    /// The conversation's workspace, made if it does not exist, and marked as used.
    ///
    /// # Errors
    /// [`WorkspaceError::DiskFull`], or when the directory cannot be made or opened.
    pub async fn open(&self, conversation: &ConversationId) -> Result<Workspace, WorkspaceError> {
        let (root, hash, owner, limits) = (
            Arc::clone(&self.root),
            self.hash(conversation),
            self.owner,
            self.limits,
        );
        // Before the directory is looked at, so that it is not taken away in between.
        let lease = self.leases.take(hash.clone());
        blocking(move || {
            if free_bytes(&root)? < limits.min_free {
                return Err(WorkspaceError::DiskFull);
            }
            match root.create_dir_with(hash.as_str(), DirBuilder::new().mode(0o700)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            // Also when it existed: another call may have made it and not yet handed it over.
            owner.take(&root, hash.as_str())?;
            let dir = root.open_dir(hash.as_str())?;
            expiry::mark_used(&dir)?;
            Ok(Workspace {
                hash,
                root: Arc::clone(&root),
                dir: Arc::new(dir),
                owner,
                limits,
                _lease: Arc::new(lease),
            })
        })
        .await
    }

    /// Whether the conversation has a workspace.
    pub async fn exists(&self, conversation: &ConversationId) -> bool {
        let (root, hash) = (Arc::clone(&self.root), self.hash(conversation));
        blocking(move || Ok(root.symlink_metadata(hash.as_str()).is_ok()))
            .await
            .unwrap_or(false)
    }

    /// A directory that can become a workspace.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn create_spare(&self) -> Result<SpareDir, WorkspaceError> {
        let (root, owner) = (Arc::clone(&self.root), self.owner);
        blocking(move || Ok(SpareDir::create(root, owner)?)).await
    }

    /// Makes `spare` the workspace of `conversation`, or gives it back where that has one already.
    ///
    /// # Errors
    /// [`WorkspaceError::NotFound`] where the spare is gone, [`WorkspaceError::DiskFull`], or when the disk
    /// fails.
    pub async fn adopt(
        &self,
        conversation: &ConversationId,
        spare: SpareDir,
    ) -> Result<Result<Workspace, SpareDir>, WorkspaceError> {
        let (root, hash, owner, limits) = (
            Arc::clone(&self.root),
            self.hash(conversation),
            self.owner,
            self.limits,
        );
        let lease = self.leases.take(hash.clone());
        blocking(move || {
            if free_bytes(&root)? < limits.min_free {
                return Err(WorkspaceError::DiskFull);
            }
            match spare.become_workspace(&hash) {
                Ok(()) => {
                    let dir = root.open_dir(hash.as_str())?;
                    Ok(Ok(Workspace {
                        hash,
                        root: Arc::clone(&root),
                        dir: Arc::new(dir),
                        owner,
                        limits,
                        _lease: Arc::new(lease),
                    }))
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::AlreadyExists => Ok(Err(spare)),
                    io::ErrorKind::NotFound => Err(WorkspaceError::NotFound),
                    _ => Err(error.into()),
                },
            }
        })
        .await
    }

    /// The workspace of that name if it exists, marked as used. Never makes one.
    ///
    /// # Errors
    /// [`WorkspaceError::NotFound`] where there is none.
    pub async fn find(&self, hash: WorkspaceHash) -> Result<Workspace, WorkspaceError> {
        let (root, owner, limits) = (Arc::clone(&self.root), self.owner, self.limits);
        let lease = self.leases.take(hash.clone());
        blocking(move || match root.open_dir(hash.as_str()) {
            Ok(dir) => {
                expiry::mark_used(&dir)?;
                Ok(Workspace {
                    hash,
                    root: Arc::clone(&root),
                    dir: Arc::new(dir),
                    owner,
                    limits,
                    _lease: Arc::new(lease),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(WorkspaceError::NotFound),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// When a workspace that is used now expires; `None` where they are kept.
    pub fn expiry_from_now(&self) -> Option<SystemTime> {
        self.limits.ttl.map(|ttl| SystemTime::now() + ttl)
    }

    /// Deletes the workspaces that have expired and are not in use, and returns how many.
    ///
    /// # Errors
    /// When `SANDBOX_ROOT` cannot be read.
    pub async fn remove_expired(&self) -> Result<usize, WorkspaceError> {
        let Some(ttl) = self.limits.ttl else {
            return Ok(0);
        };
        let (root, leases) = (Arc::clone(&self.root), Arc::clone(&self.leases));
        blocking(move || Ok(expiry::remove_expired(&root, &leases, ttl)?)).await
    }
}

impl Workspace {
    /// The workspace's name.
    pub fn hash(&self) -> &WorkspaceHash {
        &self.hash
    }

    /// Whether the directory still has the workspace's name: an operator may have deleted it.
    pub async fn is_there(&self) -> bool {
        let this = self.clone();
        let same = move || {
            let (named, held) = (
                this.root.symlink_metadata(this.hash.as_str())?,
                this.dir.dir_metadata()?,
            );
            Ok((named.dev(), named.ino()) == (held.dev(), held.ino()))
        };
        blocking(same).await.unwrap_or(false)
    }

    /// What a container mounts to work on it.
    pub fn data_dir(&self) -> DataDir {
        DataDir::Workspace(self.hash.clone())
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`WorkspaceError::NotFound`] or [`WorkspaceError::NotRegular`], at once: opening never waits
    /// for the other end of a FIFO.
    pub async fn open_file(&self, path: FilePath) -> Result<OpenFile, WorkspaceError> {
        let dir = Arc::clone(&self.dir);
        blocking(move || file::open(&dir, &path)).await
    }

    /// Writes a whole file, replacing one of the same name at once, and returns its entry.
    ///
    /// # Errors
    /// Nothing is changed then. [`WorkspaceError::NotRegular`] where a directory has the name;
    /// [`WorkspaceError::QuotaExceeded`] where there is no room for it.
    pub async fn write_file(
        &self,
        path: FilePath,
        content: Vec<u8>,
    ) -> Result<FileEntry, WorkspaceError> {
        let (dir, owner, quota) = (Arc::clone(&self.dir), self.owner, self.limits.workspace);
        blocking(move || {
            let mut usage = DiskUsage::of(&dir, quota)?;
            usage.bytes = usage.bytes.saturating_add(content.len() as u64);
            usage.files = usage.files.saturating_add(1);
            if usage.exceeds(quota) {
                return Err(WorkspaceError::QuotaExceeded);
            }
            file::write(&dir, &path, &content, owner)
        })
        .await
    }

    /// A new file in the workspace's hidden directory for output of runs.
    ///
    /// # Errors
    /// When it cannot be made there.
    pub async fn create_output_file(
        &self,
        name: String,
    ) -> Result<(FilePath, File), WorkspaceError> {
        let (dir, owner) = (Arc::clone(&self.dir), self.owner);
        blocking(move || file::create_output(&dir, &name, owner)).await
    }

    /// The regular files there are now.
    ///
    /// # Errors
    /// When the workspace itself cannot be read; what cannot be read below it is left out.
    pub async fn list(&self) -> Result<Listing, WorkspaceError> {
        let dir = Arc::clone(&self.dir);
        blocking(move || Ok(Listing::of(&dir)?)).await
    }

    /// Takes away what nobody can use once a run has ended: FIFOs, sockets, devices, and directories nested
    /// deeper than anything looks. Marks the workspace as used.
    ///
    /// # Errors
    /// When the workspace cannot be read.
    pub async fn tidy(&self) -> Result<(), WorkspaceError> {
        let dir = Arc::clone(&self.dir);
        let root = Arc::clone(&self.root);
        blocking(move || {
            expiry::mark_used(&dir)?;
            Ok(remove::tidy(&dir, &root)?)
        })
        .await
    }

    /// What the workspace may take while a run goes on: the quota, or what it takes now if that is more
    /// already. Such a run can tidy up; see [`Allowance::for_tidying`].
    ///
    /// # Errors
    /// When the workspace cannot be read.
    pub async fn allowance(&self) -> Result<Allowance, WorkspaceError> {
        let (dir, quota) = (Arc::clone(&self.dir), self.limits.workspace);
        blocking(move || {
            let usage = DiskUsage::of(&dir, DiskUsage::UNLIMITED)?;
            let for_tidying = usage.exceeds(quota);
            let most =
                DiskUsage::at_most(usage.bytes.max(quota.bytes), usage.files.max(quota.files));
            Ok(Allowance { most, for_tidying })
        })
        .await
    }

    /// Returns when the workspace takes more than `allowance`, or the disk has less left than it must.
    pub async fn overflows(&self, allowance: Allowance) {
        let mut pause = WATCH_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            let measuring = Instant::now();
            let dir = Arc::clone(&self.dir);
            let min_free = self.limits.min_free;
            let over = blocking(move || {
                let usage = DiskUsage::of(&dir, allowance.most)?;
                Ok(usage.exceeds(allowance.most) || free_bytes(&dir)? < min_free)
            });
            match over.await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "workspace could not be measured"),
            }
            // Measuring many files must not take more than a tenth of the time.
            pause = WATCH_PAUSE.max(measuring.elapsed() * 10);
        }
    }
}

/// What a workspace may take while a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    most: DiskUsage,
    /// Whether there is too much already, so that a run may delete files but write none of any size.
    pub for_tidying: bool,
}

/// Time between two looks at a running program's workspace. A disk takes some 100 MB in it.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// Bytes that the file system of `dir` has left for this process.
fn free_bytes(dir: &Dir) -> io::Result<u64> {
    let status = rustix::fs::fstatvfs(dir)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Runs file system work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(WorkspaceError::Io(io::Error::other(error))),
    }
}

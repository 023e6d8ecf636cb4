//! Workspace: a conversation's directory, `SANDBOX_ROOT/<hash>`, mounted in runners as `/data`.
//!
//! User code owns the directory, so every name in it is hostile. All access goes through a handle
//! on the directory that resolves names beneath it (`openat2` with `RESOLVE_BENEATH`, by cap-std):
//! a link that leads out does not resolve, whenever it was planted. Nothing is checked first and
//! opened later; what was opened is what is looked at.

mod all;
mod expiry;
mod file;
mod hash;
mod incoming;
mod instance;
mod lease;
mod listing;
mod merge;
mod owner;
mod path;
mod remove;
mod spare;
mod stream;
mod usage;
mod walk;

use std::{
    fs::File,
    io,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use cap_std::fs::{Dir, MetadataExt as _};

pub use self::{
    all::Workspaces,
    file::OpenFile,
    hash::WorkspaceHash,
    incoming::{IncomingFile, ReceivedFile},
    listing::{FileEntry, Listing},
    owner::Owner,
    path::FilePath,
    spare::{DataDir, SpareDir},
    usage::DiskUsage,
};
use self::{
    incoming::{Incoming, Room},
    lease::{Lease, Lock},
    listing::is_hidden,
    walk::{Enter, walk},
};
use crate::config::DiskLimits;

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
    /// A run or a download of it is under way.
    #[error("the conversation is in use")]
    InUse,
    /// The server keeps the rest of the disk for the host.
    #[error("the server's disk is nearly full")]
    DiskFull,
    /// The disk or its permissions failed.
    #[error("workspace is not accessible: {0}")]
    Io(#[from] io::Error),
}

/// One workspace that exists, and goes on existing as long as this is held.
#[derive(Debug, Clone)]
pub struct Workspace {
    hash: WorkspaceHash,
    root: Arc<Dir>,
    dir: Arc<Dir>,
    owner: Owner,
    limits: DiskLimits,
    /// For this server, and for others that share the directory.
    _lease: Arc<(Lease, Option<Lock>)>,
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
    /// [`WorkspaceError::QuotaExceeded`] or [`WorkspaceError::DiskFull`] where there is no room for it.
    pub async fn write_file(
        &self,
        path: FilePath,
        content: Vec<u8>,
    ) -> Result<FileEntry, WorkspaceError> {
        let this = self.clone();
        blocking(move || {
            let mut incoming = Incoming::begin(this, path, content.len() as u64)?;
            incoming.write(&content)?;
            incoming.commit()
        })
        .await
    }

    /// Begins a file that comes bit by bit, `expected` bytes of it for sure. Nothing is seen of it before
    /// [`IncomingFile::commit`].
    ///
    /// # Errors
    /// [`WorkspaceError::QuotaExceeded`] or [`WorkspaceError::DiskFull`] where there is no room for it.
    pub async fn receive_file(
        &self,
        path: FilePath,
        expected: u64,
    ) -> Result<IncomingFile, WorkspaceError> {
        IncomingFile::begin(self.clone(), path, expected).await
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

    /// Appends to a file, which is made if it does not exist, and returns its entry.
    ///
    /// # Errors
    /// As [`Workspace::write_file`].
    pub async fn append_file(
        &self,
        path: FilePath,
        content: Vec<u8>,
    ) -> Result<FileEntry, WorkspaceError> {
        let this = self.clone();
        blocking(move || {
            Room::measure(&this, 1)?.check(content.len() as u64)?;
            file::append(&this.dir, &path, &content, this.owner)
        })
        .await
    }

    /// Moves what has the name `path` to another workspace, where directories of one name are merged and anything
    /// else is replaced. Nothing happens where there is nothing of that name.
    ///
    /// # Errors
    /// [`WorkspaceError::QuotaExceeded`] where the other one has no room for all that is here.
    pub async fn move_to(&self, other: &Self, path: FilePath) -> Result<(), WorkspaceError> {
        let (this, other) = (self.clone(), other.clone());
        blocking(move || {
            let moving = DiskUsage::of(&this.dir, DiskUsage::UNLIMITED)?;
            Room::measure(&other, moving.files)?.check(moving.bytes)?;
            merge::merge(
                &this.dir,
                &other.dir,
                path.as_path().as_os_str(),
                &other.root,
            )?;
            Ok(())
        })
        .await
    }

    /// Deletes a file, a link, or a directory with all in it.
    ///
    /// # Errors
    /// [`WorkspaceError::NotFound`] where there is nothing of that name.
    pub async fn delete(&self, path: FilePath) -> Result<(), WorkspaceError> {
        let this = self.clone();
        blocking(move || remove::delete(&this.dir, &this.root, &path)).await
    }

    /// Whether there is a directory of that name.
    pub async fn is_directory(&self, path: FilePath) -> bool {
        let dir = Arc::clone(&self.dir);
        let looking = blocking(move || Ok(dir.symlink_metadata(path.as_path())?.is_dir()));
        looking.await.unwrap_or(false)
    }

    /// Makes a directory, with those it is in.
    ///
    /// # Errors
    /// [`WorkspaceError::NotFound`] where something else has a name on the way.
    pub async fn make_dir(&self, path: FilePath) -> Result<(), WorkspaceError> {
        let this = self.clone();
        blocking(move || file::open_or_make_dir(&this.dir, path.as_path(), this.owner).map(drop))
            .await
    }

    /// The regular files there are now, hidden ones left out.
    ///
    /// # Errors
    /// When the workspace itself cannot be read; what cannot be read below it is left out.
    pub async fn list(&self) -> Result<Listing, WorkspaceError> {
        let dir = Arc::clone(&self.dir);
        blocking(move || Ok(Listing::of(&dir, None)?)).await
    }

    /// The file of that name, or those in the directory of that name, which may be a hidden one.
    ///
    /// # Errors
    /// As [`Workspace::list`].
    pub async fn list_within(&self, path: FilePath) -> Result<Listing, WorkspaceError> {
        let dir = Arc::clone(&self.dir);
        blocking(move || Ok(Listing::of(&dir, Some(&path))?)).await
    }

    /// What it takes of the disk, hidden files included.
    ///
    /// # Errors
    /// As [`Workspace::list`].
    pub async fn usage(&self) -> Result<DiskUsage, WorkspaceError> {
        let dir = Arc::clone(&self.dir);
        blocking(move || Ok(DiskUsage::of(&dir, DiskUsage::UNLIMITED)?)).await
    }

    /// Takes away what nobody can use once a run has ended: FIFOs, sockets, devices, and directories nested
    /// deeper than anything looks. Marks the workspace as used, and returns the files there are then.
    ///
    /// # Errors
    /// When the workspace cannot be read.
    pub async fn tidy(&self) -> Result<Listing, WorkspaceError> {
        let this = self.clone();
        blocking(move || {
            // The run may have closed it to its owner, who the server may be.
            let _open = all::open(&this.root, &this.hash)?;
            expiry::mark_used(&this.dir)?;
            Ok(remove::tidy(&this.dir, &this.root)?)
        })
        .await
    }

    /// The files there are before a run, and what the workspace may take while it goes on: the quota, or what it
    /// takes now if that is more already. Such a run can tidy up; see [`Allowance::for_tidying`].
    ///
    /// # Errors
    /// When the workspace cannot be read.
    pub async fn survey(&self) -> Result<(Listing, Allowance), WorkspaceError> {
        let (dir, quota) = (Arc::clone(&self.dir), self.limits.workspace);
        blocking(move || {
            let (mut listing, mut usage) = (Listing::default(), DiskUsage::at_most(0, 0));
            let _all = walk(&dir, &mut |entry| {
                usage.add(&entry);
                if !is_hidden(entry.path) {
                    listing.add(&entry);
                }
                ControlFlow::Continue(Enter::Yes)
            })?;
            let most =
                DiskUsage::at_most(usage.bytes.max(quota.bytes), usage.files.max(quota.files));
            let allowance = Allowance {
                most,
                for_tidying: usage.exceeds(quota),
            };
            Ok((listing, allowance))
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

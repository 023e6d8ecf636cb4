//! All: the workspaces of this server, in `SANDBOX_ROOT`.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, DirBuilderExt as _, MetadataExt as _},
};
use secrecy::SecretString;

use super::{
    DiskUsage, Owner, SpareDir, Workspace, WorkspaceError, WorkspaceHash, blocking, expiry,
    free_bytes,
    instance::Instance,
    lease::{Leases, Lock},
    remove::{Trashed, empty_trash},
    walk::open_up,
};
use crate::{config::DiskLimits, conversation::ConversationId};

/// All workspaces of this server.
#[derive(Debug)]
pub struct Workspaces {
    root: Arc<Dir>,
    root_path: PathBuf,
    secret: SecretString,
    owner: Owner,
    limits: DiskLimits,
    leases: Arc<Leases>,
    instance: Instance,
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
        let instance = Instance::take(&root_path)?;
        SpareDir::remove_all(&dir, instance.id())?;
        Ok(Self {
            root: Arc::new(dir),
            root_path,
            secret,
            owner: Owner::of_this_process(),
            limits,
            leases: Arc::default(),
            instance,
        })
    }

    /// Absolute path of the directory that holds the workspaces.
    pub fn root_path(&self) -> &Path {
        &self.root_path
    }

    /// What tells this server from others that share the directory, now and after a restart.
    pub fn instance(&self) -> String {
        self.instance.id().to_string()
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
        let held = self.hold(hash.clone());
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
            let dir = open(&root, &hash)?;
            expiry::mark_used(&dir)?;
            Ok(held(dir))
        })
        .await
    }

    /// What makes the directory of that name a workspace. Called before the directory is looked at, so that it is
    /// not taken away in between.
    fn hold(&self, hash: WorkspaceHash) -> impl FnOnce(Dir) -> Workspace + Send + 'static {
        let (root, owner, limits) = (Arc::clone(&self.root), self.owner, self.limits);
        let lease = self.leases.take(hash.clone());
        move |dir| Workspace {
            hash,
            root,
            owner,
            limits,
            _lease: Arc::new((lease, Lock::shared(&dir))),
            dir: Arc::new(dir),
        }
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
        let (root, owner, instance) = (Arc::clone(&self.root), self.owner, self.instance.id());
        blocking(move || Ok(SpareDir::create(root, instance, owner)?)).await
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
        let (root, hash, limits) = (Arc::clone(&self.root), self.hash(conversation), self.limits);
        let held = self.hold(hash.clone());
        blocking(move || {
            if free_bytes(&root)? < limits.min_free {
                return Err(WorkspaceError::DiskFull);
            }
            match spare.become_workspace(&hash) {
                Ok(()) => {
                    let dir = root.open_dir(hash.as_str())?;
                    Ok(Ok(held(dir)))
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
        let root = Arc::clone(&self.root);
        let held = self.hold(hash.clone());
        blocking(move || match open(&root, &hash) {
            Ok(dir) => {
                expiry::mark_used(&dir)?;
                Ok(held(dir))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(WorkspaceError::NotFound),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// Deletes the conversation's workspace, and returns how many files it had; none where there was none.
    ///
    /// # Errors
    /// [`WorkspaceError::InUse`] while a run or a download goes on.
    pub async fn remove(&self, conversation: &ConversationId) -> Result<u64, WorkspaceError> {
        let (root, leases, hash) = (
            Arc::clone(&self.root),
            Arc::clone(&self.leases),
            self.hash(conversation),
        );
        blocking(move || {
            let taken = leases.unless_held(&hash, &root, || {
                Trashed::take(&root, OsStr::new(hash.as_str()), &root)
            });
            match taken.ok_or(WorkspaceError::InUse)? {
                Ok(trashed) => {
                    let files = trashed.files()?;
                    trashed.delete()?;
                    Ok(files)
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    /// What one workspace may take.
    pub fn quota(&self) -> DiskUsage {
        self.limits.workspace
    }

    /// When a workspace that is used now expires; `None` where they are kept.
    pub fn expiry_from_now(&self) -> Option<SystemTime> {
        self.limits.ttl.map(|ttl| SystemTime::now() + ttl)
    }

    /// How many workspaces there are, and what they take together.
    ///
    /// # Errors
    /// When `SANDBOX_ROOT` cannot be read.
    pub async fn measure(&self) -> Result<(usize, DiskUsage), WorkspaceError> {
        let root = Arc::clone(&self.root);
        blocking(move || {
            let (mut count, mut total) = (0, DiskUsage::at_most(0, 0));
            for entry in root.entries()? {
                let name = entry?.file_name();
                let is_workspace = name.to_str().and_then(WorkspaceHash::parse).is_some();
                // One that goes meanwhile takes nothing, and one that is closed up keeps that to itself.
                let usage = |dir: Dir| DiskUsage::of(&dir, DiskUsage::UNLIMITED);
                if is_workspace && let Ok(usage) = root.open_dir(&name).and_then(usage) {
                    count += 1;
                    total.bytes = total.bytes.saturating_add(usage.bytes);
                    total.files = total.files.saturating_add(usage.files);
                }
            }
            Ok((count, total))
        })
        .await
    }

    /// Deletes the workspaces that have expired and are not in use, and returns how many.
    ///
    /// # Errors
    /// When `SANDBOX_ROOT` cannot be read.
    pub async fn remove_expired(&self) -> Result<usize, WorkspaceError> {
        let (root, leases, ttl) = (
            Arc::clone(&self.root),
            Arc::clone(&self.leases),
            self.limits.ttl,
        );
        blocking(move || {
            let taken = match ttl {
                Some(ttl) => expiry::take_expired(&root, &leases, ttl)?,
                None => 0,
            };
            empty_trash(&root)?;
            Ok(taken)
        })
        .await
    }
}

/// Opens the workspace, whatever user code made of its permissions.
pub(super) fn open(root: &Dir, hash: &WorkspaceHash) -> io::Result<Dir> {
    let name = OsStr::new(hash.as_str());
    let mode = root.symlink_metadata(name)?.mode() & 0o777;
    if mode & 0o700 != 0o700 {
        open_up(root, name)?;
    }
    root.open_dir(name)
}

//! Expiry: takes workspaces away that nobody has used for a while.

use std::{
    ffi::OsStr,
    io,
    time::{Duration, SystemTime},
};

use cap_std::fs::{Dir, MetadataExt as _};

use super::{WorkspaceHash, lease::Leases, remove::remove_dir};

/// Where workspaces go first, in one step; what a crash leaves there is deleted the next time.
const TRASH: &str = ".trash";

/// Marks a workspace as used now.
///
/// The mark is the directory's change time. User code owns the directory and can set its other times at
/// will, but this one only to the present.
pub(super) fn mark_used(workspace: &Dir) -> io::Result<()> {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(rustix::fs::utimensat(
        workspace,
        ".",
        &times,
        rustix::fs::AtFlags::empty(),
    )?)
}

/// Deletes the workspaces of `root` that were last used longer than `ttl` ago and are not in use, and
/// returns how many.
pub(super) fn remove_expired(root: &Dir, leases: &Leases, ttl: Duration) -> io::Result<usize> {
    root.create_dir_all(TRASH)?;
    let trash = root.open_dir(TRASH)?;
    let mut taken = 0;
    for entry in root.entries()? {
        let entry = entry?;
        let Some(hash) = entry.file_name().to_str().and_then(WorkspaceHash::parse) else {
            continue;
        };
        if !expired(root, &hash, ttl) {
            continue;
        }
        // Looked at again, as it may have been used just now; nobody can begin to while we do.
        let moved = leases.unless_held(&hash, || {
            let place = uuid::Uuid::new_v4().simple().to_string();
            expired(root, &hash, ttl) && root.rename(hash.as_str(), &trash, place).is_ok()
        });
        taken += usize::from(moved == Some(true));
    }
    for entry in trash.entries()? {
        let name = entry?.file_name();
        if let Err(error) = remove_dir(&trash, OsStr::new(&name)) {
            tracing::warn!(%error, "an expired workspace was not deleted; trying again later");
        }
    }
    Ok(taken)
}

fn expired(root: &Dir, hash: &WorkspaceHash, ttl: Duration) -> bool {
    let Ok(metadata) = root.symlink_metadata(hash.as_str()) else {
        return false;
    };
    let used = u64::try_from(metadata.ctime()).map_or(SystemTime::UNIX_EPOCH, |seconds| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    });
    SystemTime::now()
        .duration_since(used)
        .is_ok_and(|age| age > ttl)
}

//! Expiry: takes workspaces away that nobody has used for a while.

use std::{
    ffi::OsStr,
    io,
    time::{Duration, SystemTime},
};

use cap_std::fs::{Dir, MetadataExt as _};

use super::{
    WorkspaceHash,
    lease::Leases,
    remove::{TRASH, remove_dir},
};

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
    let since_epoch = (
        u64::try_from(metadata.ctime()),
        u32::try_from(metadata.ctime_nsec()),
    );
    let (Ok(seconds), Ok(nanoseconds)) = since_epoch else {
        return false;
    };
    let used = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    SystemTime::now()
        .duration_since(used)
        .is_ok_and(|age| age > ttl)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc, thread::sleep};

    use cap_std::ambient_authority;

    use super::*;

    const TTL: Duration = Duration::from_millis(200);

    #[test]
    fn what_nobody_uses_goes_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        let leases = Arc::new(Leases::default());
        let [unused, held, marked] = ["a", "b", "c"].map(|digit| digit.repeat(64));
        for name in [&unused, &held, &marked, "not-a-workspace"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join("file"), "x").unwrap();
        }
        fs::write(directory.path().join(".instance"), "x").unwrap();
        let lease = leases.take(WorkspaceHash::parse(&held).unwrap());
        // User code may set the times it can as far back as it likes.
        let old = fs::FileTimes::new()
            .set_modified(SystemTime::UNIX_EPOCH)
            .set_accessed(SystemTime::UNIX_EPOCH);
        fs::File::open(directory.path().join(&marked))
            .unwrap()
            .set_times(old)
            .unwrap();
        assert_eq!(remove_expired(&root, &leases, TTL).unwrap(), 0);

        sleep(TTL * 2);
        mark_used(&root.open_dir(&marked).unwrap()).unwrap();
        assert_eq!(remove_expired(&root, &leases, TTL).unwrap(), 1);
        let mut left: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [".instance", ".trash", &*held, &*marked, "not-a-workspace"]
        );
        assert_eq!(
            fs::read_dir(directory.path().join(TRASH)).unwrap().count(),
            0
        );

        drop(lease);
        assert_eq!(remove_expired(&root, &leases, TTL).unwrap(), 1);
        assert!(!fs::exists(directory.path().join(&held)).unwrap());
    }
}

//! Walk: visits everything in a directory that user code owns.

use std::{
    ffi::OsStr,
    io,
    ops::ControlFlow,
    os::fd::{AsRawFd as _, OwnedFd},
};

use cap_std::fs::{Dir, Metadata};
use rustix::{
    fs::{Mode, OFlags, chmod, openat},
    io::Errno,
};

use super::FilePath;

/// Directories within directories that are entered. Deeper ones are nobody's layout, and each level costs
/// an open handle.
const MAX_DEPTH: usize = 64;

/// One name in a directory, as it was when it was looked at.
pub(super) struct Entry<'a> {
    /// The directory that has the name.
    pub(super) dir: &'a Dir,
    /// The name within `dir`.
    pub(super) name: &'a OsStr,
    /// The name within the workspace.
    pub(super) path: &'a FilePath,
    /// Of the name itself: links are not followed.
    pub(super) metadata: &'a Metadata,
    /// Whether it is a directory too deep to be entered.
    pub(super) too_deep: bool,
}

/// Whether to enter a directory; of anything else it does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enter {
    Yes,
    No,
}

/// Visits what is below `dir`, directories before what is in them, until `visit` breaks.
///
/// Names come and go meanwhile; what is gone is not visited.
pub(super) fn walk(
    dir: &Dir,
    visit: &mut impl FnMut(Entry<'_>) -> ControlFlow<(), Enter>,
) -> io::Result<ControlFlow<()>> {
    walk_below(dir, None, 0, visit)
}

fn walk_below(
    dir: &Dir,
    parent: Option<&FilePath>,
    depth: usize,
    visit: &mut impl FnMut(Entry<'_>) -> ControlFlow<(), Enter>,
) -> io::Result<ControlFlow<()>> {
    for entry in dir.entries()? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let path = FilePath::child(parent, &name);
        let too_deep = metadata.is_dir() && depth >= MAX_DEPTH;
        let seen = Entry {
            dir,
            name: &name,
            path: &path,
            metadata: &metadata,
            too_deep,
        };
        let enter = match visit(seen) {
            ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
            ControlFlow::Continue(enter) => enter,
        };
        if metadata.is_dir() && !too_deep && enter == Enter::Yes {
            // What cannot be entered hides its own files, not those beside it.
            let Ok(below) = enter_dir(dir, &name) else {
                continue;
            };
            if let Ok(ControlFlow::Break(())) = walk_below(&below, Some(&path), depth + 1, visit) {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Opens the directory `name`. User code may have closed it to its owner, who the server may be.
fn enter_dir(dir: &Dir, name: &OsStr) -> io::Result<Dir> {
    // A link may have taken the directory's place since it was looked at: NOFOLLOW refuses it.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let opened_up = open_up(dir, name)?;
            openat(&opened_up, ".", flags, Mode::empty())?
        }
        opened => opened?,
    };
    Ok(Dir::from_std_file(handle.into()))
}

/// Gives its owner all rights to the directory `name`, and returns a handle on it.
pub(super) fn open_up(dir: &Dir, name: &OsStr) -> io::Result<OwnedFd> {
    // Never by name: only what was opened is known to be a directory of the workspace.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::PATH;
    let closed = openat(dir, name, flags, Mode::empty())?;
    chmod(format!("/proc/self/fd/{}", closed.as_raw_fd()), Mode::RWXU)?;
    Ok(closed)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use cap_std::ambient_authority;
    use rustix::fs::{RenameFlags, renameat_with};

    use super::*;

    #[test]
    fn a_directory_swapped_for_a_link_leads_to_no_change_elsewhere() {
        let (outside, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = outside.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o750)).unwrap();
        fs::create_dir(inside.path().join("a")).unwrap();
        symlink(&victim, inside.path().join("b")).unwrap();
        let dir = Dir::open_ambient_dir(inside.path(), ambient_authority()).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    renameat_with(&dir, "a", &dir, "b", RenameFlags::EXCHANGE).unwrap();
                }
            });
            for _ in 0..20_000 {
                let _walked = walk(&dir, &mut |_| ControlFlow::Continue(Enter::Yes)).unwrap();
                // What the walk does where it may not enter.
                let _entered = enter_dir(&dir, OsStr::new("a"));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(
            fs::metadata(&victim).unwrap().permissions().mode() & 0o777,
            0o750
        );
    }
}

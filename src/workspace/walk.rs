//! Walk: visits everything in a directory that user code owns.

use std::{ffi::OsStr, io, ops::ControlFlow};

use cap_std::fs::{Dir, Metadata};
use rustix::fs::{Mode, OFlags};

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
    // A link may have taken the directory's place since it was looked at.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(dir, name, flags, Mode::empty());
    let handle = open().or_else(|_| {
        rustix::fs::chmodat(dir, name, Mode::RWXU, rustix::fs::AtFlags::empty())?;
        open()
    })?;
    Ok(Dir::from_std_file(handle.into()))
}

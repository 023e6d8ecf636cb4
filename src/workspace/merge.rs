//! Merge: moves a directory's contents into another one, which user code owns.

use std::{ffi::OsStr, io};

use cap_std::fs::Dir;
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};

use super::remove::Trashed;

/// Directories within directories that are merged; a deeper one is moved as a whole.
const MAX_DEPTH: usize = 32;

/// Moves `name` of `from` to `to`. Directories of one name are merged; of anything else the one that comes
/// replaces the one that is there. What is replaced goes through the trash of `root`.
pub(super) fn merge(from: &Dir, to: &Dir, name: &OsStr, root: &Dir) -> io::Result<()> {
    merge_below(from, to, name, root, 0)
}

fn merge_below(from: &Dir, to: &Dir, name: &OsStr, root: &Dir, depth: usize) -> io::Result<()> {
    let source = match open_dir(from, name) {
        Ok(source) => Some(source),
        Err(Errno::NOENT) => return Ok(()),
        // A file, or a link, which is moved as it is.
        Err(Errno::NOTDIR | Errno::LOOP) => None,
        Err(error) => return Err(error.into()),
    };
    let target = open_dir(to, name);
    if let (Some(source), Ok(target)) = (&source, &target)
        && depth < MAX_DEPTH
    {
        for entry in source.entries()? {
            let name = entry?.file_name();
            merge_below(source, target, &name, root, depth + 1)?;
        }
        return Ok(());
    }
    if !matches!(target, Err(Errno::NOENT)) {
        Trashed::take(to, name, root)?.delete()?;
    }
    from.rename(name, to, name)
}

fn open_dir(dir: &Dir, name: &OsStr) -> Result<Dir, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::empty())?;
    Ok(Dir::from_std_file(opened.into()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn directories_are_merged_and_the_rest_is_replaced_whatever_was_planted() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for directory in ["from/p/a/x", "to/p/a/y", "to/p/b", "outside"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        for (file, text) in [
            ("from/p/a/x/new", "new"),
            ("from/p/a/same", "new"),
            ("from/p/b", "a file now"),
            ("from/p/c", "new"),
            ("to/p/a/same", "old"),
            ("to/p/a/y/kept", "old"),
            ("outside/victim", "untouched"),
        ] {
            fs::write(path(file), text).unwrap();
        }
        // Where a directory is to go, a link leads elsewhere.
        fs::create_dir(path("from/p/d")).unwrap();
        fs::write(path("from/p/d/victim"), "new").unwrap();
        symlink(path("outside"), path("to/p/d")).unwrap();
        symlink(path("outside/victim"), path("to/p/c")).unwrap();
        let open = |name: &str| Dir::open_ambient_dir(path(name), ambient_authority()).unwrap();
        let root = Dir::open_ambient_dir(place.path(), ambient_authority()).unwrap();
        merge(&open("from"), &open("to"), OsStr::new("p"), &root).unwrap();
        for (file, text) in [
            ("to/p/a/x/new", "new"),
            ("to/p/a/same", "new"),
            ("to/p/a/y/kept", "old"),
            ("to/p/b", "a file now"),
            ("to/p/c", "new"),
            ("to/p/d/victim", "new"),
            ("outside/victim", "untouched"),
        ] {
            assert_eq!(fs::read_to_string(path(file)).unwrap(), text, "{file}");
        }
        assert_eq!(fs::read_dir(path(".trash")).unwrap().count(), 0);
    }
}

//! Listing: the regular files of a workspace at one moment.

use std::{
    collections::BTreeMap,
    io,
    ops::{Bound, ControlFlow},
    time::SystemTime,
};

use cap_std::fs::{Dir, MetadataExt as _};

use super::{
    FilePath,
    incoming::is_temporary,
    walk::{Enter, walk},
};

/// Files read at the most: what user code piles up beyond it must not hold the server's memory.
const MAX_FILES: usize = 10_000;

/// Bytes of all names together, for the same reason.
const MAX_NAME_BYTES: usize = 2 << 20;

/// The server's own directories at the top of a workspace: not the conversation's files.
const HIDDEN: [&[u8]; 3] = [b".packages", b".runs", b".warm"];

/// One regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name, relative to the workspace.
    pub path: FilePath,
    /// Bytes, as `stat` says: a sparse file's include its holes.
    pub size: u64,
    /// Time of the last change of its bytes.
    pub modified: SystemTime,
}

/// The regular files of a workspace, by name; hidden ones, links and special files left out.
#[derive(Debug, Default)]
pub struct Listing {
    files: BTreeMap<FilePath, Seen>,
    cut_off: bool,
}

/// What tells a file from the same name's earlier one. User code can set every time but `changed`.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    size: u64,
    modified: SystemTime,
    changed: (i64, i64),
    inode: u64,
}

impl Listing {
    /// The files of `dir`; where `within` is named, only that file, or those in the directory of that name, which
    /// may be a hidden one.
    pub(super) fn of(dir: &Dir, within: Option<&FilePath>) -> io::Result<Self> {
        let (mut files, mut name_bytes) = (BTreeMap::new(), 0);
        let walked = walk(dir, &mut |entry| {
            let leads_there = within.is_some_and(|within| within.is_within(entry.path));
            if !leads_there && within.is_some_and(|within| !entry.path.is_within(within)) {
                return ControlFlow::Continue(Enter::No);
            }
            let hidden = HIDDEN.contains(&entry.path.as_bytes()) && !leads_there;
            if hidden || is_temporary(entry.path) {
                return ControlFlow::Continue(Enter::No);
            }
            // One that is too long to be asked for is of no use to anyone.
            let asked_for = within.is_none_or(|within| entry.path.is_within(within));
            if entry.metadata.is_file() && asked_for && entry.path.is_short_enough() {
                name_bytes += entry.path.as_bytes().len();
                files.insert(entry.path.clone(), Seen::from(entry.metadata));
            }
            if files.len() < MAX_FILES && name_bytes < MAX_NAME_BYTES {
                ControlFlow::Continue(Enter::Yes)
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(Self {
            files,
            cut_off: walked.is_break(),
        })
    }

    /// Whether there are more files than can be listed.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files after that name, sorted by name.
    pub fn after(&self, path: &FilePath) -> impl Iterator<Item = FileEntry> {
        self.files
            .range((Bound::Excluded(path), Bound::Unbounded))
            .map(entry)
    }

    /// All files, sorted by name.
    pub fn entries(&self) -> impl Iterator<Item = FileEntry> {
        self.files.iter().map(entry)
    }

    /// The files that are not in `earlier`, or not as they were then, sorted by name.
    pub fn new_since(&self, earlier: &Self) -> impl Iterator<Item = FileEntry> {
        self.files
            .iter()
            .filter(|(path, seen)| earlier.files.get(*path) != Some(*seen))
            .map(entry)
    }
}

fn entry((path, seen): (&FilePath, &Seen)) -> FileEntry {
    FileEntry {
        path: path.clone(),
        size: seen.size,
        modified: seen.modified,
    }
}

impl From<&cap_std::fs::Metadata> for Seen {
    fn from(metadata: &cap_std::fs::Metadata) -> Self {
        Self {
            size: metadata.len(),
            modified: metadata
                .modified()
                .map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use cap_std::ambient_authority;

    use super::*;

    fn names(listing: &Listing) -> Vec<String> {
        listing
            .entries()
            .map(|entry| entry.path.display())
            .collect()
    }

    #[test]
    fn lists_regular_files_below_the_top_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("b/c")).unwrap();
        fs::create_dir_all(root.join(".runs")).unwrap();
        let temporary = format!(".upload-{}", "0".repeat(32));
        for name in ["z", "b/c/deep", "b/a", ".runs/x", ".profile", &temporary] {
            fs::write(root.join(name), name).unwrap();
        }
        symlink("/etc", root.join("link")).unwrap();
        symlink(".", root.join("loop")).unwrap();
        let dir = Dir::open_ambient_dir(root, ambient_authority()).unwrap();
        assert_eq!(
            names(&Listing::of(&dir, None).unwrap()),
            [".profile", "b/a", "b/c/deep", "z"]
        );
    }

    #[test]
    fn what_is_new_is_what_differs_whatever_its_times_say() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let dir = Dir::open_ambient_dir(root, ambient_authority()).unwrap();
        for name in ["same", "changed", "replaced", "gone"] {
            fs::write(root.join(name), "1").unwrap();
        }
        let earlier = Listing::of(&dir, None).unwrap();
        let old = fs::metadata(root.join("changed"))
            .unwrap()
            .modified()
            .unwrap();
        // The clock behind file times ticks every few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(root.join("changed"), "2").unwrap();
        fs::File::options()
            .write(true)
            .open(root.join("changed"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        fs::write(root.join("new"), "1").unwrap();
        fs::rename(root.join("new"), root.join("replaced")).unwrap();
        let now = Listing::of(&dir, None).unwrap();
        let new: Vec<_> = now
            .new_since(&earlier)
            .map(|entry| entry.path.display())
            .collect();
        assert_eq!(new, ["changed", "replaced"]);
    }
}

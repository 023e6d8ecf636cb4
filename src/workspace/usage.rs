//! Usage: how much disk a workspace takes.

use std::{io, ops::ControlFlow};

use cap_std::fs::{Dir, MetadataExt as _};

use super::walk::{Enter, Entry, walk};

/// Unit of `st_blocks`, whatever the file system's own (POSIX `<sys/stat.h>`, Linux `stat(2)`).
const BLOCK_BYTES: u64 = 512;

/// What a workspace takes, or may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes on the disk: a sparse file's holes take none.
    pub bytes: u64,
    /// Names of any kind: each takes an inode, which file systems have fewer of than blocks.
    pub files: u64,
    /// Whether there are directories too deep to be counted.
    pub too_deep: bool,
}

impl DiskUsage {
    /// At most so much.
    pub const fn at_most(bytes: u64, files: u64) -> Self {
        Self {
            bytes,
            files,
            too_deep: false,
        }
    }

    /// No limit at all.
    pub(super) const UNLIMITED: Self = Self::at_most(u64::MAX, u64::MAX);

    /// Whether this is more than `limit` in either way.
    pub fn exceeds(self, limit: Self) -> bool {
        self.bytes > limit.bytes || self.files > limit.files || self.too_deep
    }

    /// Measures `dir`. Stops counting where `limit` is exceeded: the rest changes nothing.
    pub(super) fn of(dir: &Dir, limit: Self) -> io::Result<Self> {
        let mut usage = Self::at_most(0, 0);
        let _exceeded = walk(dir, &mut |entry| {
            usage.add(&entry);
            if usage.exceeds(limit) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(Enter::Yes)
            }
        })?;
        Ok(usage)
    }

    /// Counts what a walk has come to.
    pub(super) fn add(&mut self, entry: &Entry<'_>) {
        self.files += 1;
        // Of a file with several names, each stands for a part.
        let names = entry.metadata.nlink().max(1);
        let share = if entry.metadata.is_dir() { 1 } else { names };
        self.bytes += entry.metadata.blocks() * BLOCK_BYTES / share;
        // What is below cannot be counted: whatever the limit is, this is more.
        self.too_deep |= entry.too_deep;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cap_std::ambient_authority;

    use super::*;

    #[test]
    fn blocks_count_holes_do_not_and_links_count_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let dir = Dir::open_ambient_dir(root, ambient_authority()).unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("sub/full"), vec![1; 1 << 20]).unwrap();
        fs::File::create(root.join("sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let before = DiskUsage::of(&dir, DiskUsage::UNLIMITED).unwrap();
        assert!((1 << 20..2 << 20).contains(&before.bytes), "{before:?}");
        assert_eq!(before.files, 3);
        fs::hard_link(root.join("sub/full"), root.join("again")).unwrap();
        assert_eq!(
            DiskUsage::of(&dir, DiskUsage::UNLIMITED).unwrap().bytes,
            before.bytes
        );
    }

    #[test]
    fn what_is_too_deep_to_count_exceeds_every_limit() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("d/".repeat(100))).unwrap();
        let dir = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        let limit = DiskUsage::at_most(1 << 40, 1 << 40);
        assert!(DiskUsage::of(&dir, limit).unwrap().exceeds(limit));
    }
}

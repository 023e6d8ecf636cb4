//! Owner: the user whose files a workspace holds, who is the one that runs run as.

use std::{io, os::fd::AsFd};

use cap_std::fs::Dir;
use rustix::{
    fs::{AtFlags, Gid, Uid},
    process::{getegid, geteuid},
};

/// The user that runners run as when the server is root: not root, and the usual first user.
const RUNNER_UID: u32 = 1000;

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
    pub(super) fn of_this_process() -> Self {
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
    pub(super) fn take(self, dir: &Dir, name: impl rustix::path::Arg) -> io::Result<()> {
        if self.hand_over {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Gives the open `file` to this user, whatever its name means by now.
    pub(super) fn take_open(self, file: impl AsFd) -> io::Result<()> {
        if self.hand_over {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            rustix::fs::fchown(file, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

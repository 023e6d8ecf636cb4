//! Report: what became of a run that took place.

use std::time::{Duration, SystemTime};

use super::{Captured, Ending, RunId, Usage};
use crate::workspace::{FileEntry, Listing, Workspace};

/// How a run ended. A failing program is an outcome, never an error of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It exited with 0.
    Ok,
    /// It exited with something else.
    Error,
    /// Its time was up.
    Timeout,
    /// It needed more memory than it had.
    OutOfMemory,
    /// A signal ended it.
    Killed,
    /// Its files took too much room.
    DiskQuota,
    /// The caller cancelled it or went away.
    Cancelled,
}

/// A run that took place.
#[derive(Debug)]
pub struct RunReport {
    /// The run's name in logs and on its container.
    pub run_id: RunId,
    /// Language that ran, by its own name.
    pub language: String,
    /// How it ended.
    pub status: Status,
    /// The program's own exit code; `None` where it never exited.
    pub exit_code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// From taking the code to its end.
    pub duration: Duration,
    /// What it used, as far as anyone could tell.
    pub usage: Option<Usage>,
    /// The next step, where it failed and one is known.
    pub hint: Option<String>,
    /// When its files are deleted if nobody uses them before.
    pub expires_at: Option<SystemTime>,
    /// Where its files are.
    pub workspace: Workspace,
    /// All files after the run.
    pub files: Listing,
    /// The files that it made or changed.
    pub new_files: Vec<FileEntry>,
}

impl From<Ending> for Status {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Exited(0) => Self::Ok,
            Ending::Exited(_) => Self::Error,
            Ending::Signalled => Self::Killed,
            Ending::OutOfMemory => Self::OutOfMemory,
            Ending::TimedOut => Self::Timeout,
            Ending::Stopped => Self::Cancelled,
        }
    }
}

impl Status {
    /// Its name in results, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "oom",
            Self::Killed => "killed",
            Self::DiskQuota => "disk_quota",
            Self::Cancelled => "cancelled",
        }
    }
}

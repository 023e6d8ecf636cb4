//! File: a conversation's file, as callers are told of it.

use std::time::SystemTime;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    sandbox::{Sandbox, media_type},
    workspace::{FileEntry, WorkspaceHash},
};

/// One file.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct File {
    /// Path relative to /data.
    name: String,
    /// Public URL; give this to the user.
    url: String,
    /// Bytes.
    size: u64,
    /// Media type by the file's name.
    mime_type: String,
    /// Time of the last change, RFC 3339.
    modified: String,
}

impl File {
    pub(crate) fn new(sandbox: &Sandbox, workspace: &WorkspaceHash, file: &FileEntry) -> Self {
        Self {
            name: file.path.display(),
            url: sandbox.links.file(workspace, &file.path),
            size: file.size,
            mime_type: media_type(file).essence_str().to_owned(),
            modified: rfc3339(file.modified),
        }
    }
}

/// RFC 3339 to the second. User code sets file times at will, also to years that it cannot write.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

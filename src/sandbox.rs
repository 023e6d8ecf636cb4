//! Sandbox: what this server can do, whatever the protocol that asks for it.

use std::sync::Arc;

use crate::{
    docker::Docker,
    executor::Executor,
    links::Links,
    metrics::Metrics,
    uploads::Uploads,
    workspace::{FileEntry, Workspaces},
};

/// Runs, files and their links.
#[derive(Debug)]
pub struct Sandbox {
    /// Runs code.
    pub executor: Executor<Docker>,
    /// Keeps files.
    pub workspaces: Arc<Workspaces>,
    /// Names files to the outside.
    pub links: Links,
    /// Tickets for uploads without the token.
    pub uploads: Uploads,
    /// What is counted and timed.
    pub metrics: Arc<Metrics>,
    /// Largest file that can be uploaded, in bytes.
    pub max_upload_bytes: u64,
}

/// Media type of a file, by its name alone: its bytes are user code's and prove nothing.
pub fn media_type(file: &FileEntry) -> mime_guess::Mime {
    mime_guess::from_path(file.path.as_path()).first_or_octet_stream()
}

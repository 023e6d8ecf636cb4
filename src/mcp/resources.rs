//! Resources: files of workspaces for clients that read them over MCP rather than by their links.
//!
//! A file's link is its resource URI: what a `resource_link` names, `resources/read` reads. The hash in it
//! is the capability, as it is for downloads.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rmcp::{
    ErrorData,
    model::{ReadResourceResult, ResourceContents, ResourceTemplate},
};
use serde_json::json;

use crate::{
    links::Links,
    sandbox::{Sandbox, media_type},
    workspace::{FileEntry, WorkspaceError},
};

/// Largest file that is read over MCP: clients hold it in memory, and models read less.
const MAX_BYTES: u64 = 1 << 20;

/// The form of all URIs.
pub(super) fn template(links: &Links) -> ResourceTemplate {
    ResourceTemplate::new(links.template(), "file")
        .with_title("File of a conversation")
        .with_description(
            "A file that a tool's result names; its url there is its URI here. Up to 1 MiB.",
        )
}

/// Reads the file that `uri` names.
pub(super) async fn read(sandbox: &Sandbox, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let not_found = || {
        ErrorData::resource_not_found(
            "there is no such file; its URI is the url that a tool's result gives",
            Some(json!({ "uri": uri })),
        )
    };
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "file could not be read");
        ErrorData::internal_error("the file could not be read; try again later", None)
    };
    let (hash, path) = sandbox.links.locate(uri).ok_or_else(not_found)?;
    let opened = match sandbox.workspaces.find(hash).await {
        Ok(workspace) => workspace.open_file(path.clone()).await,
        Err(error) => Err(error),
    };
    let file = match opened {
        Ok(file) => file,
        Err(WorkspaceError::Io(error)) => return Err(failed(&error)),
        Err(_) => return Err(not_found()),
    };
    if file.size > MAX_BYTES {
        let message = format!(
            "the file has {} bytes, more than the {MAX_BYTES} that can be read here; download it from its url",
            file.size
        );
        return Err(ErrorData::invalid_params(message, None));
    }
    let entry = FileEntry {
        path,
        size: file.size,
        modified: file.modified,
    };
    let reading = tokio::task::spawn_blocking(move || file.read_up_to(MAX_BYTES));
    let bytes = match reading.await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(failed(&error)),
        Err(error) => return Err(failed(&error)),
    };
    let contents = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => ResourceContents::text(text, uri),
        Ok(text) => ResourceContents::blob(BASE64_STANDARD.encode(text), uri),
        Err(error) => ResourceContents::blob(BASE64_STANDARD.encode(error.into_bytes()), uri),
    };
    let contents = contents.with_mime_type(media_type(&entry).essence_str());
    Ok(ReadResourceResult::new(vec![contents]))
}

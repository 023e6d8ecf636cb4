//! `list_files`: what there is in a conversation's workspace, page by page.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply};
use crate::{
    file::File,
    sandbox::Sandbox,
    workspace::{FilePath, Listing, WorkspaceError},
};

/// Files of a page that names no limit, and the most it can name.
const USUAL_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation whose files to list.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Only this file, or what is in this directory, relative to /data. Default: all but hidden .packages and .runs.
    #[serde(default)]
    #[schemars(with = "String")]
    path: Option<String>,
    /// Most files to return, up to 1000. Default: 100.
    #[serde(default)]
    #[schemars(with = "usize")]
    limit: Option<usize>,
    /// nextCursor of the page before.
    #[serde(default)]
    #[schemars(with = "String")]
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// Sorted by name.
    files: Vec<File>,
    /// How many there are on all pages; of more than 10,000 only so many are listed.
    total: usize,
    /// Pass it as cursor to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next_cursor: Option<String>,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "list_files",
        "List the files in the conversation's /data directory, in all directories, with sizes and a url for each.",
        serde_json::Map::new(),
    )
    .with_title("List files")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.known_conversation(arguments.conversation_id)?;
    let path = arguments
        .path
        .as_deref()
        .map(directory)
        .transpose()?
        .flatten();
    let after = arguments.cursor.map(parse_cursor).transpose()?;
    let limit = arguments.limit.unwrap_or(USUAL_LIMIT).clamp(1, MAX_LIMIT);

    let hash = sandbox.workspaces.hash(&conversation);
    let listing = match sandbox.workspaces.find(hash.clone()).await {
        Ok(workspace) => match path {
            None => workspace.list().await?,
            Some(path) => workspace.list_within(path).await?,
        },
        // A conversation that has not begun has no files.
        Err(WorkspaceError::NotFound) => Listing::default(),
        Err(error) => return Err(error.into()),
    };
    let mut page: Vec<_> = match &after {
        None => listing.entries().take(limit + 1).collect(),
        Some(after) => listing.after(after).take(limit + 1).collect(),
    };
    let is_last = page.len() <= limit;
    page.truncate(limit);
    let next_cursor = match page.last() {
        Some(last) if !is_last => Some(BASE64_URL_SAFE_NO_PAD.encode(last.path.as_bytes())),
        _ => None,
    };
    Ok(Reply::new(&Answer {
        files: page
            .iter()
            .map(|file| File::new(sandbox, &hash, file))
            .collect(),
        total: listing.len(),
        next_cursor,
    }))
}

/// A directory's name as people write it; `None` for the workspace itself.
fn directory(name: &str) -> Result<Option<FilePath>, Refusal> {
    let name = name.strip_prefix("/data").unwrap_or(name);
    let name = name.trim_start_matches("./").trim_matches('/');
    if name.is_empty() || name == "." {
        return Ok(None);
    }
    Ok(Some(FilePath::for_new_file(name)?))
}

/// The last name of the page before.
fn parse_cursor(cursor: String) -> Result<FilePath, Refusal> {
    let name = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
    name.and_then(|name| FilePath::from_bytes(name).ok())
        .ok_or_else(|| Refusal::invalid_argument("cursor must be the nextCursor of another page"))
}

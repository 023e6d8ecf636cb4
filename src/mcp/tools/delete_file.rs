//! `delete_file`: takes a file or a directory out of a conversation's workspace.

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply};
use crate::{sandbox::Sandbox, workspace::FilePath};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation that owns the file.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// File or directory, relative to /data. A directory goes with all that is in it.
    filename: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    success: bool,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "delete_file",
        "Delete a file, or a directory with all that is in it, from the conversation's /data directory. It cannot be \
         brought back.",
        serde_json::Map::new(),
    )
    .with_title("Delete a file")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.known_conversation(arguments.conversation_id)?;
    let name = arguments.filename.trim_end_matches('/');
    let path = FilePath::from_bytes(name.as_bytes().to_vec())?;
    let hash = sandbox.workspaces.hash(&conversation);
    let workspace = sandbox.workspaces.find(hash).await?;
    workspace.delete(path).await?;
    Ok(Reply::new(&Answer { success: true }))
}

//! `close_conversation`: deletes all that is kept of a conversation.

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply};
use crate::sandbox::Sandbox;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation whose files to delete.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Answer {
    success: bool,
    /// How many files there were, those of packages included.
    deleted_files: u64,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "close_conversation",
        "Delete all files and packages of a conversation, when the user asks for it or nothing of it is needed any \
         more. They cannot be brought back, and links to them stop working. Unused conversations expire by themselves.",
        serde_json::Map::new(),
    )
    .with_title("Close a conversation")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.known_conversation(arguments.conversation_id)?;
    sandbox.uploads.revoke(&conversation);
    let deleted_files = sandbox.executor.close(&conversation).await?;
    Ok(Reply::new(&Answer {
        success: true,
        deleted_files,
    }))
}

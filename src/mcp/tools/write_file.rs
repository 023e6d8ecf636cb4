//! `write_file`: puts text into a conversation's workspace.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply, upload_file};
use crate::{file::File, sandbox::Sandbox, workspace::FilePath};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation that owns the file. Left out: a new one, whose id is returned.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Path relative to /data, such as notes.md or src/main.py. Directories are made as needed.
    filename: String,
    /// The text.
    text: String,
    /// Whether to append to the file instead of replacing it. Default: false.
    #[serde(default)]
    #[schemars(with = "bool")]
    append: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Answer {
    success: bool,
    conversation_id: String,
    /// As in `list_files`.
    #[schemars(with = "JsonObject")]
    file: File,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "write_file",
        "Write text to a file in the conversation's /data directory, where run_code finds it: sources, notes, small \
         data. Long texts can be written in parts with append.",
        serde_json::Map::new(),
    )
    .with_title("Write a text file")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.conversation(arguments.conversation_id)?;
    let path = FilePath::for_new_file(&arguments.filename)?;
    let text = arguments.text.into_bytes();
    let limit = upload_file::max_bytes(sandbox.max_upload_bytes);
    if text.len() > limit {
        return Err(Refusal::file_too_large(text.len(), limit));
    }
    let workspace = sandbox.executor.workspace(&conversation).await?;
    let file = if arguments.append.unwrap_or(false) {
        workspace.append_file(path, text).await?
    } else {
        workspace.write_file(path, text).await?
    };
    Ok(Reply::new(&Answer {
        success: true,
        conversation_id: conversation.as_str().to_owned(),
        file: File::new(sandbox, workspace.hash(), &file),
    }))
}

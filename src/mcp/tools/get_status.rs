//! `get_status`: how the server is, and what a conversation has.

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply};
use crate::{
    conversation::ConversationId,
    file::rfc3339,
    sandbox::Sandbox,
    workspace::{DiskUsage, WorkspaceError},
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation to tell of as well.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    server: Server,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Conversation")]
    conversation: Option<Conversation>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Server {
    version: String,
    /// Languages that can be run.
    languages: Vec<String>,
    /// Runs under way.
    running_runs: usize,
    /// Runs that wait for a place.
    queued_runs: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Conversation {
    #[serde(rename = "conversationId")]
    id: String,
    /// Files and directories, hidden ones included.
    files: u64,
    /// Most that it may have.
    max_files: u64,
    /// Bytes on the disk.
    bytes: u64,
    /// Most that it may take.
    quota_bytes: u64,
    running_runs: usize,
    /// Page that shows the files; give this to the user. Absent while there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    url: Option<String>,
    /// When the files are deleted if nobody uses them before, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    expires_at: Option<String>,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "get_status",
        "Tell how busy the server is, and of a conversation its files, its quota, when it expires, and the url of the \
         page that shows its files.",
        serde_json::Map::new(),
    )
    .with_title("Status")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let executor = &sandbox.executor;
    let conversation = match call.named_conversation(arguments.conversation_id)? {
        None => None,
        Some(conversation) => Some(Conversation::of(sandbox, &conversation).await?),
    };
    let runners = executor.known_runners();
    Ok(Reply::new(&Answer {
        server: Server {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            languages: runners.languages().into_keys().map(str::to_owned).collect(),
            running_runs: executor.running(None).len(),
            queued_runs: executor.queued(),
        },
        conversation,
    }))
}

impl Conversation {
    async fn of(sandbox: &Sandbox, conversation: &ConversationId) -> Result<Self, Refusal> {
        let hash = sandbox.workspaces.hash(conversation);
        let (usage, url) = match sandbox.workspaces.find(hash.clone()).await {
            Ok(workspace) => (
                workspace.usage().await?,
                Some(sandbox.links.conversation(&hash)),
            ),
            Err(WorkspaceError::NotFound) => (DiskUsage::at_most(0, 0), None),
            Err(error) => return Err(error.into()),
        };
        let quota = sandbox.workspaces.quota();
        let expires_at = sandbox.workspaces.expiry_from_now();
        Ok(Self {
            id: conversation.as_str().to_owned(),
            files: usage.files,
            max_files: quota.files,
            bytes: usage.bytes,
            quota_bytes: quota.bytes,
            running_runs: sandbox.executor.running(Some(conversation)).len(),
            expires_at: url.as_ref().and(expires_at).map(rfc3339),
            url,
        })
    }
}

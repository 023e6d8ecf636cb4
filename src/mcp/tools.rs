//! Tools: one file each, with what the model reads of it and what it does.

mod close_conversation;
mod create_upload_url;
mod delete_file;
mod get_status;
mod install_packages;
mod list_files;
mod list_runners;
mod read_file;
mod run_code;
mod run_result;
pub(super) mod upload_file;
mod write_file;

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use schemars::{
    Schema,
    transform::{RecursiveTransform, Transform as _},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{refusal::Refusal, reply::Reply};
use crate::{
    caller::Caller, conversation::ConversationId, executor::Progress, runner::Runners,
    sandbox::Sandbox, telemetry::RequestId, workspace::FilePath,
};

/// One call of a tool.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) arguments: JsonObject,
    /// For the log; none on standard input.
    pub(super) request_id: Option<RequestId>,
    pub(super) caller: Caller,
    /// Value of the header `X-Conversation-Id`.
    pub(super) conversation_header: Option<String>,
    /// What the call does is told to it.
    pub(super) progress: Progress,
    /// Fires when the client cancels the call or goes away.
    pub(super) cancel: CancellationToken,
}

impl Call {
    /// The arguments as `T`. Those that `T` does not know are ignored: clients add their own.
    fn arguments<T: DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        let arguments = std::mem::take(&mut self.arguments);
        T::deserialize(serde_json::Value::Object(arguments))
            .map_err(|error| Refusal::invalid_argument(error.to_string()))
    }

    /// The conversation that the arguments name, else the header; `None` where neither does.
    fn named_conversation(&self, named: Option<String>) -> Result<Option<ConversationId>, Refusal> {
        let name = named.or_else(|| self.conversation_header.clone());
        let conversation = name.map(|name| ConversationId::parse(self.caller.clone(), name));
        Ok(conversation.transpose()?)
    }

    /// The same, which must be named.
    fn known_conversation(&self, named: Option<String>) -> Result<ConversationId, Refusal> {
        self.named_conversation(named)?.ok_or_else(|| {
            Refusal::invalid_argument(
                "conversationId is missing; pass the one that the conversation's first call returned",
            )
        })
    }

    /// The same, or a new one.
    fn conversation(&self, named: Option<String>) -> Result<ConversationId, Refusal> {
        let named = self.named_conversation(named)?;
        Ok(named.unwrap_or_else(|| ConversationId::random(self.caller.clone())))
    }
}

/// A file's name as models write it: relative to `/data`, or below it.
fn file_path(name: &str) -> Result<FilePath, Refusal> {
    let name = name.strip_prefix("/data/").unwrap_or(name);
    Ok(FilePath::from_bytes(name.as_bytes().to_vec())?)
}

/// The same of a file that is to be made.
fn new_file_path(name: &str) -> Result<FilePath, Refusal> {
    let name = name.strip_prefix("/data/").unwrap_or(name);
    Ok(FilePath::for_new_file(name)?)
}

/// All tools, in the order clients see them, but for what depends on the runners.
pub(super) fn definitions() -> Vec<Tool> {
    let mut tools = vec![
        run_code::definition(),
        install_packages::definition(),
        list_files::definition(),
        read_file::definition(),
        write_file::definition(),
        upload_file::definition(),
        create_upload_url::definition(),
        delete_file::definition(),
        close_conversation::definition(),
        list_runners::definition(),
        get_status::definition(),
    ];
    for tool in &mut tools {
        tool.input_schema = portable(&tool.input_schema, Words::Kept);
        let output = tool.output_schema.as_ref();
        tool.output_schema = output.map(|schema| portable(schema, Words::Dropped));
    }
    tools
}

/// Tells in `tools` what there is to run.
pub(super) fn name_languages(tools: &mut [Tool], runners: &Runners) {
    for tool in tools.iter_mut().filter(|tool| tool.name == "run_code") {
        tool.description = Some(run_code::description(runners).into());
    }
}

/// Whether a schema keeps its descriptions. Models read results, not what is said of them, and every word here
/// is read before every conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    Kept,
    Dropped,
}

/// The schema without what other languages trip over: formats that are only Rust's, such as `uint64`, which
/// validators warn of, and a default of null, which none of our types allows.
fn portable(schema: &Arc<JsonObject>, words: Words) -> Arc<JsonObject> {
    let mut schema = Schema::from(JsonObject::clone(schema));
    // The dialect is MCP's own.
    schema.remove("$schema");
    RecursiveTransform(|schema: &mut Schema| {
        let Some(keywords) = schema.as_object_mut() else {
            return;
        };
        keywords.shift_remove("format");
        if keywords.get("default").is_some_and(Value::is_null) {
            keywords.shift_remove("default");
        }
        if words == Words::Dropped {
            keywords.shift_remove("description");
        }
    })
    .transform(&mut schema);
    Arc::new(std::mem::take(schema.ensure_object()))
}

/// Whether the tool `name` may take longer than clients like to wait.
pub(super) fn may_take_long(name: &str) -> bool {
    matches!(name, "run_code" | "install_packages")
}

/// Calls the tool `name`; `None` where there is no such tool.
pub(super) async fn call(
    sandbox: &Sandbox,
    name: &str,
    call: Call,
) -> Option<Result<Reply, Refusal>> {
    Some(match name {
        "run_code" => run_code::call(sandbox, call).await,
        "install_packages" => install_packages::call(sandbox, call).await,
        "list_files" => list_files::call(sandbox, call).await,
        "read_file" => read_file::call(sandbox, call).await,
        "write_file" => write_file::call(sandbox, call).await,
        "upload_file" => upload_file::call(sandbox, call).await,
        "create_upload_url" => create_upload_url::call(sandbox, call),
        "delete_file" => delete_file::call(sandbox, call).await,
        "close_conversation" => close_conversation::call(sandbox, call).await,
        "list_runners" => list_runners::call(sandbox).await,
        "get_status" => get_status::call(sandbox, call).await,
        _ => return None,
    })
}

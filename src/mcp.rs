//! MCP: the tools as Model Context Protocol, on the official SDK.
//!
//! [`front`] takes HTTP requests and picks the SDK service that serves them; the [`Handler`] here answers
//! what those services parsed; [`tools`] has one file per tool; [`reply`] and [`refusal`] are the two
//! forms of an answer.

pub(crate) mod front;
mod refusal;
mod reply;
mod tools;

use std::sync::Arc;

use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams,
        CompleteResult, Implementation, ListPromptsRequestMethod, ListPromptsResult,
        ListResourceTemplatesRequestMethod, ListResourceTemplatesResult,
        ListResourcesRequestMethod, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

use self::tools::Call;
use crate::sandbox::Sandbox;

/// What a model reads before it sees the tools.
const INSTRUCTIONS: &str = "\
Runs code in isolated containers. Each run_code call is a fresh process: variables do not persist between \
calls, files in /data do. Pass the same conversationId in every call of a conversation to keep its files; \
a call without one starts a new conversation and returns its id. Results list files with a url: give the \
user that url, never a sandbox: or /mnt/data path. The network is off unless network is true.";

/// Header that names the conversation where the arguments do not.
const CONVERSATION_HEADER: &str = "x-conversation-id";

/// Answers MCP requests. The SDK makes one per request: cloning it is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Handler {
    sandbox: Arc<Sandbox>,
    tools: Arc<[Tool]>,
}

impl Handler {
    pub(crate) fn new(sandbox: Arc<Sandbox>) -> Self {
        Self {
            sandbox,
            tools: tools::definitions().into(),
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(
                Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
                    .with_title("Code sandbox"),
            )
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = Call {
            arguments: request.arguments.unwrap_or_default(),
            conversation_header: conversation_header(&context),
            cancel: context.ct,
        };
        match tools::call(&self.sandbox, &request.name, call).await {
            Some(Ok(reply)) => Ok(reply.into_result().into()),
            Some(Err(refusal)) => Ok(refusal.into_result().into()),
            None => Err(ErrorData::invalid_params(
                format!("unknown tool: {}", request.name),
                None,
            )),
        }
    }

    // What is not declared is not there; the SDK would answer with empty lists.

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<
            ListResourceTemplatesRequestMethod,
        >())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

fn conversation_header(context: &RequestContext<RoleServer>) -> Option<String> {
    let header = context
        .extensions
        .get::<Parts>()?
        .headers
        .get(CONVERSATION_HEADER)?;
    Some(String::from_utf8_lossy(header.as_bytes()).into_owned())
}

//! MCP: the tools as Model Context Protocol, on the official SDK.
//!
//! [`front`] takes HTTP requests and picks the SDK service that serves them, [`stdio`] takes those of one
//! client on standard input; the [`Handler`] here answers what was parsed; [`tools`] has one file per tool;
//! [`reply`] and [`refusal`] are the two forms of an answer.

mod events;
pub(crate) mod front;
mod message;
mod progress;
mod refusal;
mod reply;
mod resources;
mod sessions;
pub(crate) mod stdio;
mod tasks;
mod tools;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestMethod,
        CompleteRequestParams, CompleteResult, GetTaskParams, GetTaskResult, Implementation,
        ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
        ReadResourceResponse, ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
    },
    service::RequestContext,
};
use tokio_util::sync::CancellationToken;

use self::{front::OneAnswer, progress::Listener, tasks::Tasks, tools::Call};
use crate::{caller::Caller, config::Config, executor::Progress, sandbox::Sandbox};

/// What a model reads before it sees the tools.
const INSTRUCTIONS: &str = "\
Runs code in isolated containers. Each run_code call is a fresh process: variables do not persist between \
calls, files in /data do. Pass the same conversationId in every call of a conversation to keep its files; \
a call without one starts a new conversation and returns its id. Results list files with a url: give the \
user that url, never a sandbox: or /mnt/data path. The network is off unless network is true.";

/// What is different where files cannot be had over HTTP.
const LOCAL_FILES: &str = " The url of a file is a file:// URL on the user's own machine.";

/// Header that names the conversation where the arguments do not.
const CONVERSATION_HEADER: &str = "x-conversation-id";

/// Answers MCP requests. The SDK makes one per request: cloning it is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Handler {
    sandbox: Arc<Sandbox>,
    tools: Arc<[Tool]>,
    tasks: Tasks,
    instructions: Arc<str>,
}

impl Handler {
    pub(crate) fn new(config: &Config, sandbox: Arc<Sandbox>) -> Self {
        let place = if config.serves_http { "" } else { LOCAL_FILES };
        Self {
            sandbox,
            tools: tools::definitions().into(),
            tasks: Tasks::new(
                config.admission.queue_timeout + config.limits.timeout_max + TASK_GRACE,
            ),
            instructions: format!("{INSTRUCTIONS}{place}").into(),
        }
    }
}

/// Time that a task may take beyond its wait and its run, and that its result is kept at least.
const TASK_GRACE: Duration = Duration::from_secs(60);

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
                    .with_title("Code sandbox"),
            )
            .with_instructions(&*self.instructions)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let runners = self.sandbox.executor.known_runners();
        let mut tools = self.tools.to_vec();
        tools::name_languages(&mut tools, &runners);
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let may_become_task = tools::may_take_long(&request.name)
            && context
                .client_capabilities()
                .is_some_and(|capabilities| capabilities.supports_tasks());
        let listener = listener(&context);
        let progress = match &listener {
            Some(_) => Progress::listened_to(),
            None => Progress::default(),
        };
        // What becomes a task outlives the request.
        let cancel = if may_become_task {
            CancellationToken::new()
        } else {
            context.ct.clone()
        };
        let call = Call {
            arguments: request.arguments.unwrap_or_default(),
            request_id: parts(&context).and_then(|parts| parts.extensions.get().copied()),
            caller: caller(&context),
            conversation_header: conversation_header(&context),
            progress: progress.clone(),
            cancel: cancel.clone(),
        };
        let sandbox = Arc::clone(&self.sandbox);
        let answer = async move {
            let asked = Instant::now();
            let answer = tools::call(&sandbox, &request.name, call).await;
            if answer.is_some() {
                let took = asked.elapsed();
                sandbox.metrics.call_answered(&request.name, took);
            }
            match answer {
                Some(Ok(reply)) => Ok(reply.into_result()),
                Some(Err(refusal)) => Ok(refusal.into_result()),
                None => Err(ErrorData::invalid_params(
                    format!("unknown tool: {}", request.name),
                    None,
                )),
            }
        };
        let answer = async move {
            match listener {
                None => answer.await,
                Some(listener) => tokio::select! {
                    answer = answer => answer,
                    never = listener.tell(&progress) => match never {},
                },
            }
        }
        .boxed();
        if may_become_task {
            return self.tasks.answer(answer, cancel, context.ct).await;
        }
        answer.await.map(CallToolResponse::from)
    }

    // Files are resources once their URI is known: they belong to conversations, which are not listed.

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![
            resources::template(&self.sandbox.links),
        ]))
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::default())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let file = resources::read(&self.sandbox, &request.uri).await?;
        Ok(file.into())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get(&request.task_id)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // No task asks its client for anything; whether there is such a task is all there is to say.
        self.tasks.get(&request.task_id).map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel(&request.task_id)
    }

    // What is not declared is not there; the SDK would answer with empty lists.

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }
}

/// What HTTP said of the request; nothing on standard input.
fn parts(context: &RequestContext<RoleServer>) -> Option<&Parts> {
    context.extensions.get()
}

/// Who called. Whoever starts this process for himself is the default caller.
fn caller(context: &RequestContext<RoleServer>) -> Caller {
    let caller = parts(context).and_then(|parts| parts.extensions.get().cloned());
    caller.unwrap_or_default()
}

fn conversation_header(context: &RequestContext<RoleServer>) -> Option<String> {
    let header = parts(context)?.headers.get(CONVERSATION_HEADER)?;
    Some(String::from_utf8_lossy(header.as_bytes()).into_owned())
}

/// The client, if it asked to be told of the call's progress and takes more than one answer.
fn listener(context: &RequestContext<RoleServer>) -> Option<Listener> {
    let wants_one_answer =
        parts(context).is_some_and(|parts| parts.extensions.get::<OneAnswer>().is_some());
    let token = context.meta.get_progress_token()?;
    (!wants_one_answer).then(|| Listener {
        peer: context.peer.clone(),
        token,
    })
}

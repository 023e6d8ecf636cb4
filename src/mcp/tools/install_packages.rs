//! `install_packages`: adds packages to a conversation, for its later runs.

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Call, Refusal, Reply,
    run_result::{RunResult, StatusName},
};
use crate::{package::Package, sandbox::Sandbox};

/// Packages of one call: an installer's command line, not a mirror of the registry.
const MAX_PACKAGES: usize = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation that gets the packages. Left out: a new one, whose id is returned.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Language that they are for: python or typescript.
    language: String,
    /// Names as the language's registry has them, such as polars, polars==1.30.0 or lodash@4.
    packages: Vec<String>,
}

/// What of the run's result matters here; the rest is as of `run_code`.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is of use")]
struct Outcome {
    success: bool,
    status: StatusName,
    output: String,
    stderr: String,
    conversation_id: String,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "install_packages",
        "Install packages from PyPI (wheels) or npm (without their install scripts) for this conversation. Every \
         later run of it can import them, without the network. Many are installed already: see run_code.",
        serde_json::Map::new(),
    )
    .with_title("Install packages")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Outcome>()
    .with_annotations(ToolAnnotations::new().read_only(false).destructive(false).idempotent(true).open_world(true))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.conversation(arguments.conversation_id)?;
    let runners = sandbox.executor.runners().await?;
    let language = match runners.find(&arguments.language) {
        Some(runner) => runner.language.clone(),
        // The executor says which there are.
        None => arguments.language,
    };
    if !(1..=MAX_PACKAGES).contains(&arguments.packages.len()) {
        return Err(Refusal::invalid_argument(format!(
            "packages must have 1 to {MAX_PACKAGES} names"
        )));
    }
    let packages = arguments
        .packages
        .iter()
        .map(|name| Package::parse(&language, name))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Refusal::invalid_argument(error.to_string()))?;
    let installed = sandbox.executor.install(
        call.request_id,
        &conversation,
        language,
        packages,
        &call.progress,
        call.cancel,
    );
    let report = Box::pin(installed).await?;
    Ok(RunResult::reply(sandbox, &conversation, &report).await)
}

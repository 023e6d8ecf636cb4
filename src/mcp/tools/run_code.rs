//! `run_code`: runs a program in a fresh container.

use std::{collections::BTreeMap, time::Duration};

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Call, Refusal, Reply, run_result::RunResult};
use crate::{
    executor::{Program, RunRequest},
    runner::Runners,
    sandbox::Sandbox,
};

/// Bytes of all variables together: the kernel refuses to start a program with much more.
const MAX_ENVIRONMENT_BYTES: usize = 64 << 10;

const ABOUT: &str = "\
Run a program in a fresh, isolated container and return its output. The conversation's files are in /data, the \
working directory; they persist between calls, variables do not: save to a file what the next call needs. Files \
saved to /data come back with a url: give the user that url, never a sandbox: or /mnt/data path. Images saved to \
/data are shown to you. Languages and installed packages: ";

/// Characters of a language's packages that are told here; `list_runners` has all.
const MAX_PACKAGES_CHARS: usize = 400;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation whose files are in /data. Left out: a new one, whose id is returned.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Language of the code, such as python, typescript or bash; see `list_runners`.
    language: String,
    /// The program. Print what you want to see; save files to /data.
    code: String,
    /// Whether the program may use the network. Default: false.
    #[serde(default)]
    #[schemars(with = "bool")]
    network: Option<bool>,
    /// Environment variables of the program.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    environment: Option<BTreeMap<String, String>>,
    /// Time limit in seconds. Default: 30, unless the operator chose another.
    #[serde(default)]
    #[schemars(with = "f64")]
    timeout_seconds: Option<f64>,
}

/// What a model reads of it, where there are these runners.
pub(super) fn description(runners: &Runners) -> String {
    format!("{ABOUT}{}", languages(runners))
}

pub(super) fn definition() -> Tool {
    Tool::new("run_code", ABOUT, serde_json::Map::new())
        .with_title("Run code")
        .with_input_schema::<Arguments>()
        .with_output_schema::<RunResult>()
        .with_annotations(
            ToolAnnotations::new()
                .read_only(false)
                .destructive(true)
                .idempotent(false)
                .open_world(true),
        )
}

/// What there is to run, such as `bash 5.2 (coreutils, jq); python 3.13 (numpy, pandas).`
fn languages(runners: &Runners) -> String {
    let described = runners.in_use().map(|runner| {
        let version = runner.version.as_deref().unwrap_or_default();
        let packages = runner.packages.as_deref().unwrap_or("list_runners");
        // Without versions, which are rarely the question and half of the text.
        let names: Vec<&str> = packages
            .split(',')
            .filter_map(|package| package.split_whitespace().next())
            .collect();
        let names = names.join(" ");
        let told: String = names.chars().take(MAX_PACKAGES_CHARS).collect();
        let more = if told.len() < names.len() { " …" } else { "" };
        format!("{} {version} ({told}{more})", runner.language)
    });
    match described.collect::<Vec<_>>() {
        none if none.is_empty() => "see list_runners.".to_owned(),
        some => format!("{}.", some.join("; ")),
    }
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.conversation(arguments.conversation_id)?;
    let request = RunRequest {
        request_id: call.request_id,
        conversation: conversation.clone(),
        language: arguments.language,
        program: Program::Code(arguments.code),
        network: arguments.network.unwrap_or(false),
        environment: environment(arguments.environment.unwrap_or_default())?,
        timeout: arguments.timeout_seconds.map(timeout).transpose()?,
    };
    let report = sandbox
        .executor
        .run(request, &call.progress, call.cancel)
        .await?;

    Ok(RunResult::reply(sandbox, &conversation, &report).await)
}

fn environment(variables: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    let bytes: usize = variables
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2)
        .sum();
    if bytes > MAX_ENVIRONMENT_BYTES {
        return Err(Refusal::invalid_argument(format!(
            "environment has {bytes} bytes; at most {MAX_ENVIRONMENT_BYTES} fit, put more into a file"
        )));
    }
    for (name, value) in &variables {
        if name.is_empty() || name.contains('=') || name.chars().any(char::is_control) {
            return Err(Refusal::invalid_argument(
                "environment names must not be empty nor contain = or control characters",
            ));
        }
        if value.contains('\0') {
            return Err(Refusal::invalid_argument(
                "environment values must not contain NUL",
            ));
        }
    }
    Ok(variables)
}

fn timeout(seconds: f64) -> Result<Duration, Refusal> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        _ => Err(Refusal::invalid_argument(
            "timeoutSeconds must be a number above 0",
        )),
    }
}

//! `list_runners`: which languages there are and what is installed for them.

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Refusal, Reply};
use crate::{runner::Runner, sandbox::Sandbox};

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    /// The newest image of a language comes first, and is the one that runs.
    runners: Vec<Description>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Description {
    /// Name to pass as language.
    language: String,
    /// Other names of it.
    aliases: Vec<String>,
    /// Container image.
    image: String,
    /// Version of the language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    version: Option<String>,
    /// Installed packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    packages: Option<String>,
    /// Protocol that the image speaks, 1 or 2.
    protocol: u8,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "list_runners",
        "List the languages that run_code can run, with their versions and installed packages.",
        serde_json::Map::new(),
    )
    .with_title("List languages")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox) -> Result<Reply, Refusal> {
    let runners = sandbox.executor.runners().await?;
    Ok(Reply::new(&Answer {
        runners: runners.iter().map(Description::from).collect(),
    }))
}

impl From<&Runner> for Description {
    fn from(runner: &Runner) -> Self {
        Self {
            language: runner.language.clone(),
            aliases: runner.aliases.clone(),
            image: runner.image.clone(),
            version: runner.version.clone(),
            packages: runner.packages.clone(),
            protocol: runner.protocol.number(),
        }
    }
}

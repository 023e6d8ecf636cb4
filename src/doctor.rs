//! Doctor: looks at the operator's own host, and runs what models' code would do there, to say before
//! anyone else does what is not as it should be.

mod check;
mod engine;
mod host;
mod probes;

use std::io::{self, Write as _};

use anyhow::{Context as _, bail};
use mcp_code_sandbox::{docker::engine_facts, telemetry};
use tokio_util::sync::CancellationToken;

use self::check::Check;

/// Makes every check and prints what it found, as JSON or for people.
pub(crate) async fn run(json: bool) -> anyhow::Result<()> {
    // Running probes end at once then, and leave nothing behind.
    let stop = crate::on_signal()?;
    let checks = Box::pin(examine(stop)).await;
    print(&checks, json)?;
    match checks.iter().filter(|check| check.failed()).count() {
        0 => Ok(()),
        1 => bail!("1 check failed"),
        failed => bail!("{failed} checks failed"),
    }
}

/// The checks, in order: settings and host, engine, runs. What needs one that failed is not made.
async fn examine(stop: CancellationToken) -> Vec<Check> {
    let (config, settings) = host::settings();
    let mut checks = vec![settings, host::env_file_mode()];
    let Some(config) = config else {
        telemetry::init_default();
        checks.extend(host::not_run());
        checks.extend(engine::not_run(host::SETTINGS));
        checks.extend(probes::not_run(host::SETTINGS));
        return checks;
    };
    telemetry::init(&config);
    checks.extend(host::checks(&config));
    let facts = engine_facts(&config).await;
    checks.extend(engine::checks(&config, &facts));
    if facts.is_ok() {
        checks.extend(probes::checks(&config, stop).await);
    } else {
        checks.extend(probes::not_run(engine::DOCKER));
    }
    checks
}

fn print(checks: &[Check], json: bool) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(checks)?
    } else {
        let lines: Vec<String> = checks.iter().map(Check::to_string).collect();
        lines.join("\n")
    };
    match writeln!(io::stdout(), "{text}") {
        // Whoever read it has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to print the checks"),
    }
}

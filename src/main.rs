//! The command line: starts the server, or asks one how it is.

mod doctor;
mod healthcheck;
mod smoke;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mcp_code_sandbox::{
    config::{Config, ConfigError, SETTINGS, Source},
    server::{Server, bind},
    telemetry,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// MCP server that runs a model's code in fresh, hardened containers.
#[derive(Debug, Parser)]
#[command(version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("COMMIT"), ")"))]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP over HTTP (the default).
    Serve,
    /// Serve MCP on standard input and output, for the client that starts it. Needs no settings: files are
    /// kept in the user's data directory. Where an address to listen on is set, it serves HTTP as well.
    Stdio,
    /// Exit with 0 where the server of these settings answers, else with 1.
    Healthcheck,
    /// Look for what is wrong on this host: settings, engine, and the walls around runs.
    Doctor {
        /// Print an array of {"check", "verdict", "found", "remedy"?}.
        #[arg(long)]
        json: bool,
    },
    /// Run the smoke cases of a runner and compare their results.
    Smoke {
        /// Files such as runners/python/smoke.json.
        #[arg(required = true)]
        cases: Vec<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Arguments::command().after_help(settings_help());
    let arguments =
        Arguments::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
    let done = match arguments.command.unwrap_or(Command::Serve) {
        Command::Serve => serve().await,
        Command::Stdio => stdio().await,
        Command::Healthcheck => healthcheck::run().await,
        Command::Doctor { json } => doctor::run(json).await,
        Command::Smoke { cases } => smoke::run(&cases).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> anyhow::Result<()> {
    let config = configured()?;
    let server = Server::new(&config).await?;
    let listener = listening(&config).await?;
    server.listen(listener, on_signal()?).await;
    Ok(())
}

async fn stdio() -> anyhow::Result<()> {
    let config = started(Config::personal())?;
    let server = Server::new(&config).await?;
    let listener = if config.serves_http {
        Some(listening(&config).await?)
    } else {
        None
    };
    server.serve_client(listener, on_signal()?).await;
    Ok(())
}

async fn listening(config: &Config) -> anyhow::Result<TcpListener> {
    let listener = bind(config.http_addr).await.with_context(|| {
        format!(
            "failed to listen on port {}; is another server running?",
            config.http_addr.port()
        )
    })?;
    info!(addr = %listener.local_addr()?, url = %config.public_base_url, "listening");
    Ok(listener)
}

/// Reads the settings and starts the log.
fn configured() -> anyhow::Result<Config> {
    started(Source::from_environment().and_then(|source| Config::from_source(&source)))
}

fn started(config: Result<Config, ConfigError>) -> anyhow::Result<Config> {
    let config = config
        .inspect_err(|_| telemetry::init_default())
        .context("failed to read the settings")?;
    telemetry::init(&config);
    Ok(config)
}

/// Fires at the first SIGTERM or SIGINT. A second one ends the process as usual.
fn on_signal() -> anyhow::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let fired = CancellationToken::new();
    let fire = fired.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        fire.cancel();
    });
    Ok(fired)
}

fn settings_help() -> String {
    let lines = SETTINGS.iter().map(|setting| {
        let default = if setting.default.is_empty() {
            String::new()
        } else {
            format!(" [{}]", setting.default)
        };
        format!("  {:<24} {}{default}\n", setting.name, setting.about)
    });
    format!(
        "Settings (environment, or .env in the working directory):\n{}",
        lines.collect::<String>()
    )
}

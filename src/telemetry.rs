//! Telemetry: how log lines leave the process. Standard error only; standard output is for answers.

use std::{fmt, io::IsTerminal as _};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, Layer as _, filter::filter_fn, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};
use uuid::Uuid;

use crate::config::{Config, LogFormat};

/// Name of a request, which the log lines of all that it leads to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId(Uuid);

impl RequestId {
    /// A new one.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(formatter)
    }
}

/// Installs the process's log writer. A second call changes nothing.
pub fn init(config: &Config) {
    install(&config.log_filter, config.log_format);
}

/// The same for a process whose settings could not be read: text, at the usual level.
pub fn init_default() {
    install("info", LogFormat::Text);
}

fn install(filter: &str, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Only a writer that is already installed can make this fail, and that one may stay.
    let _installed = tracing_subscriber::registry()
        .with(EnvFilter::new(filter))
        .with(lines.with_filter(filter_fn(tells_no_content)))
        .try_init();
}

/// The MCP SDK logs what clients send, from whole messages to the names of methods, and no filter of the
/// operator's may bring it out.
fn tells_no_content(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("rmcp") || *metadata.level() <= Level::ERROR
}

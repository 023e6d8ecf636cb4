//! Telemetry: how log lines leave the process. Standard error only; standard output is for answers.

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::config::{Config, LogFormat};

/// Installs the process's log writer. A second call changes nothing.
pub fn init(config: &Config) {
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(EnvFilter::new(&config.log_filter));
    // Only a writer that is already installed can make this fail, and that one may stay.
    let _installed = match config.log_format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
}

/// The same for a process whose settings could not be read: text, at the usual level.
pub fn init_default() {
    let _installed = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .try_init();
}

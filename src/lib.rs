//! mcp-code-sandbox: an MCP server that runs a model's code in fresh, hardened containers.
//!
//! A request's way is one chain: the HTTP layers and the token, the MCP front, a tool that parses its
//! arguments once, the [`executor`] and its backend, and back as a reply.

/// The commit that this was built from, as far as the build could tell.
pub const COMMIT: &str = env!("COMMIT");

pub mod caller;
pub mod config;
pub mod conversation;
pub mod docker;
pub mod executor;
mod file;
pub mod links;
pub mod metrics;
pub mod package;
pub mod runner;
pub mod sandbox;
pub mod server;
pub mod telemetry;
pub mod uploads;
pub mod workspace;

mod http;
mod mcp;
mod picture;
mod upkeep;

//! Behaviour, through the real HTTP surface and a real Docker engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod architecture;
mod compose;
mod docs;
mod doctor;
mod downloads;
mod engine;
mod hostile;
mod mcp;
mod refusals;
mod runners;
mod runs;
mod server;
mod shutdown;
mod warm;

//! Behaviour, through the real HTTP surface and a real Docker engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod architecture;
mod browser;
mod callers;
mod client;
mod clients;
mod compose;
mod conformance;
mod conversations;
mod docs;
mod doctor;
mod downloads;
mod engine;
mod files;
mod hostile;
mod mcp;
mod metrics;
mod packages;
mod refusals;
mod runners;
mod runs;
mod server;
mod session;
mod shutdown;
mod stdio;
mod streaming;
mod tasks;
mod tools;
mod uploads;
mod warm;

//! Healthcheck: asks the server of these settings whether it lives, for container health checks.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use http_body_util::Empty;
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use mcp_code_sandbox::config::{Config, ListenAddr, Source};
use tokio::{net::TcpStream, time::timeout};

/// Container engines ask every few seconds: a later answer is none.
const LIMIT: Duration = Duration::from_secs(3);

pub(crate) async fn run() -> anyhow::Result<()> {
    let config = Config::from_source(&Source::from_environment()?)?;
    let address = match config.http_addr {
        ListenAddr::AllInterfaces(port) => format!("localhost:{port}"),
        ListenAddr::Addr(addr) => addr.to_string(),
    };
    timeout(LIMIT, ask(&address))
        .await
        .context("the server does not answer in time")?
}

async fn ask(address: &str) -> anyhow::Result<()> {
    let stream = TcpStream::connect(address)
        .await
        .with_context(|| format!("failed to connect to {address}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/healthz")
        .header("host", address)
        .body(Empty::<Bytes>::new())?;
    let status = sender.send_request(request).await?.status();
    ensure!(status == StatusCode::OK, "the server answers {status}");
    Ok(())
}

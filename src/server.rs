//! Server: the whole product as a value that takes its listener and its end.

use std::{io, net::Ipv6Addr, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::Router;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;
use uuid::Uuid;

use crate::{
    config::{Config, ListenAddr},
    docker::Docker,
    executor::Executor,
    http,
    links::Links,
    mcp::{Handler, front::Front},
    sandbox::Sandbox,
    upkeep,
    uploads::{self, Uploads},
    workspace::Workspaces,
};

/// File in `SANDBOX_ROOT` that keeps the instance id, so that a restarted server knows its containers.
const INSTANCE_FILE: &str = ".instance";

/// Time for open requests to be answered at shutdown. Their runs are cancelled first.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// A server that is yet to listen.
#[derive(Debug)]
pub struct Server {
    router: Router,
    sandbox: Arc<Sandbox>,
    /// Fires when open streams must end.
    stop: CancellationToken,
}

impl Server {
    /// Opens the workspaces, connects to Docker and finds the runners.
    ///
    /// # Errors
    /// When `SANDBOX_ROOT` cannot be used or Docker does not answer.
    pub async fn new(config: &Config) -> anyhow::Result<Self> {
        let sandbox = Arc::new(sandbox(config).await?);
        let runners = sandbox.executor.discover().await?;
        if runners.is_empty() {
            tracing::warn!("there is no runner image yet: build one with ./build.sh");
        }
        for (language, aliases) in runners.languages() {
            info!(language, aliases = aliases.join(","), "runner found");
        }
        let stop = CancellationToken::new();
        let front = Front::new(config, &Handler::new(Arc::clone(&sandbox)), &stop);
        Ok(Self {
            router: http::router(config, Arc::clone(&sandbox), front),
            sandbox,
            stop,
        })
    }

    /// Serves until `shutdown` fires; then stops accepting, ends all runs and leaves no container behind.
    pub async fn listen(self, listener: TcpListener, shutdown: CancellationToken) {
        let Self {
            router,
            sandbox,
            stop,
        } = self;
        let open = GracefulShutdown::new();
        tokio::select! {
            never = http::connections::serve(&listener, router, &open) => match never {},
            never = upkeep::keep(&sandbox) => match never {},
            () = shutdown.cancelled() => info!("shutting down"),
        }
        drop(listener);
        let ending = async {
            sandbox.executor.stop().await;
            stop.cancel();
        };
        // Who has not taken his answer by then has gone.
        let (_answered, ()) = tokio::join!(timeout(ANSWER_LIMIT, open.shutdown()), ending);
    }
}

/// Binds the address of the settings.
///
/// # Errors
/// When it is taken or not this machine's.
pub async fn bind(addr: ListenAddr) -> io::Result<TcpListener> {
    match addr {
        ListenAddr::Addr(addr) => TcpListener::bind(addr).await,
        // IPv6's "any" takes IPv4 as well; a machine without IPv6 has only the other one.
        ListenAddr::AllInterfaces(port) => {
            match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind(("0.0.0.0", port)).await
                }
                bound => bound,
            }
        }
    }
}

/// Assembles what the tools work with.
///
/// # Errors
/// When `SANDBOX_ROOT` cannot be used or Docker does not answer.
pub async fn sandbox(config: &Config) -> anyhow::Result<Sandbox> {
    let workspaces = Workspaces::open_root(
        &config.sandbox_root,
        config.file_secret.clone(),
        config.disk,
    )
    .with_context(|| {
        format!(
            "failed to use SANDBOX_ROOT {}",
            config.sandbox_root.display()
        )
    })?;
    let instance = instance_id(workspaces.root_path())
        .context("failed to keep the instance id in SANDBOX_ROOT")?;
    let docker = Docker::connect(config, instance, workspaces.root_path().to_owned())
        .await
        .with_context(|| {
            format!(
                "failed to use Docker at {}; start it, or set DOCKER_HOST",
                config.docker_host
            )
        })?;
    let workspaces = Arc::new(workspaces);
    Ok(Sandbox {
        executor: Executor::new(config, docker, Arc::clone(&workspaces)),
        workspaces,
        links: Links::new(&config.public_base_url),
        uploads: Uploads::new(config.max_upload_bytes, uploads::LIFETIME),
        max_upload_bytes: config.max_upload_bytes,
    })
}

fn instance_id(root: &Path) -> io::Result<String> {
    let path = root.join(INSTANCE_FILE);
    match std::fs::read_to_string(&path) {
        Ok(id) if Uuid::try_parse(id.trim()).is_ok() => Ok(id.trim().to_owned()),
        Ok(_) => Err(io::Error::other(format!(
            "{} holds no UUID; remove it",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = Uuid::new_v4().to_string();
            std::fs::write(path, &id)?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

//! Server: the whole product as a value that takes its listener and its end.

use std::{io, net::Ipv6Addr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::Router;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::{net::TcpListener, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    config::{Config, ListenAddr},
    docker::Docker,
    executor::Executor,
    http,
    links::Links,
    mcp::{self, Handler, front::Front},
    metrics::Metrics,
    sandbox::Sandbox,
    upkeep,
    uploads::{self, Uploads},
    workspace::Workspaces,
};

/// Time for open requests to be answered at shutdown. Their runs are cancelled first.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// A server that is yet to listen.
#[derive(Debug)]
pub struct Server {
    router: Router,
    handler: Handler,
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
        let handler = Handler::new(config, Arc::clone(&sandbox));
        let front = Front::new(config, &handler, &stop);
        Ok(Self {
            handler,
            router: http::router(config, Arc::clone(&sandbox), front),
            sandbox,
            stop,
        })
    }

    /// Serves until `shutdown` fires; then stops accepting, ends all runs and leaves no container behind.
    pub async fn listen(self, listener: TcpListener, shutdown: CancellationToken) {
        let open = GracefulShutdown::new();
        tokio::select! {
            never = http::connections::serve(&listener, self.router, &open) => match never {},
            never = upkeep::keep(&self.sandbox) => match never {},
            () = shutdown.cancelled() => info!("shutting down"),
        }
        drop(listener);
        let ending = async {
            self.sandbox.executor.stop().await;
            self.stop.cancel();
        };
        // Who has not taken his answer by then has gone.
        let (_answered, ()) = tokio::join!(timeout(ANSWER_LIMIT, open.shutdown()), ending);
    }

    /// Serves the client that started this process, on standard input and output, until it closes the former
    /// or `shutdown` fires; and anyone on `listener` meanwhile, if there is one.
    pub async fn serve_client(self, listener: Option<TcpListener>, shutdown: CancellationToken) {
        let (handler, sandbox) = (self.handler.clone(), Arc::clone(&self.sandbox));
        let Some(listener) = listener else {
            let client = Box::pin(mcp::stdio::serve(
                handler,
                shutdown,
                sandbox.executor.stop(),
            ));
            tokio::select! {
                () = client => {}
                never = upkeep::keep(&self.sandbox) => match never {},
            }
            return;
        };
        let client_gone = shutdown.child_token();
        let client = async {
            Box::pin(mcp::stdio::serve(
                handler,
                shutdown,
                sandbox.executor.stop(),
            ))
            .await;
            client_gone.cancel();
        };
        tokio::join!(client, self.listen(listener, client_gone.clone()));
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
    let metrics = Arc::new(Metrics::default());
    let docker = Docker::connect(
        config,
        workspaces.instance(),
        workspaces.root_path().to_owned(),
        Arc::clone(&metrics),
    )
    .await
    .with_context(|| {
        format!(
            "failed to use Docker at {}; start it, or set DOCKER_HOST",
            config.docker_host
        )
    })?;
    let links = if config.serves_http {
        Links::public(&config.public_base_url)
    } else {
        Links::local(workspaces.root_path())
    };
    let workspaces = Arc::new(workspaces);
    Ok(Sandbox {
        executor: Executor::new(
            config,
            docker,
            Arc::clone(&workspaces),
            Arc::clone(&metrics),
        ),
        workspaces,
        links,
        metrics,
        uploads: Uploads::new(config.max_upload_bytes, uploads::LIFETIME),
        max_upload_bytes: config.max_upload_bytes,
    })
}

//! Proxy: a socket between a server and its engine that can be cut, stalled and restored, as an engine that
//! stops, hangs and comes back.

use std::{path::Path, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
};

/// How the engine seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// As it is.
    Running,
    /// Its socket is gone, and so is every connection.
    Stopped,
    /// It takes connections and requests and says nothing any more.
    Hung,
    /// It takes a second for everything it says.
    Slow,
}

/// The socket, until it is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    directory: TempDir,
    engine: watch::Sender<Engine>,
}

impl Proxy {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (engine, seen) = watch::channel(Engine::Running);
        let socket = directory.path().join("docker.sock");
        tokio::spawn(async move { serve(&socket, seen).await });
        Self { directory, engine }
    }

    /// The socket as `DOCKER_HOST` names it.
    pub(super) fn docker_host(&self) -> String {
        format!("unix://{}/docker.sock", self.directory.path().display())
    }

    pub(super) fn set(&self, engine: Engine) {
        self.engine.send_replace(engine);
    }
}

async fn serve(socket: &Path, mut engine: watch::Receiver<Engine>) {
    let mut connections = JoinSet::new();
    loop {
        let listener = UnixListener::bind(socket).unwrap();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (client, _) = accepted.unwrap();
                    connections.spawn(relay(client, engine.clone()));
                }
                changed = engine.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if *engine.borrow() == Engine::Stopped {
                        break;
                    }
                }
            }
        }
        drop(listener);
        std::fs::remove_file(socket).unwrap();
        connections.shutdown().await;
        if engine
            .wait_for(|engine| *engine != Engine::Stopped)
            .await
            .is_err()
        {
            return;
        }
    }
}

async fn relay(mut client: UnixStream, mut engine: watch::Receiver<Engine>) {
    let Ok(mut server) = UnixStream::connect("/var/run/docker.sock").await else {
        return;
    };
    loop {
        let now = *engine.borrow_and_update();
        if now == Engine::Slow {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::select! {
            biased;
            changed = engine.changed() => if changed.is_err() { return },
            // Nothing of it is lost where this is dropped but what was on its way: enough for a client to notice.
            _ended = copy_bidirectional(&mut client, &mut server), if now != Engine::Hung => return,
        }
    }
}

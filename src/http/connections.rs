//! Connections: accepts them, and ends those that never get to the point.
//!
//! What axum's own server does, with limits on the time a client takes to send a request's headers, and to
//! take anything of an answer.

use std::{convert::Infallible, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// Time for a request's headers, also of the next one on a kept connection.
const HEADERS_LIMIT: Duration = Duration::from_secs(30);

/// Time without anything taken of an answer, until the connection counts as dead. Slow lines take something all
/// the time; a browser that has paused comes back with a range.
const TAKING_LIMIT: Duration = Duration::from_secs(60);

/// Time after a failure to accept, such as too many open files, until some may have been closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on all connections of `listener`. Never returns; dropping it stops accepting.
pub(crate) async fn serve(
    listener: &TcpListener,
    router: Router,
    open: &GracefulShutdown,
) -> Infallible {
    let service = TowerToHyperService::new(router);
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_LIMIT);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = protocol.serve_connection(prepared(stream), service.clone());
                // A client that breaks off is his own affair.
                tokio::spawn(open.watch(connection));
            }
            Err(error) => {
                tracing::warn!(%error, "connection was not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn prepared(stream: TcpStream) -> TokioIo<TcpStream> {
    // Answers are small and finished: waiting for more to send with them costs 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    // Nothing else ends a download that its client has stopped to read (tcp(7): also with a window of zero).
    let limit = u32::try_from(TAKING_LIMIT.as_millis()).expect("invariant: a minute fits");
    if let Err(error) = set_tcp_user_timeout(&stream, limit) {
        tracing::debug!(%error, "TCP_USER_TIMEOUT could not be set");
    }
    TokioIo::new(stream)
}

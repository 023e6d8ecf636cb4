//! Stdio: MCP with the one client that started this process, on standard input and output.

use std::{future::Future, time::Duration};

use rmcp::{ServiceExt as _, transport::stdio_pipes};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Handler;

/// Time for the last answers to be written once the client has gone or the process is to end.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Serves the client until `stop`, then runs `ending` and takes the answers that this leads to along; or until
/// he closes standard input, whereupon the SDK waits some seconds for calls under way, whose answers are lost.
pub(crate) async fn serve(
    handler: Handler,
    stop: CancellationToken,
    ending: impl Future<Output = ()>,
) {
    let connection = CancellationToken::new();
    let serving = async {
        let starting = Box::pin(handler.serve_with_ct(stdio_pipes(), connection.clone()));
        match starting.await {
            Ok(service) => drop(service.waiting().await),
            // A client that leaves before it has begun.
            Err(error) => tracing::debug!(%error, "the client did not initialize"),
        }
    };
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = &mut serving => ending.await,
        () = stop.cancelled() => {
            let (_answered, ()) = tokio::join!(timeout(ANSWER_LIMIT, &mut serving), async {
                ending.await;
                connection.cancel();
            });
        }
    }
}

//! Streams: a container's standard input, output and error, on one attached connection.

use std::{convert::Infallible, pin::Pin, time::Duration};

use bollard::{container::LogOutput, errors::Error};
use futures_util::{Stream, StreamExt as _};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

use super::frame::{self, ExitLine, Scanner, Token};
use crate::{executor::Output, runner::Protocol};

/// Time for the rest of the output after the exit line or the kill: it is in a pipe already.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// Writes a run's input and keeps the connection open. Never returns: the run's end is its output's.
pub(super) async fn feed(
    mut stdin: Pin<Box<dyn AsyncWrite + Send>>,
    request: Vec<u8>,
    protocol: Protocol,
) -> Infallible {
    let fed = async {
        stdin.write_all(&request).await?;
        match protocol {
            Protocol::Plain => stdin.shutdown().await,
            Protocol::Framed => stdin.flush().await,
        }
    };
    // A program need not read its input; how it ends says whether that was wrong.
    if let Err(error) = fed.await {
        tracing::debug!(%error, "the runner did not take its whole input");
    }
    std::future::pending().await
}

/// How the streams came to their end.
#[derive(Debug)]
pub(super) enum End {
    /// The runner said how the program ended.
    ExitLine(ExitLine),
    /// The engine closed them: nothing runs in the container any more, or the engine is gone.
    Closed,
}

/// Reads what a container writes and passes on what is the program's.
pub(super) struct Reader<'a> {
    frames: Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>,
    output: &'a mut Output,
    /// Marks to look for; none where the runner writes none.
    scanners: Option<Scanners>,
    exit_line: Option<ExitLine>,
}

struct Scanners {
    stdout: Scanner,
    stderr: Scanner,
}

impl<'a> Reader<'a> {
    /// Reads `frames`; of a framed runner, until the marks that start with `token`.
    pub(super) fn new(
        frames: Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>,
        output: &'a mut Output,
        token: Option<&Token>,
    ) -> Self {
        let scanners = token.map(|token| Scanners {
            stdout: Scanner::new(token),
            stderr: Scanner::new(token),
        });
        Self {
            frames,
            output,
            scanners,
            exit_line: None,
        }
    }

    /// Reads to the end of the run. May be dropped at any await; at most the frame at hand is lost.
    pub(super) async fn until_end(&mut self) -> End {
        while self.exit_line.is_none() {
            if !self.take_next().await {
                return End::Closed;
            }
        }
        // Standard output comes through another pipe and may be late. A runner that sets no mark there
        // has at least left, so that the streams close.
        self.drain().await;
        self.exit_line.map_or(End::Closed, End::ExitLine)
    }

    /// Reads what is left, within a limit.
    pub(super) async fn drain(&mut self) {
        let rest = async { while !self.stdout_is_whole() && self.take_next().await {} };
        if timeout(DRAIN_LIMIT, rest).await.is_err() {
            tracing::debug!("output after the end of a run was cut off");
        }
    }

    fn stdout_is_whole(&self) -> bool {
        self.scanners
            .as_ref()
            .is_some_and(|scanners| scanners.stdout.done())
    }

    /// Takes one frame; false at the end of the connection.
    async fn take_next(&mut self) -> bool {
        let frame = match self.frames.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "output stream broke off");
                return self.close().await;
            }
            None => return self.close().await,
        };
        match (frame, &mut self.scanners) {
            (LogOutput::StdOut { message }, None) => self.output.stdout(&message).await,
            (LogOutput::StdErr { message }, None) => self.output.stderr(&message).await,
            (LogOutput::StdOut { message }, Some(scanners)) => {
                let (passed, _mark) = scanners.stdout.push(&message);
                self.output.stdout(&passed).await;
            }
            (LogOutput::StdErr { message }, Some(scanners)) => {
                let (passed, mark) = scanners.stderr.push(&message);
                self.exit_line = self.exit_line.or_else(|| frame::exit_line(&mark?));
                self.output.stderr(&passed).await;
            }
            // Without a terminal the engine sends neither.
            (LogOutput::StdIn { .. } | LogOutput::Console { .. }, _) => {}
        }
        true
    }

    async fn close(&mut self) -> bool {
        if let Some(scanners) = &mut self.scanners {
            self.output.stdout(&scanners.stdout.finish()).await;
            self.output.stderr(&scanners.stderr.finish()).await;
        }
        false
    }
}

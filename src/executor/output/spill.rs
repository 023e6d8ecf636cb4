//! Spill: the file that takes output which is too long for the answer.

use tokio::{fs::File, io::AsyncWriteExt as _};

use crate::workspace::{FilePath, Workspace};

/// Longest file: enough for any log that a person reads, little enough for the quota.
const MAX_BYTES: u64 = 8 << 20;

/// Bytes gathered for one write: Docker sends output in pieces of up to 32 KiB, programs in smaller ones.
const BUFFER_BYTES: usize = 128 << 10;

/// A file that is made when there is something to write.
#[derive(Debug)]
pub(super) struct Spill {
    workspace: Workspace,
    name: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Unused,
    Open {
        path: FilePath,
        file: File,
        buffer: Vec<u8>,
        written: u64,
    },
    /// It could not be made or written: the answer then has head and tail only.
    Failed,
}

impl Spill {
    pub(super) fn new(workspace: Workspace, name: String) -> Self {
        Self {
            workspace,
            name,
            state: State::Unused,
        }
    }

    /// Appends `bytes`, as far as they fit.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        if let State::Unused = self.state {
            self.state = self.create().await;
        }
        let State::Open {
            buffer,
            written,
            file,
            ..
        } = &mut self.state
        else {
            return;
        };
        let room = usize::try_from(MAX_BYTES - *written).unwrap_or(usize::MAX);
        let fitting = &bytes[..bytes.len().min(room)];
        *written += fitting.len() as u64;
        buffer.extend_from_slice(fitting);
        if buffer.len() >= BUFFER_BYTES {
            let full = std::mem::take(buffer);
            if let Err(error) = file.write_all(&full).await {
                tracing::warn!(%error, "long output could not be kept");
                self.state = State::Failed;
            }
        }
    }

    /// Where the output is, if it was written.
    pub(super) async fn finish(self) -> Option<FilePath> {
        let State::Open {
            path,
            mut file,
            buffer,
            ..
        } = self.state
        else {
            return None;
        };
        let written = async {
            file.write_all(&buffer).await?;
            file.flush().await
        };
        match written.await {
            Ok(()) => Some(path),
            Err(error) => {
                tracing::warn!(%error, "long output could not be kept");
                None
            }
        }
    }

    async fn create(&self) -> State {
        match self.workspace.create_output_file(self.name.clone()).await {
            Ok((path, file)) => State::Open {
                path,
                file: File::from_std(file),
                buffer: Vec::new(),
                written: 0,
            },
            Err(error) => {
                tracing::warn!(%error, "long output could not be kept");
                State::Failed
            }
        }
    }
}

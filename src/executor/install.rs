//! Install: adds packages to a conversation.
//!
//! The installer has the network, and so must not read anything that a run without it may have written:
//! not even configuration or modules in the packages' own directory. It works in a workspace of its own,
//! with nothing in it, from where what it installed is moved to the conversation's.

use tokio_util::sync::CancellationToken;

use super::{Backend, Executor, Program, Progress, RunError, RunReport, RunRequest, Status};
use crate::{
    conversation::ConversationId,
    package::Package,
    telemetry::RequestId,
    workspace::{FilePath, WorkspaceError},
};

/// Where packages are installed, and where output is that is too long for the answer.
const PACKAGES: &str = ".packages";
const LONG_OUTPUT: &str = ".runs";

impl<B: Backend> Executor<B> {
    /// Installs `packages` of `language` for `conversation`, and tells `progress` of it.
    ///
    /// # Errors
    /// As [`Executor::run`], and where the packages do not fit into the conversation.
    pub async fn install(
        &self,
        request_id: Option<RequestId>,
        conversation: &ConversationId,
        language: String,
        packages: Vec<Package>,
        progress: &Progress,
        cancel: CancellationToken,
    ) -> Result<RunReport, RunError> {
        // Held from here on, so that it does not expire meanwhile.
        let workspace = self.workspaces.open(conversation).await?;
        let staging = ConversationId::random(conversation.caller().clone());
        let request = RunRequest {
            request_id,
            conversation: staging.clone(),
            language,
            program: Program::Installer(packages),
            network: true,
            environment: std::collections::BTreeMap::new(),
            timeout: None,
        };
        let moved = async {
            let report = Box::pin(self.run(request, progress, cancel)).await?;
            // Of a failed one, only what it said.
            let moved = match report.status {
                Status::Ok => &[PACKAGES, LONG_OUTPUT][..],
                _ => &[LONG_OUTPUT],
            };
            for name in moved {
                let path = FilePath::for_new_file(name)
                    .expect("invariant: the server's own directories have valid names");
                report.workspace.move_to(&workspace, path).await?;
            }
            Ok::<_, RunError>(RunReport {
                files: workspace.list().await?,
                workspace: workspace.clone(),
                ..report
            })
        };
        let moved = moved.await;
        match self.close(&staging).await {
            Ok(_) => {}
            // Expiry takes it in time.
            Err(WorkspaceError::InUse) => tracing::debug!("an installer's workspace is left"),
            Err(error) => tracing::warn!(%error, "an installer's workspace was not deleted"),
        }
        moved
    }
}

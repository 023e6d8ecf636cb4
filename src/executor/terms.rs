//! Terms: what a request is granted, before anything is started for it.

use std::{collections::BTreeMap, time::Duration};

use super::{Backend, Executor, Program, RunError, RunRequest};
use crate::{
    config::NetworkPolicy,
    runner::{Protocol, Runner},
    workspace::{FilePath, Workspace, WorkspaceError},
};

/// Directory for an installer's temporary files: packages unpacked would not fit into `/tmp`, which is memory.
const INSTALLER_DIR: &str = ".packages/.tmp";

/// What a run gets.
#[derive(Debug)]
pub(super) struct Terms {
    /// What is started.
    pub(super) runner: Runner,
    /// The language's own runner: of an installer, what the next run will want.
    pub(super) next: Runner,
    /// Time from handing over the code to the kill.
    pub(super) timeout: Duration,
    /// The network it is attached to, if any.
    pub(super) network: Option<String>,
    /// The operator's variables and the caller's.
    pub(super) environment: BTreeMap<String, String>,
    /// Whether a container that was made before can serve it.
    pub(super) can_be_warm: bool,
}

impl<B: Backend> Executor<B> {
    /// The terms of `request`.
    ///
    /// # Errors
    /// Where it asks for what there is not, or for what it may not have.
    pub(super) async fn terms(&self, request: &RunRequest) -> Result<Terms, RunError> {
        let next = self.runner(&request.language).await?;
        let mut environment = self.pass_through_env.clone();
        environment.extend(request.environment.clone());
        let (runner, longest) = match &request.program {
            Program::Code(code) if code.len() > self.max_code_bytes => {
                return Err(RunError::CodeTooLarge {
                    bytes: code.len(),
                    limit: self.max_code_bytes,
                });
            }
            Program::Code(_) => (next.clone(), self.limits.timeout),
            Program::Installer(packages) => {
                let directory = format!("/data/{INSTALLER_DIR}");
                environment.insert("TMPDIR".to_owned(), directory);
                let installer = next.installer(packages);
                let installer = installer.ok_or_else(|| RunError::NoInstaller {
                    language: next.language.clone(),
                })?;
                (installer, self.limits.timeout_max)
            }
        };
        let timeout = request.timeout.unwrap_or(longest);
        if timeout > self.limits.timeout_max {
            return Err(RunError::TimeoutTooLong {
                limit: self.limits.timeout_max,
            });
        }
        let network = match &self.network {
            _ if !request.network => None,
            NetworkPolicy::Allow(network) => Some(network.clone()),
            NetworkPolicy::Deny => return Err(RunError::NetworkNotAllowed),
        };
        // Protocol 1 takes the environment when the container is made.
        let can_be_warm = network.is_none()
            && (runner.protocol == Protocol::Framed || request.environment.is_empty());
        Ok(Terms {
            runner,
            next,
            timeout,
            network,
            environment,
            can_be_warm,
        })
    }

    /// The runner of a language; looked for anew where none is known, as an image may have been built since.
    async fn runner(&self, language: &str) -> Result<Runner, RunError> {
        let mut runners = self.catalog.last();
        if runners.find(language).is_none() {
            runners = self.discover().await?;
        }
        let found = runners.find(language).cloned();
        found.ok_or_else(|| RunError::unknown_language(language, &runners))
    }

    /// Makes what an installer needs, before it is started.
    pub(super) async fn make_installer_dir(
        &self,
        request: &RunRequest,
    ) -> Result<(), WorkspaceError> {
        if let Program::Installer(_) = request.program {
            let workspace = self.workspaces.open(&request.conversation).await?;
            workspace.make_dir(installer_dir()).await?;
        }
        Ok(())
    }
}

/// Takes away what an installer left in its directory.
pub(super) async fn remove_installer_dir(request: &RunRequest, workspace: &Workspace) {
    if let Program::Installer(_) = request.program
        && let Err(error) = workspace.delete(installer_dir()).await
    {
        tracing::warn!(%error, "an installer's temporary files were not deleted");
    }
}

fn installer_dir() -> FilePath {
    FilePath::for_new_file(INSTALLER_DIR).expect("invariant: the directory's name is a path")
}

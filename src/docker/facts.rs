//! Facts: what an engine says of itself. Only `doctor` asks; serving needs none of it.

use bollard::{
    Docker as Client,
    models::{SystemInfo, SystemVersion},
};

use super::{ASK_LIMIT, within};
use crate::{config::Config, executor::BackendError};

/// What an engine says of itself.
#[derive(Debug)]
pub struct EngineFacts {
    /// `Docker`, or what else it calls itself.
    pub name: String,
    /// Its version, as it writes it.
    pub version: String,
    /// Version of its runc, with what its packager added; `None` where it has another runtime.
    pub runc: Option<String>,
    /// What only `GET /info` tells, which a proxy in front of the engine may refuse.
    pub host: Result<HostFacts, BackendError>,
}

/// What an engine says of the host it is on.
#[derive(Debug)]
pub struct HostFacts {
    /// Whether it runs without root.
    pub rootless: bool,
    /// Whether root in a container is somebody else on the host.
    pub remaps_users: bool,
    /// Names of the OCI runtimes that `RUNTIME` can be.
    pub runtimes: Vec<String>,
    /// The runtime where `RUNTIME` is unset.
    pub default_runtime: String,
    /// `1` or `2`, or empty.
    pub cgroup_version: String,
    /// Limits of runs that the host cannot enforce, by what they limit.
    pub unenforced: Vec<&'static str>,
}

/// Asks the engine that `config` names.
///
/// # Errors
/// When it does not say its version.
pub async fn engine_facts(config: &Config) -> Result<EngineFacts, BackendError> {
    let connect = async {
        let client = Client::connect_with_host(&config.docker_host)?
            .negotiate_version()
            .await?;
        let version = client.version().await?;
        Ok((client, version))
    };
    let (client, version) = within(ASK_LIMIT, "version", connect).await?;
    let info = within(ASK_LIMIT, "info", client.info()).await;
    Ok(EngineFacts::new(version, info.map(HostFacts::from)))
}

impl EngineFacts {
    fn new(version: SystemVersion, host: Result<HostFacts, BackendError>) -> Self {
        let components = version.components.unwrap_or_default();
        let name = components
            .iter()
            .find_map(|component| component.name.strip_suffix(" Engine"))
            .unwrap_or("Docker");
        let runc = components.iter().find(|component| {
            component.name == "runc" || component.version.starts_with("runc version")
        });
        Self {
            name: name.to_owned(),
            version: version.version.unwrap_or_default(),
            runc: runc.map(|runc| {
                let details = runc.details.as_ref();
                // Distributions that mend an old version say so here and nowhere else.
                let package = details
                    .and_then(|details| details.get("GitCommit"))
                    .filter(|commit| commit.contains('.'));
                let version = package.unwrap_or(&runc.version);
                version.lines().next().unwrap_or_default().to_owned()
            }),
            host,
        }
    }
}

impl From<SystemInfo> for HostFacts {
    fn from(info: SystemInfo) -> Self {
        let options = info.security_options.unwrap_or_default();
        // Such as `name=seccomp,profile=default`.
        let has = |name: &str| {
            options
                .iter()
                .any(|option| option.split(',').next() == Some(&format!("name={name}")))
        };
        let limits = [
            ("memory", info.memory_limit),
            ("swap", info.swap_limit),
            ("processes", info.pids_limit),
            ("processor", info.cpu_cfs_quota),
        ];
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort_unstable();
        Self {
            rootless: has("rootless"),
            remaps_users: has("userns"),
            runtimes,
            default_runtime: info.default_runtime.unwrap_or_default(),
            cgroup_version: info
                .cgroup_version
                .map(|version| version.to_string())
                .unwrap_or_default(),
            unenforced: limits
                .into_iter()
                .filter(|(_, enforced)| *enforced == Some(false))
                .map(|(what, _)| what)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts(version: Value, info: Value) -> EngineFacts {
        let info: SystemInfo = serde_json::from_value(info).unwrap();
        EngineFacts::new(serde_json::from_value(version).unwrap(), Ok(info.into()))
    }

    #[test]
    fn docker_with_a_distributions_runc() {
        let facts = facts(
            json!({
                "Version": "20.10.24+dfsg1",
                "Components": [
                    { "Name": "Engine", "Version": "20.10.24+dfsg1" },
                    { "Name": "runc", "Version": "1.1.5+ds1", "Details": { "GitCommit": "1.1.5+ds1-1+deb12u1" } },
                ],
            }),
            json!({
                "Runtimes": { "runc": { "path": "runc" } }, "DefaultRuntime": "runc", "CgroupVersion": "1",
                "SecurityOptions": ["name=seccomp,profile=default"], "SwapLimit": false, "MemoryLimit": true,
            }),
        );
        assert_eq!(
            (
                facts.name.as_str(),
                facts.version.as_str(),
                facts.runc.as_deref()
            ),
            ("Docker", "20.10.24+dfsg1", Some("1.1.5+ds1-1+deb12u1"))
        );
        let host = facts.host.unwrap();
        assert_eq!(host.unenforced, ["swap"]);
        assert_eq!(host.cgroup_version, "1");
        assert!(!host.rootless);
    }

    #[test]
    fn docker_with_its_own_runc_and_without_root() {
        let facts = facts(
            json!({
                "Version": "28.0.1",
                "Components": [{ "Name": "runc", "Version": "1.2.5", "Details": { "GitCommit": "v1.2.5-0-g59923ef" } }],
            }),
            json!({ "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"] }),
        );
        assert_eq!(facts.runc.as_deref(), Some("v1.2.5-0-g59923ef"));
        assert!(facts.host.unwrap().rootless);
    }

    #[test]
    fn podman_with_another_runtime() {
        let version = json!({
            "Version": "4.3.1",
            "Components": [
                { "Name": "Podman Engine", "Version": "4.3.1" },
                { "Name": "OCI Runtime (crun)", "Version": "crun version 1.8.1\ncommit: f8a0" },
            ],
        });
        let facts = facts(version, json!({}));
        assert_eq!((facts.name.as_str(), facts.runc), ("Podman", None));
    }
}

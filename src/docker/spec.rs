//! Spec: how a run's container is made. All isolation is decided here, in one pure function.

use std::{collections::HashMap, path::PathBuf};

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, ResourcesUlimits,
};

use crate::executor::RunSpec;

/// Label that marks a server's own containers; its value is the server's instance id.
pub(super) const OWNER_LABEL: &str = "sandbox.owner";

/// The longest period that the kernel takes (`kernel/sched/core.c`, `max_cfs_quota_period`).
const CPU_PERIOD_MICROSECONDS: i64 = 1_000_000;

/// Bytes of the largest file of a run whose workspace is full: runners write the program's source to one.
const TIDYING_FILE: u64 = 1 << 20;

/// What all containers of this server have in common.
#[derive(Debug, Clone)]
pub(super) struct Site {
    /// This server's instance id.
    pub(super) instance: String,
    /// Directory of the workspaces as the engine sees it.
    pub(super) workspaces: PathBuf,
    /// OCI runtime, if not the engine's own.
    pub(super) runtime: Option<String>,
    /// Bytes of the largest file a run may write.
    pub(super) largest_file: u64,
}

/// The container for one run.
pub(super) fn container(site: &Site, spec: &RunSpec) -> ContainerCreateBody {
    let text = |text: &str| Some(text.to_owned());
    let limits = &spec.limits;
    ContainerCreateBody {
        image: text(&spec.runner.image),
        // An installer's command line, or the image's own.
        entrypoint: spec.runner.command.clone(),
        // Not root, so that a way out of the container is still not root on the host.
        user: Some(format!("{}:{}", spec.owner.uid, spec.owner.gid)),
        // The same for all: a name from the host or the run would tell the program about either.
        hostname: text("sandbox"),
        working_dir: text("/data"),
        env: Some(environment(spec)),
        labels: Some(labels(site, spec)),
        // The source comes in on standard input, once; both streams go out on the same connection.
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        host_config: Some(HostConfig {
            // No interface but loopback unless the run asked for the network and may have it.
            network_mode: text(spec.network.as_deref().unwrap_or("none")),
            // Nothing a program needs takes a capability; many ways out of a container do.
            cap_drop: Some(vec!["ALL".to_owned()]),
            // A setuid binary in an image must not give back what was taken. Docker's default seccomp
            // filter stays on because no other one is named here.
            security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
            privileged: Some(false),
            // Only /data and /tmp can be written to; the image stays what was built.
            readonly_rootfs: Some(true),
            mounts: Some(vec![Mount {
                // Unlike a `binds` entry, a mount fails where its source is missing instead of making it as root.
                typ: Some(MountType::BIND),
                source: Some(
                    site.workspaces
                        .join(spec.data.to_string())
                        .to_string_lossy()
                        .into_owned(),
                ),
                target: text("/data"),
                ..Mount::default()
            }]),
            // Memory, not disk: it counts against `memory` and is gone with the container.
            tmpfs: Some(HashMap::from([(
                "/tmp".to_owned(),
                format!("rw,exec,nosuid,nodev,mode=1777,size={}", limits.tmpfs),
            )])),
            shm_size: Some(signed(limits.tmpfs)),
            memory: Some(signed(limits.memory)),
            // Equal to `memory`: no swap, or a run would slow the host down instead of ending.
            memory_swap: Some(signed(limits.memory)),
            // The share of a whole second: over Docker's usual tenth of one, a chart would be stopped half-way.
            cpu_period: Some(CPU_PERIOD_MICROSECONDS),
            cpu_quota: Some(signed(limits.nano_cpus / 1_000)),
            // A fork bomb ends here. Docker's init is one of them.
            pids_limit: Some(limits.pids.into()),
            ulimits: Some(vec![
                ulimit("nofile", 4096),
                // A core dump would write the program's whole memory into /data.
                ulimit("core", 0),
                // One write must not fill the host's disk before anyone looks.
                ulimit(
                    "fsize",
                    if spec.tidies_only {
                        TIDYING_FILE
                    } else {
                        site.largest_file
                    },
                ),
            ]),
            // Reaps orphans and passes signals on, so that the program need not be a good PID 1.
            init: Some(true),
            // Output is read from the attached connection; a log on disk would grow with a flood.
            log_config: Some(HostConfigLogConfig {
                typ: text("none"),
                config: None,
            }),
            // No shared memory with other containers or the host.
            ipc_mode: text("private"),
            // When the host itself runs out of memory, a run goes before any service.
            oom_score_adj: Some(500),
            runtime: site.runtime.clone(),
            // Removed by us, after its state was read.
            auto_remove: Some(false),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

fn environment(spec: &RunSpec) -> Vec<String> {
    // The one directory that takes what programs put into a home, and no file the user would see.
    let home = ("HOME", "/tmp");
    let given = spec
        .environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    // Of two entries of one name the later one counts.
    std::iter::once(home)
        .chain(given)
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn labels(site: &Site, spec: &RunSpec) -> HashMap<String, String> {
    HashMap::from([
        (OWNER_LABEL.to_owned(), site.instance.clone()),
        ("sandbox.workspace".to_owned(), spec.data.to_string()),
        ("sandbox.run".to_owned(), spec.run_id.to_string()),
        // Also on containers of images without labels, so that one filter shows all runs.
        ("sandbox.runner".to_owned(), "true".to_owned()),
        ("sandbox.language".to_owned(), spec.runner.language.clone()),
    ])
}

fn ulimit(name: &str, value: u64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(signed(value)),
        hard: Some(signed(value)),
    }
}

/// Docker's API has signed numbers where only unsigned ones make sense.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::*;
    use crate::{
        config::RunLimits,
        executor::RunId,
        runner::{Protocol, Runner},
        workspace::{DataDir, Owner, WorkspaceHash},
    };

    fn spec(network: Option<&str>) -> RunSpec {
        RunSpec {
            run_id: RunId::random(),
            runner: Runner {
                language: "python".into(),
                aliases: Vec::new(),
                image: "some-image".into(),
                image_id: String::new(),
                version: None,
                packages: None,
                install: Vec::new(),
                command: None,
                protocol: Protocol::Plain,
                created: 0,
            },
            tidies_only: false,
            data: DataDir::Workspace(WorkspaceHash::parse(&"ab".repeat(32)).unwrap()),
            owner: Owner::new(1000, 1000),
            network: network.map(str::to_owned),
            limits: RunLimits {
                timeout: Duration::from_secs(30),
                timeout_max: Duration::from_secs(300),
                memory: 256 << 20,
                nano_cpus: 500_000_000,
                pids: 128,
                tmpfs: 64 << 20,
            },
            environment: BTreeMap::from([("GREETING".into(), "hi".into())]),
        }
    }

    fn site() -> Site {
        Site {
            instance: "instance".into(),
            workspaces: "/srv/sandbox".into(),
            runtime: None,
            largest_file: 1 << 30,
        }
    }

    #[test]
    fn every_isolation_flag_is_as_reviewed() {
        let spec = spec(None);
        let body = serde_json::to_string_pretty(&container(&site(), &spec)).unwrap();
        let body = body.replace(&spec.run_id.to_string(), "<run>");
        let mut sorted: serde_json::Value = serde_json::from_str(&body).unwrap();
        sorted.sort_all_objects();
        insta::assert_json_snapshot!(sorted);
    }

    #[test]
    fn the_network_is_that_of_the_run_and_nothing_else_changes_with_it() {
        let with = container(&site(), &spec(Some("sandbox-net")))
            .host_config
            .unwrap();
        let without = container(&site(), &spec(None)).host_config.unwrap();
        assert_eq!(with.network_mode.as_deref(), Some("sandbox-net"));
        assert_eq!(
            HostConfig {
                network_mode: Some("none".into()),
                ..with
            },
            without
        );
    }
}

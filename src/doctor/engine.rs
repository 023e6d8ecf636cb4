//! Engine: is Docker there, is it known to be broken, and can it do what runs ask of it?

use mcp_code_sandbox::{
    config::Config,
    docker::{EngineFacts, HostFacts},
    executor::BackendError,
};

use super::check::Check;

pub(super) const DOCKER: &str = "docker";
const ROOTLESS: &str = "rootless";
const RUNC: &str = "runc";
const RUNTIME: &str = "runtime";
const CGROUPS: &str = "cgroups";

/// Below it, runs on an `--internal` network can still send DNS questions out. The fix went into 23.0.11 too.
const INTERNAL_NETWORKS_KEEP_DNS_IN: Version = Version(25, 0, 5);
const INTERNAL_NETWORKS_KEEP_DNS_IN_23: Version = Version(23, 0, 11);

/// Below it, a container can keep a handle on the host's file system.
const RUNC_KEEPS_HANDLES: Version = Version(1, 1, 12);

/// Below these two, of their series, a container can be made to write to the host's /proc.
const RUNC_CHECKS_PROC_1_2: Version = Version(1, 2, 8);
const RUNC_CHECKS_PROC_1_3: Version = Version(1, 3, 3);

/// Every check of the engine, in order.
pub(super) fn checks(config: &Config, facts: &Result<EngineFacts, BackendError>) -> Vec<Check> {
    match facts {
        Ok(facts) => vec![
            docker(facts),
            rootless(facts),
            runc(facts),
            runtime(facts, config.runtime.as_deref()),
            cgroups(facts),
        ],
        Err(error) => {
            let found = format!("{}: {error}", config.docker_host);
            let remedy = "start the engine (systemctl start docker), or name its socket in DOCKER_HOST; a user \
                          other than root must be in the group docker";
            let mut checks = not_run(DOCKER);
            checks[0] = Check::fail(DOCKER, found, remedy);
            checks
        }
    }
}

/// Every check of the engine, where `failed` makes them pointless.
pub(super) fn not_run(failed: &str) -> Vec<Check> {
    [DOCKER, ROOTLESS, RUNC, RUNTIME, CGROUPS]
        .map(|name| Check::not_run(name, failed))
        .into()
}

fn docker(facts: &EngineFacts) -> Check {
    let found = format!("{} {} answers", facts.name, facts.version);
    let outdated = facts.name == "Docker"
        && Version::of(&facts.version).is_some_and(|version| {
            let mended = if version.0 == INTERNAL_NETWORKS_KEEP_DNS_IN_23.0 {
                INTERNAL_NETWORKS_KEEP_DNS_IN_23
            } else {
                INTERNAL_NETWORKS_KEEP_DNS_IN
            };
            version < mended
        });
    if outdated {
        Check::warn(
            DOCKER,
            format!("{found}; it has CVE-2024-29018: an --internal network lets DNS questions out"),
            "update Docker to 25.0.5 or later; until then do not rely on an --internal SANDBOX_NETWORK",
        )
    } else {
        Check::pass(DOCKER, found)
    }
}

fn rootless(facts: &EngineFacts) -> Check {
    match &facts.host {
        Err(error) => untold(ROOTLESS, error),
        Ok(host) if host.rootless => Check::pass(ROOTLESS, "the engine runs without root"),
        Ok(host) if host.remaps_users => Check::pass(
            ROOTLESS,
            "the engine is root, but root in a container is not (userns-remap)",
        ),
        Ok(_) => Check::warn(
            ROOTLESS,
            "the engine is root: whoever gets out of a container as root has the host",
            "rootless Docker or RUNTIME=runsc put a wall in between; SECURITY.md says how",
        ),
    }
}

fn runc(facts: &EngineFacts) -> Check {
    let Some(text) = &facts.runc else {
        return Check::pass(RUNC, "the engine has another runtime");
    };
    let Some(version) = Version::of(text) else {
        return Check::warn(
            RUNC,
            format!("the engine does not say which version it has ({text})"),
            "look at runc --version: 1.2.8, 1.3.3 or later is right",
        );
    };
    let mended = if (version.0, version.1) == (1, 3) {
        RUNC_CHECKS_PROC_1_3
    } else {
        RUNC_CHECKS_PROC_1_2
    };
    let problem = if version < RUNC_KEEPS_HANDLES {
        "CVE-2024-21626 and CVE-2025-31133, -52565, -52881 (ways out of a container)"
    } else if version < mended {
        "CVE-2025-31133, -52565, -52881 (ways out of a container)"
    } else {
        return Check::pass(RUNC, text);
    };
    Check::warn(
        RUNC,
        format!("{text}: its version number has {problem}"),
        "update runc to 1.2.8, 1.3.3 or later; a distribution may have mended an older number (Debian 12 has, \
         for the first, in 1.1.5+ds1-1+deb12u1): ask its security tracker",
    )
}

fn runtime(facts: &EngineFacts, wanted: Option<&str>) -> Check {
    let host = match &facts.host {
        Ok(host) => host,
        Err(error) => return untold(RUNTIME, error),
    };
    match wanted {
        None => Check::pass(
            RUNTIME,
            format!(
                "RUNTIME is unset: runs use the engine's own, {}",
                host.default_runtime
            ),
        ),
        Some(name) if host.runtimes.iter().any(|known| known == name) => {
            Check::pass(RUNTIME, format!("the engine has {name}"))
        }
        Some(name) => Check::fail(
            RUNTIME,
            format!(
                "the engine does not have {name}; it has {}",
                host.runtimes.join(", ")
            ),
            format!(
                "install {name} and enter it under runtimes in /etc/docker/daemon.json, or unset RUNTIME"
            ),
        ),
    }
}

fn cgroups(facts: &EngineFacts) -> Check {
    match &facts.host {
        Err(error) => untold(CGROUPS, error),
        Ok(HostFacts {
            unenforced,
            cgroup_version,
            ..
        }) if unenforced.is_empty() => Check::pass(
            CGROUPS,
            format!(
                "version {cgroup_version}, with limits on memory, swap, processes and processor"
            ),
        ),
        Ok(host) => Check::fail(
            CGROUPS,
            format!(
                "version {}, without a limit on {}",
                host.cgroup_version,
                host.unenforced.join(", ")
            ),
            "boot with systemd.unified_cgroup_hierarchy=1 (cgroup v1: cgroup_enable=memory swapaccount=1); a \
             rootless engine needs cgroup v2 with these controllers delegated to its user",
        ),
    }
}

fn untold(name: &'static str, error: &BackendError) -> Check {
    Check::warn(
        name,
        format!("unknown: {error}"),
        "let GET /info through to the engine while doctor runs; serving does not need it",
    )
}

/// The first three numbers of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

impl Version {
    /// The first thing in `text` that looks like a version, whatever is around it.
    fn of(text: &str) -> Option<Self> {
        text.split(|other: char| !other.is_ascii_digit() && other != '.')
            .find_map(|part| {
                let mut numbers = part.split('.').map(str::parse);
                Some(Self(
                    numbers.next()?.ok()?,
                    numbers.next()?.ok()?,
                    numbers.next().and_then(Result::ok).unwrap_or(0),
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(docker: &str, runc: &str) -> EngineFacts {
        EngineFacts {
            name: "Docker".into(),
            version: docker.into(),
            runc: Some(runc.into()),
            host: Ok(HostFacts {
                rootless: false,
                remaps_users: false,
                runtimes: vec!["runc".into()],
                default_runtime: "runc".into(),
                cgroup_version: "2".into(),
                unenforced: Vec::new(),
            }),
        }
    }

    #[test]
    fn versions_are_found_in_what_engines_write() {
        for (text, version) in [
            ("20.10.24+dfsg1", Version(20, 10, 24)),
            ("1.1.5+ds1-1+deb12u1", Version(1, 1, 5)),
            ("v1.2.5-0-g59923ef", Version(1, 2, 5)),
            ("runc version 1.1.12", Version(1, 1, 12)),
            ("29.0", Version(29, 0, 0)),
        ] {
            assert_eq!(Version::of(text), Some(version), "{text}");
        }
        assert_eq!(Version::of("dev"), None);
    }

    #[test]
    fn versions_with_known_holes_are_named() {
        let names = |check: Check, hole: &str| check.to_string().contains(hole);
        for (version, holed) in [("1.1.11", true), ("1.1.12", false), ("1.2.7", false)] {
            assert_eq!(names(runc(&facts("", version)), "CVE-2024-21626"), holed);
        }
        for (version, holed) in [
            ("1.1.15", true),
            ("1.2.8", false),
            ("1.3.2", true),
            ("1.3.3", false),
            ("1.4.0", false),
        ] {
            assert_eq!(names(runc(&facts("", version)), "CVE-2025-31133"), holed);
        }
        for (version, holed) in [
            ("20.10.24", true),
            ("23.0.10", true),
            ("23.0.11", false),
            ("25.0.4", true),
            ("25.0.5", false),
            ("28.0.1", false),
        ] {
            assert_eq!(names(docker(&facts(version, "")), "CVE-2024-29018"), holed);
        }
    }

    #[test]
    fn a_runtime_or_limit_that_is_missing_fails() {
        let mut facts = facts("28.0.1", "1.3.3");
        assert!(!runtime(&facts, Some("runc")).failed());
        assert!(runtime(&facts, Some("runsc")).failed());
        assert!(!cgroups(&facts).failed());
        if let Ok(host) = &mut facts.host {
            host.unenforced.push("memory");
        }
        assert!(cgroups(&facts).failed());
    }
}

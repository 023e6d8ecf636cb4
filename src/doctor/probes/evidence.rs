//! Evidence: what a run that looked around it said of itself, and what each part of that shows.

use std::time::Duration;

use mcp_code_sandbox::config::Config;
use serde::Deserialize;

use super::{
    bench::Look,
    judge::{CPU, MOUNT, NETWORK_OFF, PRIVILEGES, READ_ONLY, RUN, SECCOMP},
};
use crate::doctor::check::Check;

/// A connection that is refused takes next to nothing; one that goes into a void, seconds.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What a run said of itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Evidence {
    uid: u32,
    cap_eff: String,
    cap_bnd: String,
    no_new_privs: String,
    seccomp: String,
    root_read_only: bool,
    writable: Vec<String>,
    pub(super) from_host: String,
    cpu_quota: String,
    cpu_percent: u64,
    interfaces: Vec<String>,
    attempts: Vec<Attempt>,
    pub(super) pids_max: String,
}

/// One try to reach something.
#[derive(Debug, Deserialize)]
struct Attempt {
    what: String,
    reached: bool,
    ms: u64,
}

/// What one look shows, from [`RUN`] to [`NETWORK_OFF`].
pub(super) fn checks(config: &Config, look: &Look) -> [Check; 7] {
    let answered = format!(
        "{} answers in {} ms",
        look.language,
        look.duration.as_millis()
    );
    let evidence = &look.evidence;
    [
        Check::pass(RUN, answered),
        mount(config, look.mounted),
        privileges(config, evidence),
        seccomp(config, evidence),
        read_only(evidence),
        cpu(config, evidence),
        network_off(evidence),
    ]
}

/// `agrees`: what the server writes is read in the run, and the other way round.
pub(super) fn mount(config: &Config, agrees: bool) -> Check {
    let here = &config.sandbox_root;
    let here = here.parent().unwrap_or(here).display();
    let there = config
        .sandbox_host_path
        .as_ref()
        .and_then(|path| path.parent());
    let there = there.map_or_else(|| here.to_string(), |path| path.display().to_string());
    if agrees {
        Check::pass(
            MOUNT,
            format!("files go from {here} into /data and back; the engine mounts {there}"),
        )
    } else {
        Check::fail(
            MOUNT,
            format!("{there} on the engine's host is not what {here} is for the server"),
            "set SANDBOX_HOST_PATH to the host's path of SANDBOX_ROOT, as docker-compose.yml does",
        )
    }
}

fn privileges(config: &Config, evidence: &Evidence) -> Check {
    let none = |set: &str| !set.is_empty() && set.bytes().all(|digit| digit == b'0');
    let found = format!(
        "uid {}, CapEff {}, CapBnd {}, NoNewPrivs {}",
        evidence.uid, evidence.cap_eff, evidence.cap_bnd, evidence.no_new_privs
    );
    // gVisor does not tell.
    let no_new_privileges = match evidence.no_new_privs.as_str() {
        "" => config.runtime.is_some(),
        told => told == "1",
    };
    if evidence.uid != 0 && none(&evidence.cap_eff) && none(&evidence.cap_bnd) && no_new_privileges
    {
        Check::pass(PRIVILEGES, found)
    } else {
        Check::fail(
            PRIVILEGES,
            format!("{found}: not what runs are promised to have"),
            "the engine or RUNTIME ignores what the server asks for: use another",
        )
    }
}

fn seccomp(config: &Config, evidence: &Evidence) -> Check {
    let found = format!("Seccomp: {}", evidence.seccomp);
    match (evidence.seccomp.as_str(), &config.runtime) {
        ("2", _) => Check::pass(SECCOMP, format!("{found}, a filter is on")),
        (_, Some(runtime)) => Check::warn(
            SECCOMP,
            format!("{found} in a run; {runtime} may filter where runs cannot see it"),
            format!(
                "make sure that {runtime} keeps programs from the host's kernel, as gVisor does"
            ),
        ),
        (_, None) => Check::fail(
            SECCOMP,
            format!("{found}: runs can make any system call"),
            "the engine must have seccomp and its default profile: see docker info, and seccomp-profile in daemon.json",
        ),
    }
}

fn cpu(config: &Config, evidence: &Evidence) -> Check {
    let allowed = percent(config.limits.nano_cpus);
    let found = format!(
        "a busy loop got {} % of a core, RUN_CPUS allows {allowed} %",
        evidence.cpu_percent
    );
    let remedy = "see cgroups: the engine must limit the processor";
    match quota_percent(&evidence.cpu_quota) {
        Some(quota) if quota.abs_diff(allowed) <= 1 => {
            Check::pass(CPU, format!("{found}, and the run's quota is {quota} %"))
        }
        Some(quota) => Check::fail(
            CPU,
            format!("{found}, but the run's quota is {quota} %"),
            remedy,
        ),
        // A loop has one core at most, and is measured to a few hundredths.
        None if allowed < 90 && evidence.cpu_percent <= allowed + 10 => Check::pass(CPU, found),
        None if allowed < 90 && config.runtime.is_none() => Check::fail(CPU, found, remedy),
        None => Check::warn(
            CPU,
            format!("{found}, and the run's quota cannot be read"),
            "watch a busy run from the host (docker stats) to see whether it holds",
        ),
    }
}

fn read_only(evidence: &Evidence) -> Check {
    if evidence.root_read_only && evidence.writable.is_empty() {
        Check::pass(
            READ_ONLY,
            "the root is mounted read-only, and nothing in it can be written to",
        )
    } else {
        Check::fail(
            READ_ONLY,
            format!(
                "the root is {}read-only; a run could write to: {}",
                if evidence.root_read_only { "" } else { "not " },
                evidence.writable.join(", ")
            ),
            "the engine or RUNTIME ignores what the server asks for: use another",
        )
    }
}

fn network_off(evidence: &Evidence) -> Check {
    let others: Vec<&str> = evidence
        .interfaces
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "lo")
        .collect();
    let reached: Vec<&str> = evidence
        .attempts
        .iter()
        .filter(|attempt| attempt.reached)
        .map(|attempt| attempt.what.as_str())
        .collect();
    let slowest = evidence.attempts.iter().max_by_key(|attempt| attempt.ms);
    let tried: Vec<&str> = evidence.attempts.iter().map(|a| a.what.as_str()).collect();
    if !reached.is_empty() || tried.is_empty() {
        return Check::fail(
            NETWORK_OFF,
            format!(
                "a run without the network gets out by {}",
                reached.join(", ")
            ),
            "the engine ignores the network mode none: use another",
        );
    }
    match slowest {
        Some(attempt) if Duration::from_millis(attempt.ms) > AT_ONCE => Check::warn(
            NETWORK_OFF,
            format!("{} fails, but only after {} ms", attempt.what, attempt.ms),
            "programs that want the network seem to hang: look at the resolv.conf of a run",
        ),
        _ if others.is_empty() => Check::pass(
            NETWORK_OFF,
            format!(
                "{} fail at once; there is no interface but lo",
                tried.join(", ")
            ),
        ),
        // The kernel puts some, like tunl0, into every new network; they lead nowhere.
        _ => Check::pass(
            NETWORK_OFF,
            format!(
                "{} fail at once; interfaces besides lo: {}",
                tried.join(", "),
                others.join(", ")
            ),
        ),
    }
}

/// Hundredths of a core.
fn percent(nano_cpus: u64) -> u64 {
    nano_cpus / 10_000_000
}

/// Hundredths of a core, from a quota and its period as cgroup files write them.
fn quota_percent(quota: &str) -> Option<u64> {
    let (quota, period) = quota.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (quota * 100).checked_div(period)
}

#[cfg(test)]
mod tests {
    use mcp_code_sandbox::config::Source;

    use super::*;

    fn config(runtime: &str) -> Config {
        let source = Source::from_pairs([
            ("MCP_API_TOKEN", "token"),
            ("FILE_SECRET", "0123456789abcdef0123456789abcdef"),
            ("RUNTIME", runtime),
            ("RUN_CPUS", "0.5"),
        ]);
        Config::from_source(&source).unwrap()
    }

    /// What a run says on a host that is as it should be.
    fn sound() -> Evidence {
        Evidence {
            uid: 1000,
            cap_eff: "0000000000000000".into(),
            cap_bnd: "0000000000000000".into(),
            no_new_privs: "1".into(),
            seccomp: "2".into(),
            root_read_only: true,
            writable: Vec::new(),
            from_host: String::new(),
            cpu_quota: "50000 100000".into(),
            cpu_percent: 51,
            interfaces: vec!["lo".into()],
            attempts: vec![Attempt {
                what: "TCP".into(),
                reached: false,
                ms: 1,
            }],
            pids_max: String::new(),
        }
    }

    #[test]
    fn each_wall_that_is_missing_fails_its_own_check() {
        type Break = fn(&mut Evidence);
        let walls: [(&str, Break); 9] = [
            (PRIVILEGES, |run| run.uid = 0),
            (PRIVILEGES, |run| run.cap_eff = "00000000a80425fb".into()),
            (PRIVILEGES, |run| run.cap_bnd = "00000000a80425fb".into()),
            (PRIVILEGES, |run| run.no_new_privs = "0".into()),
            (SECCOMP, |run| run.seccomp = "0".into()),
            (READ_ONLY, |run| run.root_read_only = false),
            (READ_ONLY, |run| run.writable.push("/etc".into())),
            (CPU, |run| run.cpu_quota = "100000 100000".into()),
            (NETWORK_OFF, |run| run.attempts[0].reached = true),
        ];
        for (wall, break_it) in walls {
            let mut evidence = sound();
            break_it(&mut evidence);
            let look = Look {
                language: "bash",
                duration: Duration::ZERO,
                mounted: true,
                evidence,
            };
            let failed: Vec<String> = checks(&config(""), &look)
                .iter()
                .filter(|check| check.failed())
                .map(Check::to_string)
                .collect();
            assert_eq!(failed.len(), 1, "{wall}: {failed:?}");
            assert!(failed[0].contains(wall), "{wall}: {failed:?}");
        }
    }

    #[test]
    fn what_a_runtime_hides_from_its_runs_does_not_fail() {
        let mut evidence = sound();
        evidence.no_new_privs.clear();
        evidence.seccomp = "0".into();
        let runsc = config("runsc");
        assert!(!privileges(&runsc, &evidence).failed());
        assert!(!seccomp(&runsc, &evidence).failed());
        assert!(privileges(&config(""), &evidence).failed());
    }
}

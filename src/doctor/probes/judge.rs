//! Judge: which checks runs are made for, and what the runs that ask one question each have shown. It runs
//! nothing itself.

use mcp_code_sandbox::{
    config::Config,
    executor::{RunReport, Status},
    runner::Runners,
};

use super::evidence::mount;
use crate::doctor::check::Check;

const RUNNERS: &str = "runners";
pub(super) const RUN: &str = "run";
pub(super) const MOUNT: &str = "mount";
pub(super) const PRIVILEGES: &str = "privileges";
pub(super) const SECCOMP: &str = "seccomp";
pub(super) const READ_ONLY: &str = "read-only";
pub(super) const CPU: &str = "cpu-limit";
pub(super) const NETWORK_OFF: &str = "network-off";
const PIDS: &str = "pids-limit";
const MEMORY: &str = "memory-limit";
const METADATA: &str = "metadata";

/// What each run is checked for, in order.
const OF_RUNS: [&str; 10] = [
    RUN,
    MOUNT,
    PRIVILEGES,
    SECCOMP,
    READ_ONLY,
    CPU,
    NETWORK_OFF,
    PIDS,
    MEMORY,
    METADATA,
];

/// What to do where processes are not limited.
const PIDS_REMEDY: &str = "see cgroups: the engine must limit processes";

/// Where clouds hand credentials to whoever asks from within a machine.
const METADATA_ADDRESS: &str = "169.254.169.254";

/// Addresses set aside for documentation. Who connects to these connects to anything: a proxy is in between.
const NOBODY: [&str; 2] = ["198.51.100.7", "203.0.113.7"];

/// Every check that needs runs, where `failed` makes them pointless.
pub(in crate::doctor) fn not_run(failed: &str) -> Vec<Check> {
    std::iter::once(RUNNERS)
        .chain(OF_RUNS)
        .map(|name| Check::not_run(name, failed))
        .collect()
}

/// Every check that needs runs, where it is not even known what could run.
pub(super) fn no_runners(found: String, remedy: &str) -> Vec<Check> {
    std::iter::once(Check::fail(RUNNERS, found, remedy))
        .chain(OF_RUNS.map(|name| Check::not_run(name, RUNNERS)))
        .collect()
}

pub(super) fn runners(runners: &Runners) -> Check {
    let languages: Vec<&str> = runners.languages().into_keys().collect();
    let missing: Vec<&str> = ["bash", "python", "typescript"]
        .into_iter()
        .filter(|language| !languages.contains(language))
        .collect();
    if languages.is_empty() {
        Check::warn(RUNNERS, "there is none", "./build.sh runners")
    } else if missing.is_empty() {
        Check::pass(RUNNERS, languages.join(", "))
    } else {
        let found = format!("{}; not {}", languages.join(", "), missing.join(", "));
        Check::pass(RUNNERS, found)
    }
}

/// The checks of runs, where no runner speaks a language that doctor does.
pub(super) fn nothing_to_look_with() -> [Check; OF_RUNS.len()] {
    OF_RUNS.map(|name| {
        Check::fail(
            name,
            "unknown: there is neither a bash nor a python runner to look with",
            "./build.sh runners",
        )
    })
}

/// The checks of runs, where the first did not get as far.
pub(super) fn did_not_run(config: &Config, cause: &str) -> Vec<Check> {
    let mounted = config
        .sandbox_host_path
        .as_ref()
        .unwrap_or(&config.sandbox_root);
    // Engines name the path that they do not find.
    let (first, failed) = if cause.contains(&*mounted.to_string_lossy()) {
        (MOUNT, mount(config, false))
    } else {
        let remedy = "read the engine's log (journalctl -u docker); ./build.sh runners builds the images anew";
        (RUN, Check::fail(RUN, cause, remedy))
    };
    let mut failed = Some(failed);
    OF_RUNS
        .into_iter()
        .map(|name| match failed.take_if(|_| name == first) {
            Some(failed) => failed,
            None => Check::not_run(name, first),
        })
        .collect()
}

/// `read` is the limit as a run can read it, where it is too high to be tried.
pub(super) fn pids_read(limit: u32, read: &str) -> Check {
    let found = format!("RUN_PIDS is {limit}, and a run reads {read:?} as its limit");
    if read == limit.to_string() {
        Check::pass(PIDS, found)
    } else {
        Check::fail(PIDS, found, PIDS_REMEDY)
    }
}

/// A run that `tried` to have that many processes.
pub(super) fn pids(limit: u32, tried: u32, ran: anyhow::Result<RunReport>) -> Check {
    let report = match ran {
        Ok(report) => report,
        Err(error) => return Check::fail(PIDS, format!("no run: {error:#}"), "see run"),
    };
    let found = format!("a run that starts {tried} processes with RUN_PIDS={limit}");
    match report.stdout.text.trim().parse::<u32>() {
        Ok(most) if most <= limit => Check::pass(PIDS, format!("{found} has {most} at most")),
        Ok(most) => Check::fail(PIDS, format!("{found} has {most}"), PIDS_REMEDY),
        // gVisor counts its own threads too, and does not survive their end.
        Err(_) => Check::warn(
            PIDS,
            format!("{found} dies of it: {}", told(&report)),
            "the host is safe; with a RUNTIME that needs processes of its own, raise RUN_PIDS",
        ),
    }
}

/// A run that took twice its memory.
pub(super) fn memory(limit: u64, ran: anyhow::Result<RunReport>) -> Check {
    let report = match ran {
        Ok(report) => report,
        Err(error) => {
            return Check::fail(MEMORY, format!("no run: {error:#}"), "see run and mount");
        }
    };
    let found = format!("a run that takes twice its {} MB", limit >> 20);
    match report.status {
        Status::OutOfMemory => Check::pass(MEMORY, format!("{found} ends as oom")),
        // Killed on the way. In protocol 1 that is an exit code, which a program could also choose; this one does not.
        Status::Killed | Status::Error if matches!(report.exit_code, None | Some(137)) => {
            Check::warn(
                MEMORY,
                format!(
                    "{found} is killed, but the engine does not say why: callers read killed, not oom"
                ),
                "an engine of today on cgroup v2 says so",
            )
        }
        _ => Check::fail(
            MEMORY,
            format!("{found} should end as oom, but {}", told(&report)),
            "see cgroups: the engine must limit memory and swap",
        ),
    }
}

/// Where no run may have a network.
pub(super) fn no_network() -> Check {
    Check::pass(METADATA, "NETWORK_POLICY=deny: no run has a network")
}

/// Where [`metadata`] wants a run to try to connect to, separated by spaces.
pub(super) fn addresses() -> String {
    [&[METADATA_ADDRESS], &NOBODY[..]].concat().join(" ")
}

/// A run on `network` that tried to connect to [`addresses`].
pub(super) fn metadata(network: &str, ran: anyhow::Result<RunReport>) -> Check {
    let report = match ran {
        Ok(report) => report,
        Err(error) => {
            return Check::fail(
                METADATA,
                format!("a run on the network {network} does not start: {error:#}"),
                format!("docker network create {network}, or name another one in SANDBOX_NETWORK"),
            );
        }
    };
    let fence = "fence SANDBOX_NETWORK as SECURITY.md shows (iptables -I DOCKER-USER -d 169.254.0.0/16 -j \
                 REJECT is the least), or set NETWORK_POLICY=deny";
    let mut reached = report.stdout.text.split_whitespace();
    if report.status != Status::Ok || reached.next_back() != Some("done") {
        return Check::fail(METADATA, told(&report), "see run");
    }
    let reached: Vec<&str> = reached.collect();
    let found = format!("a run on the network {network}");
    if !reached.contains(&METADATA_ADDRESS) {
        Check::pass(
            METADATA,
            format!("{found} does not reach {METADATA_ADDRESS}"),
        )
    } else if reached.iter().any(|address| NOBODY.contains(address)) {
        Check::warn(
            METADATA,
            format!(
                "{found} connects to {METADATA_ADDRESS}, but also where nobody is: a proxy answers for \
                 everyone, and may pass it on"
            ),
            fence,
        )
    } else {
        Check::fail(
            METADATA,
            format!(
                "{found} reaches {METADATA_ADDRESS}, which hands out the machine's credentials in clouds"
            ),
            fence,
        )
    }
}

/// How a run ended that did not say what it was asked.
pub(super) fn told(report: &RunReport) -> String {
    let last = report.stderr.text.trim().lines().last().unwrap_or_default();
    let last: String = last.chars().take(200).collect();
    format!("the run ended as {} {last:?}", report.status.as_str())
}

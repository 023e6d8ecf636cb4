//! Probes: runs that look at themselves. They go through the real executor, in workspaces of their own
//! beneath `SANDBOX_ROOT`, so that what they find is what a model's code would.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use mcp_code_sandbox::{
    caller::Caller,
    config::{Config, NetworkPolicy},
    conversation::ConversationId,
    executor::{Program, Progress, RunReport, RunRequest, Status},
    runner::Runners,
    sandbox::Sandbox,
    server,
    workspace::FilePath,
};
use serde::Deserialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::check::Check;

const RUNNERS: &str = "runners";
const RUN: &str = "run";
const MOUNT: &str = "mount";
const PRIVILEGES: &str = "privileges";
const SECCOMP: &str = "seccomp";
const READ_ONLY: &str = "read-only";
const CPU: &str = "cpu-limit";
const NETWORK_OFF: &str = "network-off";
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

/// Time of a probe within its container; the longest takes 7 s where nothing answers.
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// Time of a run with all that the engine does for it.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Memory of a probe: a host need not lose gigabytes to see that a limit holds.
const MEMORY_LIMIT: u64 = 256 << 20;

/// More processes than that are not started: they would take longer than [`PROBE_LIMIT`].
const MOST_PIDS: u32 = 512;

/// A connection that is refused takes next to nothing; one that goes into a void, seconds.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The programs in one language.
struct Programs {
    language: &'static str,
    look: &'static str,
    start_processes: &'static str,
    fill_memory: &'static str,
    reach: &'static str,
}

/// The shell first: it starts faster.
const PROGRAMS: [Programs; 2] = [
    Programs {
        language: "bash",
        look: include_str!("probe.sh"),
        start_processes: include_str!("pids.sh"),
        fill_memory: include_str!("memory.sh"),
        reach: include_str!("reach.sh"),
    },
    Programs {
        language: "python",
        look: include_str!("probe.py"),
        start_processes: include_str!("pids.py"),
        fill_memory: include_str!("memory.py"),
        reach: include_str!("reach.py"),
    },
];

/// Where clouds hand credentials to whoever asks from within a machine.
const METADATA_ADDRESS: &str = "169.254.169.254";

/// Addresses set aside for documentation. Who connects to these connects to anything: a proxy is in between.
const NOBODY: [&str; 2] = ["198.51.100.7", "203.0.113.7"];

/// What a run said of itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Evidence {
    uid: u32,
    cap_eff: String,
    cap_bnd: String,
    no_new_privs: String,
    seccomp: String,
    root_read_only: bool,
    writable: Vec<String>,
    from_host: String,
    cpu_quota: String,
    cpu_percent: u64,
    interfaces: Vec<String>,
    attempts: Vec<Attempt>,
    pids_max: String,
}

/// One try to reach something.
#[derive(Debug, Deserialize)]
struct Attempt {
    what: String,
    reached: bool,
    ms: u64,
}

/// What the first run showed.
struct Looks {
    checks: Vec<Check>,
    pids_max: String,
}

/// Where probes run.
struct Bench {
    sandbox: Sandbox,
    config: Config,
    /// Directory of the probes' workspaces.
    root: PathBuf,
    /// Fires when the operator has had enough.
    stop: CancellationToken,
}

/// Every check that needs runs, where `failed` makes them pointless.
pub(super) fn not_run(failed: &str) -> Vec<Check> {
    std::iter::once(RUNNERS)
        .chain(OF_RUNS)
        .map(|name| Check::not_run(name, failed))
        .collect()
}

/// Every check that needs runs, in order.
pub(super) async fn checks(config: &Config, stop: CancellationToken) -> Vec<Check> {
    let bench = match Bench::set_up(config, stop).await {
        Ok(bench) => bench,
        Err(error) => {
            let remedy = "the checks above say what is missing";
            return std::iter::once(Check::fail(RUNNERS, format!("{error:#}"), remedy))
                .chain(OF_RUNS.map(|name| Check::not_run(name, RUNNERS)))
                .collect();
        }
    };
    let checks = match bench.sandbox.executor.discover().await {
        Ok(runners) => bench.examine(&runners).await,
        Err(error) => {
            let remedy = "the engine answered just now: run doctor again";
            std::iter::once(Check::fail(RUNNERS, error.to_string(), remedy))
                .chain(OF_RUNS.map(|name| Check::not_run(name, RUNNERS)))
                .collect()
        }
    };
    bench.clear_away().await;
    checks
}

impl Bench {
    async fn set_up(config: &Config, stop: CancellationToken) -> anyhow::Result<Self> {
        // In the real place, as only that shows whether the engine mounts what the server writes.
        let name = format!(".doctor-{}", Uuid::new_v4());
        let mut config = config.clone();
        config.sandbox_root = std::path::absolute(&config.sandbox_root)?.join(&name);
        config.sandbox_host_path = config.sandbox_host_path.map(|path| path.join(&name));
        // The limits of runs are what is looked at; those of the server must not be in the way.
        config.limits.memory = config.limits.memory.min(MEMORY_LIMIT);
        config.limits.timeout = PROBE_LIMIT;
        config.limits.timeout_max = PROBE_LIMIT;
        config.disk.min_free = 0;
        config.disk.workspace.bytes = config.disk.workspace.bytes.max(1 << 20);
        config.disk.workspace.files = config.disk.workspace.files.max(100);
        config.max_code_bytes = config.max_code_bytes.max(100 << 10);
        config.max_output_bytes = config.max_output_bytes.max(100 << 10);
        config.pass_through_env.clear();
        Ok(Self {
            sandbox: Box::pin(server::sandbox(&config)).await?,
            root: config.sandbox_root.clone(),
            config,
            stop,
        })
    }

    async fn clear_away(self) {
        self.sandbox.executor.stop().await;
        if let Err(error) = tokio::fs::remove_dir_all(&self.root).await {
            tracing::error!(directory = %self.root.display(), %error, "doctor's directory is left");
        }
        // Only if it is empty, that is if doctor made it.
        if let Some(root) = self.root.parent() {
            let _kept = tokio::fs::remove_dir(root).await;
        }
    }

    async fn examine(&self, runners: &Runners) -> Vec<Check> {
        let mut checks = vec![found_runners(runners)];
        let Some(programs) = PROGRAMS
            .iter()
            .find(|programs| runners.find(programs.language).is_some())
        else {
            let unseen = OF_RUNS.map(|name| {
                Check::fail(
                    name,
                    "unknown: there is neither a bash nor a python runner to look with",
                    "./build.sh runners",
                )
            });
            checks.extend(unseen);
            return checks;
        };
        match self.look(programs).await {
            Ok(looks) => {
                checks.extend(looks.checks);
                checks.push(self.pids(programs, &looks.pids_max).await);
                checks.push(self.memory(programs).await);
                checks.push(self.metadata(programs).await);
            }
            Err(cause) => checks.extend(self.did_not_run(&cause)),
        }
        checks
    }

    /// The run with many probes, from [`RUN`] to [`NETWORK_OFF`]; or why it did not say what it was asked.
    async fn look(&self, programs: &Programs) -> Result<Looks, String> {
        let written = Uuid::new_v4().to_string();
        let conversation = ConversationId::random(Caller::default());
        let ran = async {
            let workspace = self.sandbox.workspaces.open(&conversation).await?;
            let name = FilePath::for_new_file("from-host")?;
            workspace
                .write_file(name, written.clone().into_bytes())
                .await?;
            self.run(programs, programs.look, conversation.clone(), false, None)
                .await
        };
        let report = ran.await.map_err(|error| format!("{error:#}"))?;
        let evidence: Evidence =
            serde_json::from_str(report.stdout.text.trim()).map_err(|_| told(&report))?;
        let back = self
            .root
            .join(report.workspace.hash().as_str())
            .join("from-run");
        let back = tokio::fs::read_to_string(back).await.unwrap_or_default();
        let checks = vec![
            Check::pass(
                RUN,
                format!(
                    "{} answers in {} ms",
                    programs.language,
                    report.duration.as_millis()
                ),
            ),
            self.mount(evidence.from_host == written && back.trim() == written),
            self.privileges(&evidence),
            self.seccomp(&evidence),
            read_only(&evidence),
            self.cpu(&evidence),
            network_off(&evidence),
        ];
        Ok(Looks {
            checks,
            pids_max: evidence.pids_max,
        })
    }

    /// `read` is the limit as the run can read it.
    async fn pids(&self, programs: &Programs, read: &str) -> Check {
        let limit = self.config.limits.pids;
        let remedy = "see cgroups: the engine must limit processes";
        if limit > MOST_PIDS {
            let found = format!("RUN_PIDS is {limit}, and a run reads {read:?} as its limit");
            return if read == limit.to_string() {
                Check::pass(PIDS, found)
            } else {
                Check::fail(PIDS, found, remedy)
            };
        }
        let tried = limit + 16;
        let ran = self
            .run(
                programs,
                programs.start_processes,
                ConversationId::random(Caller::default()),
                false,
                Some(("DOCTOR_PIDS", tried.to_string())),
            )
            .await;
        let report = match ran {
            Ok(report) => report,
            Err(error) => return Check::fail(PIDS, format!("no run: {error:#}"), "see run"),
        };
        let found = format!("a run that starts {tried} processes with RUN_PIDS={limit}");
        match report.stdout.text.trim().parse::<u32>() {
            Ok(most) if most <= limit => Check::pass(PIDS, format!("{found} has {most} at most")),
            Ok(most) => Check::fail(PIDS, format!("{found} has {most}"), remedy),
            // gVisor counts its own threads too, and does not survive their end.
            Err(_) => Check::warn(
                PIDS,
                format!("{found} dies of it: {}", told(&report)),
                "the host is safe; with a RUNTIME that needs processes of its own, raise RUN_PIDS",
            ),
        }
    }

    async fn memory(&self, programs: &Programs) -> Check {
        let limit = self.config.limits.memory;
        let bytes = Some(("DOCTOR_BYTES", (limit * 2).to_string()));
        let ran = self
            .run(
                programs,
                programs.fill_memory,
                ConversationId::random(Caller::default()),
                false,
                bytes,
            )
            .await;
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

    async fn metadata(&self, programs: &Programs) -> Check {
        let NetworkPolicy::Allow(network) = &self.config.network else {
            return Check::pass(METADATA, "NETWORK_POLICY=deny: no run has a network");
        };
        let addresses = [&[METADATA_ADDRESS], &NOBODY[..]].concat().join(" ");
        let ran = self
            .run(
                programs,
                programs.reach,
                ConversationId::random(Caller::default()),
                true,
                Some(("DOCTOR_ADDRESSES", addresses)),
            )
            .await;
        let report = match ran {
            Ok(report) => report,
            Err(error) => {
                return Check::fail(
                    METADATA,
                    format!("a run on the network {network} does not start: {error:#}"),
                    format!(
                        "docker network create {network}, or name another one in SANDBOX_NETWORK"
                    ),
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

    /// Runs one program, within a time limit of its own.
    async fn run(
        &self,
        programs: &Programs,
        code: &str,
        conversation: ConversationId,
        network: bool,
        variable: Option<(&str, String)>,
    ) -> anyhow::Result<RunReport> {
        let request = RunRequest {
            conversation,
            language: programs.language.to_owned(),
            program: Program::Code(code.to_owned()),
            network,
            environment: variable
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect(),
            timeout: None,
        };
        let progress = Progress::default();
        let run = Box::pin(
            self.sandbox
                .executor
                .run(request, &progress, self.stop.child_token()),
        );
        let report = timeout(RUN_LIMIT, run)
            .await
            .with_context(|| format!("no answer within {} s", RUN_LIMIT.as_secs()))??;
        if report.status == Status::Cancelled {
            bail!("interrupted");
        }
        Ok(report)
    }

    /// The checks of runs, where the first did not get as far.
    fn did_not_run(&self, cause: &str) -> Vec<Check> {
        let mounted = self.config.sandbox_host_path.as_ref().unwrap_or(&self.root);
        // Engines name the path that they do not find.
        let (first, failed) = if cause.contains(&*mounted.to_string_lossy()) {
            (MOUNT, self.mount(false))
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

    fn mount(&self, agrees: bool) -> Check {
        let here = self.root.parent().unwrap_or(&self.root).display();
        let there = self
            .config
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

    fn privileges(&self, evidence: &Evidence) -> Check {
        let none = |set: &str| !set.is_empty() && set.bytes().all(|digit| digit == b'0');
        let found = format!(
            "uid {}, CapEff {}, CapBnd {}, NoNewPrivs {}",
            evidence.uid, evidence.cap_eff, evidence.cap_bnd, evidence.no_new_privs
        );
        // gVisor does not tell.
        let no_new_privileges = match evidence.no_new_privs.as_str() {
            "" => self.config.runtime.is_some(),
            told => told == "1",
        };
        if evidence.uid != 0
            && none(&evidence.cap_eff)
            && none(&evidence.cap_bnd)
            && no_new_privileges
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

    fn seccomp(&self, evidence: &Evidence) -> Check {
        let found = format!("Seccomp: {}", evidence.seccomp);
        match (evidence.seccomp.as_str(), &self.config.runtime) {
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

    fn cpu(&self, evidence: &Evidence) -> Check {
        let allowed = percent(self.config.limits.nano_cpus);
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
            None if allowed < 90 && self.config.runtime.is_none() => {
                Check::fail(CPU, found, remedy)
            }
            None => Check::warn(
                CPU,
                format!("{found}, and the run's quota cannot be read"),
                "watch a busy run from the host (docker stats) to see whether it holds",
            ),
        }
    }
}

fn found_runners(runners: &Runners) -> Check {
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

/// How a run ended that did not say what it was asked.
fn told(report: &RunReport) -> String {
    let last = report.stderr.text.trim().lines().last().unwrap_or_default();
    let last: String = last.chars().take(200).collect();
    format!("the run ended as {} {last:?}", report.status.as_str())
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

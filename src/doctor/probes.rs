//! Probes: runs that look at themselves. They go through the real executor, so that what they find is what a
//! model's code would. Here is which of them are made; `evidence` and `judge` say what they show.

mod bench;
mod evidence;
mod judge;
mod programs;

use mcp_code_sandbox::{
    config::{Config, NetworkPolicy},
    runner::Runners,
};
use tokio_util::sync::CancellationToken;

use self::{
    bench::{Bench, Probe},
    programs::{PROGRAMS, Programs},
};
use super::check::Check;

pub(super) use self::judge::not_run;

/// More processes than that are not started: they would take longer than a probe may.
const MOST_PIDS: u32 = 512;

/// Every check that needs runs, in order.
pub(super) async fn checks(config: &Config, stop: CancellationToken) -> Vec<Check> {
    let bench = match Bench::set_up(config, stop).await {
        Ok(bench) => bench,
        Err(error) => {
            return judge::no_runners(format!("{error:#}"), "the checks above say what is missing");
        }
    };
    let checks = match bench.discover().await {
        Ok(runners) => examine(&bench, &runners).await,
        Err(error) => judge::no_runners(
            error.to_string(),
            "the engine answered just now: run doctor again",
        ),
    };
    bench.clear_away().await;
    checks
}

async fn examine(bench: &Bench, runners: &Runners) -> Vec<Check> {
    let mut checks = vec![judge::runners(runners)];
    let Some(programs) = PROGRAMS
        .iter()
        .find(|programs| runners.find(programs.language).is_some())
    else {
        checks.extend(judge::nothing_to_look_with());
        return checks;
    };
    match bench.look(programs).await {
        Ok(look) => {
            checks.extend(evidence::checks(bench.config(), &look));
            checks.push(pids(bench, programs, &look.evidence.pids_max).await);
            checks.push(memory(bench, programs).await);
            checks.push(metadata(bench, programs).await);
        }
        Err(cause) => checks.extend(judge::did_not_run(bench.config(), &cause)),
    }
    checks
}

/// `read` is the limit as the run can read it.
async fn pids(bench: &Bench, programs: &Programs, read: &str) -> Check {
    let limit = bench.config().limits.pids;
    if limit > MOST_PIDS {
        return judge::pids_read(limit, read);
    }
    let tried = limit + 16;
    let probe = Probe::new(programs, programs.start_processes).with("DOCTOR_PIDS", &tried);
    judge::pids(limit, tried, bench.run(probe).await)
}

async fn memory(bench: &Bench, programs: &Programs) -> Check {
    let limit = bench.config().limits.memory;
    let probe = Probe::new(programs, programs.fill_memory).with("DOCTOR_BYTES", &(limit * 2));
    judge::memory(limit, bench.run(probe).await)
}

async fn metadata(bench: &Bench, programs: &Programs) -> Check {
    let NetworkPolicy::Allow(network) = &bench.config().network else {
        return judge::no_network();
    };
    let probe = Probe::new(programs, programs.reach)
        .with_network()
        .with("DOCTOR_ADDRESSES", &judge::addresses());
    judge::metadata(network, bench.run(probe).await)
}

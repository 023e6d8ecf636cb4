//! Hint: the next step after a run that failed, where it is known. One sentence for the model.

use super::{RunReport, Status, terms::Terms};
use crate::config::RunLimits;

/// What programs and their libraries say when there is no network.
const NO_NETWORK: [&str; 10] = [
    "Network is unreachable",
    "Temporary failure in name resolution",
    "Name or service not known",
    "NameResolutionError",
    "nodename nor servname",
    "Could not resolve host",
    "getaddrinfo",
    "EAI_AGAIN",
    "ENETUNREACH",
    "Unable to connect",
];

/// What programs say when a module is not installed.
const NO_MODULE: [&str; 3] = [
    "ModuleNotFoundError: No module named",
    "Cannot find package",
    "Cannot find module",
];

/// The hint for `report`, a run on those terms.
pub(super) fn of(report: &RunReport, terms: &Terms, limits: &RunLimits) -> Option<String> {
    let says = |signs: &[&str]| {
        [&report.stderr.text, &report.stdout.text]
            .iter()
            .any(|text| signs.iter().any(|sign| text.contains(sign)))
    };
    match report.status {
        Status::Timeout => Some(format!(
            "The time limit was met: ask for more with timeoutSeconds, at most {} (RUN_TIMEOUT_MAX_SECONDS, which \
             the operator can raise).",
            limits.timeout_max.as_secs()
        )),
        Status::OutOfMemory => Some(format!(
            "The memory limit of {} MB was met: work on smaller parts, or ask the operator to raise RUN_MEMORY.",
            limits.memory >> 20
        )),
        Status::DiskQuota => Some(
            "The conversation's files took too much room: delete what is not needed, or ask the operator to raise \
             WORKSPACE_QUOTA_BYTES or WORKSPACE_MAX_FILES."
                .to_owned(),
        ),
        Status::Error if says(&NO_MODULE) => {
            let installed = terms.runner.packages.as_deref();
            let installed = installed.unwrap_or("see list_runners");
            let add = if terms.runner.install.is_empty() {
                ""
            } else {
                "; install_packages adds others"
            };
            Some(format!("The module is not installed; installed are: {installed}{add}."))
        }
        Status::Error if terms.network.is_none() && says(&NO_NETWORK) => {
            Some("The network is off: pass network: true if the program needs it.".to_owned())
        }
        Status::Ok | Status::Error | Status::Killed | Status::Cancelled => None,
    }
}

//! Audit: one line in the log for every run, of who ran what with which rights, and none of its content.

use sha2::{Digest as _, Sha256};
use tracing::info;

use super::{Program, RunReport, RunRequest, terms::Terms};
use crate::{config::RunLimits, package::Package};

/// Logs a run that took place.
pub(super) fn log(
    request: &RunRequest,
    terms: &Terms,
    limits: &RunLimits,
    report: &RunReport,
    was_warm: bool,
) {
    let (code_sha256, packages) = match &request.program {
        Program::Code(code) => (hex::encode(Sha256::digest(code)), None),
        Program::Installer(packages) => (String::new(), Some(packages)),
    };
    let packages = packages.map(|packages| {
        let names: Vec<&str> = packages.iter().map(Package::as_str).collect();
        names.join(" ")
    });
    info!(
        request.id = request.request_id.map(tracing::field::display),
        run.id = %report.run_id,
        caller = request.conversation.caller().as_str(),
        workspace = report.workspace.hash().short(),
        language = report.language,
        code_sha256,
        packages,
        network = terms.network.is_some(),
        timeout_s = terms.timeout.as_secs_f64(),
        memory_bytes = limits.memory,
        status = report.status.as_str(),
        exit_code = report.exit_code,
        warm = was_warm,
        duration_ms = report.duration.as_millis(),
        "run ended"
    );
}

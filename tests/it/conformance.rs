//! Conformance: the protocol's own suites, which ask for every rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    client::{Client, endpoint, installed, node, ours},
    server::{TOKEN, TestServer},
};

/// Runs a conformance suite and compares the checks that did not pass with those that cannot.
async fn conformance(package: &str, arguments: &[&str], known: &str) {
    let server = TestServer::start().await;
    let results = tempfile::tempdir().unwrap();
    let mut command = node("--import");
    command
        .arg(ours("conformance-token.mjs"))
        .arg(installed(&format!("node_modules/{package}/dist/index.js")))
        .args(["server", "--url", &endpoint(&server), "--output-dir"])
        .arg(results.path())
        .args(arguments)
        .env("MCP_TOKEN", TOKEN);
    let mut client = Client::start(command);
    client.let_go();
    // Its exit status only says that something has failed, which is known.
    client.ended().await;

    let listed = fs::read_to_string(ours(known)).unwrap();
    let listed: BTreeSet<_> = listed
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let failed = failed_checks(&results);
    let unknown: Vec<_> = failed
        .iter()
        .filter(|(check, _)| !listed.contains(check.as_str()))
        .collect();
    assert!(unknown.is_empty(), "these checks failed: {unknown:#?}");
    let passed: Vec<_> = listed
        .iter()
        .filter(|check| !failed.contains_key(**check))
        .collect();
    assert!(
        passed.is_empty(),
        "these checks pass now; take them off {known}: {passed:#?}"
    );
}

/// Ids of the checks that failed or warned, with the reason.
fn failed_checks(results: &TempDir) -> BTreeMap<String, String> {
    let mut failed = BTreeMap::new();
    for scenario in fs::read_dir(results).unwrap() {
        let checks = fs::read(scenario.unwrap().path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        for check in checks {
            if !["SUCCESS", "INFO", "SKIPPED"].contains(&check["status"].as_str().unwrap()) {
                failed.insert(
                    check["id"].as_str().unwrap().to_owned(),
                    check["errorMessage"].to_string(),
                );
            }
        }
    }
    failed
}

#[tokio::test]
async fn of_the_revisions_with_sessions() {
    conformance(
        "@modelcontextprotocol/conformance",
        &[],
        "conformance-2025-11-25.txt",
    )
    .await;
}

#[tokio::test]
async fn of_the_newest_revision() {
    conformance(
        "conformance-next",
        &["--requirements", "2026-07-28"],
        "conformance-2026-07-28.txt",
    )
    .await;
}

//! Runners: each one's own cases, and a language added while the server runs.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{engine::image, server::TestServer};

fn smoke(language: &str) {
    let cases = format!(
        "{}/runners/{language}/smoke.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-code-sandbox"))
        .args(["smoke", &cases])
        .output()
        .unwrap();
    let (text, log) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{text}{log}");
    assert!(text.lines().count() > 3, "{text}");
}

#[test]
fn python_passes_its_smoke_cases() {
    smoke("python");
}

#[test]
fn typescript_passes_its_smoke_cases() {
    smoke("typescript");
}

#[test]
fn bash_passes_its_smoke_cases() {
    smoke("bash");
}

#[test]
fn a_failing_smoke_case_is_told_and_fails() {
    let directory = tempfile::tempdir().unwrap();
    let cases = directory.path().join("smoke.json");
    let case = json!([{
        "name": "wrong", "request": { "language": "bash", "code": "echo 1" }, "expect": { "output": "2\n", "exitCode": 0 },
    }]);
    fs::write(&cases, case.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-code-sandbox"))
        .arg("smoke")
        .arg(cases)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("FAILED bash wrong")
            && text.contains("\"2\\n\"")
            && !text.contains("exitCode"),
        "{text}"
    );
}

#[tokio::test]
async fn a_language_is_added_without_a_restart() {
    let server = TestServer::start().await;
    let run =
        json!({ "language": "perl-test", "code": "print 6 * 7; open(F, '>', 'made'); exit 3" });
    assert_eq!(
        server.refusal("run_code", run.clone()).await.0,
        "unknown_language"
    );

    // Protocol 1 with nothing but labels: what runners/README.md promises.
    let context = tempfile::tempdir().unwrap();
    let dockerfile = "FROM debian:trixie-slim
LABEL sandbox.runner=true sandbox.language=perl-test sandbox.aliases=pl-test sandbox.version=5
ENTRYPOINT [\"perl\"]
";
    fs::write(context.path().join("Dockerfile"), dockerfile).unwrap();
    let (name, _image) = image(context.path());

    let result = server.call_ok("run_code", run).await;
    assert_eq!(
        (&result["output"], &result["exitCode"]),
        (&json!("42"), &json!(3)),
        "{result}"
    );
    assert_eq!(result["newFiles"], json!(["made"]));
    let listed = server.call_ok("list_runners", json!({})).await;
    let added: Vec<&Value> = listed["runners"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|runner| runner["language"] == "perl-test")
        .collect();
    assert_eq!(added.len(), 1);
    assert_eq!(added[0]["aliases"], json!(["pl-test"]));
    assert!(added[0]["image"].as_str().unwrap().starts_with(&name));
}

#[tokio::test]
async fn an_image_without_labels_is_named_in_the_settings() {
    let context = tempfile::tempdir().unwrap();
    fs::write(
        context.path().join("Dockerfile"),
        "FROM debian:trixie-slim\nENTRYPOINT [\"perl\"]\n",
    )
    .unwrap();
    let (name, _image) = image(context.path());
    let server =
        TestServer::with_settings(&[("EXTRA_RUNNERS", &format!("perl-extra={name}"))]).await;
    assert_eq!(server.run("perl-extra", "print 'hi'").await["output"], "hi");
    let missing = TestServer::with_settings(&[("EXTRA_RUNNERS", "gone=no-such-image-here")]).await;
    assert_eq!(
        missing
            .refusal("run_code", json!({ "language": "gone", "code": "" }))
            .await
            .0,
        "runner_unavailable"
    );
}

//! Packages: installed once with the network, used in every later run without it.

use serde_json::json;

use crate::server::TestServer;

async fn install(server: &TestServer, language: &str, packages: &[&str]) -> serde_json::Value {
    let arguments = json!({ "conversationId": "c", "language": language, "packages": packages });
    server.call_ok("install_packages", arguments).await
}

#[tokio::test]
async fn python_packages_pure_and_binary_are_there_for_later_runs() {
    let settings = [("WARM_POOL_SIZE", "1"), ("WARM_CONVERSATIONS", "2")];
    let server = TestServer::with_settings(&settings).await;
    let before = server.run_in("c", "python", "import humanize").await;
    assert_eq!(before["status"], "error");
    let hint = before["hint"].as_str().unwrap();
    assert!(hint.contains("install_packages"), "{hint}");

    let installed = install(&server, "py", &["humanize", "polars"]).await;
    assert_eq!(installed["status"], "ok", "{installed}");
    assert!(
        installed["output"]
            .as_str()
            .unwrap()
            .contains("Successfully installed")
    );
    assert_eq!(installed["files"], json!([]), "packages are hidden");

    let code = "import humanize, polars\nprint(humanize.intcomma(12345), polars.DataFrame({'a': [1, 2]})['a'].sum())";
    // At once, and by a container that waited.
    for pause in [0, 3] {
        tokio::time::sleep(std::time::Duration::from_secs(pause)).await;
        let used = server.run_in("c", "python", code).await;
        assert_eq!(used["output"], "12,345 3\n", "{used}");
    }
    let other = server.run("python", "import humanize").await;
    assert_eq!(
        other["status"], "error",
        "another conversation has not got it"
    );
}

#[tokio::test]
async fn npm_packages_are_there_for_later_runs_and_their_scripts_do_not_run() {
    let server = TestServer::start().await;
    let installed = install(&server, "typescript", &["ms@2.1.3"]).await;
    assert_eq!(installed["status"], "ok", "{installed}");
    let used = server
        .run_in(
            "c",
            "typescript",
            "import ms from 'ms'; console.log(ms('2 days'))",
        )
        .await;
    assert_eq!(used["output"], "172800000\n", "{used}");
}

#[tokio::test]
async fn what_cannot_be_installed_is_an_outcome_or_refused() {
    let server = TestServer::start().await;
    let missing = install(&server, "python", &["no-such-package-in-any-registry-1"]).await;
    assert_eq!(missing["status"], "error", "{missing}");
    // Only as source: its build would run a stranger's code.
    for (language, packages, code) in [
        (
            "python",
            json!(["--index-url=http://x"]),
            "invalid_argument",
        ),
        ("python", json!(["git+https://x/y"]), "invalid_argument"),
        ("python", json!([]), "invalid_argument"),
        ("bash", json!(["jq"]), "invalid_argument"),
        ("cobol", json!(["x"]), "unknown_language"),
    ] {
        let arguments =
            json!({ "conversationId": "c", "language": language, "packages": packages });
        let (refused, message) = server.refusal("install_packages", arguments).await;
        assert_eq!(refused, code, "{message}");
    }
    let server = TestServer::with_settings(&[("NETWORK_POLICY", "deny")]).await;
    let arguments = json!({ "language": "python", "packages": ["humanize"] });
    assert_eq!(
        server.refusal("install_packages", arguments).await.0,
        "network_not_allowed"
    );
}

//! Refusals: bad input gets a typed error that says what to do, and changes nothing.

use serde_json::json;

use crate::server::TestServer;

#[tokio::test]
async fn a_wrong_token_is_not_let_in() {
    let server = TestServer::start().await;
    let client = reqwest::Client::new();
    let url = format!("{}/mcp", server.base_url());
    for token in [None, Some("wrong"), Some("TEST-TOKEN")] {
        for method in [
            reqwest::Method::POST,
            reqwest::Method::GET,
            reqwest::Method::DELETE,
        ] {
            let mut request = client.request(method, &url).body("{}");
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401);
            assert!(
                response.headers()["www-authenticate"]
                    .to_str()
                    .unwrap()
                    .starts_with("Bearer")
            );
        }
    }
}

#[tokio::test]
async fn an_unknown_language_names_the_known_ones() {
    let server = TestServer::start().await;
    let (code, message) = server
        .refusal("run_code", json!({ "language": "cobol", "code": "x" }))
        .await;
    assert_eq!(code, "unknown_language");
    for known in ["python", "typescript", "javascript", "bash"] {
        assert!(message.contains(known), "{message}");
    }
}

#[tokio::test]
async fn bad_arguments_are_refused_and_nothing_is_written() {
    let server =
        TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "1k"), ("NETWORK_POLICY", "deny")]).await;
    let run = |changed: serde_json::Value| {
        let mut arguments = json!({ "language": "bash", "code": "touch made" });
        arguments
            .as_object_mut()
            .unwrap()
            .extend(changed.as_object().unwrap().clone());
        ("run_code", arguments)
    };
    let upload = |name: &str, content: &str| {
        (
            "upload_file",
            json!({ "filename": name, "content": content }),
        )
    };
    for ((tool, arguments), code) in [
        (run(json!({ "timeoutSeconds": 0 })), "invalid_argument"),
        (run(json!({ "timeoutSeconds": -1 })), "invalid_argument"),
        (run(json!({ "timeoutSeconds": 1e9 })), "invalid_argument"),
        (run(json!({ "timeoutSeconds": "NaN" })), "invalid_argument"),
        (run(json!({ "code": null })), "invalid_argument"),
        (run(json!({ "language": 3 })), "invalid_argument"),
        (run(json!({ "conversationId": "" })), "invalid_argument"),
        (
            run(json!({ "conversationId": "x".repeat(1025) })),
            "invalid_argument",
        ),
        (
            run(json!({ "conversationId": "a\u{0}b" })),
            "invalid_argument",
        ),
        (
            run(json!({ "environment": { "A=B": "x" } })),
            "invalid_argument",
        ),
        (
            run(json!({ "environment": { "": "x" } })),
            "invalid_argument",
        ),
        (
            run(json!({ "environment": { "A\nB": "x" } })),
            "invalid_argument",
        ),
        (
            run(json!({ "environment": { "A": "x\u{0}" } })),
            "invalid_argument",
        ),
        (
            run(json!({ "environment": { "A": "x".repeat(100_000) } })),
            "invalid_argument",
        ),
        (
            run(json!({ "code": "x".repeat(2 << 20) })),
            "code_too_large",
        ),
        (run(json!({ "network": true })), "network_not_allowed"),
        (upload("a.bin", "not base64!"), "invalid_argument"),
        (upload("a.bin", "QUJD_-=="), "invalid_argument"),
        (upload("a.bin", &"QUJD".repeat(400)), "file_too_large"),
        (upload("../../x", "QUJD"), "invalid_argument"),
        (upload("/etc/x", "QUJD"), "invalid_argument"),
        (upload("a/../../b", "QUJD"), "invalid_argument"),
        (upload("", "QUJD"), "invalid_argument"),
        (upload(".", "QUJD"), "invalid_argument"),
        (upload(&"x".repeat(300), "QUJD"), "invalid_argument"),
        (
            (
                "upload_file",
                json!({ "filename": "a", "content": "QUJD", "sha256": "00" }),
            ),
            "checksum_mismatch",
        ),
        (
            ("upload_file", json!({ "filename": "a" })),
            "invalid_argument",
        ),
    ] {
        let refused = server.refusal(tool, arguments.clone()).await;
        let shown: String = arguments.to_string().chars().take(100).collect();
        assert_eq!(refused.0, code, "{tool} {shown}: {}", refused.1);
    }
    assert_eq!(server.workspaces(), [""; 0].map(std::path::PathBuf::from));
}

#[tokio::test]
async fn an_upload_never_goes_through_what_user_code_planted() {
    let server = TestServer::start().await;
    let planted = "ln -s /etc/passwd absolute; ln -s ../../outside relative; ln -s /tmp dir; mkfifo fifo; mkdir directory";
    server.run_in("hostile", "bash", planted).await;
    let upload =
        |name: &str| json!({ "conversationId": "hostile", "filename": name, "content": "QUJD" });
    for name in ["absolute", "relative", "fifo"] {
        server.call_ok("upload_file", upload(name)).await;
    }
    assert_eq!(
        server.refusal("upload_file", upload("dir/x")).await.0,
        "file_not_found"
    );
    assert_eq!(
        server.refusal("upload_file", upload("directory")).await.0,
        "not_a_regular_file"
    );
    assert_eq!(
        server.refusal("upload_file", upload("fifo/x")).await.0,
        "file_not_found"
    );
    let listed = server
        .run_in(
            "hostile",
            "bash",
            "cat absolute relative fifo; ls -A directory",
        )
        .await;
    assert_eq!(listed["output"], "ABCABCABC");
}

//! Home: the page at `/`, and the status that its script shows to whoever has the token.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{FILE_SECRET, TOKEN, TestServer};

async fn status(server: &TestServer) -> Value {
    let answer = server.get("/status").bearer_auth(TOKEN).send().await;
    answer.unwrap().json().await.unwrap()
}

/// A time as the status tells it.
fn is_time(value: &Value) -> bool {
    let time = value.as_str().unwrap_or_default();
    time.len() == "2026-11-27T12:00:00Z".len() && time.ends_with('Z')
}

#[tokio::test]
async fn the_page_tells_what_the_server_is_and_how_to_connect_and_no_secret() {
    let base = "https://sandbox.example.com/prefix";
    let server = TestServer::with_settings(&[
        ("PUBLIC_BASE_URL", base),
        ("MCP_API_TOKENS", "n8n:other-token"),
    ])
    .await;
    let run = server
        .run_in("secret name", "python", "print('secret output')")
        .await;
    let answer = server.get("/").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let headers = answer.headers().clone();
    for (name, expected) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(headers[name], expected, "{name}");
    }
    let html = answer.text().await.unwrap();
    for part in [
        "mcp-code-sandbox",
        "Ready",
        env!("CARGO_PKG_VERSION"),
        "python",
        "matplotlib",
        "typescript",
        "bash",
        "href=\"healthz\"",
        "href=\"readyz\"",
        &format!("claude mcp add --transport http code-sandbox {base}/mcp \\"),
        &format!("&quot;url&quot;: &quot;{base}/mcp&quot;"),
        &format!("curl {base}/mcp \\"),
        "&lt;MCP_API_TOKEN&gt;",
        "n8n",
        "mcp.json",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    let root = server.root().to_str().unwrap();
    for secret in [
        TOKEN,
        "other-token",
        FILE_SECRET,
        "secret name",
        "secret output",
        run["runId"].as_str().unwrap(),
        &server.instance(),
        root,
    ] {
        assert!(!html.contains(secret), "{secret}: {html}");
    }
}

#[tokio::test]
async fn the_page_runs_its_own_script_and_asks_its_own_server_only() {
    let server = TestServer::start().await;
    let answer = server.get("/").send().await.unwrap();
    let policy = answer.headers()["content-security-policy"].clone();
    let policy: Vec<_> = policy.to_str().unwrap().split("; ").collect();
    for rule in [
        "default-src 'none'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(&rule), "{rule}: {policy:?}");
    }
    // By digest: 'self' would let in what is in a workspace, which is of the same origin.
    for kind in ["script-src", "style-src"] {
        let rule = policy.iter().find_map(|rule| rule.strip_prefix(kind));
        let mut sources = rule.unwrap().split_whitespace();
        assert!(
            sources.all(|source| source.starts_with("'sha256-")),
            "{policy:?}"
        );
    }
    let html = answer.text().await.unwrap();
    assert_eq!(html.matches("<script").count(), 1);
    // Nothing is loaded, and every link is relative: a proxy may add a prefix.
    for part in [
        " src=",
        "href=\"/",
        "href=\"http",
        " style=",
        " onclick=",
        "innerHTML",
    ] {
        assert!(!html.contains(part), "{part}");
    }

    let client = reqwest::Client::new();
    let url = format!("{}/", server.base_url());
    assert_eq!(client.head(&url).send().await.unwrap().status(), 200);
    assert_eq!(client.post(&url).send().await.unwrap().status(), 405);
    for unknown in ["/index.html", "/home", "/assets/home.js", "/status/", "//"] {
        let answer = server.get(unknown).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{unknown}");
    }
}

#[tokio::test]
async fn the_status_needs_the_token() {
    let server = TestServer::with_settings(&[("MCP_API_TOKENS", "n8n:other-token")]).await;
    for wrong in [None, Some("wrong"), Some(""), Some("TEST-TOKEN")] {
        let request = server.get("/status");
        let request = match wrong {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 401, "{wrong:?}");
        assert!(answer.headers().contains_key("www-authenticate"));
        let said = answer.text().await.unwrap();
        assert!(!said.contains("version"), "{said}");
    }
    let query = server.get(&format!("/status?token={TOKEN}")).send().await;
    assert_eq!(query.unwrap().status(), 401);
    for token in [TOKEN, "other-token"] {
        let answer = server.get("/status").bearer_auth(token).send().await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        let headers = answer.headers();
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert!(!headers.contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn the_status_tells_of_runs_and_not_of_what_is_in_them() {
    let server = TestServer::with_settings(&[("MAX_CONCURRENT_RUNS", "1")]).await;
    let idle = status(&server).await;
    assert_eq!(idle["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(idle["warm"], json!({ "spares": 0, "next": 0 }));
    assert_eq!(
        (&idle["running"], &idle["recent"]),
        (&json!([]), &json!([]))
    );
    assert!(is_time(&idle["time"]), "{idle}");
    assert_eq!(idle.get("problem"), None);

    let code = "touch 'secret file'; echo secret output; exit 3";
    let ended = server.run_in("secret name", "bash", code).await;
    let url = ended["files"][0]["url"].as_str().unwrap();
    let hash = url.split('/').nth(4).unwrap();
    let sleeps = |name| {
        let code =
            json!({ "conversationId": name, "language": "bash", "code": "sleep 3 # secret code" });
        server.call_ok("run_code", code)
    };
    let busy = async {
        for _ in 0..100 {
            let status = status(&server).await;
            if status["queued"] == 1 && status["running"].as_array().unwrap().len() == 1 {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("one run takes the only place, and one waits for it")
    };
    let (_, _, busy) = tokio::join!(sleeps("a"), sleeps("b"), busy);
    assert_eq!(busy["places"], 1);
    let running = &busy["running"][0];
    assert_eq!(
        (&running["language"], &running["caller"]),
        (&json!("bash"), &json!("default"))
    );
    assert!(is_time(&running["since"]), "{busy}");

    let recent = &busy["recent"][0];
    assert_eq!(recent["runId"], ended["runId"]);
    assert_eq!(recent["status"], "error");
    assert_eq!(recent["durationMs"], ended["durationMs"]);
    assert_eq!(recent["warm"], false);
    assert_eq!(recent["workspace"], &hash[..12]);
    assert!(is_time(&recent["since"]), "{busy}");
    let text = busy.to_string();
    for secret in [hash, "secret", FILE_SECRET, TOKEN] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }

    let after = status(&server).await;
    assert_eq!(after["recent"].as_array().unwrap().len(), 3);
    assert!(after["uptimeSeconds"].as_u64().unwrap() >= 3);
}

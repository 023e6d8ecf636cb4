//! MCP: plain clients, clients with a session, and what is no request.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    engine::{containers_of, docker},
    server::{TOKEN, TestServer},
    session::{Events, Session, request, run_bash},
};

#[tokio::test]
async fn plain_curl_needs_neither_accept_nor_initialize_nor_session() {
    let server = TestServer::start().await;
    for accept in [None, Some("*/*"), Some("application/json")] {
        let mut request = server.post(r#"{"jsonrpc":"2.0","id":"x","method":"tools/list"}"#);
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let response = request.send().await.unwrap();
        assert_eq!(
            response.headers()["content-type"],
            "application/json",
            "{accept:?}"
        );
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["id"], "x");
        let tools = answer["result"]["tools"].as_array().unwrap();
        let names: Vec<_> = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names[0], "run_code");
        assert_eq!(names.len(), 11);
    }
}

#[tokio::test]
async fn a_session_is_opened_used_and_closed() {
    let server = TestServer::start().await;
    let (session, hello) = Session::open(&server).await;
    assert_eq!(hello["result"]["serverInfo"]["name"], "mcp-code-sandbox");
    assert!(
        hello["result"]["instructions"]
            .as_str()
            .unwrap()
            .contains("/data")
    );

    let run = session.post(&run_bash(1, "echo in session")).await;
    let run = Events::of(run).last().await;
    assert_eq!(run["result"]["structuredContent"]["output"], "in session\n");

    session.close().await;
    let stale = session.post(&request(2, "tools/list", &json!({}))).await;
    assert_eq!(stale.status(), 404);
    let stale: Value = stale.json().await.unwrap();
    assert_eq!(stale["error"]["code"], -32001, "{stale}");
}

#[tokio::test]
async fn a_cancelled_call_of_a_session_ends_its_container_within_a_second() {
    let server = TestServer::start().await;
    let instance = server.instance();
    let (session, _) = Session::open(&server).await;
    let _call = session.post(&run_bash(7, "sleep 60")).await;
    let asked = Instant::now();
    while containers_of(&instance).is_empty() {
        assert!(
            asked.elapsed() < Duration::from_secs(10),
            "no container was made"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Until the program runs.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    assert_eq!(session.post(&cancel).await.status(), 202);
    let cancelled = Instant::now();
    let running = || {
        docker(&[
            "ps",
            "--quiet",
            "--filter",
            &format!("label=sandbox.owner={instance}"),
        ])
    };
    while !running().is_empty() {
        assert!(
            cancelled.elapsed() < Duration::from_secs(2),
            "the container still runs"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_no_request_is_answered_as_json_rpc() {
    let server =
        TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "1m"), ("MAX_CODE_BYTES", "1m")]).await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = "x".repeat(8 << 20);
    let ping = |id: Value, token: &str| {
        let meta = json!({ "_meta": { "progressToken": token } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "ping", "params": meta }).to_string()
    };
    let long_id = ping(json!("x".repeat(1_025)), "");
    let long_meta = ping(json!(1), &"x".repeat(16 << 10));
    let call = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    };
    let (no_name, listed, number) = (
        call(r#"{"arguments":{}}"#),
        call(r#"{"name":"run_code","arguments":[1]}"#),
        call("5"),
    );
    for (body, status, code, id) in [
        ("", 400, -32700, json!(null)),
        ("{", 400, -32700, json!(null)),
        ("hello", 400, -32700, json!(null)),
        ("[]", 400, -32600, json!(null)),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            400,
            -32600,
            json!(null),
        ),
        ("3", 400, -32600, json!(null)),
        ("{}", 400, -32600, json!(null)),
        (r#"{"id":1,"method":"ping"}"#, 400, -32600, json!(1)),
        (
            r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
            400,
            -32600,
            json!("a"),
        ),
        (r#"{"jsonrpc":"2.0","id":1}"#, 400, -32600, json!(1)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            400,
            -32600,
            json!(null),
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            400,
            -32600,
            json!(null),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            400,
            -32600,
            json!(null),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            400,
            -32600,
            json!(null),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
            400,
            -32602,
            json!(1),
        ),
        (no_name.as_str(), 400, -32602, json!(1)),
        (listed.as_str(), 400, -32602, json!(1)),
        (number.as_str(), 400, -32602, json!(1)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/read"}"#,
            400,
            -32602,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            400,
            -32600,
            json!(null),
        ),
        (deep.as_str(), 400, -32600, json!(null)),
        (long_id.as_str(), 400, -32600, json!(null)),
        (long_meta.as_str(), 400, -32602, json!(1)),
        (huge.as_str(), 413, -32600, json!(null)),
    ] {
        let response = server.post(body.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), status, "{body:.60}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{body:.60}: {answer}");
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &id),
            "{body:.60}"
        );
    }
}

#[tokio::test]
async fn headers_and_methods_that_do_not_fit_are_answered_as_json_rpc() {
    let server = TestServer::start().await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let url = format!("{}/mcp", server.base_url());
    let client = reqwest::Client::new();
    for (request, status, code) in [
        (
            server.post(ping).header("mcp-session-id", "stale"),
            404,
            -32001,
        ),
        (
            server
                .post(ping)
                .header("mcp-protocol-version", "1999-01-01"),
            400,
            -32600,
        ),
        (
            server.post(ping).header("origin", "https://evil.example"),
            403,
            -32600,
        ),
        (client.get(&url).bearer_auth(TOKEN), 406, -32600),
        (
            client
                .get(&url)
                .bearer_auth(TOKEN)
                .header("accept", "text/event-stream"),
            400,
            -32600,
        ),
        (client.delete(&url).bearer_auth(TOKEN), 400, -32600),
        (client.put(&url).bearer_auth(TOKEN).body(ping), 405, -32600),
        (
            client
                .post(&url)
                .bearer_auth(TOKEN)
                .header("content-type", "text/plain")
                .body(ping),
            400,
            -32600,
        ),
    ] {
        let response = request.send().await.unwrap();
        let url = response.url().clone();
        assert_eq!(response.status(), status, "{url}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_is_not_there_is_method_not_found() {
    let server = TestServer::start().await;
    for method in [
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "resources/subscribe",
        "no/such",
    ] {
        let params = json!({
            "name": "x", "uri": "x://y", "level": "info",
            "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "x", "value": "y" },
        });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer: Value = server
            .post(request.to_string())
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "no_such" } });
    let answer: Value = server
        .post(request.to_string())
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_turned_away() {
    let server = TestServer::start().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (name, value, status) in [
        ("host", "evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:3000", 200),
        ("origin", server.base_url(), 200),
        ("host", "localhost", 200),
    ] {
        let response = server.post(body).header(name, value).send().await.unwrap();
        assert_eq!(response.status(), status, "{name}: {value}");
    }
}

#[tokio::test]
async fn the_link_of_a_file_is_its_resource() {
    let server = TestServer::start().await;
    let code = "echo hello > 'a b.txt'; head -c 100 /dev/zero > z.bin; head -c 2000000 /dev/zero > large.bin; \
                ln -s /etc/passwd out";
    let run = server.run("bash", code).await;
    let read = async |uri: String| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": uri } });
        let response = server.post(body.to_string()).send().await.unwrap();
        response.json::<Value>().await.unwrap()
    };
    let url = |name: &str| {
        let files = run["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["name"] == name).unwrap();
        file["url"].as_str().unwrap().to_owned()
    };
    let text = read(url("a b.txt")).await;
    let expected = json!({ "uri": url("a b.txt"), "mimeType": "text/plain", "text": "hello\n" });
    assert_eq!(text["result"]["contents"][0], expected);
    let bytes = read(url("z.bin")).await;
    assert_eq!(
        bytes["result"]["contents"][0]["blob"]
            .as_str()
            .unwrap()
            .len(),
        136
    );
    assert_eq!(read(url("large.bin")).await["error"]["code"], -32602);
    let elsewhere = url("a b.txt").replace("a%20b.txt", "out");
    for uri in [elsewhere.as_str(), "file:///etc/passwd", "x", ""] {
        let answer = read(uri.to_owned()).await;
        assert_eq!(answer["error"]["code"], -32002, "{uri}: {answer}");
    }
    let templates = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/templates/list" });
    let response = server.post(templates.to_string()).send().await.unwrap();
    let templates: Value = response.json().await.unwrap();
    let template = &templates["result"]["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(
        *template,
        format!("{}/files/{{hash}}/{{+path}}", server.base_url())
    );
}

//! Service: callers that mean harm or vanish, and a server or an engine that dies.

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    at_once,
    proxy::{Engine, Proxy},
    wait_until,
};
use crate::{
    engine::{Leftovers, containers_of},
    server::{BinaryServer, Caller, TOKEN, TestServer, instance_of},
};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// The request line and headers of a POST to `/mcp` up to, not including, the last empty line.
fn head(address: &str, more: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n{more}"
    )
}

/// The answer of a call without the assumption that it was carried out.
async fn outcome(caller: Caller, arguments: Value) -> (String, Value) {
    let result = caller.call("run_code", arguments).await;
    if result["isError"] == true {
        let refusal: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        let code = refusal["error"]["code"].as_str().unwrap().to_owned();
        return (code, refusal["error"].clone());
    }
    let run = result["structuredContent"].clone();
    (run["status"].as_str().unwrap().to_owned(), run)
}

#[tokio::test]
async fn only_one_exact_token_is_let_in() {
    let server = TestServer::start().await;
    let client = reqwest::Client::new();
    let right = format!("Bearer {TOKEN}");
    let long = format!("Bearer {}", "x".repeat(10_000));
    for (values, status) in [
        (vec![right.as_str()], 200),
        (vec!["bearer test-token"], 200),
        (vec![], 401),
        (vec![&right, &right], 401),
        (vec![&right, "Bearer wrong"], 401),
        (vec!["Bearer wrong", &right], 401),
        (vec!["Bearer test-token, Bearer test-token"], 401),
        (vec!["Bearer Test-Token"], 401),
        (vec!["Bearer test-toke"], 401),
        (vec!["Bearer test-tokenx"], 401),
        (vec!["Bearer  test-token"], 401),
        (vec!["Bearer \"test-token\""], 401),
        (vec!["Bearer"], 401),
        (vec!["Bearer "], 401),
        (vec!["test-token"], 401),
        (vec!["Basic test-token"], 401),
        (vec!["Basic dGVzdC10b2tlbjo="], 401),
        (vec![&long], 401),
    ] {
        let mut request = client
            .post(format!("{}/mcp", server.base_url()))
            .header("content-type", "application/json")
            .body(LIST);
        for value in &values {
            request = request.header("authorization", *value);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{values:.40?}");
        assert_eq!(
            response.headers().contains_key("www-authenticate"),
            status == 401
        );
    }
    for path in [
        "/mcp?access_token=test-token",
        "/mcp?token=test-token",
        "/mcp/",
        "/MCP",
    ] {
        let response = client
            .post(format!("{}{path}", server.base_url()))
            .body(LIST)
            .send()
            .await
            .unwrap();
        assert!([401, 404].contains(&response.status().as_u16()), "{path}");
    }
}

#[tokio::test]
async fn a_body_of_a_gigabyte_is_cut_off_early() {
    let server =
        TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "1m"), ("MAX_CODE_BYTES", "1m")]).await;
    let piece = vec![b'x'; 64 << 10];
    for (name, more, token) in [
        ("length", "content-length: 1073741824\r\n", TOKEN),
        ("chunked", "transfer-encoding: chunked\r\n", TOKEN),
        ("unauthorised", "content-length: 1073741824\r\n", "wrong"),
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = head(server.address(), more).replace(TOKEN, token);
        stream
            .write_all(format!("{head}\r\n").as_bytes())
            .await
            .unwrap();
        let (mut reading, mut writing) = stream.split();
        let mut sent = 0;
        let sending = async {
            while sent < 1 << 30 {
                let written = if name == "chunked" {
                    let chunk = [b"10000\r\n", &piece[..], b"\r\n"].concat();
                    writing.write_all(&chunk).await
                } else {
                    writing.write_all(&piece).await
                };
                if written.is_err() {
                    break;
                }
                sent += piece.len();
            }
            std::future::pending::<()>().await;
        };
        let mut answer = vec![0; 16];
        let answered = async {
            tokio::select! {
                read = reading.read_exact(&mut answer) => read.map(|_| ()),
                () = sending => Ok(()),
            }
        };
        tokio::time::timeout(Duration::from_secs(10), answered)
            .await
            .expect("answers early")
            .unwrap();
        let status = if token == TOKEN { "413" } else { "401" };
        assert_eq!(String::from_utf8_lossy(&answer[9..12]), status, "{name}");
        assert!(sent < 32 << 20, "{name}: {sent} bytes were taken");
    }
}

#[tokio::test]
async fn clients_that_never_finish_a_request_are_dropped_and_delay_nobody() {
    let server = TestServer::start().await;
    let address = server.address();
    let body = head(address, "content-length: 1000\r\n\r\n{");
    let started = [
        ("nothing at all", String::new(), 1),
        ("half a request line", "GET /hea".to_owned(), 200),
        ("headers without end", head(address, ""), 1),
        ("a body without end", body, 1),
    ];
    let mut open = Vec::new();
    for (what, begun, times) in &started {
        for _ in 0..*times {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            open.push((what, stream));
        }
    }
    // One that sends something now and then is no better.
    let mut drip = TcpStream::connect(address).await.unwrap();
    drip.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let (mut drip_reading, mut drip_writing) = drip.into_split();
    let dripping = tokio::spawn(async move {
        while drip_writing.write_all(b"x: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });

    let asked = Instant::now();
    assert_eq!(server.run("bash", "echo hello").await["output"], "hello\n");
    assert!(
        asked.elapsed() < Duration::from_secs(3),
        "{:?}",
        asked.elapsed()
    );

    // As long as a usual server's patience with a slow client.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(35);
    let mut left = Vec::new();
    let mut rest = Vec::new();
    if tokio::time::timeout_at(deadline, drip_reading.read_to_end(&mut rest))
        .await
        .is_err()
    {
        left.push("headers that drip");
    }
    for (what, mut stream) in open {
        if tokio::time::timeout_at(deadline, stream.read_to_end(&mut rest))
            .await
            .is_err()
        {
            left.push(what);
        }
    }
    dripping.abort();
    left.dedup();
    assert_eq!(left, [""; 0], "still open");
}

#[tokio::test]
async fn deep_huge_and_odd_requests_are_answered_as_json_rpc() {
    let server =
        TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "1m"), ("MAX_CODE_BYTES", "1m")]).await;
    let nested =
        |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    let request = |id: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    let long = format!("\"{}\"", "x".repeat(2 << 20));
    let call = |arguments: &str| format!(r#"{{"name":"list_runners","arguments":{arguments}}}"#);
    let bodies = [
        request("1", &nested("[", "]")),
        request("1", &nested("{\"a\":", "}")),
        request("1", &call(&nested("{\"a\":", "}"))),
        request(&nested("[", "]"), "{}"),
        request(&long, &call("{}")),
        request(&"9".repeat(100_000), &call("{}")),
        request("1e999", &call("{}")),
        request("-1.5", &call("{}")),
        request("{}", &call("{}")),
        request("[1]", &call("{}")),
        request("true", &call("{}")),
        request("1", "[]"),
        request("1", "null"),
        request("1", &call("[]")),
        request("1", &call("7")),
        request("1", &format!(r#"{{"name":{long}}}"#)),
        format!("[{}]", [LIST; 1000].join(",")),
        format!("{LIST}{LIST}"),
        format!(
            "{{\"jsonrpc\":\"2.0\",{}\"method\":\"tools/list\",\"id\":1}}",
            "\"method\":\"x\",".repeat(1000)
        ),
        "\u{feff}".to_owned() + LIST,
        "\0".repeat(1000),
    ];
    let mut wrong = Vec::new();
    for body in bodies {
        let response = server.post(body.clone()).send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let answered = answer["error"]["code"].is_i64() || answer["result"].is_object();
        if status.is_server_error() || answer["jsonrpc"] != "2.0" || !answered {
            wrong.push(format!("{body:.90}: {status}: {text:.90}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (path, header) in [("x".repeat(1 << 20), 0), (String::new(), 1 << 20)] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request = format!(
            "GET /files/{path} HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
            "y".repeat(header)
        );
        // The server may hang up before it has read all of it.
        let _written = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let reading = stream.read_to_end(&mut answer);
        let _reset = tokio::time::timeout(Duration::from_secs(5), reading)
            .await
            .expect("answers at once");
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let listed = server.call_ok("list_runners", json!({})).await;
    assert!(listed["runners"].is_array(), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_whose_caller_vanished_is_stopped_within_a_second_and_its_place_is_free() {
    let server = TestServer::with_settings(&[("MAX_CONCURRENT_RUNS", "1")]).await;
    let instance = server.instance();
    for (language, code) in [
        (
            "bash",
            "trap '' TERM INT HUP PIPE; while :; do date > beat; sleep 0.05; done",
        ),
        (
            "python",
            "import time\nwhile True:\n    open('beat', 'w').close(); time.sleep(0.05)",
        ),
    ] {
        let arguments = json!({ "conversationId": language, "language": language, "code": code });
        let caller = server.clone();
        let call = tokio::spawn(async move { caller.call("run_code", arguments).await });
        let beat = || {
            let beats = server
                .workspaces()
                .into_iter()
                .map(|path| path.join("beat"));
            beats
                .filter_map(|beat| fs::metadata(beat).ok()?.modified().ok())
                .max()
        };
        let begun = SystemTime::now();
        wait_until("the program runs", Duration::from_secs(10), async || {
            beat() > Some(begun)
        })
        .await;
        call.abort();
        let gone = SystemTime::now();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = beat().unwrap().duration_since(gone).unwrap_or_default();
        assert!(
            after < Duration::from_secs(1),
            "{language} went on for {after:?}"
        );
        assert_eq!(server.run("bash", "echo free").await["output"], "free\n");
        wait_until(
            "the container is gone",
            Duration::from_secs(5),
            async || containers_of(&instance).is_empty(),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_mid_run_removes_exactly_its_own_containers_at_the_next_start() {
    let root = tempfile::tempdir().unwrap();
    let mut killed = BinaryServer::start(root.path(), &[]).await;
    let other = TestServer::start().await;
    let leftovers = Leftovers {
        instance: instance_of(root.path()),
    };
    let kept = killed.run_in("chat", "bash", "echo kept > kept").await;
    assert_eq!(kept["newFiles"], json!(["kept"]));

    let run = |caller: &Caller, seconds: u32| {
        let code = format!("touch begun; sleep {seconds}; echo survived");
        let arguments = json!({ "language": "bash", "code": code });
        let caller = caller.clone();
        tokio::spawn(async move { caller.call("run_code", arguments).await })
    };
    let lost = [run(&killed, 60), run(&killed, 60)];
    let others = run(&other, 8);
    wait_until("all programs run", Duration::from_secs(15), async || {
        let begun = |root| {
            fs::read_dir(root)
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().path().join("begun").exists())
                .count()
        };
        begun(root.path()) == 2 && begun(other.root()) == 1
    })
    .await;
    killed.kill();
    for call in lost {
        assert!(call.await.is_err(), "the call must fail with its server");
    }
    assert_eq!(
        containers_of(&leftovers.instance).len(),
        2,
        "nobody was left to remove them"
    );

    let restarted = BinaryServer::start(root.path(), &[]).await;
    wait_until(
        "the containers left behind are gone",
        Duration::from_secs(10),
        async || containers_of(&leftovers.instance).is_empty(),
    )
    .await;
    assert_eq!(containers_of(&other.instance()).len(), 1);
    let survived = others.await.unwrap();
    assert_eq!(
        survived["structuredContent"]["output"], "survived\n",
        "{survived}"
    );
    assert_eq!(
        restarted.run_in("chat", "bash", "cat kept").await["output"],
        "kept\n"
    );
    let url = kept["files"][0]["url"]
        .as_str()
        .unwrap()
        .replace(killed.base_url(), restarted.base_url());
    assert_eq!(
        restarted.download(&url).await.text().await.unwrap(),
        "kept\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_stops_and_returns_is_told_of_and_needs_no_restart() {
    let proxy = Proxy::start();
    let server = TestServer::with_settings(&[("DOCKER_HOST", &proxy.docker_host())]).await;
    let instance = server.instance();
    let ready = async || {
        let response = server.get("/readyz").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(ready().await.0, 200);
    let hello = json!({ "language": "bash", "code": "echo hello" });
    let sleeper = json!({ "language": "bash", "code": "sleep 30" });
    let running = tokio::spawn(outcome(server.clone(), sleeper));
    let _leftovers = Leftovers {
        instance: instance.clone(),
    };
    wait_until("a run is under way", Duration::from_secs(10), async || {
        containers_of(&instance).len() == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;

    for round in 0..2 {
        proxy.set(Engine::Stopped);
        wait_until("the server notices", Duration::from_secs(2), async || {
            ready().await.0 == 503
        })
        .await;
        let (_, reason) = ready().await;
        assert!(reason.to_lowercase().contains("docker"), "{reason}");
        let page = server.get("/").send().await.unwrap().text().await.unwrap();
        assert!(page.contains("Not ready: ") && page.contains("python"));
        let status = server.get("/status").bearer_auth(TOKEN).send().await;
        let status: Value = status.unwrap().json().await.unwrap();
        assert_eq!(status["problem"], reason.trim_end());
        assert_eq!(server.get("/healthz").send().await.unwrap().status(), 200);
        let asked = Instant::now();
        let (code, error) = outcome(server.clone(), hello.clone()).await;
        assert_eq!(code, "docker_unavailable", "round {round}: {error}");
        assert!(
            asked.elapsed() < Duration::from_secs(7),
            "{:?}",
            asked.elapsed()
        );
        let upload = json!({ "filename": "a", "content": "QUJD" });
        server.call_ok("upload_file", upload).await;

        proxy.set(Engine::Running);
        wait_until("the server recovers", Duration::from_secs(5), async || {
            ready().await.0 == 200
        })
        .await;
        let (status, run) = outcome(server.clone(), hello.clone()).await;
        assert_eq!(status, "ok", "round {round}: {run}");
    }
    let (code, error) = tokio::time::timeout(Duration::from_secs(15), running)
        .await
        .expect("a run whose engine went is answered")
        .unwrap();
    assert_eq!(code, "docker_unavailable", "{error}");
    // Its container could not be removed then; the next look removes it.
    wait_until("nothing is left", Duration::from_secs(70), async || {
        containers_of(&instance).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_hangs_makes_no_call_wait_for_ever() {
    let proxy = Proxy::start();
    let settings = [
        ("DOCKER_HOST", proxy.docker_host()),
        ("MAX_CONCURRENT_RUNS", "2".to_owned()),
    ];
    let server = TestServer::with_settings(
        &settings
            .each_ref()
            .map(|(name, value)| (*name, value.as_str())),
    )
    .await;
    let sleeper =
        json!({ "language": "bash", "code": "echo begun; sleep 60", "timeoutSeconds": 3 });
    let running = tokio::spawn(outcome(server.clone(), sleeper));
    let instance = server.instance();
    let _leftovers = Leftovers {
        instance: instance.clone(),
    };
    wait_until("a run is under way", Duration::from_secs(10), async || {
        containers_of(&instance).len() == 1
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.set(Engine::Hung);

    let asked = Instant::now();
    let response = server.get("/readyz").send().await.unwrap();
    assert_eq!(response.status(), 503);
    let reason = response.text().await.unwrap();
    assert!(reason.contains("did not answer"), "{reason}");
    assert!(
        asked.elapsed() < Duration::from_secs(8),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(server.get("/healthz").send().await.unwrap().status(), 200);

    // The run's own time is up whatever the engine does.
    let (status, run) = tokio::time::timeout(Duration::from_secs(15), running)
        .await
        .expect("a run on a hung engine is answered")
        .unwrap();
    assert_eq!(status, "timeout", "{run}");
    assert_eq!(run["output"], "begun\n");

    let hello = json!({ "language": "bash", "code": "echo hello" });
    let (code, error) = tokio::time::timeout(
        Duration::from_secs(40),
        outcome(server.clone(), hello.clone()),
    )
    .await
    .expect("a call to a hung engine is answered");
    assert_eq!(code, "docker_unavailable", "{error}");

    proxy.set(Engine::Slow);
    let (status, run) = outcome(server.clone(), hello.clone()).await;
    assert_eq!(status, "ok", "a slow engine is an engine: {run}");
    assert!(run["durationMs"].as_u64().unwrap() < 10_000);
    proxy.set(Engine::Running);
    assert_eq!(outcome(server.clone(), hello).await.0, "ok");
    // What it was asked for while it hung, it may do now: the next look finds that.
    wait_until("nothing is left", Duration::from_secs(90), async || {
        containers_of(&instance).is_empty()
    })
    .await;
}

/// A hundred calls in one conversation and two hundred in as many are the release's numbers; sixty of each
/// queue just as long behind few places.
const CALLS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_in_one_conversation_are_all_answered_or_busy() {
    let settings = [
        ("MAX_CONCURRENT_RUNS", "4"),
        ("MAX_QUEUED_RUNS", "40"),
        ("QUEUE_TIMEOUT_SECONDS", "120"),
    ];
    let server = TestServer::with_settings(&settings).await;
    let calls = (0..CALLS).map(|number| {
        let arguments = json!({ "conversationId": "one", "language": "bash", "code": format!("echo {number} >> all; echo {number}") });
        outcome(server.clone(), arguments)
    });
    let other = tokio::spawn({
        let caller = server.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let asked = Instant::now();
            let hello =
                json!({ "conversationId": "other", "language": "bash", "code": "echo hello" });
            let mut answer = outcome(caller.clone(), hello.clone()).await;
            while answer.0 == "busy" {
                tokio::time::sleep(Duration::from_millis(100)).await;
                answer = outcome(caller.clone(), hello.clone()).await;
            }
            (answer, asked.elapsed())
        }
    });
    let asked = Instant::now();
    let answers = at_once(calls).await;
    let all = asked.elapsed();
    let (mut answered, mut busy) = (0, 0);
    for (number, (outcome, answer)) in answers.iter().enumerate() {
        match outcome.as_str() {
            "ok" => {
                assert_eq!(answer["output"], format!("{number}\n"));
                answered += 1;
            }
            "busy" => {
                let message = answer["message"].as_str().unwrap();
                assert!(message.contains("try again in"), "{message}");
                busy += 1;
            }
            _ => panic!("{outcome}: {answer}"),
        }
    }
    // All places and all of the queue were used, and the rest told so at once.
    assert_eq!((answered + busy, answered), (CALLS, 44), "{busy} busy");
    let written = server.run_in("one", "bash", "sort -u all | wc -l").await;
    assert_eq!(written["output"], format!("{answered}\n"));
    let ((status, run), waited) = other.await.unwrap();
    assert_eq!(status, "ok", "{run}");
    assert!(
        waited < all / 2,
        "another conversation waited {waited:?} of {all:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_conversations_at_once_are_all_answered() {
    let settings = [
        ("MAX_CONCURRENT_RUNS", "4"),
        ("MAX_QUEUED_RUNS", "60"),
        ("QUEUE_TIMEOUT_SECONDS", "120"),
    ];
    let server = TestServer::with_settings(&settings).await;
    let calls = (0..CALLS).map(|number| {
        let arguments = json!({
            "conversationId": format!("conversation {number}"), "language": "bash",
            "code": format!("echo {number} > mine; ls | wc -l; cat mine"), "timeoutSeconds": 5,
        });
        outcome(server.clone(), arguments)
    });
    let answers = at_once(calls).await;
    for (number, (status, run)) in answers.iter().enumerate() {
        assert_eq!(status, "ok", "{run}");
        assert_eq!(run["output"], format!("1\n{number}\n"));
    }
    assert_eq!(server.workspaces().len(), CALLS);
    let instance = server.instance();
    wait_until("nothing is left", Duration::from_secs(10), async || {
        containers_of(&instance).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_place_takes_nothing_of_the_runs_time() {
    let settings = [("MAX_CONCURRENT_RUNS", "1"), ("QUEUE_TIMEOUT_SECONDS", "5")];
    let server = TestServer::with_settings(&settings).await;
    let call = |seconds: u32, timeout: u32| {
        let arguments = json!({ "language": "bash", "code": format!("sleep {seconds}; echo done"), "timeoutSeconds": timeout });
        tokio::spawn(outcome(server.clone(), arguments))
    };
    let first = call(4, 10);
    tokio::time::sleep(Duration::from_millis(700)).await;
    let asked = Instant::now();
    let second = call(0, 1);
    assert_eq!(first.await.unwrap().0, "ok");
    let (status, run) = second.await.unwrap();
    assert_eq!(
        (status.as_str(), &run["output"]),
        ("ok", &json!("done\n")),
        "{run}"
    );
    assert!(
        asked.elapsed() > Duration::from_secs(3),
        "it did not wait: {:?}",
        asked.elapsed()
    );
    assert!(run["durationMs"].as_u64().unwrap() < 1000, "{run}");

    // Who waits too long is told so, and when to come back.
    let first = call(8, 10);
    tokio::time::sleep(Duration::from_millis(700)).await;
    let asked = Instant::now();
    let (code, error) = call(0, 1).await.unwrap();
    assert_eq!(code, "busy", "{error}");
    assert!(
        (4..7).contains(&asked.elapsed().as_secs()),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(first.await.unwrap().0, "ok");
}

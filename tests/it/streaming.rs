//! Streaming: what a client hears of a run while it goes on, and after its stream broke off.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    server::{BinaryServer, Caller, TestServer},
    session::{BOTH_FORMS, Events, Session, initialize, request, run_bash},
};

/// Three lines, one each 300 ms.
const SLOW: &str = "for i in 1 2 3; do echo line $i; sleep 0.3; done";

/// What was told before the answer, and the answer.
async fn told(mut events: Events) -> (Vec<Value>, Value) {
    let mut told = Vec::new();
    loop {
        let message = events.next().await.expect("an answer must come").message;
        if message["method"] == "notifications/progress" {
            told.push(message["params"].clone());
        } else {
            return (told, message["result"]["structuredContent"].clone());
        }
    }
}

fn messages(told: &[Value]) -> Vec<&str> {
    told.iter()
        .map(|progress| progress["message"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn output_is_told_while_the_program_runs_with_and_without_a_session() {
    let server = TestServer::start().await;
    let (session, _) = Session::open(&server).await;
    let stateless = server
        .post(run_bash(7, SLOW).to_string())
        .header("accept", BOTH_FORMS);
    for response in [
        stateless.send().await.unwrap(),
        session.post(&run_bash(7, SLOW)).await,
    ] {
        let (told, result) = told(Events::of(response)).await;
        assert_eq!(result["output"], "line 1\nline 2\nline 3\n");
        let messages = messages(&told);
        assert_eq!(messages[..2], ["starting", "running"], "{messages:?}");
        assert!(
            messages.contains(&"line 1") && messages.contains(&"line 2"),
            "{messages:?}"
        );
        let passed: Vec<f64> = told
            .iter()
            .map(|progress| progress["progress"].as_f64().unwrap())
            .collect();
        assert!(passed.is_sorted() && told.iter().all(|progress| progress["progressToken"] == 7));
    }
}

#[tokio::test]
async fn a_client_that_wants_one_answer_or_names_no_token_is_told_nothing() {
    let server = TestServer::start().await;
    let mut unasked = run_bash(1, "echo quiet");
    unasked["params"].as_object_mut().unwrap().remove("_meta");
    for (body, accept) in [
        (run_bash(1, "echo quiet"), "application/json"),
        (run_bash(1, "echo quiet"), "*/*"),
        (unasked, BOTH_FORMS),
    ] {
        let response = server.post(body.to_string()).header("accept", accept);
        let response = response.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["result"]["structuredContent"]["output"], "quiet\n");
    }
}

#[tokio::test]
async fn a_run_that_waits_says_so() {
    let server = TestServer::with_settings(&[("MAX_CONCURRENT_RUNS", "1")]).await;
    let (session, _) = Session::open(&server).await;
    let first = session.post(&run_bash(1, "sleep 1")).await;
    let mut first = Events::of(first);
    assert_eq!(
        first.next().await.unwrap().message["params"]["message"],
        "starting"
    );
    let second = session.post(&run_bash(2, "echo second")).await;
    let (told, result) = told(Events::of(second)).await;
    assert_eq!(messages(&told)[0], "queued");
    assert_eq!(result["output"], "second\n");
}

#[tokio::test]
async fn a_flood_is_told_in_few_and_short_notifications() {
    let server = TestServer::start().await;
    let (session, _) = Session::open(&server).await;
    let response = session
        .post(&run_bash(1, "timeout 2 yes 'sixteen bytes...'"))
        .await;
    let began = Instant::now();
    let (told, result) = told(Events::of(response)).await;
    let most = began.elapsed().as_millis() / 100 + 2;
    assert_eq!(result["truncated"], true);
    assert!(
        told.len() as u128 <= most,
        "{} notifications, at most {most} expected",
        told.len()
    );
    assert!(messages(&told).iter().all(|message| message.len() <= 4096));
}

#[tokio::test]
async fn a_silent_run_is_heard_of_every_few_seconds() {
    let server = TestServer::start().await;
    let (session, _) = Session::open(&server).await;
    let mut events = Events::of(session.post(&run_bash(1, "sleep 12; echo done")).await);
    let (mut heard, mut heartbeats) = (Instant::now(), 0);
    let mut answer = Value::Null;
    while let Some(event) = events.next().await {
        assert!(heard.elapsed() < Duration::from_secs(15));
        heard = Instant::now();
        answer = event.message;
        heartbeats += u32::from(answer["params"]["message"] == "still running");
    }
    assert_eq!(heartbeats, 1, "one in 12 s");
    assert_eq!(answer["result"]["structuredContent"]["output"], "done\n");
}

#[tokio::test]
async fn a_stream_cut_in_mid_run_is_resumed_and_the_result_arrives() {
    let server = TestServer::start().await;
    let (session, _) = Session::open(&server).await;
    let mut events = Events::of(session.post(&run_bash(5, SLOW)).await);
    let last = loop {
        let event = events.next().await.unwrap();
        if event.message["params"]["message"] == "line 1" {
            break event.id.expect("events of a session have ids");
        }
    };
    drop(events);

    // At once, while it still runs, and again when it has ended.
    for _ in 0..2 {
        let resumed = Events::of(session.resume(&last).await);
        let (told, result) = told(resumed).await;
        assert_eq!(result["output"], "line 1\nline 2\nline 3\n");
        assert!(!messages(&told).contains(&"line 1"), "{told:?}");
        assert!(messages(&told).contains(&"line 2"), "{told:?}");
    }
    let unknown = session.resume("0123456789abcdef0123456789abcdef").await;
    assert_eq!(unknown.status(), 200);
    assert_eq!(unknown.text().await.unwrap(), "");
}

async fn open_sessions(server: &Caller, count: usize) {
    let body = initialize().to_string();
    for _ in 0..count {
        let request = server.post(body.clone()).header("accept", BOTH_FORMS);
        let opened = request.send().await.unwrap();
        assert_eq!(opened.status(), 200);
        opened.bytes().await.unwrap();
    }
}

#[tokio::test]
async fn ten_thousand_sessions_cost_little_and_those_in_use_stay() {
    let root = tempfile::tempdir().unwrap();
    let server = BinaryServer::start(root.path(), &[]).await;
    open_sessions(&server, 20).await;
    let before = server.resident_bytes();
    let (session, _) = Session::open(&server).await;
    let running = session.post(&run_bash(1, "sleep 8; echo still here")).await;

    let hundreds = (0..4).map(|_| open_sessions(&server, 2_500));
    futures_util::future::join_all(hundreds).await;
    let growth = server.resident_bytes().saturating_sub(before);
    println!("10,000 sessions: {} KiB more", growth >> 10);
    assert!(growth < 20 << 20, "{growth} bytes more");

    let (_, result) = told(Events::of(running)).await;
    assert_eq!(result["output"], "still here\n");
    // One that was idle for longest has gone, and its client is told how to go on.
    let (idle, _) = Session::open(&server).await;
    open_sessions(&server, 300).await;
    let stale = idle.post(&request(2, "tools/list", &json!({}))).await;
    assert_eq!(stale.status(), 404);
    assert_eq!(
        stale.json::<Value>().await.unwrap()["error"]["code"],
        -32001
    );
}

//! Warm: containers that wait for calls, seen from outside by how they are labelled and how long calls take.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    engine::{containers_of, docker, image},
    server::TestServer,
};

/// Spares of one language only, so that a test can tell which container is which.
async fn server(spares: &str, conversations: &str) -> TestServer {
    let settings = [
        ("WARM_POOL_SIZE", spares),
        ("WARM_CONVERSATIONS", conversations),
    ];
    TestServer::with_settings(&settings).await
}

/// Runs that the containers which are up now, of one language, are made for.
fn waiting(server: &TestServer, language: &str) -> Vec<String> {
    let owner = format!("label=sandbox.owner={}", server.instance());
    let language = format!("label=sandbox.language={language}");
    let format = "{{.Label \"sandbox.run\"}}";
    let runs = docker(&[
        "ps", "--filter", &owner, "--filter", &language, "--format", format,
    ]);
    runs.lines().map(str::to_owned).collect()
}

async fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !holds() {
        assert!(asked.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_new_conversation_takes_the_spare_and_the_next_call_the_next_one() {
    let server = server("1", "8").await;
    wait_for("a spare of python", || {
        waiting(&server, "python").len() == 1
    })
    .await;
    let spare = waiting(&server, "python").remove(0);

    let first = server
        .run_in(
            "chat",
            "python",
            "open('kept', 'w').write('x'); print('first')",
        )
        .await;
    assert_eq!(
        (&first["output"], &first["runId"]),
        (&json!("first\n"), &json!(spare))
    );
    assert_eq!(first["newFiles"], json!(["kept"]));

    // The next one of this conversation, and a new spare.
    wait_for("two containers of python", || {
        waiting(&server, "python").len() == 2
    })
    .await;
    let waiting = waiting(&server, "python");
    let second = server
        .run_in("chat", "python", "import os; print(os.listdir())")
        .await;
    assert_eq!(second["output"], "['kept']\n");
    assert!(
        waiting.iter().any(|run| second["runId"] == **run),
        "{second}"
    );
}

#[tokio::test]
async fn an_upload_that_opens_a_conversation_makes_its_first_run_warm() {
    let server = server("1", "8").await;

    let spares = || {
        ["bash", "python", "typescript"]
            .map(|language| waiting(&server, language))
            .concat()
    };
    wait_for("spares", || spares().len() == 3).await;
    let before = spares();
    let upload = json!({ "conversationId": "chat", "filename": "a.txt", "content": "QUJD" });
    server.call_ok("upload_file", upload).await;
    let mut taken = 0;
    for (language, code) in [
        ("bash", "cat a.txt"),
        ("python", "print(open('a.txt').read(), end='')"),
        (
            "typescript",
            "process.stdout.write(require('fs').readFileSync('a.txt'))",
        ),
    ] {
        let run = server.run_in("chat", language, code).await;
        assert_eq!(run["output"], "ABC", "{run}");
        taken += usize::from(before.iter().any(|id| run["runId"] == **id));
    }
    assert_eq!(taken, 1, "one of the spares belongs to the conversation");
}

#[tokio::test]
async fn calls_faster_than_spares_are_made_are_all_answered() {
    let server = server("1", "0").await;
    // Faster than spares are made: each call finds one that is under way, or none.
    for number in 0..12 {
        let run = server
            .run_in(
                &format!("new-{number}"),
                "bash",
                "echo $((6 * 7)) > x; cat x",
            )
            .await;
        assert_eq!(run["output"], "42\n", "{run}");
        tokio::time::sleep(Duration::from_millis(number * 20)).await;
    }
}

#[tokio::test]
async fn a_warm_container_still_serves_one_conversation_once() {
    let server = server("2", "8").await;
    wait_for("two spares of bash", || waiting(&server, "bash").len() == 2).await;
    let (a, b) = tokio::join!(
        server.run_in(
            "a",
            "bash",
            "echo secret > /data/a; echo secret > /tmp/a; ls /data"
        ),
        server.run_in("b", "bash", "sleep 0.5; ls -A /data /tmp"),
    );
    assert_ne!(a["runId"], b["runId"]);
    assert_eq!(a["output"], "a\n");
    assert!(!b["output"].as_str().unwrap().contains("\na\n"), "{b}");
    let again = server.run_in("a", "bash", "ls /tmp; cat /data/a").await;
    assert_ne!(again["runId"], a["runId"]);
    assert!(
        again["output"].as_str().unwrap().ends_with("secret\n"),
        "{again}"
    );
    assert!(
        !again["output"].as_str().unwrap().starts_with("a\n"),
        "{again}"
    );
}

#[tokio::test]
async fn dead_containers_and_lost_directories_only_cost_time() {
    let server = server("1", "8").await;
    wait_for("a spare of bash", || waiting(&server, "bash").len() == 1).await;
    let spare = waiting(&server, "bash").remove(0);
    docker(&["kill", &format!("sandbox-{spare}")]);
    assert_eq!(
        server.run_in("a", "bash", "echo well").await["output"],
        "well\n"
    );

    wait_for("containers wait again", || {
        waiting(&server, "bash").len() == 2
    })
    .await;
    std::fs::remove_dir_all(server.root().join(".warm")).unwrap();
    assert_eq!(
        server.run_in("b", "bash", "echo well > x; cat x").await["output"],
        "well\n"
    );
    assert_eq!(
        server.run_in("b", "bash", "cat x").await["output"],
        "well\n"
    );
}

#[tokio::test]
async fn a_rebuilt_image_is_what_runs_next() {
    let server = server("1", "8").await;
    let build = |word: &str| {
        let context = tempfile::tempdir().unwrap();
        let dockerfile = format!(
            "FROM debian:trixie-slim\nENV WORD={word}\nLABEL sandbox.runner=true sandbox.language=rebuilt-test\nENTRYPOINT [\"perl\"]\n"
        );
        std::fs::write(context.path().join("Dockerfile"), dockerfile).unwrap();
        image(context.path())
    };
    let (name, _first) = build("old");
    // Found by the engine's news alone.
    wait_for("a spare of the new language", || {
        waiting(&server, "rebuilt-test").len() == 1
    })
    .await;
    assert_eq!(
        server.run_in("a", "rebuilt-test", "print $ENV{WORD}").await["output"],
        "old"
    );
    wait_for("containers wait", || {
        waiting(&server, "rebuilt-test").len() == 2
    })
    .await;

    let (other, _second) = build("new");
    docker(&["tag", &other, &name]);
    docker(&["image", "rm", &other]);
    let stale = waiting(&server, "rebuilt-test");
    wait_for("new containers wait", || {
        let now = waiting(&server, "rebuilt-test");
        !now.is_empty() && now.iter().all(|run| !stale.contains(run))
    })
    .await;
    for conversation in ["a", "b"] {
        assert_eq!(
            server
                .run_in(conversation, "rebuilt-test", "print $ENV{WORD}")
                .await["output"],
            "new"
        );
    }
}

#[tokio::test]
async fn the_least_recently_used_conversations_lose_theirs() {
    let server = server("0", "2").await;
    for conversation in ["a", "b", "c"] {
        server.run_in(conversation, "bash", "true").await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    wait_for("two containers wait", || {
        waiting(&server, "bash").len() == 2
    })
    .await;
    let runs = waiting(&server, "bash");
    let warm = |run: Value| runs.iter().any(|id| run["runId"] == **id);
    assert!(warm(server.run_in("c", "bash", "true").await));
    assert!(!warm(server.run_in("a", "bash", "true").await));
}

#[tokio::test]
async fn what_a_warm_container_cannot_serve_is_run_cold() {
    let server = server("1", "8").await;
    wait_for("a spare of bash", || waiting(&server, "bash").len() == 1).await;
    let spare = waiting(&server, "bash").remove(0);
    let cold =
        json!({ "language": "bash", "code": "echo $WORD", "environment": { "WORD": "given" } });
    let run = server.call_ok("run_code", cold).await;
    assert_eq!(run["output"], "given\n");
    assert_ne!(run["runId"], spare);
    let network = json!({ "language": "bash", "code": "ls /sys/class/net", "network": true });
    let run = server.call_ok("run_code", network).await;
    assert!(run["output"].as_str().unwrap().contains("eth0"), "{run}");
}

#[tokio::test]
async fn shutdown_takes_the_waiting_ones_along() {
    let mut server = server("1", "8").await;
    let instance = server.instance();
    wait_for("a spare of every language", || {
        containers_of(&instance).len() >= 3
    })
    .await;
    server.stop();
    assert_eq!(containers_of(&instance), [""; 0]);
    let left = std::fs::read_dir(server.root().join(".warm")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "spare directories must go");
}

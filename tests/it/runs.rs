//! Runs: the main job, as a caller of plain curl sees it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    engine::{container, containers_of, inspect, network},
    server::TestServer,
};

/// `name,age` of Alice and Bob.
const CSV: &str = "bmFtZSxhZ2UKQWxpY2UsMzAKQm9iLDI1";

#[tokio::test]
async fn an_uploaded_csv_becomes_a_chart_that_downloads() {
    let server = TestServer::start().await;
    let upload = json!({ "conversationId": "chat", "filename": "data.csv", "content": CSV });
    let uploaded = server.call_ok("upload_file", upload).await;
    assert_eq!(
        uploaded["message"],
        "File 'data.csv' uploaded successfully (24 bytes)"
    );
    assert_eq!(uploaded["conversationId"], "chat");

    let code = "
import pandas, matplotlib.pyplot as plt
data = pandas.read_csv('data.csv')
print(int(data.age.sum()))
data.plot(x='name', y='age', kind='bar')
plt.savefig('chart.png')
";
    let arguments = json!({ "conversationId": "chat", "language": "python", "code": code });
    let result = server.call("run_code", arguments).await;
    let run = &result["structuredContent"];
    assert_eq!(run["status"], "ok", "{run}");
    assert_eq!(run["output"], "55\n");
    assert_eq!(run["newFiles"], json!(["chart.png"]));
    let names: Vec<_> = run["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| &file["name"])
        .collect();
    assert_eq!(names, ["chart.png", "data.csv"]);

    // The model gets a link to the chart, and the chart itself.
    let url = run["files"][0]["url"].as_str().unwrap();
    assert_eq!(result["content"][1]["type"], "resource_link");
    assert_eq!(result["content"][1]["uri"], url);
    assert_eq!(result["content"][2]["type"], "image");
    assert_eq!(result["content"][2]["mimeType"], "image/png");

    let chart = server.download(url).await;
    assert_eq!(chart.headers()["content-type"], "image/png");
    let chart = chart.bytes().await.unwrap();
    assert!(chart.starts_with(b"\x89PNG"));
    let shown = BASE64_STANDARD
        .decode(result["content"][2]["data"].as_str().unwrap())
        .unwrap();
    assert_eq!(shown, chart);
}

#[tokio::test]
async fn typescript_awaits_at_top_level_requires_and_writes() {
    let server = TestServer::start().await;
    let code = r#"
const answer: number = await Promise.resolve(42);
require("fs").writeFileSync("/data/answer.txt", `${answer}`);
console.log("answer", answer);
"#;
    for language in ["typescript", "ts", "JavaScript"] {
        let run = server.run(language, code).await;
        assert_eq!(run["status"], "ok", "{run}");
        assert_eq!(run["output"], "answer 42\n");
        assert_eq!(run["language"], "typescript");
        assert_eq!(run["newFiles"], json!(["answer.txt"]));
        let file = server
            .download(run["files"][0]["url"].as_str().unwrap())
            .await;
        assert_eq!(file.text().await.unwrap(), "42");
    }
}

#[tokio::test]
async fn files_persist_within_a_conversation_and_are_not_seen_from_another() {
    let server = TestServer::start().await;
    server
        .run_in(
            "a",
            "bash",
            "mkdir sub; echo one > sub/file; ln -s sub link",
        )
        .await;
    let again = server
        .run_in("a", "bash", "cat sub/file; echo two > sub/file")
        .await;
    assert_eq!(again["output"], "one\n");
    assert_eq!(again["newFiles"], json!(["sub/file"]));
    let unchanged = server.run_in("a", "bash", "cat sub/file").await;
    assert_eq!(unchanged["newFiles"], json!([]));
    assert_eq!(server.run_in("b", "bash", "ls -A").await["output"], "");
}

#[tokio::test]
async fn a_call_without_a_conversation_starts_one_and_says_which() {
    let server = TestServer::start().await;
    let first = server.run("bash", "echo x > kept").await;
    let conversation = first["conversationId"].as_str().unwrap();
    assert_eq!(
        server.run_in(conversation, "bash", "ls").await["output"],
        "kept\n"
    );
    assert_ne!(
        server.run("bash", "true").await["conversationId"],
        conversation
    );
}

#[tokio::test]
async fn the_header_names_the_conversation_where_the_arguments_do_not() {
    let server = TestServer::start().await;
    server.run_in("from-header", "bash", "echo x > kept").await;
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": { "language": "bash", "code": "ls" } },
    });
    let response = server
        .post(request.to_string())
        .header("X-Conversation-Id", "from-header")
        .send()
        .await;
    let answer: Value = response.unwrap().json().await.unwrap();
    assert_eq!(answer["result"]["structuredContent"]["output"], "kept\n");
}

#[tokio::test]
async fn a_failing_program_is_an_outcome() {
    let server = TestServer::start().await;
    let run = server
        .run("python", "print('before')\nraise ValueError('no')")
        .await;
    assert_eq!(run["status"], "error");
    assert_eq!(run["success"], false);
    assert_eq!(run["exitCode"], 1);
    assert_eq!(run["output"], "before\n");
    assert!(
        run["stderr"]
            .as_str()
            .unwrap()
            .ends_with("ValueError: no\n"),
        "{run}"
    );
    for code in [2, 124, 125, 126, 127, 137, 139, 255] {
        for (language, program) in [
            ("bash", format!("exit {code}")),
            ("python", format!("import sys; sys.exit({code})")),
        ] {
            let run = server.run(language, &program).await;
            assert_eq!(
                (&run["status"], &run["exitCode"]),
                (&json!("error"), &json!(code)),
                "{language}"
            );
        }
    }
}

#[tokio::test]
async fn a_run_is_stopped_when_its_time_is_up_and_keeps_what_it_wrote() {
    let server = TestServer::start().await;
    for (language, code) in [
        (
            "python",
            "print('begun', flush=True)\nopen('kept', 'w').close()\nwhile True: pass",
        ),
        (
            "bash",
            "echo begun; touch kept; trap '' TERM INT; sleep 100 & wait",
        ),
    ] {
        let arguments = json!({ "language": language, "code": code, "timeoutSeconds": 2 });
        let run = server.call_ok("run_code", arguments).await;
        assert_eq!(run["status"], "timeout", "{run}");
        assert_eq!(run["output"], "begun\n");
        assert_eq!(run["newFiles"], json!(["kept"]));
        assert_eq!(run["exitCode"], Value::Null);
        assert!(run["durationMs"].as_u64().unwrap() < 4_000, "{run}");
    }
}

#[tokio::test]
async fn long_output_keeps_head_and_tail() {
    let server = TestServer::with_settings(&[("MAX_OUTPUT_BYTES", "2k")]).await;
    let run = server
        .run(
            "python",
            "print('first'); print('x' * 5_000_000); print('last')",
        )
        .await;
    assert_eq!(run["status"], "ok");
    assert_eq!(run["truncated"], true);
    let output = run["output"].as_str().unwrap();
    assert!(
        output.starts_with("first\n") && output.ends_with("last\n"),
        "{output}"
    );
    assert!(
        output.contains("[... 4997964 bytes left out ...]"),
        "{output}"
    );
}

#[tokio::test]
async fn the_environment_is_the_callers() {
    let server = TestServer::with_settings(&[
        ("PASS_THROUGH_ENV", "SHARED,UNSET"),
        ("SHARED", "from the server"),
    ])
    .await;
    let environment = json!({ "GREETING": "hello \"world\"\n", "PATH": "/nowhere" });
    for (language, code) in [
        (
            "python",
            "import os; print(os.environ['GREETING'], os.environ['SHARED'], os.environ['PATH'])",
        ),
        (
            "typescript",
            "console.log(process.env.GREETING, process.env.SHARED, process.env.PATH)",
        ),
        ("bash", "echo \"$GREETING\" \"$SHARED\" \"$PATH\""),
    ] {
        let arguments = json!({ "language": language, "code": code, "environment": environment });
        let run = server.call_ok("run_code", arguments).await;
        assert_eq!(
            run["output"], "hello \"world\"\n from the server /nowhere\n",
            "{run}"
        );
    }
}

#[tokio::test]
async fn the_network_is_off_unless_asked_for() {
    let (network, _network) = network();
    let (peer, _peer) = container(&[
        "--network",
        &network,
        "--entrypoint",
        "python3",
        "mcp-code-sandbox-python",
        "-m",
        "http.server",
        "8000",
    ]);
    let server = TestServer::with_settings(&[("SANDBOX_NETWORK", &network)]).await;
    let code = format!(
        "import urllib.request, time
for attempt in range(20):
    try:
        print(urllib.request.urlopen('http://{peer}:8000/', timeout=5).status)
        break
    except OSError:
        time.sleep(0.2)
"
    );
    let arguments = json!({ "language": "python", "code": code, "network": true });
    assert_eq!(
        server.call_ok("run_code", arguments).await["output"],
        "200\n"
    );

    let code = format!(
        "
import urllib.request, time
started = time.monotonic()
try:
    urllib.request.urlopen('http://{peer}:8000/', timeout=20)
except OSError as error:
    print('failed at once' if time.monotonic() - started < 1 else 'failed late', error)
"
    );
    let run = server.run("python", &code).await;
    assert!(
        run["output"]
            .as_str()
            .unwrap()
            .starts_with("failed at once"),
        "{run}"
    );
}

#[tokio::test]
async fn a_run_has_exactly_one_hardened_container_and_leaves_none() {
    let mut server = TestServer::start().await;
    let instance = server.instance();
    let running = async {
        loop {
            if let [name] = &containers_of(&instance)[..] {
                break inspect(name);
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let code = "import time\nprint(open('/proc/self/status').read())\ntime.sleep(1.5)";
    let (run, inspected) = tokio::join!(server.run("python", code), running);
    let status = run["output"].as_str().unwrap();
    for line in [
        "Uid:\t1000\t1000\t1000\t1000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(line), "{line} is missing in {status}");
    }
    assert_eq!(inspected["HostConfig"]["NetworkMode"], "none");
    assert_eq!(inspected["HostConfig"]["ReadonlyRootfs"], true);
    assert_eq!(inspected["Config"]["Labels"]["sandbox.run"], run["runId"]);
    server.stop();
    assert_eq!(containers_of(&instance), [""; 0]);
}

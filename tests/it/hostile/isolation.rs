//! Isolation: what a program can reach and see outside its run.

use std::{collections::BTreeMap, fs, time::Duration};

use serde_json::{Value, json};

use super::{at_once, wait_until};
use crate::{
    engine::{containers_of, inspect},
    server::{BinaryServer, FILE_SECRET, TOKEN, TestServer},
};

/// One run of the probe: what it tried and what came of it.
async fn probe(server: &TestServer, conversation: &str) -> Value {
    let run = server
        .run_in(conversation, "python", include_str!("probe.py"))
        .await;
    assert_eq!(run["status"], "ok", "{run}");
    serde_json::from_str(run["output"].as_str().unwrap()).unwrap()
}

fn named(outcomes: &Value) -> BTreeMap<String, Value> {
    serde_json::from_value(outcomes.clone()).unwrap()
}

#[tokio::test]
async fn a_program_has_no_way_out_of_its_container() {
    let server = TestServer::start().await;
    let found = probe(&server, "hostile").await;

    for (name, value) in [
        ("Uid", "1000\t1000\t1000\t1000"),
        ("Gid", "1000\t1000\t1000\t1000"),
        ("CapInh", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        assert_eq!(
            found["status"][name].as_str().unwrap().trim(),
            value,
            "{name}"
        );
    }

    // Engines differ in whether they list the group itself.
    assert!(["", "1000"].contains(&found["status"]["Groups"].as_str().unwrap().trim()));

    let refusals = [
        "EPERM", "EACCES", "EROFS", "ENOENT", "ENOSYS", "ENODEV", "EINVAL", "EISDIR",
    ];
    let allowed: Vec<_> = ["writes", "calls"]
        .into_iter()
        .flat_map(|kind| named(&found[kind]))
        .filter(|(_, outcome)| !refusals.contains(&outcome.as_str().unwrap()))
        .collect();
    assert_eq!(allowed, []);
    // Both in memory, counted as the run's own: shared memory, and message queues, which have a limit.
    assert_eq!(found["writable"], json!(["/dev/mqueue", "/dev/shm"]));

    assert_eq!(found["sockets"], json!([]));
    let from_the_host = [
        "/data",
        "/dev/init",
        "/etc/hostname",
        "/etc/hosts",
        "/etc/resolv.conf",
        "/sbin/docker-init",
        // The same, where the image has merged its directories.
        "/usr/sbin/docker-init",
    ];
    for mount in found["mounts"].as_array().unwrap() {
        assert!(from_the_host.contains(&mount.as_str().unwrap()), "{mount}");
    }
    let harmless = [
        "core", "fd", "full", "init", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr",
        "stdin", "stdout", "tty", "urandom", "zero",
    ];
    for device in found["devices"].as_array().unwrap() {
        assert!(harmless.contains(&device.as_str().unwrap()), "{device}");
    }
    assert!(
        found["processes"].as_array().unwrap().len() < 6,
        "{}",
        found["processes"]
    );

    assert_eq!(found["interfaces"], json!(["lo"]));
    for (what, outcome) in named(&found["network"]) {
        let (outcome, seconds) = (outcome[0].as_str().unwrap(), outcome[1].as_f64().unwrap());
        assert!(!outcome.starts_with("allowed"), "{what}: {outcome}");
        assert!(seconds < 0.5, "{what} took {seconds} s to fail");
    }
}

#[tokio::test]
async fn the_network_fails_at_once_in_every_language() {
    let server = TestServer::start().await;
    for (language, code) in [
        ("typescript", "const t = performance.now();
for (const url of ['http://192.0.2.1/', 'http://example.com/', 'http://169.254.169.254/', 'http://[2001:db8::1]/'])
    await fetch(url).then(() => console.log('reached', url), () => {});
console.log(performance.now() - t < 1000);"),
        ("python", "import time, urllib.request
t = time.monotonic()
for url in 'http://192.0.2.1/', 'http://example.com/', 'http://169.254.169.254/', 'http://[2001:db8::1]/':
    try: urllib.request.urlopen(url, timeout=20); print('reached', url)
    except OSError: pass
print('true' if time.monotonic() - t < 1 else 'slow')"),
        ("bash", "SECONDS=0
for host in 192.0.2.1 example.com 169.254.169.254 2001:db8::1; do
    (exec 3<> /dev/tcp/$host/80) 2> /dev/null && echo reached $host
done
[ $SECONDS -le 1 ] && echo true"),
    ] {
        let run = server.run(language, code).await;
        assert_eq!(run["output"], "true\n", "{language}: {run}");
    }
}

#[tokio::test]
async fn a_program_learns_none_of_the_servers_secrets_and_nothing_of_the_host() {
    let server = TestServer::with_settings(&[
        ("PASS_THROUGH_ENV", "SHARED"),
        ("SHARED", "meant for all"),
        ("OTHER", "not-for-runs-7310"),
    ])
    .await;
    let found = probe(&server, "hostile-conversation-5512").await;
    let environment = named(&found["environment"]);
    assert_eq!(environment["SHARED"], "meant for all");
    let told = found.to_string();
    for secret in [
        TOKEN,
        FILE_SECRET,
        "not-for-runs-7310",
        "hostile-conversation-5512",
        &server.instance(),
        server.base_url(),
    ] {
        assert!(!told.contains(secret), "{secret} is told");
    }
    for name in environment.keys() {
        assert!(
            !name.starts_with("MCP_")
                && !name.starts_with("SANDBOX_")
                && !name.starts_with("DOCKER"),
            "{name}"
        );
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_ne!(found["hostname"].as_str().unwrap(), host.trim());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_conversation_sees_nothing_of_another() {
    let server = TestServer::with_settings(&[("MAX_CONCURRENT_RUNS", "4")]).await;
    let victim = "
import os, socket, subprocess, time
open('/data/secret-file-8841', 'w').write('secret-content-8841')
open('/tmp/secret-file-8841', 'w').write('secret-content-8841')
open('/dev/shm/secret-file-8841', 'w').write('secret-content-8841')
listener = socket.socket(); listener.bind(('127.0.0.1', 8841)); listener.listen()
abstract = socket.socket(socket.AF_UNIX); abstract.bind('\\0secret-8841'); abstract.listen()
child = subprocess.Popen(['sleep', '8841'])
open('/data/ready', 'w').close()
for _ in range(200):
    if os.path.exists('/data/stop'): break
    time.sleep(0.05)
print(child.poll(), open('/data/secret-file-8841').read())
";
    let running = tokio::spawn({
        let caller = server.clone();
        async move { caller.run_in("victim", "python", victim).await }
    });
    wait_until("the victim runs", Duration::from_secs(10), async || {
        server
            .workspaces()
            .iter()
            .any(|path| path.join("ready").exists())
    })
    .await;
    let spy = "
cd /; find / -xdev -name '*8841*' 2> /dev/null; find /data /tmp /dev /run -name '*8841*' 2> /dev/null
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n' | grep '[8]841'
grep 8841 /proc/net/unix; (exec 3<> /dev/tcp/127.0.0.1/8841) 2> /dev/null && echo reached
ls -A /data /data/.. | grep -E '^[0-9a-f]{64}$|secret'
kill -9 -1; pkill sleep; killall sleep; true";
    let spying = [
        ("bash", spy),
        (
            "python",
            "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\nprint(*os.listdir('/data'))",
        ),
    ];
    let spying = spying.map(|(language, code)| {
        let caller = server.clone();
        async move { caller.run_in("spy", language, code).await }
    });
    for run in at_once(spying).await {
        assert_eq!(run["output"].as_str().unwrap().trim(), "", "{run}");
    }
    let workspaces = server.workspaces();
    let victims = workspaces
        .iter()
        .find(|path| path.join("ready").exists())
        .unwrap();
    fs::write(victims.join("stop"), "").unwrap();
    let run = running.await.unwrap();
    assert_eq!(run["output"], "None secret-content-8841\n", "{run}");
}

/// Needles that no log line, label or description of a container may hold.
const CODE: &str = "code-needle-4471";
const VALUE: &str = "value-needle-4472";
const UPLOADED: &str = "upload-needle-4473";
const CONVERSATION: &str = "conversation-needle-4474";
const OUTPUT: &str = "output-needle-4475";

#[tokio::test]
async fn the_log_at_its_most_talkative_holds_no_secret_and_nothing_of_a_call() {
    let root = tempfile::tempdir().unwrap();
    let mut server = BinaryServer::start(root.path(), &[("RUST_LOG", "trace")]).await;
    let run = |language: &str, code: &str| {
        json!({
            "conversationId": CONVERSATION, "language": language, "code": format!("{code} # {CODE}"),
            "environment": { "SECRET": VALUE }, "timeoutSeconds": 1.5,
        })
    };
    let written = "print(''.join(['output', '-needle-', '4475']))";
    for arguments in [
        run("python", written),
        run("python", &format!("{written}; raise SystemExit(3)")),
        run("python", &format!("{written}; import time; time.sleep(9)")),
        run("bash", "echo $SECRET | tr v V; exit 1"),
        run("bash", "kill -9 $$"),
        run("cobol", ""),
        json!({ "language": "bash", "code": CODE, "environment": { "A=B": VALUE } }),
        json!({ "language": "bash", "code": CODE, "environment": VALUE }),
        json!({ "language": "bash", "code": CODE, "timeoutSeconds": VALUE }),
    ] {
        server.call("run_code", arguments).await;
    }
    let upload = json!({ "conversationId": CONVERSATION, "filename": "a", "content": UPLOADED, "sha256": UPLOADED });
    server.call("upload_file", upload).await;
    let wrong = server
        .get("/mcp")
        .bearer_auth("wrong-token-needle-4476")
        .send()
        .await
        .unwrap();
    assert_eq!(wrong.status(), 401);
    for body in [
        format!("{{\"{CODE}"),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{CODE}"}}"#),
    ] {
        server.post(body).send().await.unwrap();
    }
    server.terminate();
    let log = server.log();
    assert!(log.contains("run ended"), "the log must be on: {log}");
    let mut told = Vec::new();
    let needles = [
        TOKEN,
        FILE_SECRET,
        CODE,
        VALUE,
        UPLOADED,
        CONVERSATION,
        OUTPUT,
        "wrong-token-needle-4476",
    ];
    for needle in needles {
        let line = log.lines().find(|line| line.contains(needle));
        told.extend(line.map(|line| format!("{needle}: {:.300}", line.trim())));
    }
    assert!(told.is_empty(), "{told:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_described_without_secrets_code_or_environment() {
    let server = TestServer::start().await;
    let instance = server.instance();
    for (language, code) in [
        ("python", "import time; time.sleep(2)"),
        ("bash", "sleep 2"),
    ] {
        let arguments = json!({
            "conversationId": CONVERSATION, "language": language, "code": format!("{code} # {CODE}"),
            "environment": { "SECRET": VALUE },
        });
        let caller = server.clone();
        let running = tokio::spawn(async move { caller.call_ok("run_code", arguments).await });
        tokio::time::sleep(Duration::from_millis(1200)).await;
        let descriptions: Vec<Value> = containers_of(&instance)
            .iter()
            .map(|name| inspect(name))
            .collect();
        let run = running.await.unwrap();
        let of_run =
            |described: &Value| described["Config"]["Labels"]["sandbox.run"] == run["runId"];
        assert!(descriptions.iter().any(of_run), "{descriptions:?}");
        for mut described in descriptions {
            // A runner of protocol 1 starts with the environment.
            if language == "bash" {
                described["Config"]["Env"].take();
            }
            let described = described.to_string();
            for needle in [TOKEN, FILE_SECRET, CODE, VALUE, CONVERSATION] {
                assert!(
                    !described.contains(needle),
                    "{language}: {needle} in {described}"
                );
            }
        }
    }
}

/// Finds the token of the run that it is part of, as a forger would, or prints that it did not.
const FIND_TOKEN: &str = r#"
import gc, os, re, sys, time
token = None
try:
    from greenlet import getcurrent
    here = getcurrent()
    while here and not token:
        frame = here.gr_frame or sys._getframe()
        while frame:
            request = frame.f_locals.get('request')
            if isinstance(request, dict): token = request['token'].encode()
            frame = frame.f_back
        here = here.parent
except Exception: pass
if not token:
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:
        for line in maps:
            if ' rw' in line:
                start, end = (int(part, 16) for part in line.split()[0].split('-'))
                try:
                    memory.seek(start)
                    found = re.search(rb'"token":\s*"([0-9a-f]{32})"', memory.read(end - start))
                except (OSError, ValueError): continue
                if found: token = found[1]; break
"#;

#[tokio::test]
async fn a_forged_result_line_ends_its_forgers_own_run_at_the_worst() {
    let server = TestServer::start().await;
    // Without the token it is text like any other.
    let guess = r#"
import os
for stream in 1, 2:
    os.write(stream, b'\x1e' + b'0' * 32 + b' {"exit":0,"cpuMs":1,"peakBytes":1}\n\x1e\x1e\n\x1e')
raise SystemExit(3)"#;
    let run = server.run("python", guess).await;
    let line = format!(
        "\u{1e}{} {{\"exit\":0,\"cpuMs\":1,\"peakBytes\":1}}\n\u{1e}\u{1e}\n\u{1e}",
        "0".repeat(32)
    );
    assert_eq!(
        (&run["status"], &run["exitCode"]),
        (&json!("error"), &json!(3)),
        "{run}"
    );
    assert_eq!(
        (&run["output"], &run["stderr"]),
        (&json!(line), &json!(line))
    );

    let long = "0".repeat(300);
    let lines: [(&str, &[&str]); 9] = [
        (r#"{"exit":0,"cpuMs":1,"peakBytes":1}"#, &["ok"]),
        (
            r#"{"exit":7,"cpuMs":18446744073709551615,"peakBytes":18446744073709551615}"#,
            &["error"],
        ),
        (
            r#"{"exit":-9,"cpuMs":1,"peakBytes":1}"#,
            &["error", "killed"],
        ),
        (
            r#"{"exit":99999999999999999999,"cpuMs":1,"peakBytes":1}"#,
            &["error", "timeout"],
        ),
        (
            r#"{"exit":0,"cpuMs":-1,"peakBytes":1e999}"#,
            &["error", "timeout"],
        ),
        ("{}", &["error", "timeout"]),
        ("[[[[[[[[", &["error", "timeout"]),
        ("", &["error", "timeout"]),
        (&long, &["error", "timeout"]),
    ];
    let forgeries = lines.map(|(line, _)| {
        let code = format!(
            r"{FIND_TOKEN}
print('found' if token else 'not found', flush=True)
if token:
    os.write(1, b'\x1e' + token + b'\n')
    os.write(2, b'\x1e' + token + b' ' + br'''{line}''' + b'\n')
    open('forged', 'w').close()
    time.sleep(1.5)
raise SystemExit(3)"
        );
        let arguments = json!({ "conversationId": "forger", "language": "python", "code": code, "timeoutSeconds": 5 });
        let caller = server.clone();
        async move { caller.call_ok("run_code", arguments).await }
    });
    let runs = at_once(forgeries).await;
    assert!(
        runs.iter().any(|run| run["output"] == "found\n"),
        "no forger found the token, so nothing was forged: {runs:?}"
    );
    for ((line, statuses), run) in lines.iter().zip(&runs) {
        if run["output"] == "not found\n" {
            assert_eq!(run["exitCode"], 3, "{run}");
        } else {
            assert_eq!(run["output"], "found\n", "{line:.40}: {run}");
            let status = run["status"].as_str().unwrap();
            assert!(statuses.contains(&status), "{line:.40}: {run}");
        }
    }
    let instance = server.instance();
    wait_until(
        "the forgers are gone",
        Duration::from_secs(10),
        async || containers_of(&instance).is_empty(),
    )
    .await;
    assert_eq!(
        server.run_in("forger", "python", "print('fine')").await["output"],
        "fine\n"
    );
    assert_eq!(server.get("/readyz").send().await.unwrap().status(), 200);
}

//! Resources: programs that take all they can get of processes, memory, disk, output and time.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{at_once, wait_until};
use crate::{
    engine::containers_of,
    server::{BinaryServer, Caller, TestServer},
};

/// Settings of a server whose workspaces are small.
const SMALL_DISK: [(&str, &str); 2] = [
    ("WORKSPACE_QUOTA_BYTES", "20m"),
    ("WORKSPACE_MAX_FILES", "500"),
];

fn limited(language: &str, code: &str, seconds: u32) -> Value {
    json!({ "language": language, "code": code, "timeoutSeconds": seconds })
}

async fn run(caller: Caller, arguments: Value) -> Value {
    caller.call_ok("run_code", arguments).await
}

#[tokio::test]
async fn fork_and_thread_bombs_end_at_the_pids_limit_and_others_go_on() {
    let server = TestServer::with_settings(&[("MAX_CONCURRENT_RUNS", "6")]).await;
    let counts = "
import os, time, threading
made = 0
try:
    while True:
        MAKE
        made += 1
except (OSError, RuntimeError):
    print(made)
";
    let fork = counts.replace("MAKE", "os.fork() or time.sleep(60)");
    let thread = counts.replace(
        "MAKE",
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    );
    let bombs = [
        limited("python", &fork, 10),
        limited("python", &thread, 10),
        limited(
            "python",
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
            4,
        ),
        limited("bash", ":(){ :|:& };:; while :; do :& done 2>/dev/null", 4),
        limited(
            "typescript",
            "while (true) try { Bun.spawn(['sleep', '60']) } catch {}",
            4,
        ),
    ];
    let bombing = bombs.map(|bomb| tokio::spawn(run(server.clone(), bomb)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = Instant::now();
    let hello = server.run("bash", "echo hello").await;
    let waited = asked.elapsed();
    assert_eq!(hello["output"], "hello\n", "{hello}");
    assert!(
        waited < Duration::from_secs(5),
        "another conversation waited {waited:?}"
    );

    for (kind, bomb) in bombing.into_iter().enumerate() {
        let run = bomb.await.unwrap();
        if kind < 2 {
            let made: u32 = run["output"].as_str().unwrap().trim().parse().unwrap();
            // Beside the program there are init and what the runner keeps.
            assert!((60..128).contains(&made), "{made}: {run}");
        } else {
            assert_ne!(run["status"], "ok", "{run}");
        }
        assert!(run["durationMs"].as_u64().unwrap() < 12_000, "{run}");
    }
    let instance = server.instance();
    wait_until("the bombs are gone", Duration::from_secs(10), async || {
        containers_of(&instance).is_empty()
    })
    .await;
}

#[tokio::test]
async fn memory_kills_and_exit_codes_are_told_apart() {
    let server = TestServer::start().await;
    // Python programs run these before they end themselves.
    let begun = "import ctypes, os, signal, subprocess, sys\nprint('begun', flush=True)\n";
    let child =
        "print(subprocess.run([sys.executable, '-c', 'x = bytearray(1 << 30)']).returncode)\n";
    let python = |code: &str| ("python", format!("{begun}{code}"));
    let typescript = |code: &str| ("typescript", format!("console.log('begun'); {code}"));
    let bash = |code: &str| ("bash", format!("echo begun; {code}"));
    let (ended, child_ended) = ("begun\n", "begun\n-9\n");
    let mut wrong = Vec::new();
    for ((language, code), output, status, exit_code) in [
        (
            python("x = [bytearray(1 << 20) for _ in range(1 << 20)]"),
            ended,
            "oom",
            None,
        ),
        (python("x = bytearray(1 << 30)"), ended, "oom", None),
        (
            typescript("const x = []; while (true) x.push(new Uint8Array(1 << 20).fill(1));"),
            ended,
            "oom",
            None,
        ),
        (python("os.kill(os.getpid(), 9)"), ended, "killed", None),
        (python("os.kill(0, 9)"), ended, "killed", None),
        (python("os.kill(os.getpid(), 15)"), ended, "killed", None),
        (python("os.abort()"), ended, "killed", None),
        (python("ctypes.string_at(0)"), ended, "killed", None),
        (
            python("signal.alarm(1); signal.pause()"),
            ended,
            "killed",
            None,
        ),
        (
            typescript("process.kill(process.pid, 'SIGKILL')"),
            ended,
            "killed",
            None,
        ),
        (typescript("process.exit(137)"), ended, "error", Some(137)),
        (python("os._exit(137)"), ended, "error", Some(137)),
        (python("sys.exit(139)"), ended, "error", Some(139)),
        (bash("exit 137"), ended, "error", Some(137)),
        // The program saw its child go and went on.
        (
            bash("tail /dev/zero; echo $((${?} == 137 ? -9 : 0))"),
            child_ended,
            "ok",
            Some(0),
        ),
        (python(child), child_ended, "ok", Some(0)),
        (
            python(&format!("{child}sys.exit(137)")),
            child_ended,
            "error",
            Some(137),
        ),
        (
            typescript(
                "const child = Bun.spawnSync(['tail', '/dev/zero']); console.log(child.signalCode === 'SIGKILL' ? -9 : child)",
            ),
            child_ended,
            "ok",
            Some(0),
        ),
    ] {
        let run = server.run(language, &code).await;
        let told = (&run["status"], &run["exitCode"], &run["output"]);
        let expected = (
            &json!(status),
            &exit_code.map_or(Value::Null, Value::from),
            &json!(output),
        );
        if told != expected {
            wrong.push(format!(
                "{language} {}: {told:?} instead of {expected:?}",
                code.trim_start_matches(begun)
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");

    // By protocol 1 there is only the engine's word, and not every engine gives it.
    let (_, code) = bash("x=x; while :; do x=$x$x; done");
    let run = server.run("bash", &code).await;
    let told = (&run["status"], &run["exitCode"]);
    assert!(
        told == (&json!("oom"), &Value::Null) || told == (&json!("error"), &json!(137)),
        "{run}"
    );
}

#[tokio::test]
async fn a_segmentation_fault_leaves_no_core_dump() {
    let server = TestServer::start().await;
    let code = "ulimit -c; ulimit -c unlimited 2>/dev/null; bash -c 'kill -SEGV $$'; ls -A / /tmp /data | grep core; echo end";
    let run = server.run("bash", code).await;
    assert_eq!(run["output"], "0\nend\n", "{run}");
    assert_eq!(run["newFiles"], json!([]));
}

#[tokio::test]
async fn a_full_tmp_or_dev_shm_is_the_programs_own_trouble() {
    let fill = "
import os
for directory in '/tmp', '/dev/shm':
    try:
        with open(directory + '/fill', 'wb', buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError as error:
        print(directory, error.strerror, os.path.getsize(directory + '/fill') >> 20)
        os.unlink(directory + '/fill')
";
    let server = TestServer::with_settings(&[("RUN_TMPFS", "32m")]).await;
    let run = server.run("python", fill).await;
    let expected = "/tmp No space left on device 31\n/dev/shm No space left on device 32\n";
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("ok"), &json!(expected)),
        "{run}"
    );
    // A runner that finds no room for anything still says how it ended.
    for (language, code) in [
        (
            "python",
            "open('/tmp/fill', 'wb', buffering=0).write(bytes(64 << 20)); raise SystemExit(3)",
        ),
        (
            "typescript",
            "await Bun.$`head -c 64M /dev/zero > /tmp/fill`.nothrow().quiet(); process.exit(3)",
        ),
        ("bash", "head -c 64M /dev/zero > /tmp/fill; exit 3"),
    ] {
        let run = server.run(language, code).await;
        assert_eq!(
            (&run["status"], &run["exitCode"]),
            (&json!("error"), &json!(3)),
            "{run}"
        );
    }

    let server = TestServer::with_settings(&[("RUN_TMPFS", "2g")]).await;
    let run = server.run("python", fill).await;
    assert_eq!(run["status"], "oom", "{run}");
}

#[tokio::test]
async fn a_full_data_ends_the_run_and_nothing_else() {
    let server = TestServer::with_settings(&SMALL_DISK).await;
    let write = "
echo kept > kept
i=0; while :; do head -c 4M /dev/zero > file$i; i=$((i+1)); done";
    let filling = tokio::spawn({
        let mut arguments = limited("bash", write, 20);
        arguments["conversationId"] = "hostile".into();
        run(server.clone(), arguments)
    });
    let other = server
        .run("bash", "head -c 1M /dev/zero > fits; echo fine")
        .await;
    assert_eq!(
        (&other["status"], &other["output"]),
        (&json!("ok"), &json!("fine\n"))
    );
    let filled = filling.await.unwrap();
    assert_eq!(filled["status"], "disk_quota", "{filled}");
    assert_eq!(filled["success"], false);
    assert_eq!(filled["exitCode"], Value::Null);

    // The workspace stays readable, refuses more, and can be tidied up.
    let kept = filled["files"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["name"] == "kept");
    let kept = server
        .download(kept.unwrap()["url"].as_str().unwrap())
        .await;
    assert_eq!(kept.text().await.unwrap(), "kept\n");
    let upload = json!({ "conversationId": "hostile", "filename": "more", "content": "QUJD" });
    assert_eq!(
        server.refusal("upload_file", upload.clone()).await.0,
        "quota_exceeded"
    );
    let used = server
        .run_in(
            "hostile",
            "bash",
            "du -sm . | cut -f 1; sleep 0.5; rm file*",
        )
        .await;
    assert_eq!(used["status"], "ok", "{used}");
    let used: u32 = used["output"].as_str().unwrap().trim().parse().unwrap();
    assert!(used < 2_000, "{used} MB were written before anyone noticed");
    server.call_ok("upload_file", upload).await;
}

#[tokio::test]
async fn every_way_to_take_disk_is_counted() {
    let server = TestServer::with_settings(&SMALL_DISK).await;
    let ways = [
        ("one file", "head -c 1G /dev/zero > file; sleep 30"),
        (
            "preallocated",
            "for i in 1 2 3; do fallocate -l 10M file$i; done; sleep 30",
        ),
        (
            "in a hidden directory",
            "mkdir -p .runs .packages; for d in .runs .packages; do head -c 12M /dev/zero > $d/file; done; sleep 30",
        ),
        (
            "in a closed directory",
            "mkdir closed; for i in 1 2 3; do head -c 10M /dev/zero > closed/$i; done; chmod 0 closed; sleep 30",
        ),
        (
            "too deep",
            "d=d; for i in $(seq 100); do d=$d/d; done; mkdir -p $d; sleep 30",
        ),
        (
            "empty files",
            "for i in $(seq 1000); do > $i; done; sleep 30",
        ),
        ("directories", "mkdir $(seq 1000); sleep 30"),
        (
            "links",
            "for i in $(seq 1000); do ln -s x $i; done; sleep 30",
        ),
        (
            "hard links",
            "> file; for i in $(seq 1000); do ln file $i; done; sleep 30",
        ),
        ("FIFOs", "mkfifo $(seq 1000); sleep 30"),
    ];
    let runs = ways.map(|(_, code)| run(server.clone(), limited("bash", code, 12)));
    let ended: Vec<_> = at_once(runs).await;
    let uncounted: Vec<_> = ways
        .iter()
        .zip(&ended)
        .filter(|(_, run)| run["status"] != "disk_quota")
        .map(|((way, _), run)| format!("{way}: {} {}", run["status"], run["stderr"]))
        .collect();
    assert_eq!(uncounted, [""; 0]);
}

#[tokio::test]
async fn a_million_empty_files_are_stopped_listed_in_part_and_deletable() {
    let server = TestServer::with_settings(&SMALL_DISK).await;
    let code = "for i in range(1_000_000): open(f'{i:07}', 'w').close()";
    let run = server.run_in("hostile", "python", code).await;
    assert_eq!(run["status"], "disk_quota", "{}", run["stderr"]);
    assert!(run["durationMs"].as_u64().unwrap() < 10_000);
    assert_eq!(run["files"].as_array().unwrap().len(), 200);
    assert_eq!(run["newFiles"].as_array().unwrap().len(), 200);
    let tidied = server
        .run_in("hostile", "bash", "find . -type f -delete; ls | wc -l")
        .await;
    assert_eq!(
        (&tidied["status"], &tidied["output"]),
        (&json!("ok"), &json!("0\n")),
        "{tidied}"
    );
}

#[tokio::test]
async fn a_disk_that_is_nearly_full_takes_no_run_and_no_upload() {
    let server = TestServer::with_settings(&[("MIN_FREE_DISK_BYTES", "1000000g")]).await;
    let upload = json!({ "filename": "a", "content": "QUJD" });
    let run = json!({ "language": "bash", "code": "echo" });
    for (tool, arguments) in [("upload_file", upload), ("run_code", run)] {
        assert_eq!(
            server.refusal(tool, arguments).await.0,
            "quota_exceeded",
            "{tool}"
        );
    }
    assert_eq!(server.workspaces().len(), 0);
}

#[tokio::test]
async fn a_flood_of_output_leaves_the_servers_memory_flat_and_keeps_head_and_tail() {
    let root = tempfile::tempdir().unwrap();
    let server = BinaryServer::start(root.path(), &[]).await;
    // What the first run of all allocates is not the flood's.
    server.run("bash", "head -c 1M /dev/zero").await;
    let before = server.resident_bytes();
    let flood =
        "echo first; timeout 5 yes; echo last; echo first >&2; timeout 3 yes >&2; echo last >&2";
    let flooding = tokio::spawn(run((*server).clone(), limited("bash", flood, 12)));
    let mut most = before;
    while !flooding.is_finished() {
        most = most.max(server.resident_bytes());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let run = flooding.await.unwrap();
    assert!(
        most - before < 20 << 20,
        "grew by {} KiB",
        (most - before) >> 10
    );
    assert_eq!(
        (&run["status"], &run["truncated"]),
        (&json!("ok"), &json!(true)),
        "{}",
        run["hint"]
    );
    for (stream, file) in [("output", "outputFile"), ("stderr", "stderrFile")] {
        let text = run[stream].as_str().unwrap();
        assert!(
            text.starts_with("first\ny\n") && text.ends_with("y\nlast\n"),
            "{stream}"
        );
        assert!(
            text.contains(" bytes left out ...]") && text.len() < 101 << 10,
            "{stream}"
        );
        let whole = server
            .download(run[file].as_str().unwrap())
            .await
            .bytes()
            .await
            .unwrap();
        assert_eq!(whole.len(), 8 << 20, "{file}");
        assert!(whole.starts_with(b"first\ny\n"), "{file}");
    }

    let endless = run_of_yes(&server).await;
    assert_eq!(endless["status"], "timeout");
    assert!(
        endless["output"].as_str().unwrap().ends_with("y\n"),
        "the tail is kept"
    );
}

async fn run_of_yes(server: &Caller) -> Value {
    server
        .call_ok("run_code", limited("bash", "exec yes", 2))
        .await
}

#[tokio::test]
async fn any_bytes_make_valid_json() {
    let server = TestServer::with_settings(&[("MAX_OUTPUT_BYTES", "1k")]).await;
    let every = "
import sys
every = bytes(range(256))
sys.stdout.buffer.write(every); sys.stderr.buffer.write(every[::-1])";
    let run = server.run("python", every).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let reversed: Vec<u8> = (0..=255).rev().collect();
    assert_eq!(run["output"], json!(String::from_utf8_lossy(&bytes)));
    assert_eq!(run["stderr"], json!(String::from_utf8_lossy(&reversed)));

    let split = "
import os, time
for byte in 'é€🙂'.encode():
    os.write(1, bytes([byte])); time.sleep(0.05)";
    assert_eq!(server.run("python", split).await["output"], "é€🙂");

    // Whichever byte of a character the limit meets, no half of one is shown.
    for shift in 0..4 {
        let code = format!("print('{}' + '🙂' * 1000, end='')", "x".repeat(shift));
        let run = server.run("python", &code).await;
        let output = run["output"].as_str().unwrap();
        assert!(
            run["truncated"] == true && !output.contains('\u{fffd}'),
            "{output}"
        );
    }
    let separators = server
        .run(
            "bash",
            "printf '\\xe2\\x80\\xa8\\0\\x1e\\x1b[31m</script>\"\\\\'",
        )
        .await;
    assert_eq!(
        separators["output"],
        "\u{2028}\0\u{1e}\u{1b}[31m</script>\"\\"
    );
}

#[tokio::test]
async fn a_program_that_ignores_every_signal_is_gone_when_its_time_is_up() {
    let server = TestServer::with_settings(&[("MAX_CONCURRENT_RUNS", "3")]).await;
    let programs = [
        ("python", "import signal, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
print('begun', flush=True)
while True: time.sleep(60)"),
        ("typescript", "for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const) process.on(name, () => {});
console.log('begun'); await new Promise(() => setInterval(() => {}, 60_000));"),
        ("bash", "trap '' TERM INT HUP QUIT PIPE; echo begun; while :; do sleep 60; done"),
    ];
    let asked = Instant::now();
    let runs = programs.map(|(language, code)| run(server.clone(), limited(language, code, 2)));
    for run in at_once(runs).await {
        assert_eq!(
            (&run["status"], &run["output"]),
            (&json!("timeout"), &json!("begun\n")),
            "{run}"
        );
        assert!(run["durationMs"].as_u64().unwrap() < 4_000, "{run}");
    }
    assert!(
        asked.elapsed() < Duration::from_secs(6),
        "{:?}",
        asked.elapsed()
    );
    let instance = server.instance();
    wait_until(
        "the containers are gone",
        Duration::from_secs(2),
        async || containers_of(&instance).is_empty(),
    )
    .await;
}

#[tokio::test]
async fn a_daemon_that_holds_the_output_open_delays_nothing_and_goes_with_the_run() {
    let server = TestServer::start().await;
    let beat = "while :; do date +%s%N > /data/beat; echo stray; sleep 0.05; done";
    let python = format!(
        "
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sh', ['sh', '-c', '''{beat}'''])
    os._exit(0)
time.sleep(0.3)
print('main ends')"
    );
    let typescript = format!(
        "
Bun.spawn(['setsid', 'sh', '-c', '{beat}'], {{ stdout: 'inherit', stderr: 'inherit' }}).unref();
await Bun.sleep(300);
console.log('main ends');"
    );
    let bash = format!("setsid sh -c '{beat}' & disown; sleep 0.3; echo main ends");
    for (language, code) in [
        ("python", &python),
        ("typescript", &typescript),
        ("bash", &bash),
    ] {
        let run = server.run_in(language, language, code).await;
        assert_eq!(run["status"], "ok", "{run}");
        let output = run["output"].as_str().unwrap();
        assert!(
            output.contains("stray\n") && output.contains("main ends\n"),
            "{run}"
        );
        assert!(run["durationMs"].as_u64().unwrap() < 3_000, "{run}");
        let workspaces = server.workspaces();
        let beat = workspaces
            .iter()
            .map(|path| path.join("beat"))
            .find(|path| path.exists())
            .unwrap();
        let last = fs::read(&beat).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(
            fs::read(&beat).unwrap(),
            last,
            "{language}: the daemon lives on"
        );
        fs::remove_file(beat).unwrap();
    }
}

#[tokio::test]
async fn standard_input_is_at_its_end_at_once() {
    let server = TestServer::start().await;
    for (language, code) in [
        (
            "python",
            "import sys; print(repr(sys.stdin.read()), open(0, 'rb', closefd=False).read())",
        ),
        (
            "python",
            "try: input('? ')\nexcept EOFError: print(\"'' b''\")",
        ),
        (
            "typescript",
            "console.log(`'${await Bun.stdin.text()}' b''`)",
        ),
        (
            "bash",
            "printf \"'%s' b''\\n\" \"$(cat)\"; read -t 5 x; echo $?",
        ),
        (
            "bash",
            "python3 -c 1 2>/dev/null; cat; bash -c cat; echo \"'' b''\"",
        ),
    ] {
        let run = server
            .call_ok("run_code", limited(language, code, 10))
            .await;
        assert_eq!(run["status"], "ok", "{run}");
        assert!(
            run["output"].as_str().unwrap().contains("'' b''\n"),
            "{run}"
        );
        assert!(run["durationMs"].as_u64().unwrap() < 3_000, "{run}");
    }
}

//! Arguments: what callers pass that no honest one would.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::at_once;
use crate::server::TestServer;

/// A call of `run_code` whose arguments are written as they are.
fn raw_call(arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"run_code","arguments":{arguments}}}}}"#
    )
}

#[tokio::test]
async fn a_conversation_is_hashed_and_never_a_path() {
    let server = TestServer::start().await;
    let names = [
        "../../escape",
        "/etc",
        "..",
        ".",
        "a/b",
        "%2e%2e%2f",
        "..\\x",
        "a\nb",
        " ",
        "🙂 ünï",
        "\u{202e}rtl",
        "e\u{301}",
        "é",
        ".instance",
        ".trash",
        &"x".repeat(1024),
    ]
    .map(str::to_owned);
    let upload =
        |name: &str| json!({ "conversationId": name, "filename": "id.txt", "content": "QUJD" });
    for name in &names {
        let uploaded = server.call_ok("upload_file", upload(name)).await;
        assert_eq!(uploaded["conversationId"], json!(name));
    }
    assert_eq!(server.workspaces().len(), names.len());
    let beside: Vec<_> = std::fs::read_dir(server.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| {
            name.len() != 64 && ![".instance", ".trash", ".warm"].contains(&name.as_str())
        })
        .collect();
    assert_eq!(beside, [""; 0]);

    let long = "x".repeat(1 << 20);
    for name in ["", &long, "a\0b"] {
        assert_eq!(
            server.refusal("upload_file", upload(name)).await.0,
            "invalid_argument"
        );
    }
    for name in [json!(5), json!(["a"]), json!({ "a": 1 }), json!(true)] {
        let upload = json!({ "conversationId": name, "filename": "id.txt", "content": "QUJD" });
        assert_eq!(
            server.refusal("upload_file", upload).await.0,
            "invalid_argument",
            "{name}"
        );
    }
    assert_eq!(server.workspaces().len(), names.len());
}

#[tokio::test]
async fn a_conversation_from_the_header_is_held_to_the_same_rules() {
    let server = TestServer::start().await;
    let body = raw_call(r#"{"language":"bash","code":"pwd"}"#);
    let long = "x".repeat(1025);
    for (name, refused) in [
        (b"../../escape".as_slice(), false),
        (b"not utf8 \xff", false),
        (b"", true),
        (long.as_bytes(), true),
    ] {
        let request = server.post(body.clone()).header("x-conversation-id", name);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["result"]["isError"], refused, "{name:?}: {answer}");
    }
    assert_eq!(server.workspaces().len(), 2);
}

#[tokio::test]
async fn numbers_that_json_does_not_have_and_lone_surrogates_are_refused() {
    let server = TestServer::start().await;
    let mut wrong = Vec::new();
    for arguments in [
        r#"{"language":"bash","code":"touch made","timeoutSeconds":NaN}"#,
        r#"{"language":"bash","code":"touch made","timeoutSeconds":Infinity}"#,
        r#"{"language":"bash","code":"touch made","timeoutSeconds":1e999}"#,
        r#"{"language":"bash","code":"touch made # \ud800"}"#,
        r#"{"language":"bash","code":"touch made # \udc00\ud800"}"#,
        r#"{"language":"bash","code":"touch made","environment":{"A":"\ud83d"}}"#,
    ] {
        let response = server.post(raw_call(arguments)).send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let refused = answer["error"]["code"].is_i64() || answer["result"]["isError"] == true;
        if status.is_server_error() || !refused {
            wrong.push(format!("{arguments}: {status}: {text:.200}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for timeout in [
        json!(1e308),
        json!(-0.0),
        json!(-1e308),
        json!([1]),
        json!("1"),
    ] {
        let run = json!({ "language": "bash", "code": "touch made", "timeoutSeconds": timeout });
        assert_eq!(
            server.refusal("run_code", run).await.0,
            "invalid_argument",
            "{timeout}"
        );
    }
    assert_eq!(server.workspaces().len(), 0);
}

#[tokio::test]
async fn code_arrives_byte_for_byte() {
    let server = TestServer::start().await;
    // The program tells the digest of its own source, whose end must do no harm as a comment.
    let python = "import hashlib; print(hashlib.sha256(open(__file__, 'rb').read()).hexdigest())";
    let bash = "sha256sum < \"$0\" | cut -c 1-64";
    let long = "x".repeat((1 << 20) - 200);
    for (name, end) in [
        ("nothing", ""),
        ("CRLF", "# a\r\n# b\r\n"),
        ("lone CR", "# a\r# b"),
        ("BOM within", "# \u{feff}"),
        ("almost lines", "# a\u{2028}b\u{85}c\u{c}d"),
        ("astral", "# 🙂\u{10ffff}\u{fffd}"),
        ("controls", "# \u{1e}\u{1b}[2J\u{7f}"),
        ("no last newline", "#"),
        ("1 MB", &format!("# {long}")),
    ] {
        for (language, program) in [("python", python), ("bash", bash)] {
            let code = format!("{program}\n{end}");
            let run = server.run_in("bytes", language, &code).await;
            let digest = hex::encode(Sha256::digest(code.as_bytes()));
            assert_eq!(
                run["output"],
                format!("{digest}\n"),
                "{name} in {language}: {}",
                run["stderr"]
            );
        }
    }
}

#[tokio::test]
async fn odd_code_has_the_meaning_that_its_language_gives_it() {
    let server = TestServer::start().await;
    for (language, code, output, error) in [
        (
            "python",
            "\u{feff}print('begins with a BOM')",
            "begins with a BOM\n",
            "",
        ),
        ("python", "if True:\r\n    print('CRLF')\r\n", "CRLF\n", ""),
        ("python", "print('''a\r\nb''')", "a\nb\n", ""),
        ("python", "print(1)\0print(2)", "", "null byte"),
        (
            "typescript",
            "\u{feff}console.log('begins with a BOM')",
            "begins with a BOM\n",
            "",
        ),
        (
            "typescript",
            "const a = 1;\r\n// comment\r\nconsole.log('CRLF', a);\r\n",
            "CRLF 1\n",
            "",
        ),
        (
            "typescript",
            "console.log('a\u{feff}\u{2028}\u{7f}b'.length, '🙂'.length)",
            "5 2\n",
            "",
        ),
        ("bash", "printf 'a\r\nb'", "a\r\nb", ""),
        (
            "bash",
            "echo before\n# \0\necho after",
            "before\nafter\n",
            "",
        ),
    ] {
        let run = server.run(language, code).await;
        assert_eq!(run["output"], output, "{language} {code:?}: {run}");
        let stderr = run["stderr"].as_str().unwrap();
        assert!(stderr.contains(error), "{language} {code:?}: {run}");
        assert_eq!(
            run["status"],
            if error.is_empty() { "ok" } else { "error" },
            "{run}"
        );
    }
}

/// Variables that make programs load code, write elsewhere or start differently.
const GROUPS: [&[(&str, &str)]; 4] = [
    &[
        ("LD_PRELOAD", "/data/evil.so"),
        ("LD_AUDIT", "/data/evil.so"),
        ("LD_LIBRARY_PATH", "/data"),
        ("LD_BIND_NOW", "1"),
        ("GLIBC_TUNABLES", "glibc.malloc.check=3"),
        ("MALLOC_PERTURB_", "255"),
    ],
    &[
        ("PYTHONPATH", "/data"),
        ("PYTHONHOME", "/nowhere"),
        ("PYTHONSTARTUP", "/data/evil.py"),
        ("PYTHONINSPECT", "1"),
        ("PYTHONIOENCODING", "utf-16"),
        ("PYTHONOPTIMIZE", "2"),
        ("PYTHONUSERBASE", "/data"),
        ("PYTHONWARNINGS", "error"),
        ("PYTHONFAULTHANDLER", "1"),
    ],
    &[
        ("NODE_OPTIONS", "--require /data/evil.js --inspect"),
        ("NODE_PATH", "/data"),
        ("BUN_OPTIONS", "--preload /data/evil.js --inspect"),
        ("BUN_INSPECT", "1"),
        ("BUN_INSPECT_PRELOAD", "/data/evil.js"),
        ("BUN_CONFIG_VERBOSE_FETCH", "1"),
        ("BUN_FEATURE_FLAG_DISABLE_ASYNC_TRANSPILER", "0"),
        ("BUN_JSC_useJIT", "0"),
        ("BUN_RUNTIME_TRANSPILER_CACHE_PATH", "/data"),
        ("BUN_DEBUG", "/data/debug.log"),
    ],
    &[
        ("PATH", "/data"),
        ("HOME", "/nowhere"),
        ("TMPDIR", "/nowhere"),
        ("LANG", "xx_XX.nothing"),
        ("LC_ALL", "C"),
        ("TZ", "/etc/passwd"),
        ("IFS", "o"),
        ("PS4", "$(touch evil)"),
        ("BASH_ENV", "/data/evil.sh"),
        ("ENV", "/data/evil.sh"),
        ("CDPATH", "/"),
        ("COLUMNS", "x"),
    ],
];

#[tokio::test]
async fn an_environment_cannot_break_the_report_of_how_a_run_ended() {
    let server = TestServer::start().await;
    let plant = "
for name in cat bash sh env python3 bun supervise; do printf '#!/bin/sh\\nexit 0\\n' > $name; chmod +x $name; done
for name in json os sys sitecustomize usercustomize evil program preload; do echo 'import os; os._exit(0)' > $name.py; done
echo 'process.exit(0)' > evil.js; echo ': evil' > evil.sh; echo no library > evil.so; echo 'preload = [\"/data/evil.js\"]' > bunfig.toml";
    server.run_in("hostile", "bash", plant).await;
    let endings = [
        (
            "python",
            "print('alive'); raise SystemExit(3)",
            "error",
            json!(3),
        ),
        (
            "typescript",
            "console.log('alive'); process.exit(3)",
            "error",
            json!(3),
        ),
        ("bash", "echo alive; exit 3", "error", json!(3)),
        (
            "python",
            "print('alive', flush=True); import os; os.kill(os.getpid(), 9)",
            "killed",
            Value::Null,
        ),
        (
            "typescript",
            "console.log('alive'); process.kill(process.pid, 'SIGKILL')",
            "killed",
            Value::Null,
        ),
    ];
    for group in GROUPS {
        let environment: Map<_, _> = group
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let runs = endings.iter().map(|(language, code, ..)| {
            let arguments = json!({
                "conversationId": "hostile", "language": language, "code": code, "environment": environment,
            });
            let caller = server.clone();
            async move { caller.call_ok("run_code", arguments).await }
        });
        for ((_, _, status, exit_code), run) in endings.iter().zip(at_once(runs).await) {
            assert_eq!(
                (&run["status"], &run["exitCode"], &run["output"]),
                (&json!(status), exit_code, &json!("alive\n")),
                "{environment:?}: {run}"
            );
        }
    }
}

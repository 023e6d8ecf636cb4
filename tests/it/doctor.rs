//! Doctor: the command as an operator runs it, on this host and on hosts that are broken in one way each.

use std::{
    fs,
    io::Read as _,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Every check, in the order they are made.
const CHECKS: [&str; 22] = [
    "settings",
    "env-file",
    "exposure",
    "workspaces",
    "disk",
    "docker-socket",
    "docker",
    "rootless",
    "runc",
    "runtime",
    "cgroups",
    "runners",
    "run",
    "mount",
    "privileges",
    "seccomp",
    "read-only",
    "cpu-limit",
    "network-off",
    "pids-limit",
    "memory-limit",
    "metadata",
];

/// A host's directory, in which the command is run.
struct Host {
    directory: TempDir,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The command, with these settings and no others but the engine's address.
    fn doctor(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-code-sandbox"));
        command.arg("doctor").args(arguments).env_clear();
        if let Some(docker_host) = std::env::var_os("DOCKER_HOST") {
            command.env("DOCKER_HOST", docker_host);
        }
        command
            .env("MCP_HTTP_ADDR", "127.0.0.1:8080")
            .env("MCP_API_TOKEN", "test-token")
            .env("FILE_SECRET", "0123456789abcdef0123456789abcdef")
            // Tests speak to this machine only.
            .env("NETWORK_POLICY", "deny")
            .envs(settings.iter().copied())
            .current_dir(self.path())
            .output()
            .unwrap()
    }

    /// Exit code and checks of `doctor --json`.
    fn checks(&self, settings: &[(&str, &str)]) -> (i32, Vec<Value>) {
        let output = self.doctor(&["--json"], settings);
        let checks: Vec<Value> = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let names: Vec<&str> = checks
            .iter()
            .map(|check| check["check"].as_str().unwrap())
            .collect();
        assert_eq!(names, CHECKS);
        for check in &checks {
            let passes = check["verdict"] == "pass";
            assert_eq!(check.get("remedy").is_none(), passes, "{check}");
            assert!(!check["found"].as_str().unwrap().is_empty(), "{check}");
        }
        (output.status.code().unwrap(), checks)
    }
}

/// The check of that name.
fn named<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["check"] == name).unwrap()
}

fn verdict<'a>(checks: &'a [Value], name: &str) -> &'a str {
    named(checks, name)["verdict"].as_str().unwrap()
}

fn remedy<'a>(checks: &'a [Value], name: &str) -> &'a str {
    named(checks, name)["remedy"].as_str().unwrap()
}

#[test]
fn a_host_that_runs_code_passes_and_nothing_is_left() {
    let host = Host::new();
    // What this host's network does with the address of metadata is not ours to say.
    let (code, checks) = host.checks(&[]);
    assert_eq!(code, 0, "{checks:#?}");
    for name in [
        "settings",
        "exposure",
        "workspaces",
        "disk",
        "runtime",
        "cgroups",
        "runners",
        "run",
        "mount",
        "privileges",
        "seccomp",
        "read-only",
        "pids-limit",
        "cpu-limit",
        "network-off",
        "metadata",
    ] {
        assert_eq!(verdict(&checks, name), "pass", "{checks:#?}");
    }
    // The engine may kill it without saying why.
    assert_ne!(verdict(&checks, "memory-limit"), "fail", "{checks:#?}");
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
}

#[test]
fn it_speaks_to_people_without_any_settings() {
    let host = Host::new();
    let output = host.doctor(
        &[],
        &[
            ("MCP_API_TOKEN", ""),
            ("FILE_SECRET", ""),
            ("DOCKER_HOST", "unix:///nonexistent/docker.sock"),
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("MCP_API_TOKEN, FILE_SECRET unset") && text.contains("-> ./start.sh"),
        "{text}"
    );
    let verdicts = text.lines().filter(|line| !line.starts_with(' '));
    assert_eq!(verdicts.count(), CHECKS.len(), "{text}");
}

#[test]
fn an_engine_that_does_not_answer_is_told_at_once() {
    let host = Host::new();
    let dead = host.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let silent = host.path().join("silent.sock");
    let listener = UnixListener::bind(&silent).unwrap();
    std::thread::spawn(move || {
        // Takes questions and keeps its peace.
        let mut streams: Vec<_> = listener.incoming().flatten().take(1).collect();
        for stream in &mut streams {
            let _asked = stream.read_to_end(&mut Vec::new());
        }
    });
    for socket in [&dead, &silent] {
        let docker_host = format!("unix://{}", socket.display());
        let asked = Instant::now();
        let (code, checks) = host.checks(&[("DOCKER_HOST", &docker_host)]);
        assert!(asked.elapsed() < Duration::from_secs(8), "{socket:?}");
        assert_eq!(code, 1);
        assert_eq!(verdict(&checks, "docker"), "fail");
        assert!(remedy(&checks, "docker").contains("DOCKER_HOST"));
        let after = CHECKS.iter().skip_while(|name| **name != "docker").skip(1);
        for name in after {
            assert_eq!(verdict(&checks, name), "not_run", "{name}");
        }
    }
}

#[test]
fn a_wrong_host_path_fails_the_mount_and_names_the_setting() {
    let (code, checks) = Host::new().checks(&[("SANDBOX_HOST_PATH", "/nonexistent/elsewhere")]);
    assert_eq!(code, 1);
    assert_eq!(verdict(&checks, "mount"), "fail", "{checks:#?}");
    assert!(remedy(&checks, "mount").contains("SANDBOX_HOST_PATH"));
    assert_eq!(verdict(&checks, "privileges"), "not_run");
}

#[test]
fn a_runtime_that_the_engine_does_not_have_fails() {
    let (code, checks) = Host::new().checks(&[("RUNTIME", "nosuch")]);
    assert_eq!(code, 1);
    assert_eq!(verdict(&checks, "runtime"), "fail", "{checks:#?}");
    assert!(remedy(&checks, "runtime").contains("RUNTIME"));
    assert_eq!(verdict(&checks, "run"), "fail", "{checks:#?}");
}

#[test]
fn a_network_that_the_engine_does_not_have_is_named() {
    let (code, checks) = Host::new().checks(&[
        ("SANDBOX_NETWORK", "no-such-network-here"),
        ("NETWORK_POLICY", "allow"),
    ]);
    assert_eq!(code, 1);
    assert_eq!(verdict(&checks, "metadata"), "fail", "{checks:#?}");
    assert!(remedy(&checks, "metadata").contains("SANDBOX_NETWORK"));
    assert_eq!(verdict(&checks, "network-off"), "pass", "{checks:#?}");
}

#[test]
fn what_others_on_the_host_may_touch_is_told() {
    let host = Host::new();
    // The engine is not asked: what is looked at is files.
    let socket = host.path().join("docker.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let docker_host = format!("unix://{}", socket.display());
    let settings = [
        ("DOCKER_HOST", docker_host.as_str()),
        ("SANDBOX_ROOT", "root"),
        ("MCP_HTTP_ADDR", ":8080"),
        ("PUBLIC_BASE_URL", "http://sandbox.example.com"),
    ];
    let (env_file, root) = (host.path().join(".env"), host.path().join("root"));
    fs::write(&env_file, "RUN_PIDS=64\n").unwrap();
    fs::create_dir(&root).unwrap();
    let set = |modes: [u32; 3]| {
        for (path, mode) in [&env_file, &root, &socket].into_iter().zip(modes) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let (_, checks) = host.checks(&settings);
        ["env-file", "workspaces", "docker-socket"].map(|name| verdict(&checks, name).to_owned())
    };
    assert_eq!(set([0o600, 0o711, 0o660]), ["pass", "pass", "pass"]);
    assert_eq!(set([0o640, 0o755, 0o666]), ["warn", "warn", "fail"]);
    assert_eq!(set([0o644, 0o777, 0o662]), ["fail", "fail", "fail"]);
    let (_, checks) = host.checks(&settings);
    assert_eq!(verdict(&checks, "exposure"), "warn");
    assert!(remedy(&checks, "exposure").contains("127.0.0.1:8080"));
}

#[test]
fn a_setting_that_does_not_fit_is_named_and_a_full_disk_too() {
    let host = Host::new();
    let (code, checks) = host.checks(&[("RUN_MEMORY", "lots")]);
    assert_eq!(code, 1);
    let found = named(&checks, "settings")["found"].as_str().unwrap();
    assert!(found.contains("RUN_MEMORY"), "{found}");
    assert_eq!(verdict(&checks, "disk"), "not_run");

    let (code, checks) = host.checks(&[
        ("MIN_FREE_DISK_BYTES", "999999g"),
        ("DOCKER_HOST", "unix:///nonexistent/docker.sock"),
    ]);
    assert_eq!(code, 1);
    assert_eq!(verdict(&checks, "disk"), "fail");
    assert!(remedy(&checks, "disk").contains("MIN_FREE_DISK_BYTES"));
}

//! Host: the settings and what they name on this machine, before anything is run.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use mcp_code_sandbox::config::{Config, ConfigError, ListenAddr, Source, env_file};
use uuid::Uuid;

use super::check::Check;

pub(super) const SETTINGS: &str = "settings";
const ENV_FILE: &str = "env-file";
const EXPOSURE: &str = "exposure";
const WORKSPACES: &str = "workspaces";
const DISK: &str = "disk";
const SOCKET: &str = "docker-socket";

/// Permission bits.
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_READ: u32 = 0o004;
const ALL_BUT_OWNER: u32 = 0o077;

/// The settings, as far as they can be read; and whether they are right.
pub(super) fn settings() -> (Option<Config>, Check) {
    match read() {
        Ok((config, missing)) if missing.is_empty() => {
            (Some(config), Check::pass(SETTINGS, "every value fits"))
        }
        Ok((config, missing)) => {
            let found = format!("{} unset: the server does not start", missing.join(", "));
            let remedy = "./start.sh makes .env with fresh ones";
            (Some(config), Check::warn(SETTINGS, found, remedy))
        }
        Err(error) => {
            let remedy = "mend the value; mcp-code-sandbox --help says what it may be";
            (None, Check::fail(SETTINGS, error.to_string(), remedy))
        }
    }
}

/// The operator's settings, with stand-ins for required ones that are missing, and those.
fn read() -> Result<(Config, Vec<&'static str>), ConfigError> {
    let mut source = Source::from_environment()?;
    let unset =
        |source: &Source, name| source.get(name).is_none_or(|value| value.trim().is_empty());
    let mut missing = Vec::new();
    for name in ["MCP_API_TOKEN", "FILE_SECRET"] {
        if unset(&source, name) {
            missing.push(name);
            source = source.with(name, Uuid::new_v4().to_string());
        }
    }
    if unset(&source, "RUST_LOG") {
        // What matters of it is in the checks.
        source = source.with("RUST_LOG", "error");
    }
    Ok((Config::from_source(&source)?, missing))
}

/// The checks of [`checks`], where there are no settings.
pub(super) fn not_run() -> Vec<Check> {
    [EXPOSURE, WORKSPACES, DISK, SOCKET]
        .map(|name| Check::not_run(name, SETTINGS))
        .into()
}

/// Every check of the host that needs settings, in order.
pub(super) fn checks(config: &Config) -> Vec<Check> {
    let (workspaces, disk) = workspaces(config);
    vec![
        exposure(config),
        workspaces,
        disk,
        socket(&config.docker_host),
    ]
}

/// Who can read the secrets in `.env`.
pub(super) fn env_file_mode() -> Check {
    let Some(path) = env_file() else {
        return Check::pass(
            ENV_FILE,
            "there is none: settings come from the environment",
        );
    };
    let mode = match fs::metadata(&path) {
        Ok(metadata) => mode(&metadata),
        Err(error) => {
            return Check::fail(
                ENV_FILE,
                format!("{}: {error}", path.display()),
                "let the server's user read it",
            );
        }
    };
    let found = format!("{} has mode {mode:03o}", path.display());
    let remedy = format!(
        "chmod 600 {}: it holds the token and FILE_SECRET",
        path.display()
    );
    if mode & (OTHERS_READ | OTHERS_WRITE) != 0 {
        Check::fail(
            ENV_FILE,
            format!("{found}: every local user can use it"),
            remedy,
        )
    } else if mode & ALL_BUT_OWNER != 0 {
        Check::warn(ENV_FILE, format!("{found}: its group can use it"), remedy)
    } else {
        Check::pass(ENV_FILE, found)
    }
}

fn exposure(config: &Config) -> Check {
    let (everywhere, addr) = match config.http_addr {
        ListenAddr::AllInterfaces(port) => (true, format!(":{port}")),
        ListenAddr::Addr(addr) => (addr.ip().is_unspecified(), addr.to_string()),
    };
    let found = format!("listens on {addr}, known as {}", config.public_base_url);
    if everywhere && config.public_base_url.scheme() == "http" {
        Check::warn(
            EXPOSURE,
            format!("{found}: on all interfaces, the token and files travel in the clear"),
            format!(
                "MCP_HTTP_ADDR=127.0.0.1:{} if only this machine calls it, else https in front and in PUBLIC_BASE_URL",
                config.http_addr.port()
            ),
        )
    } else {
        Check::pass(EXPOSURE, found)
    }
}

/// `SANDBOX_ROOT` itself, and the room on its disk.
fn workspaces(config: &Config) -> (Check, Check) {
    let root = &config.sandbox_root;
    let shown = root.display();
    match use_root(root) {
        Err(error) => (
            Check::fail(
                WORKSPACES,
                format!("SANDBOX_ROOT {shown} cannot be written to: {error}"),
                "make it a directory that the server's user owns",
            ),
            Check::not_run(DISK, WORKSPACES),
        ),
        Ok(at) => (permissions(root, &at), disk(&at, config.disk.min_free)),
    }
}

/// Writes to `root`, or to where the server would make it, and returns that place.
fn use_root(root: &Path) -> io::Result<PathBuf> {
    let root = std::path::absolute(root)?;
    let at = root
        .ancestors()
        .find(|path| path.exists())
        .ok_or(io::ErrorKind::NotFound)?;
    let probe = at.join(format!(".doctor-{}", Uuid::new_v4()));
    fs::create_dir(&probe)?;
    fs::remove_dir(&probe)?;
    Ok(at.to_owned())
}

fn permissions(root: &Path, at: &Path) -> Check {
    let shown = root.display();
    if !root.exists() {
        return Check::pass(
            WORKSPACES,
            format!("SANDBOX_ROOT {shown} is made at the first start, with mode 711"),
        );
    }
    let mode = fs::metadata(at).map_or(0, |metadata| mode(&metadata));
    let found = format!("SANDBOX_ROOT {shown} can be written to and has mode {mode:03o}");
    let remedy = format!("chmod 711 {shown}");
    if mode & OTHERS_WRITE != 0 {
        Check::fail(
            WORKSPACES,
            format!("{found}: every local user can put things there"),
            remedy,
        )
    } else if mode & OTHERS_READ != 0 {
        Check::warn(
            WORKSPACES,
            format!(
                "{found}: every local user can list it, and the names open the files over HTTP"
            ),
            remedy,
        )
    } else {
        Check::pass(WORKSPACES, found)
    }
}

fn disk(at: &Path, min_free: u64) -> Check {
    let free = match rustix::fs::statvfs(at) {
        Ok(status) => status.f_bavail.saturating_mul(status.f_frsize),
        Err(error) => {
            return Check::fail(
                DISK,
                format!("{}: {error}", at.display()),
                "put SANDBOX_ROOT on a disk that works",
            );
        }
    };
    let found = format!(
        "{} MB free; MIN_FREE_DISK_BYTES keeps {} MB",
        free >> 20,
        min_free >> 20
    );
    if free > min_free {
        Check::pass(DISK, found)
    } else {
        Check::fail(
            DISK,
            format!("{found}: nothing is run or uploaded"),
            "make room on SANDBOX_ROOT's disk, or lower MIN_FREE_DISK_BYTES",
        )
    }
}

fn socket(docker_host: &str) -> Check {
    let Some(path) = docker_host.strip_prefix("unix://") else {
        return Check::warn(
            SOCKET,
            format!(
                "{docker_host} is not a local socket: whoever reaches it is root on the engine's host"
            ),
            "let only this server reach it, as with a socket proxy on a network of their own",
        );
    };
    match fs::metadata(path) {
        Err(error) => Check::fail(
            SOCKET,
            format!("{path}: {error}"),
            "start the engine, or name its socket in DOCKER_HOST",
        ),
        Ok(metadata) if mode(&metadata) & OTHERS_WRITE != 0 => Check::fail(
            SOCKET,
            format!(
                "{path} has mode {:03o}: every local user is as good as root",
                mode(&metadata)
            ),
            format!("chmod 660 {path}, with the group docker"),
        ),
        Ok(metadata) => Check::pass(SOCKET, format!("{path} has mode {:03o}", mode(&metadata))),
    }
}

fn mode(metadata: &Metadata) -> u32 {
    metadata.mode() & 0o777
}

//! Settings: everything an operator can choose.
//!
//! They are read once at start, from the environment and from `.env` below it. [`SETTINGS`] is the
//! one list of names, defaults and meanings: `--help`, the README's table and `.env.example` are
//! checked against it. A value that does not fit refuses to start, naming its variable.

mod parse;
mod personal;
mod source;

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

pub use self::source::{ConfigError, Source, env_file};
use crate::{caller::Caller, workspace::DiskUsage};

/// One setting as an operator sees it.
#[derive(Debug)]
pub struct Setting {
    /// Name of the environment variable.
    pub name: &'static str,
    /// What counts when it is unset or empty; empty itself where there is no default.
    pub default: &'static str,
    /// One sentence, for `--help` and the README.
    pub about: &'static str,
}

/// Every setting, in the order `--help` prints them.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    Setting { name: "MCP_HTTP_ADDR", default: ":8080", about: "Address to listen on; without a host, all interfaces." },
    Setting { name: "PUBLIC_BASE_URL", default: "http://localhost:8080", about: "How clients and browsers reach this server; file links start with it." },
    Setting { name: "MCP_API_TOKEN", default: "", about: "Bearer token of /mcp (required, unless MCP_API_TOKENS is set)." },
    Setting { name: "MCP_API_TOKENS", default: "", about: "name:token pairs, comma separated: callers who share no files, told apart in logs and metrics." },
    Setting { name: "SANDBOX_ROOT", default: "./data", about: "Directory that holds the workspaces." },
    Setting { name: "SANDBOX_HOST_PATH", default: "", about: "The same directory as the Docker engine sees it; default: SANDBOX_ROOT." },
    Setting { name: "FILE_SECRET", default: "", about: "At least 32 characters; makes file links unguessable (required)." },
    Setting { name: "TUNNEL_TOKEN", default: "", about: "Cloudflare tunnel token; read by docker-compose-cloudflare.yml only." },
    Setting { name: "RUN_TIMEOUT_SECONDS", default: "30", about: "Time limit of a run that names none." },
    Setting { name: "RUN_TIMEOUT_MAX_SECONDS", default: "300", about: "Longest time limit a run may ask for." },
    Setting { name: "RUN_MEMORY", default: "256m", about: "Memory of a run, /tmp and /dev/shm included." },
    Setting { name: "RUN_CPUS", default: "0.5", about: "Processor share of a run, in cores." },
    Setting { name: "RUN_PIDS", default: "128", about: "Processes and threads of a run." },
    Setting { name: "RUN_TMPFS", default: "64m", about: "Size of a run's /tmp." },
    Setting { name: "MAX_CONCURRENT_RUNS", default: "", about: "Runs at one time; default: twice the number of cores." },
    Setting { name: "MAX_QUEUED_RUNS", default: "64", about: "Runs that wait for a place; more are refused as busy." },
    Setting { name: "QUEUE_TIMEOUT_SECONDS", default: "20", about: "Longest wait for a place." },
    Setting { name: "WARM_POOL_SIZE", default: "1", about: "Containers per language that wait for new conversations; 0 for none." },
    Setting { name: "WARM_CONVERSATIONS", default: "8", about: "Conversations whose next container waits already; 0 for none." },
    Setting { name: "WARM_IDLE_SECONDS", default: "300", about: "How long a conversation's next container waits." },
    Setting { name: "MAX_OUTPUT_BYTES", default: "100k", about: "Output kept of each stream; head and tail of longer output." },
    Setting { name: "MAX_CODE_BYTES", default: "1m", about: "Longest code of a run." },
    Setting { name: "MAX_UPLOAD_BYTES", default: "50m", about: "Largest file that can be uploaded; upload_file takes 50m at the most." },
    Setting { name: "WORKSPACE_QUOTA_BYTES", default: "1g", about: "Disk that one conversation's files may take." },
    Setting { name: "WORKSPACE_MAX_FILES", default: "10000", about: "Files and directories that one conversation may have." },
    Setting { name: "WORKSPACE_TTL_HOURS", default: "168", about: "Hours without use after which a conversation's files are deleted; 0 keeps them." },
    Setting { name: "MIN_FREE_DISK_BYTES", default: "1g", about: "Disk kept free for the host: below it nothing is run or uploaded." },
    Setting { name: "NETWORK_POLICY", default: "allow", about: "allow, or deny to refuse every run that asks for the network." },
    Setting { name: "SANDBOX_NETWORK", default: "bridge", about: "Docker network of runs that ask for the network." },
    Setting { name: "RUNTIME", default: "", about: "OCI runtime of the runs, such as runsc; default: the engine's own." },
    Setting { name: "PASS_THROUGH_ENV", default: "", about: "Names of this server's variables that every run gets, comma separated." },
    Setting { name: "EXTRA_RUNNERS", default: "", about: "language=image pairs for images without labels, comma separated." },
    Setting { name: "ALLOWED_HOSTS", default: "", about: "Host headers accepted besides PUBLIC_BASE_URL's and loopback, comma separated." },
    Setting { name: "ALLOWED_ORIGINS", default: "", about: "Origins accepted besides PUBLIC_BASE_URL's and loopback, comma separated." },
    Setting { name: "LOG_FORMAT", default: "text", about: "text or json." },
    Setting { name: "RUST_LOG", default: "info", about: "Log filter, such as debug or mcp_code_sandbox=debug." },
    Setting { name: "DOCKER_HOST", default: "unix:///var/run/docker.sock", about: "Socket of the Docker or Podman engine." },
];

/// The settings, parsed.
#[derive(Debug, Clone)]
pub struct Config {
    /// `MCP_HTTP_ADDR`
    pub http_addr: ListenAddr,
    /// `PUBLIC_BASE_URL`, without a trailing slash in its path.
    pub public_base_url: Url,
    /// `MCP_API_TOKEN` and `MCP_API_TOKENS`: who may call. At least one.
    pub tokens: Vec<(Caller, SecretString)>,
    /// Whether files can be had over HTTP: not where only a client on standard input is served.
    pub serves_http: bool,
    /// `SANDBOX_ROOT`
    pub sandbox_root: PathBuf,
    /// `SANDBOX_HOST_PATH`; `None` where it is the same as `SANDBOX_ROOT`.
    pub sandbox_host_path: Option<PathBuf>,
    /// `FILE_SECRET`
    pub file_secret: SecretString,
    /// `RUN_*`: what a run may use.
    pub limits: RunLimits,
    /// How many runs there may be.
    pub admission: AdmissionLimits,
    /// What files may take.
    pub disk: DiskLimits,
    /// How many containers wait for calls.
    pub warm: WarmLimits,
    /// `MAX_OUTPUT_BYTES`, per stream.
    pub max_output_bytes: usize,
    /// `MAX_CODE_BYTES`
    pub max_code_bytes: usize,
    /// `MAX_UPLOAD_BYTES`
    pub max_upload_bytes: u64,
    /// Whether runs may ask for the network, and which one they get.
    pub network: NetworkPolicy,
    /// `RUNTIME`
    pub runtime: Option<String>,
    /// `PASS_THROUGH_ENV`, with the values this process has.
    pub pass_through_env: BTreeMap<String, String>,
    /// `EXTRA_RUNNERS`: language to image.
    pub extra_runners: BTreeMap<String, String>,
    /// `ALLOWED_HOSTS` and the default ones.
    pub allowed_hosts: Vec<String>,
    /// `ALLOWED_ORIGINS` and the default ones.
    pub allowed_origins: Vec<String>,
    /// `LOG_FORMAT`
    pub log_format: LogFormat,
    /// `RUST_LOG`
    pub log_filter: String,
    /// `DOCKER_HOST`
    pub docker_host: String,
}

/// What a single run may use.
#[derive(Debug, Clone, Copy)]
pub struct RunLimits {
    /// Time limit of a run that names none.
    pub timeout: Duration,
    /// Longest time limit a run may ask for.
    pub timeout_max: Duration,
    /// Bytes of memory, swap included (there is none).
    pub memory: u64,
    /// Thousand-millionths of a core, Docker's unit.
    pub nano_cpus: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of `/tmp`.
    pub tmpfs: u64,
}

/// How many runs there may be at one time.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionLimits {
    /// `MAX_CONCURRENT_RUNS`
    pub running: usize,
    /// `MAX_QUEUED_RUNS`
    pub queued: usize,
    /// `QUEUE_TIMEOUT_SECONDS`
    pub queue_timeout: Duration,
}

/// How many containers wait for calls.
#[derive(Debug, Clone, Copy)]
pub struct WarmLimits {
    /// `WARM_POOL_SIZE`, per language.
    pub spares: usize,
    /// `WARM_CONVERSATIONS`
    pub conversations: usize,
    /// `WARM_IDLE_SECONDS`
    pub idle: Duration,
}

/// What files may take.
#[derive(Debug, Clone, Copy)]
pub struct DiskLimits {
    /// `WORKSPACE_QUOTA_BYTES` and `WORKSPACE_MAX_FILES`
    pub workspace: DiskUsage,
    /// `MIN_FREE_DISK_BYTES`
    pub min_free: u64,
    /// `WORKSPACE_TTL_HOURS`; `None` keeps them.
    pub ttl: Option<Duration>,
}

/// Whether runs may have a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// Runs that ask for it are attached to this Docker network.
    Allow(String),
    /// Runs that ask for it are refused.
    Deny,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAddr {
    /// All interfaces, IPv6 and IPv4: what Go writes as `:8080`.
    AllInterfaces(u16),
    /// One address.
    Addr(SocketAddr),
}

impl ListenAddr {
    /// The port listened on.
    pub fn port(self) -> u16 {
        match self {
            Self::AllInterfaces(port) => port,
            Self::Addr(addr) => addr.port(),
        }
    }
}

impl Config {
    /// Parses the settings that `source` holds.
    ///
    /// # Errors
    /// Names the first variable whose value does not fit, and why.
    pub fn from_source(source: &Source) -> Result<Self, ConfigError> {
        let public_base_url = source.parse("PUBLIC_BASE_URL", parse::base_url)?;
        let limits = RunLimits {
            timeout: source.parse("RUN_TIMEOUT_SECONDS", parse::seconds)?,
            timeout_max: source.parse("RUN_TIMEOUT_MAX_SECONDS", parse::seconds)?,
            memory: source.parse("RUN_MEMORY", parse::memory)?,
            nano_cpus: source.parse("RUN_CPUS", parse::nano_cpus)?,
            pids: source.parse("RUN_PIDS", parse::count)?,
            tmpfs: source.parse("RUN_TMPFS", parse::size)?,
        };
        if limits.timeout > limits.timeout_max {
            return Err(ConfigError::new(
                "RUN_TIMEOUT_SECONDS",
                "is longer than RUN_TIMEOUT_MAX_SECONDS",
            ));
        }
        Ok(Self {
            http_addr: source.parse("MCP_HTTP_ADDR", parse::listen_addr)?,
            tokens: tokens(source)?,
            serves_http: true,
            sandbox_root: source.parse("SANDBOX_ROOT", parse::path)?,
            sandbox_host_path: source.parse_optional("SANDBOX_HOST_PATH", parse::absolute_path)?,
            file_secret: source.parse("FILE_SECRET", parse::file_secret)?,
            limits,
            admission: AdmissionLimits {
                running: source
                    .parse_optional("MAX_CONCURRENT_RUNS", parse::count)?
                    .map_or_else(twice_the_cores, |count| count as usize),
                queued: source.parse("MAX_QUEUED_RUNS", parse::whole_number)? as usize,
                queue_timeout: source.parse("QUEUE_TIMEOUT_SECONDS", parse::seconds)?,
            },
            warm: WarmLimits {
                spares: source.parse("WARM_POOL_SIZE", parse::whole_number)? as usize,
                conversations: source.parse("WARM_CONVERSATIONS", parse::whole_number)? as usize,
                idle: source.parse("WARM_IDLE_SECONDS", parse::seconds)?,
            },
            disk: DiskLimits {
                workspace: DiskUsage::at_most(
                    source.parse("WORKSPACE_QUOTA_BYTES", parse::size)?,
                    source.parse("WORKSPACE_MAX_FILES", parse::count)?.into(),
                ),
                min_free: source.parse("MIN_FREE_DISK_BYTES", parse::size_or_zero)?,
                ttl: source.parse("WORKSPACE_TTL_HOURS", parse::hours)?,
            },
            max_output_bytes: source.parse("MAX_OUTPUT_BYTES", parse::size_in_memory)?,
            max_code_bytes: source.parse("MAX_CODE_BYTES", parse::size_in_memory)?,
            max_upload_bytes: source.parse("MAX_UPLOAD_BYTES", parse::size)?,
            network: if source.parse("NETWORK_POLICY", parse::network_allowed)? {
                NetworkPolicy::Allow(source.parse("SANDBOX_NETWORK", parse::text)?)
            } else {
                NetworkPolicy::Deny
            },
            runtime: source.parse_optional("RUNTIME", parse::text)?,
            pass_through_env: source
                .parse("PASS_THROUGH_ENV", parse::list)?
                .into_iter()
                .filter_map(|name| Some((name.clone(), source.get(&name)?.to_owned())))
                .collect(),
            extra_runners: source.parse("EXTRA_RUNNERS", parse::pairs)?,
            allowed_hosts: source
                .parse("ALLOWED_HOSTS", parse::list)?
                .into_iter()
                .chain(public_base_url.host_str().map(str::to_owned))
                .chain(LOOPBACK_HOSTS.map(str::to_owned))
                .collect(),
            allowed_origins: source
                .parse("ALLOWED_ORIGINS", parse::origins)?
                .into_iter()
                .chain([public_base_url.origin().ascii_serialization()])
                .chain(LOOPBACK_ORIGINS.map(str::to_owned))
                .collect(),
            public_base_url,
            log_format: source.parse("LOG_FORMAT", parse::log_format)?,
            log_filter: source.parse("RUST_LOG", parse::log_filter)?,
            docker_host: source.parse("DOCKER_HOST", parse::docker_host)?,
        })
    }
}

/// Who may call, and with which token.
fn tokens(source: &Source) -> Result<Vec<(Caller, SecretString)>, ConfigError> {
    let default = source
        .parse_optional("MCP_API_TOKEN", parse::api_token)?
        .map(|token| (Caller::default(), token));
    let named = source.parse("MCP_API_TOKENS", parse::named_tokens)?;
    let (mut callers, mut tokens) = (HashSet::new(), HashSet::new());
    let all: Vec<_> = default.into_iter().chain(named).collect();
    for (caller, token) in &all {
        if !callers.insert(caller) || !tokens.insert(token.expose_secret()) {
            return Err(ConfigError::new(
                "MCP_API_TOKENS",
                format!("names {caller} twice, or gives it another one's token"),
            ));
        }
    }
    if all.is_empty() {
        return Err(ConfigError::new(
            "MCP_API_TOKEN",
            "is not set; choose one with: openssl rand -hex 32",
        ));
    }
    Ok(all)
}

/// Runs wait for the disk and the engine about as long as they compute.
fn twice_the_cores() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2)
}

/// Always accepted: a page elsewhere cannot make a browser send these for another machine.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Pages the operator serves on his own machine, whatever their port.
const LOOPBACK_ORIGINS: [&str; 4] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn minimal() -> Source {
        Source::from_pairs([
            ("MCP_API_TOKEN", "a-token-of-some-length"),
            ("FILE_SECRET", "0123456789abcdef0123456789abcdef"),
        ])
    }

    #[test]
    fn the_defaults_parse() {
        let config = Config::from_source(&minimal()).unwrap();
        assert_eq!(config.http_addr, ListenAddr::AllInterfaces(8080));
        assert_eq!(config.limits.memory, 256 << 20);
        assert_eq!(config.limits.nano_cpus, 500_000_000);
        assert_eq!(config.network, NetworkPolicy::Allow("bridge".into()));
        assert_eq!(config.max_output_bytes, 100 << 10);
    }

    #[test]
    fn a_bad_value_names_its_variable_and_never_repeats_a_secret() {
        for (name, value, reason) in [
            ("RUN_MEMORY", "lots", "RUN_MEMORY"),
            ("RUN_MEMORY", "1k", "at least 6m"),
            ("RUN_CPUS", "NaN", "RUN_CPUS"),
            ("RUN_CPUS", "0", "RUN_CPUS"),
            ("RUN_PIDS", "-1", "RUN_PIDS"),
            ("RUN_TIMEOUT_SECONDS", "301", "RUN_TIMEOUT_MAX_SECONDS"),
            ("PUBLIC_BASE_URL", "localhost:8080", "http:// or https://"),
            ("NETWORK_POLICY", "maybe", "allow or deny"),
            ("EXTRA_RUNNERS", "lua", "language=image"),
            ("MCP_HTTP_ADDR", "8080", "MCP_HTTP_ADDR"),
            ("SANDBOX_HOST_PATH", "data", "absolute"),
            ("LOG_FORMAT", "xml", "text or json"),
            ("RUST_LOG", "a=b=c", "RUST_LOG"),
            ("DOCKER_HOST", "ssh://x", "unix://"),
            ("FILE_SECRET", "hunter2", "32 characters"),
            ("MCP_API_TOKEN", "two words", "MCP_API_TOKEN"),
            ("MCP_API_TOKEN", "", "is not set"),
            ("MCP_API_TOKENS", "hunter2", "name:token"),
            ("MCP_API_TOKENS", "n8n:", "name:token"),
            ("MCP_API_TOKENS", "a b:hunter2", "letters"),
            ("MCP_API_TOKENS", "default:hunter2", "letters"),
            ("MCP_API_TOKENS", "a:hunter2,a:hunter3", "names a twice"),
            ("MCP_API_TOKENS", "a:hunter2,b:hunter2", "names b twice"),
            (
                "MCP_API_TOKENS",
                "a:a-token-of-some-length",
                "names a twice",
            ),
        ] {
            let source = minimal().with(name, value);
            let message = Config::from_source(&source).unwrap_err().to_string();
            assert!(message.contains(reason), "{name}={value}: {message}");
            assert!(
                !message.contains("hunter2") && !message.contains("two words"),
                "{message}"
            );
        }
    }

    #[test]
    fn named_tokens_stand_beside_the_default_one_or_alone() {
        let both = minimal().with("MCP_API_TOKENS", "n8n:one:two, claude:three");
        let callers = |source: &Source| {
            let config = Config::from_source(source).unwrap();
            let callers = config.tokens.iter().map(|(caller, _)| caller.to_string());
            callers.collect::<Vec<_>>()
        };
        assert_eq!(callers(&both), ["default", "n8n", "claude"]);
        assert_eq!(callers(&both.with("MCP_API_TOKEN", "")), ["n8n", "claude"]);
    }

    #[test]
    fn an_empty_value_counts_as_unset() {
        let source = minimal().with("RUN_PIDS", "").with("RUNTIME", "");
        let config = Config::from_source(&source).unwrap();
        assert_eq!(config.limits.pids, 128);
        assert_eq!(config.runtime, None);
    }

    #[test]
    fn every_setting_is_listed_once() {
        let mut names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        names.sort_unstable();
        let listed = names.len();
        names.dedup();
        assert_eq!(names.len(), listed);
    }
}

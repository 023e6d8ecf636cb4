//! Parsers of single values. Each takes the text of a setting and completes, on failure, a sentence
//! that starts with the setting's name. None repeats a secret.

#![expect(clippy::unnecessary_wraps, reason = "all parsers have one form")]

use std::{
    collections::BTreeMap,
    net::{SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use tracing_subscriber::EnvFilter;
use url::Url;

use super::{ListenAddr, LogFormat};
use crate::caller::Caller;

type Parsed<T> = Result<T, String>;

/// Below this runc cannot start a process, and Docker refuses it.
const LEAST_MEMORY: u64 = 6 << 20;

pub(super) fn text(value: &str) -> Parsed<String> {
    Ok(value.to_owned())
}

pub(super) fn list(value: &str) -> Parsed<Vec<String>> {
    Ok(value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect())
}

pub(super) fn pairs(value: &str) -> Parsed<BTreeMap<String, String>> {
    list(value)?
        .iter()
        .map(|item| match item.split_once('=') {
            Some((language, image)) if !language.is_empty() && !image.is_empty() => {
                Ok((language.to_lowercase(), image.to_owned()))
            }
            _ => Err(format!(
                "must be language=image pairs separated by commas, not {item:?}"
            )),
        })
        .collect()
}

pub(super) fn count(value: &str) -> Parsed<u32> {
    match value.parse() {
        Ok(0) | Err(_) => Err(format!("must be a whole number above 0, not {value:?}")),
        Ok(count) => Ok(count),
    }
}

pub(super) fn whole_number(value: &str) -> Parsed<u32> {
    value
        .parse()
        .map_err(|_| format!("must be a whole number, not {value:?}"))
}

/// `None` for 0.
pub(super) fn hours(value: &str) -> Parsed<Option<Duration>> {
    let hours = whole_number(value)?;
    Ok((hours > 0).then(|| Duration::from_secs(u64::from(hours) * 3600)))
}

pub(super) fn seconds(value: &str) -> Parsed<Duration> {
    count(value).map(|seconds| Duration::from_secs(seconds.into()))
}

/// Bytes; `k`, `m` and `g` are powers of 1024, as Docker reads them.
pub(super) fn size(value: &str) -> Parsed<u64> {
    let (digits, unit) = match value
        .char_indices()
        .last()
        .map(|(at, unit)| (at, unit.to_ascii_lowercase()))
    {
        Some((at, 'k')) => (&value[..at], 1 << 10),
        Some((at, 'm')) => (&value[..at], 1 << 20),
        Some((at, 'g')) => (&value[..at], 1 << 30),
        _ => (value, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("must be a size such as 512k, 256m or 1g, not {value:?}"))
}

pub(super) fn size_or_zero(value: &str) -> Parsed<u64> {
    if value == "0" { Ok(0) } else { size(value) }
}

pub(super) fn size_in_memory(value: &str) -> Parsed<usize> {
    usize::try_from(size(value)?)
        .map_err(|_| format!("is larger than this machine can hold: {value}"))
}

pub(super) fn memory(value: &str) -> Parsed<u64> {
    match size(value)? {
        bytes if bytes < LEAST_MEMORY => Err(format!("must be at least 6m, not {value}")),
        bytes => Ok(bytes),
    }
}

pub(super) fn nano_cpus(value: &str) -> Parsed<u64> {
    match value.parse::<f64>() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 10 million and a million million here"
        )]
        Ok(cores) if (0.01..=1024.0).contains(&cores) => Ok((cores * 1e9).round() as u64),
        _ => Err(format!(
            "must be a number of cores from 0.01 to 1024, such as 0.5, not {value:?}"
        )),
    }
}

pub(super) fn path(value: &str) -> Parsed<PathBuf> {
    Ok(PathBuf::from(value))
}

pub(super) fn absolute_path(value: &str) -> Parsed<PathBuf> {
    if Path::new(value).is_absolute() {
        path(value)
    } else {
        Err(format!("must be an absolute path, not {value:?}"))
    }
}

pub(super) fn listen_addr(value: &str) -> Parsed<ListenAddr> {
    let wrong = || format!("must be host:port, or :port for all interfaces, not {value:?}");
    if let Some(port) = value.strip_prefix(':') {
        return port
            .parse()
            .map(ListenAddr::AllInterfaces)
            .map_err(|_| wrong());
    }
    let first: Option<SocketAddr> = value
        .to_socket_addrs()
        .ok()
        .and_then(|mut addrs| addrs.next());
    first.map(ListenAddr::Addr).ok_or_else(wrong)
}

pub(super) fn base_url(value: &str) -> Parsed<Url> {
    let wrong = || format!("must be a URL that starts with http:// or https://, not {value:?}");
    let mut url = Url::parse(value).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("must not have a query or a fragment: {value:?}"));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

pub(super) fn origins(value: &str) -> Parsed<Vec<String>> {
    let origins = list(value)?;
    match origins.iter().find(|origin| !origin.contains("://")) {
        Some(origin) => Err(format!(
            "must be origins with a scheme, such as https://{origin}"
        )),
        None => Ok(origins),
    }
}

pub(super) fn api_token(value: &str) -> Parsed<SecretString> {
    if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be printable ASCII without spaces, as it travels in a header".to_owned());
    }
    Ok(value.into())
}

/// `name:token` pairs.
pub(super) fn named_tokens(value: &str) -> Parsed<Vec<(Caller, SecretString)>> {
    list(value)?
        .iter()
        .map(|item| {
            let (name, token) = item
                .split_once(':')
                .filter(|(_, token)| !token.is_empty())
                .ok_or("must be name:token pairs separated by commas")?;
            let caller = Caller::named(name).ok_or_else(|| {
                format!(
                    "has a name that is not 1 to 64 letters, digits, - or _, or is \"default\": {name:?}"
                )
            })?;
            Ok((caller, api_token(token)?))
        })
        .collect()
}

pub(super) fn file_secret(value: &str) -> Parsed<SecretString> {
    if value.chars().count() < 32 {
        return Err(
            "must have at least 32 characters; choose one with: openssl rand -hex 32".to_owned(),
        );
    }
    Ok(value.into())
}

pub(super) fn network_allowed(value: &str) -> Parsed<bool> {
    match value {
        "allow" => Ok(true),
        "deny" => Ok(false),
        _ => Err(format!("must be allow or deny, not {value:?}")),
    }
}

pub(super) fn log_format(value: &str) -> Parsed<LogFormat> {
    match value {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("must be text or json, not {value:?}")),
    }
}

pub(super) fn log_filter(value: &str) -> Parsed<String> {
    match EnvFilter::try_new(value) {
        Ok(_) => text(value),
        Err(error) => Err(format!("is not a log filter: {error}")),
    }
}

pub(super) fn docker_host(value: &str) -> Parsed<String> {
    if ["unix://", "tcp://", "http://"]
        .iter()
        .any(|scheme| value.starts_with(scheme))
    {
        text(value)
    } else {
        Err(format!("must start with unix:// or tcp://, not {value:?}"))
    }
}

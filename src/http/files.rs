//! Files: downloads of a workspace's regular files.
//!
//! User code owns these bytes and their names. They are streamed as they are, and sent so that no
//! browser takes them for a page of this origin.

use std::{sync::Arc, time::SystemTime};

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use headers::{
    ContentLength, ContentRange, ETag, HeaderMapExt as _, IfModifiedSince, IfNoneMatch, IfRange,
    LastModified,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use super::conversation;
use crate::{
    links,
    sandbox::{Sandbox, media_type},
    workspace::{FileEntry, FilePath, WorkspaceError, WorkspaceHash},
};

/// Types that a browser shows without running anything in them. The rest is downloaded.
const INERT: [&str; 10] = [
    "application/json",
    "application/pdf",
    "image/bmp",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "image/avif",
    "text/csv",
    "text/plain",
];

/// Serves `GET` and `HEAD /files/<hash>/<path>`.
pub(super) async fn serve(State(sandbox): State<Arc<Sandbox>>, request: Request) -> Response {
    // 1. Name: what can be no file's name is not found, like a file that is not there.
    let query = request.uri().query().unwrap_or_default();
    let (hash, path) = match Place::parse(request.uri().path()) {
        Some(Place::File(hash, path)) => (hash, path),
        Some(Place::Conversation(hash)) => return conversation::serve(&sandbox, hash, query).await,
        Some(Place::NoSlash(hash)) => return add_slash(&hash, query),
        None => return not_found(),
    };

    // 2. Open, beneath the workspace only. From here on, the open file is what counts.
    let opened = match sandbox.workspaces.find(hash).await {
        Ok(workspace) => workspace.open_file(path.clone()).await,
        Err(error) => Err(error),
    };
    let file = match opened {
        Ok(file) => file,
        Err(WorkspaceError::Io(error)) => {
            tracing::error!(%error, "file could not be served");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        Err(_) => return not_found(),
    };
    let entry = FileEntry {
        path,
        size: file.size,
        modified: file.modified,
    };

    // 3. Condition: the client may have it already.
    let etag = etag(&entry);
    let mut headers = fixed_headers(&entry, wants_download(query));
    headers.typed_insert(etag.clone());
    headers.typed_insert(LastModified::from(
        entry.modified.max(SystemTime::UNIX_EPOCH),
    ));
    if not_modified(request.headers(), &etag, entry.modified) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }

    // 4. Range: one, or the whole file.
    let asked = match *request.method() {
        Method::GET => range(request.headers(), &etag, &entry),
        // RFC 9110, 14.2: no other method has ranges.
        _ => None,
    };
    let (status, range) = match asked {
        Some(Range::Satisfiable(start, end)) => {
            let range = ContentRange::bytes(start..end, entry.size)
                .expect("invariant: a range lies within the file");
            headers.typed_insert(range);
            (StatusCode::PARTIAL_CONTENT, start..end)
        }
        Some(Range::Unsatisfiable) => {
            headers.typed_insert(ContentRange::unsatisfied_bytes(entry.size));
            headers.remove(header::CONTENT_TYPE);
            return (StatusCode::RANGE_NOT_SATISFIABLE, headers).into_response();
        }
        None => (StatusCode::OK, 0..entry.size),
    };
    headers.typed_insert(ContentLength(range.end - range.start));
    if *request.method() == Method::GET {
        sandbox.metrics.downloaded(range.end - range.start);
    }

    // 5. Body: streamed; a file cut short meanwhile ends the connection, never the server.
    let body = match *request.method() {
        Method::HEAD => Body::empty(),
        _ => Body::from_stream(file.stream(range)),
    };
    (status, headers, body).into_response()
}

pub(super) fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "there is no such file\n").into_response()
}

/// What a path below `/files/` names.
enum Place {
    File(WorkspaceHash, FilePath),
    Conversation(WorkspaceHash),
    NoSlash(WorkspaceHash),
}

impl Place {
    /// Splits `/files/<hash>/<path>` and decodes the path once.
    fn parse(path: &str) -> Option<Self> {
        let below = path.strip_prefix("/files/")?;
        let Some((hash, path)) = below.split_once('/') else {
            return WorkspaceHash::parse(below).map(Self::NoSlash);
        };
        if path.is_empty() {
            return WorkspaceHash::parse(hash).map(Self::Conversation);
        }
        let (hash, path) = links::parse(below)?;
        Some(Self::File(hash, path))
    }
}

/// Slashes get lost when links are copied, and without this one the page's own links would lead elsewhere.
/// Any hash is sent on: whether it exists is seen there.
fn add_slash(hash: &WorkspaceHash, query: &str) -> Response {
    let mark = if query.is_empty() { "" } else { "?" };
    // Relative, for proxies that add a prefix.
    let location = format!("{}/{mark}{query}", hash.as_str());
    (
        StatusCode::PERMANENT_REDIRECT,
        [(header::LOCATION, location)],
    )
        .into_response()
}

/// Whether a browser may show files of this type on our origin.
pub(super) fn is_inert(media_type: &str) -> bool {
    INERT.contains(&media_type)
}

/// What is said of every file, whoever asks for whichever part.
fn fixed_headers(file: &FileEntry, download: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let media_type = media_type(file);
    let inline = !download && is_inert(media_type.essence_str());
    let content_type = match (media_type.type_().as_str(), media_type.essence_str()) {
        ("text", _) | (_, "application/json") => {
            format!("{}; charset=utf-8", media_type.essence_str())
        }
        _ => media_type.essence_str().to_owned(),
    };
    let mut insert = |name: HeaderName, value: &str| {
        let value =
            HeaderValue::from_str(value).expect("invariant: names are encoded, the rest is ASCII");
        headers.insert(name, value);
    };
    insert(header::CONTENT_TYPE, &content_type);
    insert(header::CONTENT_DISPOSITION, &disposition(file, inline));
    insert(header::ACCEPT_RANGES, "bytes");
    insert(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // Even where a browser shows it: no script, no form, no other origin's content.
    insert(
        header::CONTENT_SECURITY_POLICY,
        "sandbox; default-src 'none'",
    );
    insert(header::REFERRER_POLICY, "no-referrer");
    // Whoever has the link may have the file, but not a proxy's next user.
    insert(header::CACHE_CONTROL, "private, no-cache");
    headers
}

/// Whether a link asks for the file to be saved rather than shown: `?download`.
fn wants_download(query: &str) -> bool {
    url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "download")
}

/// RFC 6266: a name for old clients and, in RFC 5987 form, the exact one.
fn disposition(file: &FileEntry, inline: bool) -> String {
    let name = file
        .path
        .as_path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_. ".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    let exact = percent_encode(name.as_bytes(), NON_ALPHANUMERIC);
    let form = if inline { "inline" } else { "attachment" };
    format!("{form}; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

/// Changes with every write that the file's clock, which counts nanoseconds, or its size shows. A strong one:
/// with a weak tag no download could go on where it broke off (RFC 9110, 13.1.5).
fn etag(file: &FileEntry) -> ETag {
    let since_epoch = file
        .modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let tag = format!("\"{:x}-{:x}\"", since_epoch.as_nanos(), file.size);
    tag.parse()
        .expect("invariant: hexadecimal digits in quotes are an entity tag")
}

fn not_modified(headers: &HeaderMap, etag: &ETag, modified: SystemTime) -> bool {
    // RFC 9110, 13.2.2: the tag goes before the date.
    if let Some(condition) = headers.typed_get::<IfNoneMatch>() {
        return !condition.precondition_passes(etag);
    }
    headers
        .typed_get::<IfModifiedSince>()
        .is_some_and(|since| !since.is_modified(modified))
}

enum Range {
    /// From the first byte up to, not including, the second.
    Satisfiable(u64, u64),
    Unsatisfiable,
}

/// The one range asked for; `None` for the whole file, also where several are asked for, which may be
/// ignored (RFC 9110, 14.2) and would let a small request cost a large answer.
fn range(headers: &HeaderMap, etag: &ETag, file: &FileEntry) -> Option<Range> {
    let asked = headers.get(header::RANGE)?.to_str().ok()?.trim();
    let range = Range::parse(asked.strip_prefix("bytes=")?, file.size)?;
    let modified = LastModified::from(file.modified.max(SystemTime::UNIX_EPOCH));
    let stale = headers
        .typed_get::<IfRange>()
        .is_some_and(|known| known.is_modified(Some(etag), Some(&modified)));
    (!stale).then_some(range)
}

impl Range {
    /// Reads a single range of a file of `size` bytes (RFC 9110, 14.1.2); `None` where it is none.
    fn parse(range: &str, size: u64) -> Option<Self> {
        let (first, last) = range.split_once('-')?;
        let (start, end) = match (first.trim(), last.trim()) {
            ("", length) => (size.saturating_sub(position(length)?), size),
            (first, "") => (position(first)?, size),
            (first, last) => {
                let (first, last) = (position(first)?, position(last)?);
                if first > last {
                    return None;
                }
                (first, size.min(last.saturating_add(1)))
            }
        };
        Some(if start < end {
            Self::Satisfiable(start, end)
        } else {
            Self::Unsatisfiable
        })
    }
}

/// A number of a range; `None` where it is something else, or too large for any file.
fn position(digits: &str) -> Option<u64> {
    // Rust would take a sign as well.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8]) -> FileEntry {
        let path = FilePath::from_bytes(name.to_vec()).unwrap();
        FileEntry {
            path,
            size: 10,
            modified: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn every_name_makes_valid_headers() {
        for name in [
            &b"a.png"[..],
            b"a\"b\r\nc;.txt",
            "\u{202e}gnp.exe🙂".as_bytes(),
            b"\xff\xfe",
            &[b'x'; 255],
        ] {
            let headers = fixed_headers(&entry(name), false);
            let disposition = headers[header::CONTENT_DISPOSITION].to_str().unwrap();
            assert!(
                disposition.bytes().all(|byte| (0x20..0x7f).contains(&byte)),
                "{disposition}"
            );
            assert_eq!(disposition.matches('"').count(), 2, "{disposition}");
        }
    }

    #[test]
    fn only_inert_types_are_shown() {
        for (name, form) in [
            ("a.png", "inline"),
            ("a.csv", "inline"),
            ("a.pdf", "inline"),
            ("a.TXT", "inline"),
            ("a.json", "inline"),
            ("a.html", "attachment"),
            ("a.svg", "attachment"),
            ("a.xml", "attachment"),
            ("a.xhtml", "attachment"),
            ("a.js", "attachment"),
            ("a", "attachment"),
            ("a.mhtml", "attachment"),
        ] {
            let headers = fixed_headers(&entry(name.as_bytes()), false);
            assert!(
                headers[header::CONTENT_DISPOSITION]
                    .to_str()
                    .unwrap()
                    .starts_with(form),
                "{name}"
            );
        }
    }

    #[test]
    fn one_range_is_cut_to_the_file_and_several_are_ignored() {
        let file = entry(b"a");
        for (value, expected) in [
            ("bytes=0-3", Some(Some((0, 4)))),
            ("bytes=4-", Some(Some((4, 10)))),
            ("bytes=-3", Some(Some((7, 10)))),
            ("bytes=-20", Some(Some((0, 10)))),
            ("bytes=8-99", Some(Some((8, 10)))),
            ("bytes=10-", Some(None)),
            ("bytes=0-1,3-4", None),
            ("lines=1-2", None),
            ("bytes=4-3", None),
            ("bytes=-0", Some(None)),
            ("bytes=0-99999999999999999999", None),
            ("bytes=x-", None),
            ("bytes=-", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, value.parse().unwrap());
            let found = range(&headers, &etag(&file), &file).map(|range| match range {
                Range::Satisfiable(start, end) => Some((start, end)),
                Range::Unsatisfiable => None,
            });
            assert_eq!(found, expected, "{value}");
        }
    }
}

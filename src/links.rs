//! Links: how files, conversations and uploads are named to the outside.

use std::{fmt, path::Path};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use url::Url;

use crate::workspace::{FilePath, WorkspaceHash};

/// RFC 3986 "unreserved" characters stay as they are; `/` separates segments.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Makes and reads links.
#[derive(Debug, Clone)]
pub struct Links {
    /// Start of all links to files; `<hash>/<path>` follows.
    files: String,
    /// The same of uploads; the token follows.
    uploads: Option<String>,
}

impl Links {
    /// Links for everyone, below `PUBLIC_BASE_URL`.
    pub fn public(base: &Url) -> Self {
        let base = base.as_str().trim_end_matches('/');
        Self {
            files: format!("{base}/files/"),
            uploads: Some(format!("{base}/uploads/")),
        }
    }

    /// Links for this machine's user where nothing is served over HTTP: files in `root`, the directory of the
    /// workspaces (RFC 8089).
    pub fn local(root: &Path) -> Self {
        let root = percent_encode(root.as_os_str().as_encoded_bytes(), SEGMENT);
        Self {
            files: format!("file://{root}/"),
            uploads: None,
        }
    }

    /// Where the file is.
    pub fn file(&self, workspace: &WorkspaceHash, path: &FilePath) -> String {
        format!("{}{}", self.conversation(workspace), below(path))
    }

    /// Where the conversation's files are shown.
    pub fn conversation(&self, workspace: &WorkspaceHash) -> String {
        format!("{}{}/", self.files, workspace.as_str())
    }

    /// Where a file can be uploaded with `token`; `None` where nothing is served over HTTP.
    pub fn upload(&self, token: &str) -> Option<String> {
        Some(format!("{}{token}", self.uploads.as_ref()?))
    }

    /// The file that a link names; `None` where it is none of these links.
    pub fn locate(&self, link: &str) -> Option<(WorkspaceHash, FilePath)> {
        parse(link.strip_prefix(&self.files)?)
    }

    /// The form of all links to files (RFC 6570).
    pub fn template(&self) -> String {
        format!("{}{{hash}}/{{+path}}", self.files)
    }
}

/// A file's URL relative to its conversation's: each byte of its name encoded exactly once, UTF-8 or not.
pub fn below(path: &FilePath) -> impl fmt::Display {
    percent_encode(path.as_bytes(), SEGMENT)
}

/// Splits `<hash>/<path>` and decodes the path once.
pub(crate) fn parse(end: &str) -> Option<(WorkspaceHash, FilePath)> {
    let (hash, path) = end.split_once('/')?;
    let path = percent_decode_str(path).collect();
    Some((
        WorkspaceHash::parse(hash)?,
        FilePath::from_bytes(path).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_link() {
        let hash = WorkspaceHash::parse(&"a".repeat(64)).unwrap();
        let public = |base| Links::public(&Url::parse(base).unwrap());
        for (links, name, link) in [
            (
                public("https://x.example/"),
                "a/b.png",
                "https://x.example/files/H/a/b.png",
            ),
            (
                public("https://x.example/sandbox"),
                "50% ?#&+.csv",
                "https://x.example/sandbox/files/H/50%25%20%3F%23%26%2B.csv",
            ),
            (
                public("http://localhost:8080"),
                "ü\"'.txt",
                "http://localhost:8080/files/H/%C3%BC%22%27.txt",
            ),
            (
                Links::local(Path::new("/home/a b/data")),
                "x y.txt",
                "file:///home/a%20b/data/H/x%20y.txt",
            ),
        ] {
            let path = FilePath::from_bytes(name.into()).unwrap();
            let made = links.file(&hash, &path);
            assert_eq!(made.replace(hash.as_str(), "H"), link);
            assert_eq!(links.locate(&made), Some((hash.clone(), path)));
        }
    }

    #[test]
    fn other_links_name_no_file() {
        let links = Links::public(&Url::parse("https://x.example").unwrap());
        let hash = "a".repeat(64);
        for link in [
            "",
            "https://x.example/files/",
            &format!("https://y.example/files/{hash}/a"),
            &format!("https://x.example/files/{hash}"),
            &format!("https://x.example/files/{hash}/../a"),
            &format!("https://x.example/files/{hash}/%2e%2e/a"),
            &format!("file:///data/{hash}/a"),
        ] {
            assert_eq!(links.locate(link), None, "{link}");
        }
    }
}

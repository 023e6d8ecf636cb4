//! Links: the public URLs of files, conversations and uploads.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use url::Url;

use crate::workspace::{FilePath, WorkspaceHash};

/// RFC 3986 "unreserved" characters stay as they are; `/` separates segments.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Makes URLs below `PUBLIC_BASE_URL`.
#[derive(Debug, Clone)]
pub struct Links {
    base: String,
}

impl Links {
    /// Links that start with `base`.
    pub fn new(base: &Url) -> Self {
        Self {
            base: base.as_str().trim_end_matches('/').to_owned(),
        }
    }

    /// Where the file is downloaded.
    pub fn file(&self, workspace: &WorkspaceHash, path: &FilePath) -> String {
        format!("{}{}", self.conversation(workspace), below(path))
    }

    /// Where the conversation's files are shown.
    pub fn conversation(&self, workspace: &WorkspaceHash) -> String {
        format!("{}/files/{}/", self.base, workspace.as_str())
    }

    /// Where a file can be uploaded with `token`.
    pub fn upload(&self, token: &str) -> String {
        format!("{}/uploads/{token}", self.base)
    }
}

/// A file's URL relative to its conversation's: each byte of its name encoded exactly once, UTF-8 or not.
pub fn below(path: &FilePath) -> impl fmt::Display {
    percent_encode(path.as_bytes(), SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_url() {
        let hash = WorkspaceHash::parse(&"a".repeat(64)).unwrap();
        for (base, name, end) in [
            (
                "https://x.example/",
                "a/b.png",
                "https://x.example/files/H/a/b.png",
            ),
            (
                "https://x.example/sandbox",
                "50% ?#&+.csv",
                "https://x.example/sandbox/files/H/50%25%20%3F%23%26%2B.csv",
            ),
            (
                "http://localhost:8080",
                "ü\"'.txt",
                "http://localhost:8080/files/H/%C3%BC%22%27.txt",
            ),
        ] {
            let links = Links::new(&Url::parse(base).unwrap());
            let path = FilePath::from_bytes(name.into()).unwrap();
            assert_eq!(links.file(&hash, &path).replace(&"a".repeat(64), "H"), end);
        }
    }
}

//! Path: a file's name relative to its workspace, from a caller or from the directory itself.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

use super::WorkspaceError;

/// Longest segment that Linux file systems take, in bytes (`NAME_MAX`).
const MAX_SEGMENT_BYTES: usize = 255;

/// Longest path a caller may name, in bytes: a quarter of `PATH_MAX`, room for the rest of it.
const MAX_BYTES: usize = 1024;

/// Most segments of a path a caller may name: well within what a walk enters.
const MAX_DEPTH: usize = 32;

/// A relative path of plain segments: no `.`, no `..`, none empty. Any bytes but NUL and `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(OsString);

impl FilePath {
    /// Takes bytes from a URL, already percent-decoded.
    ///
    /// # Errors
    /// [`WorkspaceError::InvalidPath`] says which rule is broken.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, WorkspaceError> {
        let invalid = |reason| Err(WorkspaceError::InvalidPath(reason));
        if bytes.is_empty() {
            return invalid("a file name must not be empty");
        }
        if bytes.len() > MAX_BYTES {
            return invalid("a file name must not be longer than 1,024 bytes");
        }
        if bytes.contains(&0) {
            return invalid("a file name must not contain NUL");
        }
        if bytes.split(|byte| *byte == b'/').count() > MAX_DEPTH {
            return invalid("a file name must not have more than 32 segments");
        }
        for segment in bytes.split(|byte| *byte == b'/') {
            match segment {
                b"" => return invalid("a file name must be relative, without empty segments"),
                b"." | b".." => return invalid("a file name must not contain . or .. segments"),
                long if long.len() > MAX_SEGMENT_BYTES => {
                    return invalid("a segment of a file name must not be longer than 255 bytes");
                }
                _ => {}
            }
        }
        Ok(Self(OsString::from_vec(bytes)))
    }

    /// Takes the name that a caller wants a new file to have.
    ///
    /// # Errors
    /// As [`FilePath::from_bytes`], and for control characters, which no one types on purpose.
    pub fn for_new_file(name: &str) -> Result<Self, WorkspaceError> {
        if name.chars().any(char::is_control) {
            return Err(WorkspaceError::InvalidPath(
                "a file name must not contain control characters",
            ));
        }
        Self::from_bytes(name.as_bytes().to_vec())
    }

    /// A name read from a directory, below `parent` or at the top.
    pub(super) fn child(parent: Option<&Self>, name: &OsStr) -> Self {
        let Some(parent) = parent else {
            return Self(name.to_owned());
        };
        let mut path = parent.0.clone();
        path.push("/");
        path.push(name);
        Self(path)
    }

    /// Whether it is `other`, or in the directory of that name.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.as_path().starts_with(other.as_path())
    }

    /// Whether a caller could name it.
    pub(super) fn is_short_enough(&self) -> bool {
        self.0.len() <= MAX_BYTES
    }

    /// For the file system.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The directory it is in, if that is not the workspace itself, and its name there.
    pub(super) fn split(&self) -> (Option<&Path>, &OsStr) {
        let path = self.as_path();
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let name = path
            .file_name()
            .expect("invariant: a FilePath has a last segment");
        (parent, name)
    }

    /// The exact bytes, with `/` between segments.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// For people and JSON: U+FFFD in place of what is not UTF-8.
    pub fn display(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "..",
            ".",
            "../x",
            "../../x",
            "a/../../b",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            "a\nb",
            &"x".repeat(256),
            &"x/".repeat(600),
        ] {
            FilePath::for_new_file(name).unwrap_err();
        }
    }

    #[test]
    fn names_that_only_look_odd_are_names() {
        for name in [
            "a",
            "a/b/c.txt",
            "...",
            "..a",
            "a\\..\\b",
            "%2e%2e",
            "Ünï 🙂.csv",
            " ",
            &"x".repeat(255),
        ] {
            assert_eq!(FilePath::for_new_file(name).unwrap().display(), name);
        }
    }

    proptest! {
        #[test]
        fn an_accepted_path_has_only_plain_components(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(path) = FilePath::from_bytes(bytes.clone()) {
                prop_assert_eq!(path.as_bytes(), &bytes);
                prop_assert!(path.as_path().components().all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }
}

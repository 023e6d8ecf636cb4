//! Package: what a conversation may have installed, by the name that its language's registry has for it.
//!
//! The name goes to an installer's command line. It is never an option, a path or a URL: those would run
//! what a stranger wrote while the network is on.

use std::fmt;

/// Longest name, in bytes: registries have none longer.
const MAX_BYTES: usize = 214;

/// A package of a registry, perhaps of certain versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package(String);

/// Why a text names no package.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} is not the name of a package; {expected}")]
pub struct InvalidPackage {
    name: String,
    expected: &'static str,
}

/// Whose names a language's installer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registry {
    /// PEP 508 without URLs and markers: `name[extra]>=1,<2`.
    PyPi,
    /// `name`, `@scope/name`, each with `@version`.
    Npm,
}

impl Package {
    /// Takes a name as the installer of `language` understands it.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn parse(language: &str, name: &str) -> Result<Self, InvalidPackage> {
        let registry = Registry::of(language);
        let name = name.trim();
        if name.len() <= MAX_BYTES && registry.has(name) {
            return Ok(Self(name.to_owned()));
        }
        Err(InvalidPackage {
            name: name.chars().take(64).collect(),
            expected: registry.example(),
        })
    }

    /// The name as the installer gets it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Package {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Registry {
    fn of(language: &str) -> Self {
        match language {
            "typescript" | "javascript" => Self::Npm,
            _ => Self::PyPi,
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::PyPi => "write polars, polars==1.30.0 or \"polars[excel]>=1,<2\"",
            Self::Npm => "write lodash, lodash@4.17.21 or @scope/name@^1",
        }
    }

    fn has(self, name: &str) -> bool {
        match self {
            Self::PyPi => is_pypi(name),
            Self::Npm => is_npm(name),
        }
    }
}

/// A name with at least one letter or digit at either end (PEP 508, "Names").
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    let inner = |byte: u8| plain(byte) || b"._-".contains(&byte);
    let bytes = name.as_bytes();
    bytes.first().copied().is_some_and(plain)
        && bytes.last().copied().is_some_and(plain)
        && bytes.iter().copied().all(inner)
}

fn is_pypi(text: &str) -> bool {
    let end = text.find(['[', '=', '<', '>', '!', '~']);
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let (extras, versions) = match rest.strip_prefix('[') {
        None => ("", rest),
        Some(rest) => match rest.split_once(']') {
            None => return false,
            Some(parts) => parts,
        },
    };
    is_name(name.trim_end())
        && (extras.is_empty() || extras.split(',').all(|extra| is_name(extra.trim())))
        && (versions.trim().is_empty() || versions.split(',').all(|one| is_constraint(one.trim())))
}

/// One comparison of PEP 440, such as `>=1.2`.
fn is_constraint(text: &str) -> bool {
    let comparisons = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
    let version = comparisons.iter().find_map(|with| text.strip_prefix(with));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".*+!-_".contains(&byte);
    version.is_some_and(|version| {
        let version = version.trim();
        !version.is_empty() && version.bytes().all(allowed)
    })
}

fn is_npm(text: &str) -> bool {
    let (scope, rest) = match text.strip_prefix('@') {
        None => (None, text),
        Some(rest) => match rest.split_once('/') {
            None => return false,
            Some((scope, rest)) => (Some(scope), rest),
        },
    };
    let (name, version) = match rest.split_once('@') {
        None => (rest, None),
        Some((name, version)) => (name, Some(version)),
    };
    // A tag or a range; without a colon or a slash it is no URL, path or other package's name.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".*+-_^~<>=".contains(&byte);
    let is_version = |version: &str| {
        !version.is_empty() && !version.starts_with(['.', '-']) && version.bytes().all(allowed)
    };
    scope.is_none_or(is_name) && is_name(name) && version.is_none_or(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages_are_taken() {
        for (language, names) in [
            (
                "python",
                &[
                    "humanize",
                    "polars==1.30.0",
                    "A-b_c.d",
                    "x[a,b]>=1,<2",
                    "scikit-learn ~= 1.5",
                    "x==1.*",
                    "x!=1!2.0+cpu",
                ][..],
            ),
            (
                "typescript",
                &[
                    "lodash",
                    "lodash@4.17.21",
                    "@scope/name",
                    "@scope/name@^1",
                    "x@latest",
                    "x@>=1",
                ][..],
            ),
        ] {
            for name in names {
                assert_eq!(Package::parse(language, name).unwrap().as_str(), *name);
            }
        }
    }

    #[test]
    fn options_paths_and_urls_are_not() {
        for name in [
            "",
            "-r",
            "--index-url=http://x",
            "-e.",
            ".",
            "./x",
            "/etc/passwd",
            "../x",
            "x/../y",
            "git+https://x/y",
            "https://x/y.whl",
            "x @ https://x/y.whl",
            "x@https://x/y",
            "x@file:/etc",
            "x@npm:y",
            "x@../y",
            "x@",
            "x; import os",
            "x y",
            "x\ny",
            "x\0",
            "x==",
            "x[",
            "x[a",
            "x[]]",
            "@scope",
            "@/x",
            "@scope/",
            "@-x/y",
            "x-",
            "$(id)",
            "ünï",
            &"x".repeat(300),
        ] {
            for language in ["python", "typescript", "other"] {
                Package::parse(language, name).unwrap_err();
            }
        }
    }
}

//! Personal: the settings of a server that a user's own MCP client starts, which needs none.
//!
//! What must be kept is kept in the user's data directory (XDG Base Directory Specification). No `.env`
//! is read: the client starts the server wherever it is, be it in somebody else's project.

use std::{
    fs::{DirBuilder, File, read_to_string},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::{Config, ConfigError, Source};

/// Directory of this program within the user's data directory.
const OUR_DIRECTORY: &str = env!("CARGO_PKG_NAME");

/// File that keeps the file secret.
const SECRET_FILE: &str = "file_secret";

/// Directory that holds the workspaces.
const WORKSPACES: &str = "workspaces";

impl Config {
    /// The settings of the environment, with defaults for what a user's own server needs. It is served over
    /// HTTP as well where `MCP_HTTP_ADDR` is set.
    ///
    /// # Errors
    /// As [`Config::from_source`], and when the user's data directory cannot be used.
    pub fn personal() -> Result<Self, ConfigError> {
        let mut source = Source::from_variables();
        let is_set =
            |source: &Source, name| source.get(name).is_some_and(|value| !value.is_empty());
        let serves_http = is_set(&source, "MCP_HTTP_ADDR");
        if !serves_http {
            // Nobody can present it.
            source = source.with("MCP_API_TOKEN", Uuid::new_v4().to_string());
        }
        if !is_set(&source, "SANDBOX_ROOT") {
            let root = our_directory(&source, "SANDBOX_ROOT")?.join(WORKSPACES);
            source = source.with("SANDBOX_ROOT", root.to_string_lossy());
        }
        if !is_set(&source, "FILE_SECRET") {
            let directory = our_directory(&source, "FILE_SECRET")?;
            let secret = kept_secret(&directory).map_err(|error| {
                let path = directory.join(SECRET_FILE);
                ConfigError::new(
                    "FILE_SECRET",
                    format!("cannot be kept in {}: {error}", path.display()),
                )
            })?;
            source = source.with("FILE_SECRET", secret);
        }
        Ok(Self {
            serves_http,
            ..Self::from_source(&source)?
        })
    }
}

/// Makes the directory if needed, for this user alone.
fn our_directory(source: &Source, needed_for: &'static str) -> Result<PathBuf, ConfigError> {
    // The specification has relative paths ignored.
    let absolute = |name| {
        let path = PathBuf::from(source.get(name)?);
        path.is_absolute().then_some(path)
    };
    let data_home = absolute("XDG_DATA_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/share")))
        .ok_or_else(|| {
            ConfigError::new(needed_for, "is not set, and neither is HOME to keep it in")
        })?;
    let directory = data_home.join(OUR_DIRECTORY);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .map_err(|error| {
            ConfigError::new(
                needed_for,
                format!(
                    "is not set, and {} cannot be made: {error}",
                    directory.display()
                ),
            )
        })?;
    Ok(directory)
}

/// The secret of the last time, or a new one. Two servers that start at once agree on it.
fn kept_secret(directory: &Path) -> io::Result<String> {
    let path = directory.join(SECRET_FILE);
    let draft = directory.join(format!(".{SECRET_FILE}.{}", Uuid::new_v4().simple()));
    if !path.exists() {
        let secret = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(secret.as_bytes())?;
        file.sync_all()?;
        // Unlike a rename, a link never replaces what another one has just made.
        let linked = std::fs::hard_link(&draft, &path);
        std::fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(read_to_string(path)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_and_kept_for_its_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let secret = kept_secret(directory.path()).unwrap();
        assert_eq!(secret.len(), 64);
        assert_eq!(kept_secret(directory.path()).unwrap(), secret);
        let mode = std::fs::metadata(directory.path().join(SECRET_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn data_is_kept_where_the_user_keeps_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        for (pairs, expected) in [
            (vec![("HOME", path)], ".local/share/mcp-code-sandbox"),
            (
                vec![("HOME", path), ("XDG_DATA_HOME", "relative")],
                ".local/share/mcp-code-sandbox",
            ),
            (vec![("XDG_DATA_HOME", path)], "mcp-code-sandbox"),
        ] {
            let directory = our_directory(&Source::from_pairs(pairs), "SANDBOX_ROOT").unwrap();
            assert_eq!(directory, home.path().join(expected));
            assert!(directory.is_dir());
        }
        our_directory(&Source::default(), "SANDBOX_ROOT").unwrap_err();
    }
}

//! Source: the name-value pairs that settings are read from.

use std::{collections::HashMap, fmt::Display, path::PathBuf};

use super::SETTINGS;

/// Name-value pairs, later ones replacing earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Source {
    values: HashMap<String, String>,
}

/// Why a setting was refused.
#[derive(Debug, thiserror::Error)]
#[error("{name} {reason}")]
pub struct ConfigError {
    name: &'static str,
    reason: String,
}

impl ConfigError {
    pub(super) fn new(name: &'static str, reason: impl Display) -> Self {
        Self {
            name,
            reason: reason.to_string(),
        }
    }
}

/// The `.env` that [`Source::from_environment`] reads: of the working directory, or the nearest above it.
pub fn env_file() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors()
        .map(|directory| directory.join(".env"))
        .find(|path| path.is_file())
}

impl Source {
    /// The process's environment, above the `.env` of the working directory if there is one.
    ///
    /// # Errors
    /// Says what is wrong with a `.env` that cannot be read.
    pub fn from_environment() -> Result<Self, ConfigError> {
        let mut values = HashMap::new();
        match dotenvy::dotenv_iter() {
            Ok(pairs) => {
                for pair in pairs {
                    let (name, value) = pair.map_err(|_| {
                        ConfigError::new(".env", "has a line that is not NAME=value")
                    })?;
                    values.insert(name, value);
                }
            }
            Err(error) if error.not_found() => {}
            Err(error) => return Err(ConfigError::new(".env", format!("cannot be read: {error}"))),
        }
        values.extend(Self::from_variables().values);
        Ok(Self { values })
    }

    /// The process's environment alone.
    pub(super) fn from_variables() -> Self {
        // A variable that is not UTF-8 cannot be one of ours, nor be passed on in JSON.
        Self::from_pairs(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    /// These pairs alone.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        Self {
            values: pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }

    /// The same with one value replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(name.into(), value.into());
        self
    }

    /// What `name` is set to, listed as a setting or not.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The parsed value of the setting `name`, or of its default.
    pub(super) fn parse<T>(
        &self,
        name: &'static str,
        parser: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let setting = SETTINGS
            .iter()
            .find(|setting| setting.name == name)
            .expect("invariant: every setting that is parsed is listed");
        // Compose files pass unset variables on as empty ones.
        let value = self
            .get(name)
            .map(str::trim)
            .filter(|value| !value.is_empty());
        parser(value.unwrap_or(setting.default)).map_err(|reason| ConfigError::new(name, reason))
    }

    /// Like [`Source::parse`] for a setting whose default is to have none.
    pub(super) fn parse_optional<T>(
        &self,
        name: &'static str,
        parser: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        self.parse(name, |value| {
            (!value.is_empty()).then(|| parser(value)).transpose()
        })
    }
}

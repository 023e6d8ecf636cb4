//! Caller: who calls, as far as the token tells.

use std::{fmt, sync::Arc};

/// Name of whoever holds `MCP_API_TOKEN`, in logs and metrics.
const DEFAULT_NAME: &str = "default";

/// Longest name of a token.
const MAX_BYTES: usize = 64;

/// Who calls: the holder of `MCP_API_TOKEN`, or of one of the tokens in `MCP_API_TOKENS`.
///
/// Callers of different names share no workspace, whatever they call their conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Caller {
    /// `None` for the holder of `MCP_API_TOKEN`.
    name: Option<Arc<str>>,
}

impl Caller {
    /// The holder of a named token; `None` where the name cannot be one: letters, digits, `-` and `_` only,
    /// as it stands in logs and metrics.
    pub fn named(name: &str) -> Option<Self> {
        let fits = (1..=MAX_BYTES).contains(&name.len())
            && name != DEFAULT_NAME
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        fits.then(|| Self {
            name: Some(name.into()),
        })
    }

    /// The name, for logs and metrics.
    pub fn as_str(&self) -> &str {
        self.namespace().unwrap_or(DEFAULT_NAME)
    }

    /// What keeps this caller's conversations apart from others'; `None` for the holder of `MCP_API_TOKEN`.
    pub fn namespace(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

//! Conversation: the caller's name for a series of calls that share their files.

use std::fmt;

/// Longest name, in bytes. It is only hashed, so this bounds work, not paths.
const MAX_BYTES: usize = 1024;

/// A conversation's name: any non-empty text without NUL, chosen by the caller and never a path.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ConversationId(String);

/// Why a text is no conversation's name.
#[derive(Debug, thiserror::Error)]
#[error("conversationId must be 1 to {MAX_BYTES} bytes of text without NUL")]
pub struct InvalidConversationId;

impl ConversationId {
    /// Takes the caller's name.
    ///
    /// # Errors
    /// When it is empty, longer than 1,024 bytes or holds a NUL.
    pub fn parse(name: impl Into<String>) -> Result<Self, InvalidConversationId> {
        let name = name.into();
        if name.is_empty() || name.len() > MAX_BYTES || name.contains('\0') {
            return Err(InvalidConversationId);
        }
        Ok(Self(name))
    }

    /// A new conversation, under a name nobody can guess.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name opens the conversation's files to whoever knows the file secret: not for logs.
impl fmt::Debug for ConversationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ConversationId(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_of_bounded_length_is_a_name() {
        for name in ["a", "../../etc", "日本 🙂", &"x".repeat(1024)] {
            assert_eq!(ConversationId::parse(name).unwrap().as_str(), name);
        }
        for name in ["", "a\0b", &"x".repeat(1025)] {
            ConversationId::parse(name).unwrap_err();
        }
    }
}

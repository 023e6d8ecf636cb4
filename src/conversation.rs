//! Conversation: the caller's name for a series of calls that share their files.

use std::fmt;

use crate::caller::Caller;

/// Longest name, in bytes. It is only hashed, so this bounds work, not paths.
const MAX_BYTES: usize = 1024;

/// A conversation: whose it is and what he calls it, any non-empty text without NUL and never a path.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ConversationId {
    caller: Caller,
    name: String,
}

/// Why a text is no conversation's name.
#[derive(Debug, thiserror::Error)]
#[error("conversationId must be 1 to {MAX_BYTES} bytes of text without NUL")]
pub struct InvalidConversationId;

impl ConversationId {
    /// Takes the caller's name for it.
    ///
    /// # Errors
    /// When it is empty, longer than 1,024 bytes or holds a NUL.
    pub fn parse(caller: Caller, name: impl Into<String>) -> Result<Self, InvalidConversationId> {
        let name = name.into();
        if name.is_empty() || name.len() > MAX_BYTES || name.contains('\0') {
            return Err(InvalidConversationId);
        }
        Ok(Self { caller, name })
    }

    /// A new conversation, under a name nobody can guess.
    pub fn random(caller: Caller) -> Self {
        Self {
            caller,
            name: uuid::Uuid::new_v4().to_string(),
        }
    }

    /// Whose it is.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.name
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
            assert_eq!(
                ConversationId::parse(Caller::default(), name)
                    .unwrap()
                    .as_str(),
                name
            );
        }
        for name in ["", "a\0b", &"x".repeat(1025)] {
            ConversationId::parse(Caller::default(), name).unwrap_err();
        }
    }
}

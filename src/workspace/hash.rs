//! Hash: a workspace's name. Whoever has it may read the workspace's files, so it must not be guessable.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::conversation::ConversationId;

/// Lower-case hexadecimal SHA-256 of the conversation's name followed by the file secret; before it, for the
/// holder of a named token, the token's name and a NUL, which no conversation's name contains.
///
/// Existing data directories are named so: the formula never changes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceHash(String);

impl WorkspaceHash {
    pub(super) fn of(conversation: &ConversationId, secret: &SecretString) -> Self {
        let mut digest = Sha256::new();
        if let Some(namespace) = conversation.caller().namespace() {
            digest.update(namespace);
            digest.update([0]);
        }
        digest.update(conversation.as_str());
        digest.update(secret.expose_secret());
        Self(hex::encode(digest.finalize()))
    }

    /// Takes a name from a URL; `None` where it can be no workspace's.
    pub fn parse(name: &str) -> Option<Self> {
        let is_hash = name.len() == 64
            && name
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_hash.then(|| Self(name.to_owned()))
    }

    /// The 64 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first characters: enough to find it in a log, too few to open its files.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Debug for WorkspaceHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WorkspaceHash({}..)", self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Caller;

    #[test]
    fn the_formula_is_that_of_existing_data() {
        let secret = SecretString::from("0123456789abcdef0123456789abcdef");
        for (caller, expected) in [
            // printf 'conv-1%s' 0123456789abcdef0123456789abcdef | sha256sum
            (
                Caller::default(),
                "2d4e18158fcd997c643f28256db409cf80d3f8a30c50eef018d3275698a311d6",
            ),
            // printf 'n8n\0conv-1%s' 0123456789abcdef0123456789abcdef | sha256sum
            (
                Caller::named("n8n").unwrap(),
                "460502a3f5a7f93a4460381349211621c1f501e386d239216e791af7add79b07",
            ),
        ] {
            let conversation = ConversationId::parse(caller, "conv-1").unwrap();
            assert_eq!(WorkspaceHash::of(&conversation, &secret).as_str(), expected);
        }
    }

    #[test]
    fn only_sixty_four_lower_case_digits_are_a_hash() {
        let hash = "0123456789abcdef".repeat(4);
        assert!(WorkspaceHash::parse(&hash).is_some());
        for name in [
            "",
            "abc",
            &hash.to_uppercase(),
            &hash[1..],
            &hash.replace('0', "g"),
            &hash.replace('0', "."),
        ] {
            assert_eq!(WorkspaceHash::parse(name), None, "{name}");
        }
    }
}

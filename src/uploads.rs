//! Uploads: tickets, each of which lets one file into one conversation without the server's token.
//!
//! They live in memory and for minutes: a restart ends them, and a new one costs a call.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use sha2::{Digest as _, Sha256};

use crate::{conversation::ConversationId, workspace::FilePath};

/// How long a ticket is good for: time to find a file, not to forget about the link.
pub const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Tickets kept at one time, of up to 2 KB each. The oldest, which is the first to expire, goes where there
/// would be more.
const MAX_TICKETS: usize = 10_000;

/// What is kept of a token. Comparing digests tells nobody how much of a guess was right.
type TokenDigest = [u8; 32];

/// The tickets of this server.
#[derive(Debug)]
pub struct Uploads {
    tickets: Mutex<HashMap<TokenDigest, Kept>>,
    max_bytes: u64,
    lifetime: Duration,
}

/// What the holder of a token may do.
#[derive(Debug, Clone)]
pub struct Ticket {
    /// Whose file it will be.
    pub conversation: ConversationId,
    /// The name it will have.
    pub path: FilePath,
    /// Largest file, in bytes.
    pub max_bytes: u64,
    /// When the token is good for nothing any more.
    pub expires_at: SystemTime,
}

#[derive(Debug)]
struct Kept {
    ticket: Ticket,
    issued: Instant,
    in_use: bool,
}

/// Why a token lets nothing in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoUpload {
    /// It never was one, or has been used, or has expired: nobody is told which.
    #[error("this upload link does not exist, has been used or has expired; ask for a new one")]
    Unknown,
    /// Somebody is using it.
    #[error("an upload to this link is under way; wait for its end, or break it off")]
    InUse,
}

/// The secret of a ticket: 128 random bits, in hexadecimal.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("invariant: the kernel has random bytes");
        Self(hex::encode(bytes))
    }

    /// For a link.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

impl Uploads {
    /// No tickets yet; those to come are for files of `max_bytes` and last for `lifetime`.
    pub fn new(max_bytes: u64, lifetime: Duration) -> Self {
        Self {
            tickets: Mutex::default(),
            max_bytes,
            lifetime,
        }
    }

    /// A ticket for the file `path` of `conversation`, and its secret.
    pub fn issue(&self, conversation: ConversationId, path: FilePath) -> (Token, Ticket) {
        let ticket = Ticket {
            conversation,
            path,
            max_bytes: self.max_bytes,
            expires_at: SystemTime::now() + self.lifetime,
        };
        let kept = Kept {
            ticket: ticket.clone(),
            issued: Instant::now(),
            in_use: false,
        };
        let token = Token::random();
        let mut tickets = self.lock();
        if tickets.len() >= MAX_TICKETS {
            let oldest = tickets.iter().min_by_key(|(_, kept)| kept.issued);
            if let Some(digest) = oldest.map(|(digest, _)| *digest) {
                tickets.remove(&digest);
            }
        }
        tickets.insert(digest(token.as_str()), kept);
        (token, ticket)
    }

    /// What `token` is good for now.
    pub fn find(&self, token: &str) -> Option<Ticket> {
        let tickets = self.lock();
        let kept = tickets.get(&digest(token))?;
        (kept.issued.elapsed() < self.lifetime).then(|| kept.ticket.clone())
    }

    /// Begins to use `token`. It can be used again once the returned value is dropped, and never again once
    /// that is spent.
    ///
    /// # Errors
    /// See [`NoUpload`].
    pub fn begin(&self, token: &str) -> Result<Upload<'_>, NoUpload> {
        let digest = digest(token);
        let mut tickets = self.lock();
        let kept = tickets
            .get_mut(&digest)
            .filter(|kept| kept.issued.elapsed() < self.lifetime)
            .ok_or(NoUpload::Unknown)?;
        if kept.in_use {
            return Err(NoUpload::InUse);
        }
        kept.in_use = true;
        Ok(Upload {
            uploads: self,
            digest,
            ticket: kept.ticket.clone(),
        })
    }

    /// Ends the tickets of `conversation`; uploads under way go on.
    pub fn revoke(&self, conversation: &ConversationId) {
        self.lock()
            .retain(|_, kept| kept.in_use || kept.ticket.conversation != *conversation);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenDigest, Kept>> {
        // Each change is one step: a panic elsewhere leaves them right.
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A ticket in use: nobody else can use it meanwhile.
#[derive(Debug)]
pub struct Upload<'a> {
    uploads: &'a Uploads,
    digest: TokenDigest,
    /// What may be done.
    pub ticket: Ticket,
}

impl Upload<'_> {
    /// The file is there: the ticket has done its work.
    pub fn spend(self) {
        self.uploads.lock().remove(&self.digest);
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if let Some(kept) = self.uploads.lock().get_mut(&self.digest) {
            kept.in_use = false;
        }
    }
}

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(uploads: &Uploads) -> Token {
        let path = FilePath::for_new_file("data.csv").unwrap();
        uploads
            .issue(
                ConversationId::random(crate::caller::Caller::default()),
                path,
            )
            .0
    }

    #[test]
    fn a_ticket_is_used_by_one_at_a_time_until_it_is_spent() {
        let uploads = Uploads::new(1, LIFETIME);
        let token = issue(&uploads);
        let first = uploads.begin(token.as_str()).unwrap();
        assert_eq!(uploads.begin(token.as_str()).unwrap_err(), NoUpload::InUse);
        drop(first);
        uploads.begin(token.as_str()).unwrap().spend();
        assert_eq!(
            uploads.begin(token.as_str()).unwrap_err(),
            NoUpload::Unknown
        );
        assert!(uploads.find(token.as_str()).is_none());
    }

    #[test]
    fn an_expired_ticket_is_as_unknown_as_one_that_never_was() {
        let uploads = Uploads::new(1, Duration::from_millis(50));
        let token = issue(&uploads);
        assert!(uploads.find(token.as_str()).is_some());
        let begun = uploads.begin(token.as_str()).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        assert!(uploads.find(token.as_str()).is_none());
        // Who has begun in time may end after it.
        begun.spend();
        for token in [token.as_str(), "", "0123456789abcdef0123456789abcdef"] {
            assert_eq!(uploads.begin(token).unwrap_err(), NoUpload::Unknown);
        }
    }

    #[test]
    fn the_oldest_ticket_makes_room_for_a_new_one() {
        let uploads = Uploads::new(1, LIFETIME);
        let oldest = issue(&uploads);
        let second = issue(&uploads);
        for _ in 2..=MAX_TICKETS {
            issue(&uploads);
        }
        assert_eq!(uploads.lock().len(), MAX_TICKETS);
        assert!(uploads.find(oldest.as_str()).is_none());
        assert!(uploads.find(second.as_str()).is_some());
    }

    #[test]
    fn a_token_is_not_in_debug_output() {
        let token = issue(&Uploads::new(1, LIFETIME));
        assert_eq!(token.as_str().len(), 32);
        assert!(!format!("{token:?}").contains(token.as_str()));
    }
}

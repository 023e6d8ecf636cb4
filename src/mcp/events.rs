//! Events: what was sent on the streams of sessions, for clients that lost theirs before the end.
//!
//! A client resumes with the id of the last event it got. An id cannot be guessed, since it alone opens
//! what follows it. Old events and those beyond a bound go: then the client has to call again.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::stream;
use rmcp::{
    model::ServerJsonRpcMessage,
    transport::streamable_http_server::session::{
        EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
    },
};
use tokio::{sync::Notify, time::timeout};
use uuid::Uuid;

/// Bytes of all events kept: a few results with images, or hundreds of ordinary ones.
const MAX_BYTES: usize = 16 << 20;

/// Time that an event is kept, and that a resumed stream waits for the next one: clients try again within
/// seconds, over a bad line within minutes.
const MAX_AGE: Duration = Duration::from_secs(600);

/// What an event takes besides its message.
const EVENT_BYTES: usize = 256;

/// The events of all sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct Events {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    events: VecDeque<Event>,
    /// Number of the first of them; the others follow.
    first: u64,
    numbers: HashMap<EventId, u64>,
    bytes: usize,
}

#[derive(Debug)]
struct Event {
    stream: Arc<str>,
    sent: ServerSseMessage,
    bytes: usize,
    at: Instant,
}

/// Where a resumed stream is.
struct Position {
    shared: Arc<Shared>,
    stream: Arc<str>,
    /// Number of the event that the client got last.
    number: u64,
    ended: bool,
}

#[async_trait::async_trait]
impl EventStore for Events {
    async fn store_event(
        &self,
        stream: &str,
        event: &ServerSseMessage,
    ) -> Result<EventId, EventStoreError> {
        let id = Uuid::new_v4().simple().to_string();
        let mut sent = event.clone();
        sent.event_id = Some(id.clone());
        let bytes = EVENT_BYTES + sent.message.as_deref().map_or(0, json_length);
        self.shared.lock().push(Event {
            stream: stream.into(),
            sent,
            bytes,
            at: Instant::now(),
        });
        self.shared.added.notify_waiters();
        Ok(id)
    }

    async fn replay_events_after(
        &self,
        last_event_id: &str,
    ) -> Result<EventStream, EventStoreError> {
        let (number, stream) = self
            .shared
            .lock()
            .find(last_event_id)
            .ok_or("the event is not known, or was too long ago")?;
        let position = Position {
            shared: Arc::clone(&self.shared),
            stream,
            number,
            ended: false,
        };
        Ok(Box::pin(stream::unfold(position, |mut position| async {
            let event = position.next().await?;
            Some((event, position))
        })))
    }
}

impl Position {
    /// The next event, waited for if it is still to come; `None` after the answer, which is the last one.
    async fn next(&mut self) -> Option<ServerSseMessage> {
        while !self.ended {
            let mut added = std::pin::pin!(self.shared.added.notified());
            // Before the look, so that what comes after it is not missed.
            added.as_mut().enable();
            let next = self.shared.lock().after(self.number, &self.stream);
            if let Some((number, event)) = next {
                self.number = number;
                self.ended = event.message.as_deref().is_some_and(is_answer);
                return Some(event);
            }
            timeout(MAX_AGE, added).await.ok()?;
        }
        None
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // A panic between two changes loses an event at the most.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn push(&mut self, event: Event) {
        if let Some(id) = &event.sent.event_id {
            let number = self.first + self.events.len() as u64;
            self.numbers.insert(id.clone(), number);
        }
        self.bytes += event.bytes;
        self.events.push_back(event);
        while let Some(oldest) = self.events.front()
            && (self.bytes > MAX_BYTES || oldest.at.elapsed() > MAX_AGE)
        {
            self.bytes -= oldest.bytes;
            if let Some(id) = &oldest.sent.event_id {
                self.numbers.remove(id);
            }
            self.events.pop_front();
            self.first += 1;
        }
    }

    /// Number and stream of an event.
    fn find(&self, id: &str) -> Option<(u64, Arc<str>)> {
        let number = *self.numbers.get(id)?;
        let at = usize::try_from(number - self.first).ok()?;
        Some((number, Arc::clone(&self.events.get(at)?.stream)))
    }

    /// The first event of `stream` after the one of that number.
    fn after(&self, number: u64, stream: &str) -> Option<(u64, ServerSseMessage)> {
        let skipped = usize::try_from((number + 1).saturating_sub(self.first)).ok()?;
        let mut later = self.events.iter().enumerate().skip(skipped);
        let (at, event) = later.find(|(_, event)| &*event.stream == stream)?;
        Some((self.first + at as u64, event.sent.clone()))
    }
}

fn is_answer(message: &ServerJsonRpcMessage) -> bool {
    matches!(
        message,
        ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)
    )
}

fn json_length(message: &ServerJsonRpcMessage) -> usize {
    let mut length = Length(0);
    match serde_json::to_writer(&mut length, message) {
        Ok(()) => length.0,
        // It could not be sent either.
        Err(_) => 0,
    }
}

/// Counts what is written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use serde_json::json;

    use super::*;

    fn notification(text: &str) -> ServerSseMessage {
        message(json!({
            "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": 1, "progress": 1, "message": text },
        }))
    }

    fn answer() -> ServerSseMessage {
        message(json!({ "jsonrpc": "2.0", "id": 1, "result": {} }))
    }

    fn message(json: serde_json::Value) -> ServerSseMessage {
        ServerSseMessage::from_message(serde_json::from_value(json).unwrap())
    }

    #[tokio::test]
    async fn a_resumed_stream_has_the_rest_of_its_own_events_also_later_ones() {
        let events = Events::default();
        let first = events.store_event("a", &notification("1")).await.unwrap();
        events.store_event("b", &notification("x")).await.unwrap();
        let second = events.store_event("a", &notification("2")).await.unwrap();
        let mut rest = events.replay_events_after(&first).await.unwrap();
        assert_eq!(rest.next().await.unwrap().event_id, Some(second));
        let (third, ()) = tokio::join!(rest.next(), async {
            events.store_event("b", &answer()).await.unwrap();
            events.store_event("a", &answer()).await.unwrap();
        });
        assert!(is_answer(third.unwrap().message.as_deref().unwrap()));
        assert!(rest.next().await.is_none(), "the answer is the last event");
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_what_is_gone_is_said() {
        let events = Events::default();
        let large = notification(&"x".repeat(1 << 20));
        let first = events.store_event("a", &large).await.unwrap();
        for _ in 0..20 {
            events.store_event("a", &large).await.unwrap();
        }
        {
            let kept = events.shared.lock();
            assert!(kept.bytes <= MAX_BYTES);
            assert_eq!(kept.events.len(), kept.numbers.len());
        }
        assert!(events.replay_events_after(&first).await.is_err());
        assert!(events.replay_events_after("guess").await.is_err());
    }
}

//! Admission: how many runs there are at one time, and who is next.
//!
//! Runs beyond the limit wait. Conversations take turns, so that one with a hundred calls does not keep
//! another's first call waiting for all of them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::oneshot, time::timeout};

use crate::workspace::WorkspaceHash;

/// Time of a run before one was seen, for the guess how long to wait.
const FIRST_GUESS: Duration = Duration::from_secs(1);

/// Gives out places.
#[derive(Debug)]
pub(super) struct Admission {
    state: Arc<Mutex<State>>,
    max_queued: usize,
    queue_timeout: Duration,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    state: Arc<Mutex<State>>,
    since: Instant,
}

/// There is no place, and will be none soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy {
    /// When to ask again.
    pub(super) retry_after: Duration,
}

#[derive(Debug)]
struct State {
    free: usize,
    places: usize,
    /// Who waits, by conversation.
    waiting: HashMap<WorkspaceHash, VecDeque<oneshot::Sender<Permit>>>,
    /// The conversations that wait, whose turn is next first.
    turns: VecDeque<WorkspaceHash>,
    queued: usize,
    usual_duration: Duration,
}

impl Admission {
    /// `places` at one time; `max_queued` wait, each at most `queue_timeout`.
    pub(super) fn new(places: usize, max_queued: usize, queue_timeout: Duration) -> Self {
        let state = State {
            free: places,
            places,
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            queued: 0,
            usual_duration: FIRST_GUESS,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            max_queued,
            queue_timeout,
        }
    }

    /// How many runs wait for a place.
    pub(super) fn queued(&self) -> usize {
        lock(&self.state).queued
    }

    /// A place for a run of `conversation`; calls `on_wait` where there is none yet. Dropping the future gives
    /// the place in the queue up.
    ///
    /// # Errors
    /// [`Busy`] where too many wait already, or the wait took too long.
    pub(super) async fn enter(
        &self,
        conversation: &WorkspaceHash,
        on_wait: impl FnOnce(),
    ) -> Result<Permit, Busy> {
        let waiter = {
            let mut state = lock(&self.state);
            if state.free > 0 {
                state.free -= 1;
                return Ok(Permit::new(&self.state));
            }
            state.forget_those_who_left();
            if state.queued >= self.max_queued {
                return Err(state.busy());
            }
            state.join_queue(conversation)
        };
        on_wait();
        match timeout(self.queue_timeout, waiter).await {
            Ok(Ok(permit)) => Ok(permit),
            // The sender is only dropped together with the queue itself.
            Ok(Err(_)) | Err(_) => Err(lock(&self.state).busy()),
        }
    }
}

impl State {
    fn join_queue(&mut self, conversation: &WorkspaceHash) -> oneshot::Receiver<Permit> {
        let (sender, receiver) = oneshot::channel();
        let line = self.waiting.entry(conversation.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(conversation.clone());
        }
        line.push_back(sender);
        self.queued += 1;
        receiver
    }

    /// Who is next: the first of the conversation whose turn it is, which then goes to the back.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        let conversation = self.turns.pop_front()?;
        let line = self.waiting.get_mut(&conversation)?;
        let waiter = line.pop_front();
        self.queued -= usize::from(waiter.is_some());
        if line.is_empty() {
            self.waiting.remove(&conversation);
        } else {
            self.turns.push_back(conversation);
        }
        waiter
    }

    fn forget_those_who_left(&mut self) {
        for line in self.waiting.values_mut() {
            line.retain(|waiter| !waiter.is_closed());
        }
        self.waiting.retain(|_, line| !line.is_empty());
        self.turns
            .retain(|conversation| self.waiting.contains_key(conversation));
        self.queued = self.waiting.values().map(VecDeque::len).sum();
    }

    /// Until half of those before are through, if runs take as long as they did.
    fn busy(&self) -> Busy {
        let rounds = u32::try_from(self.queued / self.places.max(1) / 2 + 1).unwrap_or(u32::MAX);
        let retry_after = self.usual_duration.saturating_mul(rounds);
        Busy {
            retry_after: retry_after.clamp(Duration::from_secs(1), Duration::from_secs(60)),
        }
    }
}

impl Permit {
    fn new(state: &Arc<Mutex<State>>) -> Self {
        Self {
            state: Arc::clone(state),
            since: Instant::now(),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.usual_duration = (state.usual_duration * 7 + self.since.elapsed()) / 8;
        while let Some(waiter) = state.next() {
            // Sending a permit back would lock again, so what is sent is made only for one who listens.
            if waiter.is_closed() {
                continue;
            }
            drop(state);
            // If he leaves at this very moment, the permit comes back and is dropped: the next one's turn.
            let _returned = waiter.send(Permit::new(&self.state));
            return;
        }
        state.free += 1;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing in this file panics between two changes that belong together.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(name: char) -> WorkspaceHash {
        WorkspaceHash::parse(&name.to_string().repeat(64)).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn conversations_take_turns() {
        let admission = Arc::new(Admission::new(1, 100, LONG));
        let first = admission.enter(&conversation('a'), || {}).await.unwrap();
        let (order, mut entered) = tokio::sync::mpsc::unbounded_channel();
        for name in ['a', 'a', 'a', 'b', 'c'] {
            let (admission, order) = (Arc::clone(&admission), order.clone());
            tokio::spawn(async move {
                let _permit = admission.enter(&conversation(name), || {}).await.unwrap();
                order.send(name).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop((first, order));
        let mut names = String::new();
        while let Some(name) = entered.recv().await {
            names.push(name);
        }
        assert_eq!(names, "abcaa");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_or_finds_the_queue_full_is_told_when_to_ask_again() {
        let admission = Admission::new(1, 1, Duration::from_secs(20));
        let permit = admission.enter(&conversation('a'), || {}).await.unwrap();
        let (a, b) = (conversation('a'), conversation('b'));
        let (waited, at_once) =
            tokio::join!(admission.enter(&a, || {}), admission.enter(&b, || {}));
        assert_eq!(at_once.unwrap_err().retry_after, Duration::from_secs(1));
        waited.unwrap_err();
        drop(permit);
        admission.enter(&conversation('b'), || {}).await.unwrap();
    }

    #[tokio::test]
    async fn a_place_is_not_lost_with_one_who_left() {
        let admission = Arc::new(Admission::new(1, 1, LONG));
        let permit = admission.enter(&conversation('a'), || {}).await.unwrap();
        for _ in 0..3 {
            let leaving = timeout(
                Duration::from_millis(1),
                admission.enter(&conversation('b'), || {}),
            )
            .await;
            assert!(leaving.is_err());
        }
        drop(permit);
        let _again = timeout(LONG, admission.enter(&conversation('c'), || {}))
            .await
            .unwrap()
            .unwrap();
    }
}

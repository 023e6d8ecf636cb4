//! Pool: the containers that wait for their one and only run.
//!
//! *Spares* wait for a conversation that does not exist yet; *next* ones for the next call of one that does.
//! The pool only keeps them: [`super::warm`] makes them, and hands them out.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, oneshot};

use super::RunId;
use crate::{
    config::WarmLimits,
    runner::{Runner, Runners},
    workspace::{SpareDir, Workspace, WorkspaceHash},
};

/// Time between two tries of a runner that could not be prepared, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A container that waits, or is about to.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    /// The run it was made for.
    pub(super) run_id: RunId,
    /// The image it was made from.
    pub(super) runner: Runner,
    /// Where it arrives once it is prepared; never, if that fails.
    container: oneshot::Receiver<P>,
    arrived: Option<P>,
}

/// How far a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is prepared.
    Here,
    /// It is being prepared.
    Coming,
    /// It could not be prepared.
    Never,
}

/// What is to be prepared next.
#[derive(Debug)]
pub(super) enum Job {
    Spare(Runner),
    Next(Workspace, Runner),
}

impl Job {
    pub(super) fn runner(&self) -> &Runner {
        match self {
            Self::Spare(runner) | Self::Next(_, runner) => runner,
        }
    }

    pub(super) fn language(&self) -> &str {
        &self.runner().language
    }
}

/// How many containers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warm {
    /// For conversations that do not exist yet.
    pub spares: usize,
    /// For the next call of one that does.
    pub next: usize,
}

/// The containers that wait.
#[derive(Debug)]
pub(super) struct Pool<P> {
    state: Mutex<State<P>>,
    changed: Notify,
    limits: WarmLimits,
}

#[derive(Debug)]
struct State<P> {
    spares: Vec<(Waiting<P>, SpareDir)>,
    /// Least recently used first.
    next: VecDeque<Next<P>>,
    /// Conversations whose next container is yet to be prepared.
    wanted: VecDeque<(Workspace, Runner)>,
    /// Runners that did not start, by language.
    failing: HashMap<String, Failing>,
}

#[derive(Debug)]
struct Failing {
    pause: Duration,
    since: Instant,
}

impl Failing {
    fn must_wait(&self) -> bool {
        self.since.elapsed() < self.pause
    }
}

#[derive(Debug)]
struct Next<P> {
    waiting: Waiting<P>,
    /// Held so that the workspace does not expire beneath the container.
    workspace: Workspace,
    since: Instant,
}

impl<P> Waiting<P> {
    /// One that is about to be prepared, and where to send it.
    pub(super) fn new(run_id: RunId, runner: Runner) -> (oneshot::Sender<P>, Self) {
        let (sender, container) = oneshot::channel();
        (
            sender,
            Self {
                run_id,
                runner,
                container,
                arrived: None,
            },
        )
    }

    /// Waits until it is prepared; false where that failed.
    pub(super) async fn arrives(&mut self) -> bool {
        if self.arrived.is_none() {
            self.arrived = (&mut self.container).await.ok();
        }
        self.arrived.is_some()
    }

    /// The container, as soon as it is prepared; `None` where that failed.
    pub(super) async fn container(mut self) -> Option<P> {
        self.arrives().await;
        self.arrived
    }

    /// How far it is, without waiting.
    pub(super) fn arrival(&mut self) -> Arrival {
        if self.arrived.is_none() {
            match self.container.try_recv() {
                Ok(container) => self.arrived = Some(container),
                Err(oneshot::error::TryRecvError::Empty) => return Arrival::Coming,
                Err(oneshot::error::TryRecvError::Closed) => return Arrival::Never,
            }
        }
        Arrival::Here
    }

    /// Whether it is still being prepared, or prepared and `alive`.
    fn is_usable(&mut self, alive: impl FnOnce(&mut P) -> bool) -> bool {
        match self.arrival() {
            Arrival::Here => self.arrived.as_mut().is_some_and(alive),
            Arrival::Coming => true,
            Arrival::Never => false,
        }
    }
}

impl<P> Pool<P> {
    /// An empty pool.
    pub(super) fn new(limits: WarmLimits) -> Self {
        let state = State {
            spares: Vec::new(),
            next: VecDeque::new(),
            wanted: VecDeque::new(),
            failing: HashMap::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            limits,
        }
    }

    /// Returns when there may be something to prepare.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Has whoever waits for [`Pool::changed`] look again: other runners may be there.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// The container that waits for this conversation, and its workspace.
    pub(super) fn take_next(
        &self,
        hash: &WorkspaceHash,
        runner: &Runner,
    ) -> Option<(Waiting<P>, Workspace)> {
        let mut state = self.lock();
        let at = state
            .next
            .iter()
            .position(|next| next.workspace.hash() == hash && next.waiting.runner == *runner)?;
        let next = state.next.remove(at)?;
        Some((next.waiting, next.workspace))
    }

    /// A container that waits for any conversation, of this runner if one is named, and the directory that
    /// becomes its workspace.
    pub(super) fn take_spare(&self, runner: Option<&Runner>) -> Option<(Waiting<P>, SpareDir)> {
        let mut state = self.lock();
        let fits = |waiting: &Waiting<P>| runner.is_none_or(|runner| waiting.runner == *runner);
        let at = state.spares.iter().position(|(waiting, _)| fits(waiting))?;
        self.changed.notify_one();
        Some(state.spares.remove(at))
    }

    /// Keeps a spare.
    pub(super) fn put_spare(&self, waiting: Waiting<P>, dir: SpareDir) {
        self.lock().spares.push((waiting, dir));
    }

    /// Keeps a container for the next call of a conversation; least recently used ones make room.
    pub(super) fn put_next(&self, waiting: Waiting<P>, workspace: Workspace) {
        let mut state = self.lock();
        state.next.push_back(Next {
            waiting,
            workspace,
            since: Instant::now(),
        });
        while state.next.len() > self.limits.conversations {
            state.next.pop_front();
        }
    }

    /// Asks for a container for the next call of a conversation.
    pub(super) fn want_next(&self, workspace: Workspace, runner: Runner) {
        if self.limits.conversations == 0 {
            return;
        }
        let mut state = self.lock();
        let same = |(other, language): &(Workspace, Runner)| {
            other.hash() == workspace.hash() && *language == runner
        };
        let waits = state
            .next
            .iter()
            .any(|next| next.workspace.hash() == workspace.hash() && next.waiting.runner == runner);
        if !waits && !state.wanted.iter().any(same) {
            state.wanted.push_back((workspace, runner));
            // Older wishes would be evicted as soon as they came true.
            while state.wanted.len() > self.limits.conversations {
                state.wanted.pop_front();
            }
        }
        self.changed.notify_one();
    }

    /// Lets a conversation's containers go.
    pub(super) fn forget(&self, hash: &WorkspaceHash) {
        let mut state = self.lock();
        state.next.retain(|next| next.workspace.hash() != hash);
        state
            .wanted
            .retain(|(workspace, _)| workspace.hash() != hash);
    }

    /// What to prepare now: for conversations under way first, then spares of every language. Runners that
    /// failed wait, and keep no other one waiting.
    pub(super) fn next_job(&self, runners: &Runners) -> Option<Job> {
        let mut state = self.lock();
        while let Some((workspace, runner)) = state.wanted.pop_front() {
            if !state.must_wait(&runner) {
                return Some(Job::Next(workspace, runner));
            }
        }
        let missing = runners.in_use().find(|runner| {
            let have = state
                .spares
                .iter()
                .filter(|(waiting, _)| waiting.runner.language == runner.language);
            have.count() < self.limits.spares && !state.must_wait(runner)
        });
        missing.cloned().map(Job::Spare)
    }

    /// How many wait, those included that are about to.
    pub(super) fn count(&self) -> Warm {
        let state = self.lock();
        Warm {
            spares: state.spares.len(),
            next: state.next.len(),
        }
    }

    /// Notes that a runner was prepared.
    pub(super) fn works(&self, language: &str) {
        self.lock().failing.remove(language);
    }

    /// Notes that a runner could not be prepared, so that it is left alone for a while. Returns whether this
    /// is news.
    pub(super) fn fails(&self, language: String) -> bool {
        let mut state = self.lock();
        let before = state.failing.get(&language).map(|failing| failing.pause);
        let pause = before.map_or(FIRST_PAUSE, |pause| LONGEST_PAUSE.min(pause * 2));
        state.failing.insert(
            language,
            Failing {
                pause,
                since: Instant::now(),
            },
        );
        before.is_none()
    }

    /// Lets all go.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.spares.clear();
        state.next.clear();
        state.wanted.clear();
    }

    /// Lets those go that are idle, stale or dead.
    pub(super) fn tidy(&self, runners: &Runners, mut alive: impl FnMut(&mut P) -> bool) {
        let mut state = self.lock();
        let current = |runner: &Runner| runners.find(&runner.language) == Some(runner);
        state
            .spares
            .retain_mut(|(waiting, _)| current(&waiting.runner) && waiting.is_usable(&mut alive));
        state.next.retain_mut(|next| {
            next.since.elapsed() < self.limits.idle
                && current(&next.waiting.runner)
                && next.waiting.is_usable(&mut alive)
        });
    }

    fn lock(&self) -> MutexGuard<'_, State<P>> {
        // A panic between two changes loses a container at the most, and dropping removes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> State<P> {
    fn must_wait(&self, runner: &Runner) -> bool {
        self.failing
            .get(&runner.language)
            .is_some_and(Failing::must_wait)
    }
}

//! Progress: what can be told of a run before it has ended.
//!
//! A caller who wants to know listens; where nobody does, nothing is kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::output::cut_character_at_end;

/// Newest output kept for the listener: what a person reads of a running program, not its log.
const MAX_BYTES: usize = 2 << 10;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a place.
    Queued,
    /// Its container is being made.
    Starting,
    /// Its program runs.
    Running,
}

impl Stage {
    /// Its name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
        }
    }
}

/// One run's progress, shared by the run and its listener.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// `None` where nobody listens.
    shared: Option<Arc<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    news: Mutex<News>,
    changed: Notify,
}

/// What the listener has not been told yet.
#[derive(Debug, Default)]
struct News {
    stage: Option<Stage>,
    output: Vec<u8>,
}

impl Progress {
    /// A progress that somebody listens to.
    pub fn listened_to() -> Self {
        Self {
            shared: Some(Arc::default()),
        }
    }

    /// Whether somebody listens.
    pub fn has_listener(&self) -> bool {
        self.shared.is_some()
    }

    /// Notes that the run is at `stage` now.
    pub(super) fn enter(&self, stage: Stage) {
        self.note(|news| news.stage = Some(stage));
    }

    /// Notes what the program wrote. Of much at once, only the newest is kept.
    pub(super) fn output(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.note(|news| {
            let bytes = &bytes[bytes.len().saturating_sub(MAX_BYTES)..];
            let excess = (news.output.len() + bytes.len()).saturating_sub(MAX_BYTES);
            news.output.drain(..excess);
            news.output.extend_from_slice(bytes);
        });
    }

    /// Waits for something new, and returns it: the newest output, or else the stage. Never, where nobody
    /// listens. May be dropped at any await.
    pub async fn news(&self) -> String {
        let Some(shared) = &self.shared else {
            return std::future::pending().await;
        };
        loop {
            if let Some(news) = lock(&shared.news).take() {
                return news;
            }
            shared.changed.notified().await;
        }
    }

    fn note(&self, change: impl FnOnce(&mut News)) {
        if let Some(shared) = &self.shared {
            change(&mut lock(&shared.news));
            shared.changed.notify_one();
        }
    }
}

impl News {
    fn take(&mut self) -> Option<String> {
        // The rest of a character may come with the next output.
        let whole = self.output.len() - cut_character_at_end(&self.output);
        if whole == 0 {
            return self.stage.take().map(|stage| stage.as_str().to_owned());
        }
        // A program that writes is running.
        self.stage = None;
        let rest = self.output.split_off(whole);
        let output = std::mem::replace(&mut self.output, rest);
        Some(newest_lines(&output))
    }
}

/// The text, without the part of a line that lost its beginning, and without line ends at the end.
fn newest_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let cut = output.len() >= MAX_BYTES;
    let whole = match text.split_once('\n') {
        Some((_, rest)) if cut && !rest.trim().is_empty() => rest,
        _ => &text,
    };
    whole.trim_end_matches(['\r', '\n']).to_owned()
}

fn lock(news: &Mutex<News>) -> MutexGuard<'_, News> {
    // Each change is one step: a panic elsewhere leaves it right.
    news.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn told(progress: &Progress) -> Option<String> {
        progress.news().now_or_never()
    }

    #[test]
    fn the_newest_output_is_told_once_and_goes_before_the_stage() {
        let progress = Progress::listened_to();
        assert_eq!(told(&progress), None);
        progress.enter(Stage::Queued);
        assert_eq!(told(&progress).unwrap(), "queued");
        progress.enter(Stage::Running);
        progress.output(b"one\ntwo\n");
        assert_eq!(told(&progress).unwrap(), "one\ntwo");
        assert_eq!(told(&progress), None);
    }

    #[test]
    fn a_flood_is_told_by_its_last_whole_lines() {
        let progress = Progress::listened_to();
        for number in 0..10_000 {
            progress.output(format!("line {number}\n").as_bytes());
        }
        let news = told(&progress).unwrap();
        assert!(news.len() <= MAX_BYTES, "{}", news.len());
        assert!(
            news.starts_with("line ") && news.ends_with("line 9999"),
            "{news}"
        );
    }

    #[test]
    fn a_character_is_told_whole() {
        let progress = Progress::listened_to();
        progress.output(b"a\xe2\x82");
        assert_eq!(told(&progress).unwrap(), "a");
        assert_eq!(told(&progress), None);
        progress.output(b"\xac");
        assert_eq!(told(&progress).unwrap(), "€");
    }

    #[test]
    fn without_a_listener_nothing_is_kept() {
        let progress = Progress::default();
        progress.enter(Stage::Running);
        progress.output(b"x");
        assert_eq!(told(&progress), None);
    }
}

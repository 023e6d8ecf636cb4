//! Check: one thing looked at, what was found, and what to do about it.

use std::fmt;

use serde::Serialize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// As it should be.
    Pass,
    /// It works, but something is better known.
    Warn,
    /// Runs do not work, or are not what they are promised to be.
    Fail,
    /// What it needs failed.
    NotRun,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    #[serde(rename = "check")]
    name: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    pub(super) fn pass(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Pass,
            found: found.into(),
            remedy: None,
        }
    }

    pub(super) fn warn(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: Verdict::Warn,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub(super) fn fail(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            verdict: Verdict::Fail,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    /// A check that cannot be made before `first` passes.
    pub(super) fn not_run(name: &'static str, first: &str) -> Self {
        Self {
            name,
            verdict: Verdict::NotRun,
            found: format!("not run, as {first} failed"),
            remedy: Some(format!("see {first}")),
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.verdict == Verdict::Fail
    }
}

/// For people: one line, and one more for the remedy.
impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
            Verdict::NotRun => "-",
        };
        write!(formatter, "{verdict:<5} {:<16} {}", self.name, self.found)?;
        if let (Some(remedy), true) = (&self.remedy, self.verdict != Verdict::NotRun) {
            write!(formatter, "\n{:<22} -> {remedy}", "")?;
        }
        Ok(())
    }
}

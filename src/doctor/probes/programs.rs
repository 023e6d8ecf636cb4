//! Programs: what probes run, in every language that doctor speaks.

/// The programs in one language.
pub(super) struct Programs {
    pub(super) language: &'static str,
    pub(super) look: &'static str,
    pub(super) start_processes: &'static str,
    pub(super) fill_memory: &'static str,
    pub(super) reach: &'static str,
}

/// The shell first: it starts faster.
pub(super) const PROGRAMS: [Programs; 2] = [
    Programs {
        language: "bash",
        look: include_str!("probe.sh"),
        start_processes: include_str!("pids.sh"),
        fill_memory: include_str!("memory.sh"),
        reach: include_str!("reach.sh"),
    },
    Programs {
        language: "python",
        look: include_str!("probe.py"),
        start_processes: include_str!("pids.py"),
        fill_memory: include_str!("memory.py"),
        reach: include_str!("reach.py"),
    },
];

'use strict';
// Words: durations, ages and outcomes as people read them.

/** `12 ms`, `1.25 s`, `2 min 5 s`, three digits at the most. */
const duration = (ms) => {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${Number((ms / 1000).toPrecision(3))} s`;
  return span(ms / 1000);
};

/** `45 s`, `2 min 5 s`, `3 h 20 min`, `4 d 1 h`: the two largest units. */
const span = (seconds) => {
  const units = [['d', 86_400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  let rest = Math.max(0, Math.round(seconds));
  if (rest < 1) return '0 s';
  const parts = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${name}`);
  }
  return parts.join(' ');
};

/** `5 min ago`, the largest unit; tens of seconds, as times are told to the second only. */
const age = (seconds) => {
  if (seconds < 10) return 'just now';
  const rounded = seconds < 60 ? Math.floor(seconds / 10) * 10 : seconds;
  return `${span(rounded).split(' ').slice(0, 2).join(' ')} ago`;
};

/** A run's outcome, and how good that is. */
const outcome = (status) => ({
  running: ['Running', 'now'],
  ok: ['OK', 'good'],
  error: ['Error', 'bad'],
  timeout: ['Timeout', 'odd'],
  oom: ['Out of memory', 'bad'],
  killed: ['Killed', 'bad'],
  disk_quota: ['Disk quota', 'bad'],
  cancelled: ['Cancelled', 'odd'],
})[status] ?? [status, 'odd'];

/** Time that `share` of the runs took at the most: the nearest rank. */
const percentile = (runs, share) => {
  const sorted = runs.map((run) => run.durationMs).sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * share) - 1];
};


//! Metrics: what is counted and timed, for Prometheus.
//!
//! Each server has a registry of its own. Names follow Prometheus' conventions; labels have few values,
//! none of which a caller chooses: languages and tools are known ones, callers are the operator's names.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter,
    IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
    process_collector::ProcessCollector,
};

use crate::{caller::Caller, executor::Warm, workspace::DiskUsage};

/// From a warm call to the longest run.
const BUCKETS_SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Media type of [`Metrics::text`].
pub(crate) const MEDIA_TYPE: &str = prometheus::TEXT_FORMAT;

/// All metrics of one server.
pub struct Metrics {
    registry: Registry,
    runs: IntCounterVec,
    run_duration: HistogramVec,
    queue_duration: Histogram,
    start_duration: HistogramVec,
    call_duration: HistogramVec,
    running: IntGauge,
    queued: IntGauge,
    warm_containers: IntGaugeVec,
    warm: IntCounterVec,
    workspaces: IntGauge,
    workspace_bytes: IntGauge,
    workspace_files: IntGauge,
    engine_calls: IntCounterVec,
    engine_errors: IntCounterVec,
    uploads: IntCounter,
    upload_bytes: IntCounter,
    downloads: IntCounter,
    download_bytes: IntCounter,
    requests: IntCounterVec,
}

/// A run that ended, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedRun<'a> {
    pub(crate) language: &'a str,
    pub(crate) status: &'a str,
    pub(crate) was_warm: bool,
    pub(crate) caller: &'a Caller,
    pub(crate) duration: Duration,
}

/// How things are now, as opposed to what happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) running: usize,
    pub(crate) queued: usize,
    pub(crate) warm: Warm,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    #[rustfmt::skip]
    fn default() -> Self {
        let registry = Registry::new();
        let registry = &registry;
        let build_info = gauges(registry, "build_info", "Constantly 1; what is running.", &["version", "commit"]);
        build_info
            .with_label_values(&[env!("CARGO_PKG_VERSION"), crate::COMMIT])
            .set(1.0);
        let started = keep(registry,
            Gauge::with_opts(opts("started_timestamp_seconds", "When the server started, Unix time.")));
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        started.set(since_epoch.unwrap_or_default().as_secs_f64());
        registry
            .register(Box::new(ProcessCollector::for_self()))
            .expect("invariant: each metric is registered once");
        Self {
            runs: counters(registry, "runs_total", "Runs that took place.", &["language", "status", "warm", "token"]),
            run_duration: histograms(registry, "run_duration_seconds", "From taking the code to its end.", &["language"]),
            queue_duration: keep(registry, Histogram::with_opts(buckets("queue_duration_seconds", "Wait of a run for a place."))),
            start_duration: histograms(registry, "start_duration_seconds", "From the place to a container that takes the code.", &["warm"]),
            call_duration: histograms(registry, "call_duration_seconds", "Tool calls, from arguments to answer.", &["tool"]),
            running: gauge(registry, "runs_running", "Runs under way."),
            queued: gauge(registry, "runs_queued", "Runs that wait for a place."),
            warm_containers: keep(registry, IntGaugeVec::new(opts("warm_containers", "Containers that wait for a run."), &["kind"])),
            warm: counters(registry, "warm_total", "Runs that found a container waiting, or did not.", &["result"]),
            workspaces: gauge(registry, "workspaces", "Workspaces, as last measured."),
            workspace_bytes: gauge(registry, "workspace_bytes", "Disk that all workspaces take, as last measured."),
            workspace_files: gauge(registry, "workspace_files", "Files and directories in all workspaces, as last measured."),
            engine_calls: counters(registry, "docker_calls_total", "Calls to the Docker API.", &["call"]),
            engine_errors: counters(registry, "docker_errors_total", "Calls to the Docker API that failed or took too long.", &["call"]),
            uploads: counter(registry, "uploads_total", "Files that came through upload links."),
            upload_bytes: counter(registry, "upload_bytes_total", "Bytes of those files."),
            downloads: counter(registry, "downloads_total", "Files, or parts of them, that were sent for."),
            download_bytes: counter(registry, "download_bytes_total", "Bytes of them that were to be sent."),
            requests: counters(registry, "http_requests_total", "HTTP requests by route.", &["route", "status"]),
            registry: registry.clone(),
        }
    }
}

impl Metrics {
    /// A run ended.
    pub(crate) fn run_ended(&self, run: EndedRun<'_>) {
        let warm = if run.was_warm { "true" } else { "false" };
        self.runs
            .with_label_values(&[run.language, run.status, warm, run.caller.as_str()])
            .inc();
        self.run_duration
            .with_label_values(&[run.language])
            .observe(run.duration.as_secs_f64());
        let result = if run.was_warm { "hit" } else { "miss" };
        self.warm.with_label_values(&[result]).inc();
    }

    /// A run got its place.
    pub(crate) fn run_waited(&self, wait: Duration) {
        self.queue_duration.observe(wait.as_secs_f64());
    }

    /// A run got its container.
    pub(crate) fn run_started(&self, was_warm: bool, took: Duration) {
        let warm = if was_warm { "true" } else { "false" };
        self.start_duration
            .with_label_values(&[warm])
            .observe(took.as_secs_f64());
    }

    /// A tool call was answered.
    pub(crate) fn call_answered(&self, tool: &str, duration: Duration) {
        self.call_duration
            .with_label_values(&[tool])
            .observe(duration.as_secs_f64());
    }

    /// A call to the engine ended.
    pub(crate) fn engine_called(&self, call: &str, succeeded: bool) {
        self.engine_calls.with_label_values(&[call]).inc();
        let errors = self.engine_errors.with_label_values(&[call]);
        if !succeeded {
            errors.inc();
        }
    }

    /// A file came through an upload link.
    pub(crate) fn uploaded(&self, bytes: u64) {
        self.uploads.inc();
        self.upload_bytes.inc_by(bytes);
    }

    /// A file was sent for.
    pub(crate) fn downloaded(&self, bytes: u64) {
        self.downloads.inc();
        self.download_bytes.inc_by(bytes);
    }

    /// A request was answered.
    pub(crate) fn request_answered(&self, route: &str, status: u16) {
        self.requests
            .with_label_values(&[route, &status.to_string()])
            .inc();
    }

    /// The workspaces were measured.
    pub(crate) fn workspaces_measured(&self, workspaces: usize, usage: DiskUsage) {
        self.workspaces.set(signed(workspaces as u64));
        self.workspace_bytes.set(signed(usage.bytes));
        self.workspace_files.set(signed(usage.files));
    }

    /// Everything, in Prometheus' text format.
    pub(crate) fn text(&self, now: Now) -> String {
        self.running.set(signed(now.running as u64));
        self.queued.set(signed(now.queued as u64));
        for (kind, count) in [("spare", now.warm.spares), ("next", now.warm.next)] {
            self.warm_containers
                .with_label_values(&[kind])
                .set(signed(count as u64));
        }
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("invariant: writing to memory does not fail");
        String::from_utf8(text).expect("invariant: the text format is text")
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("sandbox")
}

fn buckets(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, help)
        .namespace("sandbox")
        .buckets(BUCKETS_SECONDS.to_vec())
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    keep(registry, IntCounter::with_opts(opts(name, help)))
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    keep(registry, IntCounterVec::new(opts(name, help), labels))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    keep(registry, IntGauge::with_opts(opts(name, help)))
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    keep(registry, GaugeVec::new(opts(name, help), labels))
}

fn histograms(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
    keep(registry, HistogramVec::new(buckets(name, help), labels))
}

fn keep<M: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<M>) -> M {
    let metric = metric.expect("invariant: names and labels are fixed and valid");
    registry
        .register(Box::new(metric.clone()))
        .expect("invariant: each metric is registered once");
    metric
}

//! Home: the page at `/`: what this server is, what it runs, how to connect, and, for whoever has the token,
//! what it does now.
//!
//! Nothing in it is secret. What its script shows beyond that comes from `/status`, which asks for the token.

mod connect;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::{Markup, html};

use super::page::{Page, icon};
use crate::{config::Config, executor::BackendError, runner::Runner, sandbox::Sandbox};

const STYLE: &str = include_str!("home/page.css");

/// Shows what `/status` tells. Without it, the page is all but that.
const SCRIPT: &str = concat!(
    include_str!("home/words.js"),
    include_str!("home/chart.js"),
    include_str!("home/live.js"),
);

/// What the page tells of.
#[derive(Debug, Clone)]
pub(super) struct Home {
    sandbox: Arc<Sandbox>,
    /// Where clients connect to.
    endpoint: Arc<str>,
}

impl Home {
    /// The page of a server with these settings.
    pub(super) fn new(config: &Config, sandbox: &Arc<Sandbox>) -> Self {
        let base = config.public_base_url.as_str().trim_end_matches('/');
        Self {
            sandbox: Arc::clone(sandbox),
            endpoint: format!("{base}/mcp").into(),
        }
    }
}

/// Serves `GET` and `HEAD /`.
pub(super) async fn serve(State(home): State<Home>) -> Response {
    let executor = &home.sandbox.executor;
    let problem = executor.ready().await.err();
    let runners = executor.known_runners();
    let content = html! {
        (introduction(problem.as_ref()))
        (live())
        section aria-labelledby="languages" {
            h2 #languages { "Languages" }
            @if runners.is_empty() {
                p.empty { "There is no runner image yet. Build one with " code { "./build.sh" } "; it appears here by itself." }
            } @else {
                ul.languages {
                    @for runner in runners.in_use() { (language(runner)) }
                }
            }
        }
        section aria-labelledby="connect" {
            h2 #connect { "Connect" }
            p.hint {
                "Put the server's " code { "MCP_API_TOKEN" } ", which its operator has, in the place of "
                code { (connect::TOKEN) } "."
            }
            (connect::ways(&home.endpoint))
        }
    };
    Page {
        title: "mcp-code-sandbox".to_owned(),
        style: STYLE,
        content,
        script: Some(SCRIPT),
        // The script sends the token, in a header. Where there is no script it goes nowhere.
        sends_form: false,
    }
    .respond(StatusCode::OK)
}

fn introduction(problem: Option<&BackendError>) -> Markup {
    html! {
        header {
            p.eyebrow { (icon("m5 7 5 5-5 5M12.5 17H19")) "MCP server" }
            h1 { "mcp-code-sandbox" }
            p.lead {
                "Runs a language model's code, each call in a fresh container that is locked down and used once. \
                 It keeps the files of each conversation, and gives people links to them. Any client that speaks \
                 the Model Context Protocol can use it."
            }
            p.facts {
                @match problem {
                    None => { span #ready.tone.good { "Ready" } }
                    Some(problem) => { span #ready.tone.bad { "Not ready: " (problem) } }
                }
                span { "Version " (env!("CARGO_PKG_VERSION")) }
                span { a href="healthz" { "healthz" } }
                span { a href="readyz" { "readyz" } }
            }
        }
    }
}

/// What the script fills in.
fn live() -> Markup {
    html! {
        section.live aria-labelledby="live" {
            div.title {
                h2 #live tabindex="-1" { "Live" }
                button #forget type="button" hidden { "Forget the token" }
            }
            noscript { p.empty { "What the server does now is shown with JavaScript only." } }
            form.card #sign-in hidden {
                label for="token" { "Token" }
                input #token type="password" required autocomplete="off" autocapitalize="none" spellcheck="false"
                    aria-describedby="kept problem";
                button type="submit" { "Show" }
                p.hint #kept { "See what the server does now. The token stays in this tab, and is sent to this server only." }
            }
            p.problem #problem role="alert" hidden {}
            p.unseen #news role="status" {}
            div #dashboard hidden {
                dl.figures {
                    div { dt { "Running" } dd #running {} }
                    div { dt { "Waiting for a place" } dd #queued {} }
                    div { dt { "Warm containers" } dd { span #warm {} span.hint #warm-kinds {} } }
                    div { dt { "Up for" } dd #uptime {} }
                }
                div.card #latency {
                    h3 { "How long runs took" }
                    table.percentiles {
                        thead { tr { th scope="col" { "Container" } th scope="col" { "Runs" } th scope="col" { "p50" } th scope="col" { "p95" } } }
                        tbody {}
                    }
                    svg #chart role="img" {}
                    p.hint {
                        "The last runs, the newest on the right, each from taking the code to its end, without the making \
                         of a cold container. Hollow: it did not end well."
                    }
                }
                div.card {
                    h3 { "Runs" }
                    table.runs {
                        thead {
                            tr {
                                th scope="col" { "Outcome" }
                                th scope="col" { "Language" }
                                th scope="col" { "Took" }
                                th scope="col" { "Container" }
                                th scope="col" { "Workspace" }
                                th scope="col" { "Caller" }
                                th scope="col" { "When" }
                            }
                        }
                        tbody {}
                    }
                    p.hint #no-runs hidden { "There has been no run since the server started. Runs appear here by themselves." }
                    button #all type="button" hidden {}
                }
            }
        }
    }
}

fn language(runner: &Runner) -> Markup {
    let packages = runner.packages.as_deref().unwrap_or_default();
    html! {
        li.card {
            h3 {
                (runner.language)
                @if let Some(version) = &runner.version { " " span.version { (version) } }
            }
            @if !runner.aliases.is_empty() {
                p.hint { "also " (runner.aliases.join(", ")) }
            }
            @if !packages.is_empty() {
                ul.packages aria-label={ "Packages of " (runner.language) } {
                    @for package in packages.split(',') { li { (package.trim()) } }
                }
            }
        }
    }
}

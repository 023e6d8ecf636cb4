//! Page: what the server's own pages have in common, so that none of them can be made to run or load
//! what is not the server's.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("page/style.css");

/// A shell's prompt. Browsers ask the server for an icon where a page names none.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Crect width='16' height='16' rx='4' fill='%232f6f5e'/%3E\
    %3Cpath d='m4.5 5 3 3-3 3M8.5 11h3' fill='none' stroke='%23fff' stroke-width='1.5'/%3E%3C/svg%3E";

/// A page of the server's own.
#[derive(Debug)]
pub(super) struct Page {
    /// Of the window, and in front of a screen reader's user.
    pub(super) title: String,
    /// What is on it.
    pub(super) content: Markup,
    /// The one script that may run; without one, nothing may, nor can a form be sent.
    pub(super) script: Option<&'static str>,
}

impl Page {
    /// The page as an answer. It holds a secret or stands for one: no cache keeps it, no link tells of it.
    pub(super) fn respond(self, status: StatusCode) -> Response {
        let headers: HeaderMap = [
            (
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/html; charset=utf-8"),
            ),
            (header::CONTENT_SECURITY_POLICY, policy(self.script)),
            (
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            ),
            (
                header::REFERRER_POLICY,
                HeaderValue::from_static("no-referrer"),
            ),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (
                HeaderName::from_static("x-robots-tag"),
                HeaderValue::from_static("noindex, nofollow"),
            ),
        ]
        .into_iter()
        .collect();
        (status, headers, self.markup().into_string()).into_response()
    }

    fn markup(&self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    link rel="icon" href=(ICON);
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main { (self.content) }
                    @if let Some(script) = self.script {
                        script { (PreEscaped(script)) }
                    }
                }
            }
        }
    }
}

/// A drawing of lines in a square of 24 by 24, for those who see it.
pub(super) fn icon(path: &str) -> Markup {
    html! {
        svg viewBox="0 0 24 24" aria-hidden="true" { path d=(path) {} }
    }
}

/// What a browser may do on a page, a line per permission. Style and script are named by their digests:
/// even markup that slipped in could not bring its own, nor a workspace's file serve as one.
fn policy(script: Option<&str>) -> HeaderValue {
    static STYLE_DIGEST: LazyLock<String> = LazyLock::new(|| digest(STYLE));
    let mut rules = vec![
        "default-src 'none'".to_owned(),
        // Thumbnails, and the icon.
        "img-src 'self' data:".to_owned(),
        format!("style-src {}", *STYLE_DIGEST),
        // No page can be shown within another one, to be clicked on unseen.
        "frame-ancestors 'none'".to_owned(),
        // Relative links mean what they say.
        "base-uri 'none'".to_owned(),
    ];
    if let Some(script) = script {
        rules.push(format!("script-src {}", digest(script)));
        // What the script may send to, and the form where there is no script.
        rules.push("connect-src 'self'".to_owned());
        rules.push("form-action 'self'".to_owned());
    } else {
        rules.push("form-action 'none'".to_owned());
    }
    HeaderValue::from_str(&rules.join("; ")).expect("invariant: the rules are ASCII")
}

/// An inline element's source expression (CSP 3, 2.3.1).
fn digest(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)))
}

//! Conversation: the page of a conversation's files, for people, and the same as JSON.
//!
//! All links in it are relative: it works behind a proxy that adds a prefix.

use std::{cmp::Reverse, time::SystemTime};

use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use serde::Serialize;

use super::{
    files,
    page::{self, Page},
    words,
};
use crate::{
    file::{File, rfc3339},
    links,
    sandbox::{Sandbox, media_type},
    workspace::{FileEntry, WorkspaceError, WorkspaceHash},
};

/// Files on one page: as many as a phone scrolls through.
const PAGE_FILES: usize = 200;

/// Largest image that is shown small: all of it must be loaded for that.
const MAX_THUMBNAIL_BYTES: u64 = 5 << 20;

/// What is asked for in a page's query.
#[derive(Debug)]
struct Wish {
    json: bool,
    /// From 1.
    page: usize,
}

impl Wish {
    fn parse(query: &str) -> Self {
        let mut wish = Self {
            json: false,
            page: 1,
        };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "format" => wish.json = value == "json",
                "page" => wish.page = value.parse().unwrap_or(1),
                _ => {}
            }
        }
        wish
    }
}

/// One page of a conversation's files, newest first.
struct Folder {
    hash: WorkspaceHash,
    files: Vec<FileEntry>,
    total: usize,
    total_bytes: u64,
    page: usize,
    pages: usize,
    /// Whether there are more than anyone counts.
    cut_off: bool,
    expires: Option<SystemTime>,
}

/// Serves `GET` and `HEAD /files/<hash>/`. What does not exist is not found, like a file.
pub(super) async fn serve(sandbox: &Sandbox, hash: WorkspaceHash, query: &str) -> Response {
    let wish = Wish::parse(query);
    match Folder::open(sandbox, hash, wish.page).await {
        Ok(folder) if wish.json => folder.json(sandbox),
        Ok(folder) => folder.page(),
        Err(WorkspaceError::Io(error)) => {
            tracing::error!(%error, "files could not be listed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        Err(_) => files::not_found(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    files: Vec<File>,
    total: usize,
    total_bytes: u64,
    page: usize,
    pages: usize,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl Folder {
    async fn open(
        sandbox: &Sandbox,
        hash: WorkspaceHash,
        page: usize,
    ) -> Result<Self, WorkspaceError> {
        let workspace = sandbox.workspaces.find(hash.clone()).await?;
        let listing = workspace.list().await?;
        let mut files: Vec<_> = listing.entries().collect();
        let (total, total_bytes) = (
            files.len(),
            files
                .iter()
                .fold(0_u64, |sum, file| sum.saturating_add(file.size)),
        );
        // The sort is stable: files of the same time stay in the order of their names.
        files.sort_by_key(|file| Reverse(file.modified));
        let pages = total.div_ceil(PAGE_FILES).max(1);
        let page = page.clamp(1, pages);
        let files = files
            .into_iter()
            .skip((page - 1) * PAGE_FILES)
            .take(PAGE_FILES)
            .collect();
        Ok(Self {
            hash,
            files,
            total,
            total_bytes,
            page,
            pages,
            cut_off: listing.is_cut_off(),
            expires: sandbox.workspaces.expiry_from_now(),
        })
    }

    fn json(&self, sandbox: &Sandbox) -> Response {
        let answer = Json(Answer {
            files: self
                .files
                .iter()
                .map(|file| File::new(sandbox, &self.hash, file))
                .collect(),
            total: self.total,
            total_bytes: self.total_bytes,
            page: self.page,
            pages: self.pages,
            truncated: self.cut_off,
            expires_at: self.expires.map(rfc3339),
        });
        ([(http::header::CACHE_CONTROL, "no-store")], answer).into_response()
    }

    fn page(&self) -> Response {
        let now = SystemTime::now();
        let content = html! {
            header {
                p.eyebrow { "Code sandbox" }
                h1 { "Files of the conversation" }
                p.facts {
                    span { (self.count()) }
                    @if self.total > 0 { span { (words::size(self.total_bytes)) } }
                    @if let Some(expires) = self.expires {
                        span { "kept until " time datetime=(rfc3339(expires)) { (words::date(expires)) } }
                    }
                }
            }
            @if self.files.is_empty() {
                p.empty { "There are no files yet. What a run saves in " code { "/data" } " appears here." }
            } @else {
                ul.files {
                    @for file in &self.files { (row(file, now)) }
                }
            }
            (self.pager())
        };
        Page {
            title: format!("Files ({})", self.total),
            content,
            script: None,
        }
        .respond(StatusCode::OK)
    }

    fn count(&self) -> String {
        match (self.total, self.cut_off) {
            (total, true) => format!("more than {total} files, of which {total} are listed"),
            (1, _) => "1 file".to_owned(),
            (total, _) => format!("{total} files"),
        }
    }

    fn pager(&self) -> Markup {
        html! {
            @if self.pages > 1 {
                nav.pager aria-label="Pages" {
                    @if self.page > 1 { a.button rel="prev" href={ "?page=" (self.page - 1) } { "Newer" } }
                    span { "Page " (self.page) " of " (self.pages) }
                    @if self.page < self.pages { a.button rel="next" href={ "?page=" (self.page + 1) } { "Older" } }
                }
            }
        }
    }
}

fn row(file: &FileEntry, now: SystemTime) -> Markup {
    let link = links::below(&file.path).to_string();
    let name = words::name(&file.path.display());
    let (directory, base) = match name.rsplit_once('/') {
        Some((directory, base)) => (format!("{directory}/"), base),
        None => (String::new(), &*name),
    };
    html! {
        li {
            a.preview href=(link) tabindex="-1" aria-hidden="true" {
                @if has_thumbnail(file) {
                    img src=(link) alt="" loading="lazy" decoding="async";
                } @else {
                    span { (extension(base)) }
                }
            }
            div {
                a.name href=(link) {
                    bdi {
                        @if !directory.is_empty() { span.directory { (directory) } wbr; }
                        (base)
                    }
                }
                p.facts {
                    span { (words::size(file.size)) }
                    span { time datetime=(rfc3339(file.modified)) { (words::age(file.modified, now)) } }
                }
            }
            a.button href={ (link) "?download" } download aria-label={ "Download " (name) } {
                (page::icon("M12 4v12m-5-5 5 5 5-5M4 20h16")) span { "Download" }
            }
        }
    }
}

/// Types that the file route shows, and every browser draws.
fn has_thumbnail(file: &FileEntry) -> bool {
    let media_type = media_type(file);
    let drawn =
        media_type.type_() == mime_guess::mime::IMAGE && files::is_inert(media_type.essence_str());
    drawn && file.size <= MAX_THUMBNAIL_BYTES
}

/// What stands in for a picture.
fn extension(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, end)) if !stem.is_empty() && (1..=5).contains(&end.chars().count()) => {
            end.to_uppercase()
        }
        _ => "file".to_owned(),
    }
}

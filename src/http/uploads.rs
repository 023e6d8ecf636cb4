//! Uploads: takes one file from whoever has a ticket's token, by `PUT` or through the form of a page.
//!
//! Nothing of a file is held in memory but the piece under way. The ticket is spent by an upload that
//! succeeds; one that breaks off leaves nothing behind.

mod multipart;
mod page;
mod problem;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::BodyDataStream,
    extract::{Path, Request, State},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::StreamExt as _;
use headers::{ContentLength, HeaderMapExt as _};
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use tokio::time::timeout;

use self::{multipart::Form, problem::Problem};
use crate::{
    links,
    sandbox::Sandbox,
    uploads::Upload,
    workspace::{IncomingFile, ReceivedFile, WorkspaceHash},
};

/// Longest pause within an upload: who pauses longer has gone, and keeps others from trying.
const PAUSE_LIMIT: Duration = Duration::from_secs(30);

/// Longest upload: 5 GB over a line of 6 Mbit/s.
const UPLOAD_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Time for a refused client to send the rest and read the answer.
const LINGER_LIMIT: Duration = Duration::from_secs(5);

/// Serves `GET` and `HEAD /uploads/<token>`: the page to drop the file on. The ticket stays as it is.
pub(super) async fn show(
    State(sandbox): State<Arc<Sandbox>>,
    Path(token): Path<String>,
) -> Response {
    match sandbox.uploads.find(&token) {
        Some(ticket) => page::form(&ticket).respond(StatusCode::OK),
        None => page::problem(&Problem::Unknown).respond(StatusCode::NOT_FOUND),
    }
}

/// Serves `PUT /uploads/<token>`: the body is the file.
pub(super) async fn put(
    State(sandbox): State<Arc<Sandbox>>,
    Path(token): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let mut body = body.into_data_stream();
    match in_time(receive_body(&sandbox, &token, &parts.headers, &mut body)).await {
        Ok(received) => received.json(&sandbox),
        Err(problem) => {
            linger(&parts.headers, body);
            problem.json()
        }
    }
}

/// Serves `POST /uploads/<token>`: a form with the file in it. Browsers get a page, others JSON.
pub(super) async fn post(
    State(sandbox): State<Arc<Sandbox>>,
    Path(token): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let reads_pages = accepts_pages(&parts.headers);
    let mut body = body.into_data_stream();
    match in_time(receive_form(&sandbox, &token, &parts.headers, &mut body)).await {
        Ok(received) if reads_pages => received.page(),
        Ok(received) => received.json(&sandbox),
        Err(problem) => {
            linger(&parts.headers, body);
            if reads_pages {
                page::problem(&problem).respond(problem.status())
            } else {
                problem.json()
            }
        }
    }
}

async fn in_time<T>(receiving: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    timeout(UPLOAD_LIMIT, receiving)
        .await
        .unwrap_or(Err(Problem::Slow))
}

async fn receive_body(
    sandbox: &Sandbox,
    token: &str,
    headers: &HeaderMap,
    body: &mut BodyDataStream,
) -> Result<Received, Problem> {
    let upload = sandbox.uploads.begin(token)?;
    let expected = headers.typed_get::<ContentLength>().map(|length| length.0);
    // HTTP tells a body of no bytes, which is a file, from no body, which is a mistake.
    if expected.is_none() && !headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(Problem::NoFile);
    }
    let mut receiving = Receiving::begin(sandbox, upload, expected.unwrap_or(0)).await?;
    while let Some(chunk) = pausing_briefly(body.next()).await? {
        receiving
            .write(&chunk.map_err(|_| Problem::BrokeOff)?)
            .await?;
    }
    receiving.finish().await
}

async fn receive_form(
    sandbox: &Sandbox,
    token: &str,
    headers: &HeaderMap,
    body: &mut BodyDataStream,
) -> Result<Received, Problem> {
    let upload = sandbox.uploads.begin(token)?;
    // What is around the file is little: a body that is too long holds a file that is.
    let most = upload
        .ticket
        .max_bytes
        .saturating_add(multipart::MAX_AROUND_BYTES);
    let length = headers
        .typed_get::<ContentLength>()
        .map_or(0, |length| length.0);
    if length > most {
        return Err(Problem::too_large(upload.ticket.max_bytes));
    }
    let mut form = Form::of(headers, body)?;
    pausing_briefly(form.find_file()).await??;
    let expected = length.saturating_sub(multipart::MAX_AROUND_BYTES);
    let mut receiving = Receiving::begin(sandbox, upload, expected).await?;
    while let Some(chunk) = pausing_briefly(form.chunk()).await?? {
        receiving.write(&chunk).await?;
    }
    pausing_briefly(form.end()).await??;
    receiving.finish().await
}

/// Takes for a while what a refused client goes on sending: to close at once would reset the connection, and
/// many clients would lose the answer with it.
fn linger(headers: &HeaderMap, mut body: BodyDataStream) {
    // Who asked before sending sends nothing now; reading would tell him to.
    if !headers.contains_key(header::EXPECT) {
        let rest = async move { while let Some(Ok(_)) = body.next().await {} };
        tokio::spawn(timeout(LINGER_LIMIT, rest));
    }
}

async fn pausing_briefly<T>(next: impl Future<Output = T>) -> Result<T, Problem> {
    timeout(PAUSE_LIMIT, next).await.map_err(|_| Problem::Slow)
}

/// A file on its way, and the ticket that lets it in.
struct Receiving<'a> {
    sandbox: &'a Sandbox,
    upload: Upload<'a>,
    hash: WorkspaceHash,
    file: IncomingFile,
    /// Bytes that may still come.
    left: u64,
}

impl<'a> Receiving<'a> {
    async fn begin(
        sandbox: &'a Sandbox,
        upload: Upload<'a>,
        expected: u64,
    ) -> Result<Self, Problem> {
        let ticket = &upload.ticket;
        if expected > ticket.max_bytes {
            return Err(Problem::too_large(ticket.max_bytes));
        }
        let workspace = sandbox.executor.workspace(&ticket.conversation).await?;
        let file = workspace
            .receive_file(ticket.path.clone(), expected)
            .await?;
        Ok(Self {
            sandbox,
            hash: workspace.hash().clone(),
            left: ticket.max_bytes,
            file,
            upload,
        })
    }

    async fn write(&mut self, chunk: &Bytes) -> Result<(), Problem> {
        self.left = self
            .left
            .checked_sub(chunk.len() as u64)
            .ok_or_else(|| Problem::too_large(self.upload.ticket.max_bytes))?;
        Ok(self.file.write(chunk).await?)
    }

    async fn finish(self) -> Result<Received, Problem> {
        let file = self.file.commit().await?;
        self.upload.spend();
        self.sandbox.metrics.uploaded(file.entry.size);
        tracing::info!(
            workspace = self.hash.short(),
            size_bytes = file.entry.size,
            "file uploaded"
        );
        Ok(Received {
            hash: self.hash,
            file,
        })
    }
}

/// A file that has arrived.
struct Received {
    hash: WorkspaceHash,
    file: ReceivedFile,
}

#[derive(Serialize)]
struct Answer {
    success: bool,
    name: String,
    size: u64,
    sha256: String,
    url: String,
}

impl Received {
    fn json(self, sandbox: &Sandbox) -> Response {
        let entry = &self.file.entry;
        let location = self.link();
        let answer = Answer {
            success: true,
            name: entry.path.display(),
            size: entry.size,
            url: sandbox.links.file(&self.hash, &entry.path),
            sha256: self.file.sha256,
        };
        (
            StatusCode::CREATED,
            [(header::LOCATION, location)],
            Json(answer),
        )
            .into_response()
    }

    fn page(&self) -> Response {
        page::done(&self.file, &self.link()).respond(StatusCode::CREATED)
    }

    /// Relative to the page of the upload, for proxies that add a prefix.
    fn link(&self) -> String {
        format!(
            "../files/{}/{}",
            self.hash.as_str(),
            links::below(&self.file.entry.path)
        )
    }
}

/// Browsers name pages among what they take; programs do not.
fn accepts_pages(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/html"))
}

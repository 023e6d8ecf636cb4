//! Multipart: the one file in a form that a browser sent, as a stream (RFC 7578).
//!
//! The parser keeps what it has read until it can make something of it. So it gets no more than some
//! kilobytes while it looks for a part's beginning, whatever a client puts there.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::body::BodyDataStream;
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, header};
use multer::{Field, Multipart};

use super::Problem;

/// Most bytes around the file: boundaries, a part's headers, other fields. Browsers send some 300.
pub(super) const MAX_AROUND_BYTES: u64 = 16 << 10;

/// Longest boundary (RFC 2046, 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

const NOT_A_FORM: Problem = Problem::BadForm(
    "this is neither a file sent with PUT nor a form sent as multipart/form-data; try curl -T",
);
const MALFORMED: Problem = Problem::BadForm("the form is damaged or broke off; try again");
const SEVERAL_FILES: Problem =
    Problem::BadForm("there is more than one file in the form; this link takes one");
const TOO_MUCH_AROUND: Problem =
    Problem::BadForm("there is too much beside the file in the form; send the file alone");

/// A form on its way.
pub(super) struct Form<'a> {
    multipart: Multipart<'a>,
    file: Option<Field<'a>>,
    budget: Budget,
}

impl<'a> Form<'a> {
    /// The form that `body` is by its `headers`.
    pub(super) fn of(headers: &HeaderMap, body: &'a mut BodyDataStream) -> Result<Self, Problem> {
        let content_type = headers.get(header::CONTENT_TYPE);
        let boundary = content_type
            .and_then(|value| multer::parse_boundary(value.to_str().ok()?).ok())
            .filter(|boundary| boundary.len() <= MAX_BOUNDARY_BYTES)
            .ok_or(NOT_A_FORM)?;
        let budget = Budget::default();
        let rationed = Rationed {
            body,
            budget: budget.clone(),
            had_one: false,
        };
        Ok(Self {
            multipart: Multipart::new(rationed, boundary),
            file: None,
            budget,
        })
    }

    /// Goes to the beginning of the file's content.
    pub(super) async fn find_file(&mut self) -> Result<(), Problem> {
        let file = self.next_file().await?.ok_or(Problem::NoFile)?;
        let chosen = file.file_name().is_some_and(|name| !name.is_empty());
        self.file = Some(file);
        self.budget.lift();
        // Browsers send a file without a name and content where none was chosen.
        if chosen { Ok(()) } else { Err(Problem::NoFile) }
    }

    /// The next piece of the file.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        match &mut self.file {
            Some(file) => file.chunk().await.map_err(|_| MALFORMED),
            None => Ok(None),
        }
    }

    /// Makes sure that the form is whole and holds no other file.
    pub(super) async fn end(&mut self) -> Result<(), Problem> {
        self.file = None;
        match self.next_file().await? {
            None => Ok(()),
            Some(_) => Err(SEVERAL_FILES),
        }
    }

    /// The next part that is a file; other fields mean nothing here.
    async fn next_file(&mut self) -> Result<Option<Field<'a>>, Problem> {
        self.budget.set(MAX_AROUND_BYTES);
        loop {
            match self.multipart.next_field().await {
                Ok(Some(field)) if field.file_name().is_some() => return Ok(Some(field)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(_) if self.budget.is_spent() => return Err(TOO_MUCH_AROUND),
                Err(_) => return Err(MALFORMED),
            }
        }
    }
}

/// Bytes that the parser may still ask for.
#[derive(Debug, Clone, Default)]
struct Budget(Arc<AtomicU64>);

impl Budget {
    fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn lift(&self) {
        self.set(u64::MAX);
    }

    fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn spend(&self, bytes: usize) {
        let left = self.0.load(Ordering::Relaxed);
        if left != u64::MAX {
            self.set(left.saturating_sub(bytes as u64));
        }
    }
}

/// The body, up to the budget, and a piece at a time: the parser would gather all that has arrived.
struct Rationed<'a> {
    body: &'a mut BodyDataStream,
    budget: Budget,
    had_one: bool,
}

impl Stream for Rationed<'_> {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.had_one) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.budget.is_spent() {
            return Poll::Ready(Some(Err(axum::Error::new("too much around the file"))));
        }
        let next = ready!(Pin::new(&mut *self.body).poll_next(context));
        if let Some(Ok(chunk)) = &next {
            self.budget.spend(chunk.len());
            self.had_one = true;
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    /// What comes of a form whose body arrives in pieces of `piece` bytes.
    async fn read(body: &[u8], piece: usize) -> Result<Vec<u8>, Problem> {
        let mut headers = HeaderMap::new();
        let content_type = "multipart/form-data; boundary=B".parse().unwrap();
        headers.insert(header::CONTENT_TYPE, content_type);
        let pieces: Vec<_> = body.chunks(piece).map(Bytes::copy_from_slice).collect();
        let pieces = futures_util::stream::iter(pieces.into_iter().map(Ok::<_, axum::Error>));
        let mut body = Body::from_stream(pieces).into_data_stream();
        let mut form = Form::of(&headers, &mut body)?;
        form.find_file().await?;
        let mut content = Vec::new();
        while let Some(chunk) = form.chunk().await? {
            content.extend_from_slice(&chunk);
        }
        form.end().await?;
        Ok(content)
    }

    fn part(disposition: &str, content: &str) -> String {
        format!("--B\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
    }

    #[tokio::test]
    async fn the_file_is_what_is_between_the_boundaries_however_it_is_cut() {
        let content = "line\r\n--A\r\n-B\r\n\r\n--\r\r\n--";
        let file = part("name=\"file\"; filename=\"../../x\"", content);
        let field = part("name=\"other\"", "ignored");
        let body = format!("{field}{file}{field}--B--\r\n");
        for piece in [1, 2, 3, 7, 64, 10_000] {
            let found = read(body.as_bytes(), piece).await.unwrap();
            assert_eq!(String::from_utf8(found).unwrap(), content, "{piece}");
        }
    }

    #[tokio::test]
    async fn forms_without_exactly_one_whole_file_are_refused() {
        let file = part("name=\"file\"; filename=\"a\"", "x");
        let end = "--B--\r\n";
        for (body, expected) in [
            (String::new(), "damaged"),
            (end.to_owned(), "no file"),
            (format!("{}{end}", part("name=\"a\"", "x")), "no file"),
            (
                format!("{}{end}", part("name=\"file\"; filename=\"\"", "")),
                "no file",
            ),
            (format!("{file}{file}{end}"), "more than one"),
            (file.clone(), "damaged"),
            (file.replace("\r\nx\r\n", "\r\nx"), "damaged"),
            (file.replace("--B", "--C"), "damaged"),
            (
                format!("{}{end}", part("name=\"file\"", &"x".repeat(100_000))),
                "too much",
            ),
            (
                format!("--B\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)),
                "too much",
            ),
            (
                format!("--B\r\n{}\r\n", "X: x\r\n".repeat(100_000)),
                "too much",
            ),
            (
                format!("{file}--B\r\nX: {}", "x".repeat(1 << 20)),
                "too much",
            ),
            ("x".repeat(1 << 20), "too much"),
        ] {
            let refused = read(body.as_bytes(), 1000).await.unwrap_err().to_string();
            assert!(
                refused.contains(expected),
                "{body:.80}: {refused}, not {expected}"
            );
        }
    }

    #[test]
    fn other_bodies_are_no_forms() {
        for content_type in [
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "multipart/mixed; boundary=B",
            &format!("multipart/form-data; boundary={}", "B".repeat(71)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
            let mut body = Body::empty().into_data_stream();
            assert!(Form::of(&headers, &mut body).is_err(), "{content_type}");
        }
    }
}

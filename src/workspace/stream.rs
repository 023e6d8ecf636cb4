//! Stream: the bytes of an open file, a piece at a time.

use std::{fs::File, io, ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, stream};
use rustix::{buffer::spare_capacity, io::pread};
use tokio::task::{JoinHandle, spawn_blocking};

use super::OpenFile;

/// Bytes of a piece: enough to be worth a trip to a thread that may block, little enough for many downloads.
const PIECE_BYTES: u64 = 256 << 10;

impl OpenFile {
    /// The bytes of `range`, read one piece ahead of whoever takes them.
    ///
    /// A file that ends before the range does gives [`io::ErrorKind::UnexpectedEof`].
    pub fn stream(self, range: Range<u64>) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let reading = Reading::begin(Arc::new(self.file), range);
        stream::unfold(reading, |reading| async move {
            let Reading { file, rest, piece } = reading?;
            match piece
                .await
                .unwrap_or_else(|error| Err(io::Error::other(error)))
            {
                Ok(bytes) => Some((Ok(bytes), Reading::begin(file, rest))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

/// A piece that is being read, and what comes after it.
struct Reading {
    file: Arc<File>,
    rest: Range<u64>,
    piece: JoinHandle<io::Result<Bytes>>,
}

impl Reading {
    /// Begins to read the first piece of `range`; `None` at its end.
    fn begin(file: Arc<File>, range: Range<u64>) -> Option<Self> {
        if range.is_empty() {
            return None;
        }
        let end = range.end.min(range.start + PIECE_BYTES);
        let piece = spawn_blocking({
            let file = Arc::clone(&file);
            move || read(&file, range.start..end)
        });
        Some(Self {
            file,
            rest: end..range.end,
            piece,
        })
    }
}

fn read(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = range.start + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(length);
    Ok(bytes.into())
}

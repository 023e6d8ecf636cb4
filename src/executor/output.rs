//! Output: what a program wrote, bounded while it streams.
//!
//! Of each stream the head and the tail are kept, whatever its length; the middle is counted. Output that
//! is longer goes to a file as well, up to a limit. Memory stays the same for a line and for a flood.

mod spill;

use std::{collections::VecDeque, fmt::Write as _};

use self::spill::Spill;
use super::{Progress, RunId};
use crate::workspace::{FilePath, Workspace};

/// Both streams of one run.
#[derive(Debug)]
pub struct Output {
    stdout: Stream,
    stderr: Stream,
    progress: Progress,
}

/// One stream, as far as it was kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The text; U+FFFD in place of bytes that are not UTF-8.
    pub text: String,
    /// Whether a middle part is missing; a line in the text says how many bytes.
    pub truncated: bool,
    /// Where more of it is, if a middle part is missing.
    pub file: Option<FilePath>,
}

impl Output {
    /// Keeps at most `limit` bytes of each stream, and longer ones in files of `workspace`; tells `progress`
    /// of all of it.
    pub fn new(limit: usize, workspace: &Workspace, run: RunId, progress: Progress) -> Self {
        let stream = |name| Stream {
            capture: Capture::new(limit),
            spill: Spill::new(workspace.clone(), format!("{run}.{name}.txt")),
        };
        Self {
            stdout: stream("stdout"),
            stderr: stream("stderr"),
            progress,
        }
    }

    /// Takes the next bytes of standard output.
    pub async fn stdout(&mut self, bytes: &[u8]) {
        self.progress.output(bytes);
        self.stdout.push(bytes).await;
    }

    /// Takes the next bytes of standard error.
    pub async fn stderr(&mut self, bytes: &[u8]) {
        self.progress.output(bytes);
        self.stderr.push(bytes).await;
    }

    /// The text of both, standard output first.
    pub async fn finish(self) -> (Captured, Captured) {
        (self.stdout.finish().await, self.stderr.finish().await)
    }
}

#[derive(Debug)]
struct Stream {
    capture: Capture,
    spill: Spill,
}

impl Stream {
    async fn push(&mut self, bytes: &[u8]) {
        if self.capture.has_room_for(bytes) {
            self.capture.push(bytes);
            return;
        }
        if !self.capture.overflowed() {
            // Head and tail are still everything there was.
            let (head, tail) = self.capture.kept();
            for part in [head, tail.0, tail.1] {
                self.spill.write(part).await;
            }
        }
        self.spill.write(bytes).await;
        self.capture.push(bytes);
    }

    async fn finish(self) -> Captured {
        let file = self.spill.finish().await;
        Captured {
            file,
            ..self.capture.finish()
        }
    }
}

#[derive(Debug)]
struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    tail: VecDeque<u8>,
    tail_limit: usize,
    dropped: u64,
}

impl Capture {
    fn new(limit: usize) -> Self {
        let head_limit = limit / 2;
        Self {
            head: Vec::new(),
            head_limit,
            tail: VecDeque::new(),
            tail_limit: limit - head_limit,
            dropped: 0,
        }
    }

    fn has_room_for(&self, bytes: &[u8]) -> bool {
        self.head.len() + self.tail.len() + bytes.len() <= self.head_limit + self.tail_limit
    }

    fn overflowed(&self) -> bool {
        self.dropped > 0
    }

    fn kept(&self) -> (&[u8], (&[u8], &[u8])) {
        (&self.head, self.tail.as_slices())
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.head_limit - self.head.len();
        let (to_head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(to_head);
        // Only the end of a chunk longer than the tail can stay.
        let (skipped, to_tail) = rest.split_at(rest.len().saturating_sub(self.tail_limit));
        let overflow = (self.tail.len() + to_tail.len()).saturating_sub(self.tail_limit);
        self.dropped += (skipped.len() + overflow) as u64;
        self.tail.drain(..overflow);
        self.tail.extend(to_tail);
    }

    fn finish(self) -> Captured {
        let Self {
            mut head,
            tail,
            dropped,
            ..
        } = self;
        if dropped == 0 {
            head.extend(tail);
            return Captured {
                text: text(&head),
                truncated: false,
                file: None,
            };
        }
        let tail = Vec::from(tail);
        // A character cut in two belongs to neither part, but to the missing bytes.
        let head_end = head.len() - cut_character_at_end(&head);
        let tail_start = tail
            .iter()
            .take(3)
            .take_while(|byte| is_continuation(**byte))
            .count();
        let missing = dropped + (head.len() - head_end + tail_start) as u64;
        let mut kept = text(&head[..head_end]);
        if !kept.ends_with('\n') {
            kept.push('\n');
        }
        writeln!(kept, "[... {missing} bytes left out ...]")
            .expect("invariant: writing to a String does not fail");
        kept.push_str(&text(&tail[tail_start..]));
        Captured {
            text: kept,
            truncated: true,
            file: None,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Bytes at the end of `bytes` that begin a UTF-8 character without completing it.
pub(super) fn cut_character_at_end(bytes: &[u8]) -> usize {
    let Some(start) = bytes.iter().rposition(|byte| !is_continuation(*byte)) else {
        return 0;
    };
    match std::str::from_utf8(&bytes[start..]) {
        Err(error) if error.error_len().is_none() => bytes.len() - start,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(limit: usize, chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(limit);
        for chunk in chunks {
            capture.push(chunk);
        }
        capture.finish()
    }

    #[test]
    fn output_within_the_limit_is_whole() {
        for limit in [6, 7, 100] {
            let whole = captured(limit, &[b"abc", b"", b"def"]);
            assert_eq!(
                whole,
                Captured {
                    text: "abcdef".into(),
                    truncated: false,
                    file: None
                }
            );
        }
    }

    #[test]
    fn longer_output_keeps_head_and_tail_and_counts_the_rest() {
        let text = captured(6, &[b"abc", b"0123456789", b"xyz"]).text;
        assert_eq!(text, "abc\n[... 10 bytes left out ...]\nxyz");
        let text = captured(6, &[b"ab\n0123456789xyz"]).text;
        assert_eq!(text, "ab\n[... 10 bytes left out ...]\nxyz");
    }

    #[test]
    fn a_character_split_by_the_cut_counts_as_missing() {
        let text = captured(8, &["ab€€€€€cd".as_bytes()]).text;
        assert_eq!(text, "ab\n[... 15 bytes left out ...]\ncd");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(
            captured(100, &[b"a\xffb\xe2", b"\x82\xacc"]).text,
            "a\u{fffd}b€c"
        );
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_every_byte_is_kept_or_counted(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..40),
            limit in 0_usize..100,
        ) {
            let mut capture = Capture::new(limit);
            for chunk in &chunks {
                capture.push(chunk);
                prop_assert!(capture.head.len() + capture.tail.len() <= limit);
            }
            let all = chunks.concat();
            let kept = capture.head.len() + capture.tail.len();
            prop_assert_eq!(kept as u64 + capture.dropped, all.len() as u64);
            prop_assert!(all.starts_with(&capture.head));
            prop_assert!(all.ends_with(capture.tail.make_contiguous()));
            prop_assert_eq!(capture.finish().truncated, all.len() > limit);
        }

        #[test]
        fn text_that_was_utf8_stays_so(text in "[a€🙂\n]{0,60}", limit in 0_usize..60) {
            let kept = captured(limit, &[text.as_bytes()]).text;
            prop_assert!(!kept.contains('\u{fffd}'), "{kept:?}");
        }
    }
}

//! Frame: what goes into a runner of protocol 2 and how its end is told from its output.
//!
//! In goes one line of JSON and the source. Out come the program's streams; then, when it has ended
//! and nothing else runs in the container, a mark at the end of standard output and the exit line at
//! the end of standard error. Both start with a token that is new for every run. The two streams reach
//! us through separate pipes, so only both marks together say that everything has arrived.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::executor::{Ending, Usage};

/// Separates a mark from the output before it: a control character that text does not contain.
const RECORD_SEPARATOR: u8 = 0x1e;

/// Longest rest of a line after the token. What is longer was not written by a runner.
const MAX_LINE_BYTES: usize = 256;

/// The secret that a run's marks start with.
#[derive(Debug, Clone)]
pub(super) struct Token(String);

impl Token {
    pub(super) fn random() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }

    fn mark(&self) -> Vec<u8> {
        let mut mark = vec![RECORD_SEPARATOR];
        mark.extend_from_slice(self.0.as_bytes());
        mark
    }
}

/// The request line and the source, as one write.
pub(super) fn request(
    token: &Token,
    code: &str,
    environment: &BTreeMap<String, String>,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Request<'a> {
        v: u8,
        token: &'a str,
        bytes: usize,
        env: &'a BTreeMap<String, String>,
        args: [&'a str; 0],
    }
    let request = Request {
        v: 2,
        token: &token.0,
        bytes: code.len(),
        env: environment,
        args: [],
    };
    let mut frame = serde_json::to_vec(&request).expect("invariant: text and numbers are JSON");
    frame.push(b'\n');
    frame.extend_from_slice(code.as_bytes());
    frame
}

/// What an exit line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExitLine {
    exit: i32,
    /// Whether the kernel ended the program for want of memory.
    #[serde(default)]
    oom: bool,
    cpu_ms: u64,
    peak_bytes: u64,
}

impl ExitLine {
    pub(super) fn ending(self) -> Ending {
        if self.oom {
            Ending::OutOfMemory
        } else {
            Ending::Exited(self.exit)
        }
    }

    pub(super) fn usage(self) -> Usage {
        Usage {
            cpu: Duration::from_millis(self.cpu_ms),
            peak_memory: self.peak_bytes,
        }
    }

    fn parse(rest: &[u8]) -> Option<Self> {
        serde_json::from_slice(rest).ok()
    }
}

/// Passes a stream on until its mark.
#[derive(Debug)]
pub(super) struct Scanner {
    mark: Vec<u8>,
    /// Bytes that may be the start of a mark line.
    held: Vec<u8>,
    done: bool,
}

impl Scanner {
    pub(super) fn new(token: &Token) -> Self {
        Self {
            mark: token.mark(),
            held: Vec::new(),
            done: false,
        }
    }

    /// Whether the mark was seen.
    pub(super) fn done(&self) -> bool {
        self.done
    }

    /// Takes the next bytes. Returns what of them, and of those held back, is the program's; and the rest of
    /// the mark's line once it is whole. After that, nothing is the program's.
    pub(super) fn push<'a>(&mut self, bytes: &'a [u8]) -> (Cow<'a, [u8]>, Option<Vec<u8>>) {
        if self.done {
            return (Cow::Borrowed(&[]), None);
        }
        if self.held.is_empty() && !bytes.contains(&RECORD_SEPARATOR) {
            return (Cow::Borrowed(bytes), None);
        }
        self.held.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(found) = self.held[start..]
            .iter()
            .position(|byte| *byte == RECORD_SEPARATOR)
        {
            start += found;
            match self.mark_at(start) {
                Mark::Whole { end } => {
                    self.done = true;
                    let rest = self.held[start + self.mark.len()..end].to_vec();
                    self.held.truncate(start);
                    return (Cow::Owned(std::mem::take(&mut self.held)), Some(rest));
                }
                Mark::Unfinished => {
                    let unfinished = self.held.split_off(start);
                    return (
                        Cow::Owned(std::mem::replace(&mut self.held, unfinished)),
                        None,
                    );
                }
                // A separator of the program's own.
                Mark::None => start += 1,
            }
        }
        (Cow::Owned(std::mem::take(&mut self.held)), None)
    }

    /// What was held back, at the end of a stream without a mark.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn mark_at(&self, start: usize) -> Mark {
        let line = &self.held[start..];
        let compared = line.len().min(self.mark.len());
        if line[..compared] != self.mark[..compared] {
            return Mark::None;
        }
        let rest = &line[compared..];
        match rest
            .iter()
            .take(MAX_LINE_BYTES)
            .position(|byte| *byte == b'\n')
        {
            Some(at) => Mark::Whole {
                end: start + compared + at,
            },
            None if rest.len() >= MAX_LINE_BYTES => Mark::None,
            None => Mark::Unfinished,
        }
    }
}

enum Mark {
    /// It is one, and its line ends there.
    Whole { end: usize },
    /// It may become one.
    Unfinished,
    /// It is none.
    None,
}

/// Reads the exit line out of standard error's mark.
pub(super) fn exit_line(rest: &[u8]) -> Option<ExitLine> {
    ExitLine::parse(rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn scan(chunks: &[&[u8]]) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut scanner = Scanner::new(&Token(TOKEN.to_owned()));
        let (mut passed, mut rest) = (Vec::new(), None);
        for chunk in chunks {
            let (bytes, mark) = scanner.push(chunk);
            passed.extend_from_slice(&bytes);
            rest = rest.or(mark);
        }
        passed.extend_from_slice(&scanner.finish());
        (passed, rest)
    }

    #[test]
    fn the_request_is_a_line_and_the_exact_source() {
        let environment = BTreeMap::from([("A".to_owned(), "1\n\"".to_owned())]);
        let frame = request(
            &Token(TOKEN.to_owned()),
            "print(1)\r\n\u{feff}",
            &environment,
        );
        let expected = format!(
            "{{\"v\":2,\"token\":\"{TOKEN}\",\"bytes\":13,\"env\":{{\"A\":\"1\\n\\\"\"}},\"args\":[]}}\nprint(1)\r\n\u{feff}"
        );
        assert_eq!(String::from_utf8(frame).unwrap(), expected);
    }

    #[test]
    fn the_exit_line_is_stripped_and_read() {
        let line = format!("\x1e{TOKEN} {{\"exit\":3,\"cpuMs\":9,\"peakBytes\":1024}}\n");
        let (passed, rest) = scan(&[b"warning\n", line.as_bytes(), b"late"]);
        assert_eq!(passed, b"warning\n");
        let line = exit_line(&rest.unwrap()).unwrap();
        assert_eq!(
            line,
            ExitLine {
                exit: 3,
                oom: false,
                cpu_ms: 9,
                peak_bytes: 1024
            }
        );
    }

    #[test]
    fn an_exit_line_can_say_that_memory_ran_out() {
        let line =
            exit_line(b"{\"exit\":137,\"oom\":true,\"cpuMs\":9,\"peakBytes\":1024}").unwrap();
        assert_eq!(line.ending(), Ending::OutOfMemory);
    }

    #[test]
    fn what_only_looks_like_a_mark_is_output() {
        let other = TOKEN.replace('0', "1");
        let endless = format!("\x1e{TOKEN} {}", "x".repeat(1000));
        for text in [
            "\x1e",
            "\x1e\x1e\n",
            &format!("\x1e{other} {{}}\n"),
            &format!("a\x1e{TOKEN}"),
            &endless,
        ] {
            assert_eq!(
                scan(&[text.as_bytes()]),
                (text.as_bytes().to_vec(), None),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_line_that_says_nothing_is_no_exit_line() {
        for rest in [
            "",
            "{}",
            "[]",
            "{\"exit\":1}",
            "{\"exit\":1e9,\"cpuMs\":1,\"peakBytes\":1}",
            "\u{0}",
        ] {
            assert_eq!(exit_line(rest.as_bytes()), None, "{rest:?}");
        }
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            before in proptest::collection::vec(prop_oneof![Just(0x1e_u8), Just(b'0'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(1_usize..50, 1..20),
        ) {
            let line = format!("\x1e{TOKEN} {{\"exit\":0}}\n");
            let all = [&before[..], line.as_bytes()].concat();
            let (mut chunks, mut rest) = (Vec::new(), &all[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (chunk, later) = rest.split_at((*cut).min(rest.len()));
                chunks.push(chunk);
                rest = later;
            }
            let (passed, found) = scan(&chunks);
            prop_assert_eq!(passed, before);
            prop_assert_eq!(found.unwrap(), b" {\"exit\":0}".to_vec());
        }
    }
}

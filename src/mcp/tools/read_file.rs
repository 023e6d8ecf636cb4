//! `read_file`: shows a model what is in a file.

use std::io;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rmcp::model::{ContentBlock, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply};
use crate::{
    file::File,
    picture,
    sandbox::{Sandbox, media_type},
    workspace::{FileEntry, FilePath, OpenFile, WorkspaceError},
};

/// Bytes of text that are read where no length is named: what clients show of an answer.
const USUAL_TEXT_BYTES: u64 = 64 << 10;

/// Most bytes of text, and of anything else in base64.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation that owns the file.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Path relative to /data.
    filename: String,
    /// First byte to read of a text. Default: 0.
    #[serde(default)]
    #[schemars(with = "u64")]
    offset: Option<u64>,
    /// Bytes to read of a text, up to 1 MiB. Default: 65536.
    #[serde(default)]
    #[schemars(with = "u64")]
    length: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// As in `list_files`.
    #[schemars(with = "JsonObject")]
    file: File,
    /// How the content is given: text; image, beside this as an image; base64; or url, as it is too large.
    form: Form,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    base64: Option<String>,
    /// Where the next part of the text begins; absent at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    next_offset: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Form {
    Text,
    Image,
    Base64,
    Url,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "read_file",
        "Read a file of the conversation's /data directory: a text as text, in parts if it is long; an image as an \
         image; anything else up to 1 MiB as base64. Of larger files only the url is returned: process them with \
         run_code.",
        serde_json::Map::new(),
    )
    .with_title("Read a file")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.known_conversation(arguments.conversation_id)?;
    let path = FilePath::from_bytes(arguments.filename.into_bytes())?;
    let hash = sandbox.workspaces.hash(&conversation);
    let workspace = sandbox.workspaces.find(hash).await?;
    let opened = workspace.open_file(path.clone()).await?;
    let entry = FileEntry {
        path,
        size: opened.size,
        modified: opened.modified,
    };
    let offset = arguments.offset.unwrap_or(0);
    let length = arguments
        .length
        .unwrap_or(USUAL_TEXT_BYTES)
        .clamp(1, MAX_BYTES);

    let mut answer = Answer {
        file: File::new(sandbox, workspace.hash(), &entry),
        form: Form::Url,
        text: None,
        base64: None,
        next_offset: None,
    };
    let mut image = None;
    match show(opened, entry, offset, length).await? {
        Shown::Text(text, next_offset) => {
            (answer.form, answer.text) = (Form::Text, Some(text));
            answer.next_offset = next_offset;
        }
        Shown::Image(bytes, media_type) => {
            answer.form = Form::Image;
            let base64 = BASE64_STANDARD.encode(bytes);
            image = Some(ContentBlock::image(base64, media_type));
        }
        Shown::Bytes(bytes) => {
            (answer.form, answer.base64) = (Form::Base64, Some(BASE64_STANDARD.encode(bytes)));
        }
        Shown::Nothing => {}
    }
    let reply = Reply::new(&answer);
    Ok(match image {
        Some(image) => reply.with(image),
        None => reply,
    })
}

/// What is shown of a file.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    /// A part of it, and the byte where the next part begins if there is one.
    Text(String, Option<u64>),
    /// An image and its media type.
    Image(Vec<u8>, &'static str),
    Bytes(Vec<u8>),
    /// It is too large.
    Nothing,
}

async fn show(
    file: OpenFile,
    entry: FileEntry,
    offset: u64,
    length: u64,
) -> Result<Shown, Refusal> {
    let reading = tokio::task::spawn_blocking(move || match shown_as_image(&entry) {
        Some(media_type) => Ok(Shown::Image(
            file.read_part(0, picture::MAX_SOURCE_BYTES)?,
            media_type,
        )),
        None => show_part(&file, offset, length),
    });
    let shown = match reading.await {
        Ok(shown) => shown.map_err(WorkspaceError::from)?,
        Err(error) => return Err(WorkspaceError::Io(io::Error::other(error)).into()),
    };
    Ok(match shown {
        Shown::Image(bytes, _) if bytes.len() as u64 > picture::MAX_BYTES => {
            let whole = (bytes.len() as u64 <= MAX_BYTES).then(|| bytes.clone());
            match (picture::shrink(bytes).await, whole) {
                (Some(shrunk), _) => Shown::Image(shrunk, "image/jpeg"),
                (None, Some(bytes)) => Shown::Bytes(bytes),
                (None, None) => Shown::Nothing,
            }
        }
        shown => shown,
    })
}

/// The media type of an image that models see.
fn shown_as_image(entry: &FileEntry) -> Option<&'static str> {
    let media_type = media_type(entry);
    let types = ["image/png", "image/jpeg", "image/webp", "image/gif"];
    let fits = entry.size <= picture::MAX_SOURCE_BYTES;
    let shown = types
        .into_iter()
        .find(|shown| *shown == media_type.essence_str());
    shown.filter(|_| fits)
}

/// `length` bytes from `offset` on if they are text, else the whole file if it is small.
fn show_part(file: &OpenFile, offset: u64, length: u64) -> io::Result<Shown> {
    let part = file.read_part(offset, length)?;
    let more_follows = offset.saturating_add(part.len() as u64) < file.size;
    if let Some((text, read)) = text(&part, offset > 0, more_follows) {
        let next = offset + read as u64;
        return Ok(Shown::Text(
            text.to_owned(),
            (next < file.size).then_some(next),
        ));
    }
    if file.size > MAX_BYTES {
        return Ok(Shown::Nothing);
    }
    Ok(Shown::Bytes(file.read_part(0, MAX_BYTES)?))
}

/// The text that `part` of a file is, without characters that are cut off at its ends, and the bytes up to the
/// text's end; `None` where it is no text.
fn text(part: &[u8], something_before: bool, more_follows: bool) -> Option<(&str, usize)> {
    let is_continuation = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    // Of the longest character three bytes can be left.
    let left = if something_before { 3 } else { 0 };
    let start = part.iter().take(left).take_while(is_continuation).count();
    let text = match std::str::from_utf8(&part[start..]) {
        Ok(text) => text,
        Err(error) if more_follows && error.error_len().is_none() && error.valid_up_to() > 0 => {
            std::str::from_utf8(&part[start..start + error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then_some((text, start + text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_split_and_none_is_lost() {
        let whole = "a€🙂b".repeat(50);
        let bytes = whole.as_bytes();
        for length in 4..20 {
            let (mut read, mut at) = (String::new(), 0);
            while at < bytes.len() {
                let end = bytes.len().min(at + length);
                let (part, next) = text(&bytes[at..end], at > 0, end < bytes.len()).unwrap();
                read.push_str(part);
                at += next;
            }
            assert_eq!(read, whole, "{length}");
        }
        assert_eq!(
            text(&bytes[2..9], true, true),
            Some(("🙂b", 7)),
            "from within a character on"
        );
    }

    #[test]
    fn what_is_no_text_is_not_shown_as_such() {
        assert_eq!(text(b"a\0b", false, false), None);
        assert_eq!(text(b"a\xff", false, false), None);
        assert_eq!(text(b"\x89PNG\r\n", false, true), None);
        assert_eq!(
            text(b"a\xe2\x82", false, false),
            None,
            "cut off at the very end"
        );
    }
}

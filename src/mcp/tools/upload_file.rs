//! `upload_file`: puts one file into a conversation's workspace.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Call, Refusal, Reply};
use crate::{mcp::reply::File, sandbox::Sandbox, workspace::FilePath};

/// Largest file in a request, which is held in memory several times over.
const MAX_BYTES: usize = 50 << 20;

/// Largest file that this tool takes where `max_upload_bytes` can be uploaded in whichever way.
pub(in crate::mcp) fn max_bytes(max_upload_bytes: u64) -> usize {
    usize::try_from(max_upload_bytes).map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES))
}

/// Padding carries nothing, and models leave it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation that owns the file. Left out: a new one, whose id is returned.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Path relative to /data, such as data.csv or input/data.csv.
    filename: String,
    /// The file's bytes in base64.
    content: String,
    /// SHA-256 of the bytes in hexadecimal. If given, a damaged upload is refused.
    #[serde(default)]
    #[schemars(with = "String")]
    sha256: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Answer {
    success: bool,
    message: String,
    conversation_id: String,
    /// As in `list_files`.
    #[schemars(with = "JsonObject")]
    file: File,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "upload_file",
        "Put a file into the conversation's /data directory, where run_code finds it. A file of the same name is \
         replaced. Base64 longer than about 10 KB is easily cut on its way: use create_upload_url for such files.",
        serde_json::Map::new(),
    )
    .with_title("Upload a file")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false))
}

pub(super) async fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.conversation(arguments.conversation_id)?;
    let path = FilePath::for_new_file(&arguments.filename)?;
    let content = decode(
        arguments.content,
        arguments.sha256.as_deref(),
        max_bytes(sandbox.max_upload_bytes),
    )?;
    let size = content.len();

    let workspace = sandbox.executor.workspace(&conversation).await?;
    let file = workspace.write_file(path, content).await?;
    Ok(Reply::new(&Answer {
        success: true,
        message: format!(
            "File '{}' uploaded successfully ({size} bytes)",
            arguments.filename
        ),
        conversation_id: conversation.as_str().to_owned(),
        file: File::new(sandbox, workspace.hash(), &file),
    }))
}

fn decode(mut base64: String, sha256: Option<&str>, limit: usize) -> Result<Vec<u8>, Refusal> {
    // Encoders break lines.
    base64.retain(|character| !character.is_ascii_whitespace());
    let content = BASE64.decode(base64).map_err(|error| {
        Refusal::invalid_argument(format!(
            "content is not base64 ({error}); send the file's bytes in base64"
        ))
    })?;
    if content.len() > limit {
        return Err(Refusal::file_too_large(content.len(), limit));
    }
    let Some(expected) = sha256 else {
        return Ok(content);
    };
    let actual = hex::encode(Sha256::digest(&content));
    if actual.eq_ignore_ascii_case(expected.trim()) {
        Ok(content)
    } else {
        Err(Refusal::checksum_mismatch(&actual))
    }
}

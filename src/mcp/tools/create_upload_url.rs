//! `create_upload_url`: a link through which somebody else puts a file into a conversation's workspace.

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, Refusal, Reply};
use crate::{mcp::reply::rfc3339, sandbox::Sandbox, workspace::FilePath};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// Conversation that will own the file. Left out: a new one, whose id is returned.
    #[serde(default)]
    #[schemars(with = "String")]
    conversation_id: Option<String>,
    /// Path that the file will have, relative to /data, such as data.csv or input/data.csv.
    filename: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// Page where a person drops the file; PUT and multipart POST take it as well.
    url: String,
    /// Command line that uploads the file.
    curl: String,
    /// When the url stops working, RFC 3339. It works for one file.
    expires_at: String,
    conversation_id: String,
}

pub(super) fn definition() -> Tool {
    Tool::new(
        "create_upload_url",
        "Create a link through which one file gets into the conversation's /data directory without passing through \
         you. Use it when a file is larger than about 10 KB or when the user has it: give the user the url, a page to \
         drop the file on, or run the curl command where the file is. The link works once, for 15 minutes.",
        serde_json::Map::new(),
    )
    .with_title("Create an upload link")
    .with_input_schema::<Arguments>()
    .with_output_schema::<Answer>()
    .with_annotations(ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(false))
}

pub(super) fn call(sandbox: &Sandbox, mut call: Call) -> Result<Reply, Refusal> {
    let arguments: Arguments = call.arguments()?;
    let conversation = call.conversation(arguments.conversation_id)?;
    let path = FilePath::for_new_file(&arguments.filename)?;
    let (token, ticket) = sandbox.uploads.issue(conversation, path);
    let url = sandbox.links.upload(token.as_str()).ok_or_else(|| {
        Refusal::invalid_argument(
            "this server is not reachable over HTTP; use write_file or upload_file, or have the operator set \
             MCP_HTTP_ADDR",
        )
    })?;
    Ok(Reply::new(&Answer {
        curl: curl(&ticket.path, &url),
        url,
        expires_at: rfc3339(ticket.expires_at),
        conversation_id: ticket.conversation.as_str().to_owned(),
    }))
}

/// A command for a shell in which the file lies under its last segment.
fn curl(path: &FilePath, url: &str) -> String {
    let name = path.as_path().file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    // A leading dash would be standard input or an option.
    let name = match name.strip_prefix('-') {
        Some(_) => format!("./{name}"),
        None => name.into_owned(),
    };
    // Brackets and braces would be patterns.
    let literally = if name.contains(['[', ']', '{', '}']) {
        "--globoff "
    } else {
        ""
    };
    format!(
        "curl {literally}-T {} {}",
        shell_quoted(&name),
        shell_quoted(url)
    )
}

/// One word for any POSIX shell (XCU, 2.2.2).
fn shell_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_file_whatever_a_shell_or_curl_makes_of_its_name() {
        for (name, expected) in [
            ("data.csv", "curl -T 'data.csv' 'U'"),
            ("input/my data.csv", "curl -T 'my data.csv' 'U'"),
            ("it's.csv", r"curl -T 'it'\''s.csv' 'U'"),
            ("$(rm -rf ~)`x`", "curl -T '$(rm -rf ~)`x`' 'U'"),
            ("-", "curl -T './-' 'U'"),
            ("-o.csv", "curl -T './-o.csv' 'U'"),
            ("a[1-9].csv", "curl --globoff -T 'a[1-9].csv' 'U'"),
        ] {
            let path = FilePath::for_new_file(name).unwrap();
            assert_eq!(curl(&path, "U"), expected);
        }
    }
}

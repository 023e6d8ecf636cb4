//! Reply: what a tool answers when it did what it was asked to.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde::Serialize;
use serde_json::Value;

use crate::{
    sandbox::{Sandbox, media_type},
    workspace::{FileEntry, FilePath, Workspace},
};

pub(super) use crate::file::{File, rfc3339};

/// Images are shown to the model itself up to this size each, and this many.
const MAX_IMAGE_BYTES: u64 = 256 << 10;
const MAX_IMAGES: usize = 4;

/// The structured answer, and what is attached to it.
#[derive(Debug)]
pub(crate) struct Reply {
    structured: Value,
    attached: Vec<ContentBlock>,
}

impl Reply {
    pub(super) fn new(answer: &impl Serialize) -> Self {
        let structured =
            serde_json::to_value(answer).expect("invariant: answers are text, numbers and lists");
        Self {
            structured,
            attached: Vec::new(),
        }
    }

    /// Attaches a link to each of `files`, and those that are small images as images.
    pub(super) async fn attach(
        mut self,
        sandbox: &Sandbox,
        workspace: &Workspace,
        files: &[FileEntry],
    ) -> Self {
        for file in files {
            let url = sandbox.links.file(workspace.hash(), &file.path);
            let link = Resource::new(url, file.path.display())
                .with_mime_type(media_type(file).essence_str())
                .with_size(file.size);
            self.attached.push(ContentBlock::resource_link(link));
        }
        let images = files
            .iter()
            .filter(|file| shown_as_image(file))
            .take(MAX_IMAGES);
        for file in images {
            // User code may have taken it away again: then there is nothing to show.
            if let Some(bytes) = read(workspace, file.path.clone()).await {
                let image = ContentBlock::image(
                    BASE64_STANDARD.encode(bytes),
                    media_type(file).essence_str(),
                );
                self.attached.push(image);
            }
        }
        self
    }

    /// The same with one more block.
    pub(super) fn with(mut self, block: ContentBlock) -> Self {
        self.attached.push(block);
        self
    }

    pub(super) fn into_result(self) -> CallToolResult {
        // Clients of before 2025-06-18 and many models see the text only.
        let mut content = vec![ContentBlock::text(self.structured.to_string())];
        content.extend(self.attached);
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(self.structured);
        result
    }
}

fn shown_as_image(file: &FileEntry) -> bool {
    let inert = matches!(
        media_type(file).essence_str(),
        "image/png" | "image/jpeg" | "image/webp"
    );
    inert && file.size <= MAX_IMAGE_BYTES
}

async fn read(workspace: &Workspace, path: FilePath) -> Option<Vec<u8>> {
    let file = workspace.open_file(path).await.ok()?;
    let bytes = tokio::task::spawn_blocking(move || file.read_up_to(MAX_IMAGE_BYTES + 1))
        .await
        .ok()?
        .ok()?;
    (bytes.len() as u64 <= MAX_IMAGE_BYTES).then_some(bytes)
}

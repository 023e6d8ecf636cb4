//! Browser: the pages as a person uses them, in Chromium. The steps are in `tests/browser/scenarios.mjs`.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::server::TestServer;

const CHECKOUT: &str = env!("CARGO_MANIFEST_DIR");

/// Has a browser do what is called `name`, and returns what came of it.
async fn browse(name: &str, arguments: Value) -> Value {
    let script = Path::new(CHECKOUT).join("tests/browser/scenarios.mjs");
    let mut command = Command::new("timeout");
    command
        .args(["120", "node"])
        .arg(script)
        .args([name, &arguments.to_string()])
        .stdin(Stdio::null());
    let done = tokio::task::spawn_blocking(move || command.output());
    let done = done.await.unwrap().unwrap();
    assert!(
        done.status.success(),
        "{name}: {} (tests/browser/install.sh installs what it needs)",
        String::from_utf8_lossy(&done.stderr)
    );
    serde_json::from_slice(&done.stdout).unwrap()
}

async fn upload_url(server: &TestServer, conversation: &str, filename: &str) -> String {
    let arguments = json!({ "conversationId": conversation, "filename": filename });
    let answer = server.call_ok("create_upload_url", arguments).await;
    answer["url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_file_is_uploaded_by_choosing_dropping_and_without_a_script() {
    let server = TestServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    for scenario in ["chooses_a_file", "drops_a_file", "sends_the_form"] {
        let url = upload_url(&server, "c", &format!("in/{scenario} <b>.txt")).await;
        let file = directory.path().join("local name.txt");
        let content = format!("{scenario}\r\n").repeat(100_000);
        std::fs::write(&file, &content).unwrap();
        let link = browse(scenario, json!({ "url": url, "file": file })).await;
        let saved = server.download(link.as_str().unwrap()).await;
        assert_eq!(saved.text().await.unwrap(), content, "{scenario}");
        assert_eq!(server.download(&url).await.status(), 404);
    }
}

#[tokio::test]
async fn what_cannot_be_uploaded_is_said_and_can_be_tried_again() {
    let server = TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "4m")]).await;
    let directory = tempfile::tempdir().unwrap();
    let (small, large) = (
        directory.path().join("small"),
        directory.path().join("large"),
    );
    std::fs::write(&small, "small").unwrap();
    std::fs::write(&large, vec![b'x'; 32 << 20]).unwrap();
    let url = upload_url(&server, "c", "a.bin").await;
    let arguments = json!({ "url": url, "file": large, "says": "at most 4 MB" });
    browse("is_refused", arguments).await;

    let slow = directory.path().join("slow");
    std::fs::write(&slow, vec![b'x'; 3 << 20]).unwrap();
    browse(
        "is_cancelled",
        json!({ "url": url, "file": small, "large": slow }),
    )
    .await;
    let [workspace] = &server.workspaces()[..] else {
        panic!("one workspace")
    };
    assert_eq!(std::fs::read(workspace.join("a.bin")).unwrap(), b"small");
    assert_eq!(std::fs::read_dir(workspace).unwrap().count(), 1);
}

/// Makes files of all kinds, some of them under names that try to be more.
const FILES: &str = r#"
import os
import matplotlib.pyplot as plt
os.makedirs("results/2026")
canary = "<img src=/canary onerror=\"fetch('/canary')\"><script>fetch('/canary')</script>"
svg = "<svg xmlns='http://www.w3.org/2000/svg' onload=\"fetch('/canary')\"><script>fetch('/canary')</script></svg>"
xhtml = "<html xmlns='http://www.w3.org/1999/xhtml'><script>fetch('/canary')</script></html>"
for name, content in {
    "page.html": canary, "drawing.svg": svg, "page.xhtml": xhtml, "page.xml": xhtml, "page": canary,
    "data.csv": "a,b\n1,2\n", "results/2026/a long name of a table that does not fit on any phone at all, honestly.csv": "a",
    "text.txt": canary, "lies.png": canary, "data.json": "{}", "archive.tar.gz": "x" * 3_000_000,
    "<script>fetch('canary')<\\script>.txt": "x", "\"onmouseover=\"fetch('canary')\".txt": "x", "\u202egnp.exe": "x",
    "javascript:fetch('canary').txt": "x", "&lt;b&gt;.txt": "x", "a?b#c%20.txt": "x", "zwölf Bären 🐻.txt": "x",
}.items():
    open(name, "w").write(content)
plt.plot([3, 1, 4, 1, 5]); plt.savefig("report.pdf"); plt.savefig("results/photo.jpg"); plt.savefig("chart.png")
"#;

/// Address of the page of the conversation `name`, which has [`FILES`], and those of the files.
async fn conversation(server: &TestServer, name: &str) -> (String, Vec<String>) {
    let run = server.run_in(name, "python", FILES).await;
    assert_eq!(run["status"], "ok", "{run}");
    let files = run["files"].as_array().unwrap();
    let urls: Vec<_> = files
        .iter()
        .map(|file| file["url"].as_str().unwrap().to_owned())
        .collect();
    let end = urls[0].find("/files/").unwrap() + "/files/".len() + 64 + 1;
    (urls[0][..end].to_owned(), urls)
}

#[tokio::test]
async fn a_conversations_page_shows_its_images_and_runs_nothing() {
    let server = TestServer::start().await;
    let (page, urls) = conversation(&server, "c").await;
    // One of the images is none: it stays blank.
    std::fs::remove_file(server.workspaces()[0].join("lies.png")).unwrap();
    browse("shows_thumbnails", json!({ "url": page, "images": 2 })).await;

    let active: Vec<_> = urls
        .iter()
        .filter(|url| {
            ["html", "svg", "xml", "page", "txt"]
                .iter()
                .any(|end| url.ends_with(end))
        })
        .collect();
    assert!(active.len() > 6);
    browse("runs_nothing", json!({ "urls": active, "elsewhere": page })).await;
}

#[tokio::test]
async fn files_that_browsers_can_show_are_shown() {
    let server = TestServer::start().await;
    let (page, _) = conversation(&server, "c").await;
    let kinds = [
        ("chart.png", Some("image/png")),
        ("results/photo.jpg", Some("image/jpeg")),
        ("report.pdf", Some("application/pdf")),
        ("text.txt", Some("text/plain")),
        ("data.json", Some("application/json")),
        // Chromium shows no tables, and downloads them whatever it is told.
        ("data.csv", None),
        ("page.html", None),
        ("chart.png?download", None),
    ];
    let urls = kinds.map(|(name, _)| format!("{page}{name}"));
    let shown = browse("shows_inline", json!({ "urls": urls })).await;
    assert_eq!(shown, json!(kinds.map(|(_, shown)| shown)));
}

#[tokio::test]
async fn the_pages_look_well_and_everyone_can_use_them() {
    let server = TestServer::start().await;
    let (files, _) = conversation(&server, "c").await;
    let empty = server.run_in("empty", "bash", "touch x").await;
    let empty = empty["files"][0]["url"].as_str().unwrap();
    let pages = json!({
        "conversation": files,
        "upload": upload_url(&server, "c", "input/quarterly figures 2026.xlsx").await,
        "gone": format!("{}/uploads/{}", server.base_url(), "0".repeat(32)),
        "empty": empty.strip_suffix('x').unwrap(),
    });
    server.run_in("empty", "bash", "rm x").await;
    browse("looks_well", json!({ "pages": pages })).await;
}

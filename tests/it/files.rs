//! Files: the tools that list, read, write and delete what a conversation keeps.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::server::TestServer;

async fn list(server: &TestServer, arguments: Value) -> Value {
    server.call_ok("list_files", arguments).await
}

async fn read(server: &TestServer, name: &str) -> Value {
    let arguments = json!({ "conversationId": "c", "filename": name });
    server.call_ok("read_file", arguments).await
}

async fn write(server: &TestServer, name: &str, text: &str) -> Value {
    let arguments = json!({ "conversationId": "c", "filename": name, "text": text });
    server.call_ok("write_file", arguments).await
}

async fn delete(server: &TestServer, name: &str) -> Value {
    let arguments = json!({ "conversationId": "c", "filename": name });
    server.call_ok("delete_file", arguments).await
}

fn names(listed: &Value) -> Vec<&str> {
    let files = listed["files"].as_array().unwrap();
    files
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn files_are_listed_sorted_page_by_page_and_within_a_directory() {
    let server = TestServer::start().await;
    let none = list(&server, json!({ "conversationId": "c" })).await;
    assert_eq!(none, json!({ "files": [], "total": 0 }));
    let code = "mkdir -p a/b .packages/x; touch z.txt a/1 a/2 a/b/3 ab .packages/x/hidden; mkfifo pipe; ln -s z.txt l";
    server.run_in("c", "bash", code).await;
    let all = list(&server, json!({ "conversationId": "c" })).await;
    assert_eq!(names(&all), ["a/1", "a/2", "a/b/3", "ab", "z.txt"]);
    assert_eq!(all["total"], 5);

    let (mut seen, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let mut arguments = json!({ "conversationId": "c", "limit": 2 });
        if !cursor.is_null() {
            arguments["cursor"] = cursor;
        }
        let page = list(&server, arguments).await;
        seen.extend(names(&page).into_iter().map(str::to_owned));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(seen, names(&all));

    for (path, expected) in [
        ("a", &["a/1", "a/2", "a/b/3"][..]),
        ("a/", &["a/1", "a/2", "a/b/3"]),
        ("/data/a/b", &["a/b/3"]),
        ("z.txt", &["z.txt"]),
        (".packages", &[".packages/x/hidden"]),
        ("no", &[]),
        ("/data", &["a/1", "a/2", "a/b/3", "ab", "z.txt"]),
    ] {
        let below = list(&server, json!({ "conversationId": "c", "path": path })).await;
        assert_eq!(names(&below), expected, "{path}");
    }
    for arguments in [
        json!({}),
        json!({ "conversationId": "c", "path": "../x" }),
        json!({ "conversationId": "c", "cursor": "?" }),
    ] {
        let (code, _) = server.refusal("list_files", arguments).await;
        assert_eq!(code, "invalid_argument");
    }
}

#[tokio::test]
async fn text_is_read_in_parts_that_split_no_character() {
    let server = TestServer::start().await;
    let text = "zeile €🙂\n".repeat(2_000);
    write(&server, "long.txt", &text).await;
    let whole = read(&server, "long.txt").await;
    assert_eq!(whole["form"], "text");
    assert_eq!(whole["text"], text);
    assert_eq!(whole["nextOffset"], Value::Null);

    let (mut joined, mut offset) = (String::new(), 0);
    loop {
        let arguments = json!({ "conversationId": "c", "filename": "long.txt", "offset": offset, "length": 1_001 });
        let part = server.call_ok("read_file", arguments).await;
        joined.push_str(part["text"].as_str().unwrap());
        match part["nextOffset"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(joined, text);
    let beyond = json!({ "conversationId": "c", "filename": "long.txt", "offset": 1_000_000 });
    assert_eq!(server.call_ok("read_file", beyond).await["text"], "");
}

#[tokio::test]
async fn images_are_shown_and_large_ones_made_smaller() {
    let server = TestServer::start().await;
    let code = "
import numpy as np, matplotlib.image as image
image.imsave('small.png', np.zeros((8, 8, 3)))
image.imsave('noise.png', np.random.default_rng(1).random((900, 1200, 3)))
open('broken.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(300_000))
open('huge.png', 'wb').write(bytes(3_000_000))
";
    assert_eq!(server.run_in("c", "python", code).await["status"], "ok");
    for (name, media_type) in [("small.png", "image/png"), ("noise.png", "image/jpeg")] {
        let arguments = json!({ "conversationId": "c", "filename": name });
        let result = server.call("read_file", arguments).await;
        assert_eq!(result["structuredContent"]["form"], "image");
        let image = &result["content"][1];
        assert_eq!(
            (&image["type"], &image["mimeType"]),
            (&json!("image"), &json!(media_type))
        );
        let bytes = BASE64_STANDARD
            .decode(image["data"].as_str().unwrap())
            .unwrap();
        assert!(bytes.len() <= 256 << 10, "{name}: {}", bytes.len());
    }
    assert_eq!(read(&server, "broken.png").await["form"], "base64");
    assert_eq!(read(&server, "huge.png").await["form"], "url");
}

#[tokio::test]
async fn other_bytes_are_read_as_base64_up_to_a_limit() {
    let server = TestServer::start().await;
    let code = "printf 'a\\xffb' > odd; head -c 1048576 /dev/urandom > most; head -c 1048577 /dev/urandom > more";
    server.run_in("c", "bash", code).await;
    let odd = read(&server, "odd").await;
    assert_eq!(
        (&odd["form"], &odd["base64"]),
        (&json!("base64"), &json!("Yf9i"))
    );
    assert_eq!(odd["file"]["mimeType"], "application/octet-stream");
    assert_eq!(read(&server, "most").await["form"], "base64");
    let more = read(&server, "more").await;
    assert_eq!(
        (&more["form"], &more["base64"]),
        (&json!("url"), &Value::Null)
    );
}

#[tokio::test]
async fn text_is_written_appended_and_found_by_runs() {
    let server = TestServer::start().await;
    let written = write(&server, "deep/er/notes.md", "one\n").await;
    assert_eq!(written["file"]["size"], 4);
    let arguments = json!({ "conversationId": "c", "filename": "deep/er/notes.md", "text": "two\n", "append": true });
    let appended = server.call_ok("write_file", arguments).await;
    assert_eq!(appended["file"]["size"], 8);
    let run = server
        .run_in(
            "c",
            "bash",
            "cat deep/er/notes.md; echo three >> deep/er/notes.md",
        )
        .await;
    assert_eq!(run["output"], "one\ntwo\n");
    assert_eq!(
        read(&server, "deep/er/notes.md").await["text"],
        "one\ntwo\nthree\n"
    );
    let fresh = server
        .call_ok(
            "write_file",
            json!({ "filename": "a", "text": "", "append": true }),
        )
        .await;
    assert_eq!(fresh["file"]["size"], 0);
    assert!(!fresh["conversationId"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn nothing_is_read_written_or_deleted_through_what_user_code_planted() {
    let server = TestServer::start().await;
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    let code = format!(
        "ln -s {0} out; ln -s {1} dir; mkdir closed; touch closed/x; chmod 000 closed; echo kept > kept; \
         ln -s kept in",
        victim.display(),
        outside.path().display()
    );
    server.run_in("c", "bash", &code).await;
    let arguments = |name: &str| json!({ "conversationId": "c", "filename": name, "text": "x", "append": true });
    for (name, code) in [
        ("out", "not_a_regular_file"),
        ("in", "not_a_regular_file"),
        ("closed", "not_a_regular_file"),
        ("dir/new", "file_not_found"),
    ] {
        assert_eq!(
            server.refusal("write_file", arguments(name)).await.0,
            code,
            "{name}"
        );
    }
    for (name, code) in [
        ("out", "file_not_found"),
        ("dir/victim", "file_not_found"),
        ("closed", "not_a_regular_file"),
        ("nothing", "file_not_found"),
    ] {
        assert_eq!(
            server.refusal("read_file", arguments(name)).await.0,
            code,
            "{name}"
        );
    }
    let (code, _) = server.refusal("delete_file", arguments("dir/victim")).await;
    assert_eq!(code, "file_not_found");
    for name in ["out", "dir", "closed/", "in"] {
        assert_eq!(delete(&server, name).await, json!({ "success": true }));
    }
    for name in ["", ".", "..", "../x", "/etc", "a//b"] {
        let (code, _) = server.refusal("delete_file", arguments(name)).await;
        assert_eq!(code, "invalid_argument", "{name}");
    }
    assert_eq!(
        server.refusal("delete_file", arguments("out")).await.0,
        "file_not_found"
    );
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(
        names(&list(&server, json!({ "conversationId": "c" })).await),
        ["kept"]
    );
}

#[tokio::test]
async fn every_way_to_write_ends_at_the_quota() {
    let settings = [
        ("WORKSPACE_QUOTA_BYTES", "1m"),
        ("WORKSPACE_MAX_FILES", "5"),
    ];
    let server = TestServer::with_settings(&settings).await;
    let large = "x".repeat(600 << 10);
    write(&server, "a", &large).await;
    for append in [false, true] {
        let arguments =
            json!({ "conversationId": "c", "filename": "b", "text": large, "append": append });
        assert_eq!(
            server.refusal("write_file", arguments).await.0,
            "quota_exceeded"
        );
    }
    for name in ["1", "2", "3", "4"] {
        write(&server, name, "x").await;
    }
    let one_more = json!({ "conversationId": "c", "filename": "5", "text": "x" });
    assert_eq!(
        server.refusal("write_file", one_more.clone()).await.0,
        "quota_exceeded"
    );
    delete(&server, "1").await;
    server.call_ok("write_file", one_more).await;
}

#[tokio::test]
async fn a_closed_conversation_leaves_nothing_and_can_begin_anew() {
    let server =
        TestServer::with_settings(&[("WARM_POOL_SIZE", "1"), ("WARM_CONVERSATIONS", "2")]).await;
    let run = server
        .run_in("c", "bash", "touch a b; mkdir d; touch d/c")
        .await;
    let url = run["files"][0]["url"].as_str().unwrap().to_owned();
    let conversation = json!({ "conversationId": "c" });
    let status = server.call_ok("get_status", conversation.clone()).await;
    assert_eq!(status["conversation"]["files"], 4);
    assert!(
        status["conversation"]["url"]
            .as_str()
            .unwrap()
            .ends_with('/')
    );
    let closed = server
        .call_ok("close_conversation", conversation.clone())
        .await;
    assert_eq!(closed, json!({ "success": true, "deletedFiles": 3 }));
    assert_eq!(server.workspaces().len(), 0);
    assert_eq!(server.download(&url).await.status(), 404);
    let again = server
        .call_ok("close_conversation", conversation.clone())
        .await;
    assert_eq!(again["deletedFiles"], 0);
    assert_eq!(server.run_in("c", "bash", "ls").await["output"], "");
}

#[tokio::test]
async fn a_conversation_with_a_run_is_not_closed_and_says_so() {
    let server = TestServer::start().await;
    let (run, refused) = tokio::join!(server.run_in("c", "bash", "sleep 2; echo done"), async {
        tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
        let conversation = json!({ "conversationId": "c" });
        let status = server.call_ok("get_status", conversation.clone()).await;
        assert_eq!(status["server"]["runningRuns"], 1);
        assert_eq!(status["conversation"]["runningRuns"], 1);
        server.refusal("close_conversation", conversation).await
    });
    assert_eq!(refused.0, "busy");
    assert_eq!(run["output"], "done\n");
}

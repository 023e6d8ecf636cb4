//! Conversations: the page of a conversation's files, and the same as JSON.

use std::{
    fs::{self, File},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use crate::server::TestServer;

/// Address of the page that the one file of `result` is on.
fn page_of(result: &Value) -> String {
    let url = result["files"][0]["url"].as_str().unwrap();
    let end = url.find("/files/").unwrap() + "/files/".len() + 64 + 1;
    url[..end].to_owned()
}

async fn as_json(server: &TestServer, page: &str, query: &str) -> Value {
    let answer = server.download(&format!("{page}?format=json{query}")).await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    answer.json().await.unwrap()
}

#[tokio::test]
async fn a_page_tells_of_files_what_results_tell() {
    let server = TestServer::start().await;
    let make = "
mkdir -p sub/deep .packages .runs; echo hidden | tee .packages/x > .runs/y; ln -s /etc/passwd link; mkfifo fifo
echo secret > .upload-0123456789abcdef0123456789abcdef
printf 1234567890 > 'sub/deep/a b?#.csv'; sleep 0.05; printf x > '<i>.html'";
    let run = server.run_in("c", "bash", make).await;
    let page = page_of(&run);
    let shown = as_json(&server, &page, "").await;
    let mut newest_first = run["files"].as_array().unwrap().clone();
    newest_first.sort_by_key(|file| file["name"] != "<i>.html");
    assert_eq!(shown["files"], json!(newest_first));
    assert_eq!(
        (&shown["total"], &shown["totalBytes"], &shown["truncated"]),
        (&json!(2), &json!(11), &json!(false))
    );
    assert_eq!(
        shown["expiresAt"].as_str().unwrap().len(),
        "2026-11-27T12:00:00Z".len()
    );

    let answer = server.download(&page).await;
    let headers = answer.headers().clone();
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    let policy = headers["content-security-policy"].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "img-src 'self' data:",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("script-src"), "nothing runs: {policy}");
    let html = answer.text().await.unwrap();
    for part in [
        "2 files",
        "11 bytes",
        "kept until",
        "href=\"sub/deep/a%20b%3F%23.csv\"",
        "href=\"%3Ci%3E.html?download\"",
        "&lt;i&gt;.html",
        "just now",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    for part in [
        ".runs",
        ".packages",
        ".upload",
        "link",
        "fifo",
        "<i>",
        &*page,
    ] {
        let body = html.split_once("<body>").unwrap().1;
        assert!(!body.contains(part), "{part}: {body}");
    }
    let head = reqwest::Client::new().head(&page).send().await.unwrap();
    assert_eq!(head.status(), 200);
}

#[tokio::test]
async fn a_page_is_found_without_its_slash_and_not_without_its_conversation() {
    let server = TestServer::start().await;
    let page = page_of(&server.run_in("c", "bash", "touch x").await);
    let bare = page.trim_end_matches('/');
    let policy = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().redirect(policy).build().unwrap();
    let answer = client
        .get(format!("{bare}?format=json"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 308);
    let hash = bare.rsplit('/').next().unwrap();
    // Relative, so that it is right behind a proxy that adds a prefix.
    assert_eq!(answer.headers()["location"], format!("{hash}/?format=json"));
    assert_eq!(server.download(bare).await.url().as_str(), page);

    let unknown = format!("{}/files/{}/", server.base_url(), "0".repeat(64));
    let mut answers = Vec::new();
    for url in [
        format!("{unknown}?format=json"),
        format!("{unknown}x"),
        unknown,
        format!("{page}y"),
    ] {
        let answer = server.download(&url).await;
        answers.push((answer.status(), answer.text().await.unwrap()));
    }
    assert_eq!(answers[0].0, 404);
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(
        server.workspaces().len(),
        1,
        "asking must not make a workspace"
    );
}

#[tokio::test]
async fn many_files_are_shown_in_pages_up_to_a_limit_that_is_said() {
    let server = TestServer::start().await;
    let page = page_of(&server.run_in("c", "bash", "touch newest").await);
    let workspace = server.workspaces().remove(0);
    let old = SystemTime::now() - Duration::from_secs(86_400 * 2);
    for number in 0..449 {
        let file = File::create(workspace.join(format!("{number:03}"))).unwrap();
        file.set_modified(old).unwrap();
    }
    let mut names = Vec::new();
    for number in 1..=3 {
        let shown = as_json(&server, &page, &format!("&page={number}")).await;
        assert_eq!((&shown["total"], &shown["pages"]), (&json!(450), &json!(3)));
        let files = shown["files"].as_array().unwrap();
        assert_eq!(files.len(), if number < 3 { 200 } else { 50 });
        names.extend(
            files
                .iter()
                .map(|file| file["name"].as_str().unwrap().to_owned()),
        );
    }
    let expected: Vec<_> = (0..449).map(|number| format!("{number:03}")).collect();
    assert_eq!(names[0], "newest");
    assert_eq!(names[1..], expected);
    let html = server
        .download(&format!("{page}?page=2"))
        .await
        .text()
        .await
        .unwrap();
    for part in [
        "Page 2 of 3",
        "href=\"?page=1\"",
        "href=\"?page=3\"",
        "2 days ago",
    ] {
        assert!(html.contains(part), "{part}");
    }
    for odd in ["0", "4", "-1", "x", "99999999999999999999", "1e3", ""] {
        let answer = server.download(&format!("{page}?page={odd}")).await;
        assert_eq!(answer.status(), 200, "{odd}");
    }

    for number in 0..10_000 {
        fs::write(workspace.join(format!("many{number}")), "").unwrap();
    }
    let shown = as_json(&server, &page, "").await;
    assert_eq!(
        (&shown["total"], &shown["truncated"]),
        (&json!(10_000), &json!(true))
    );
    let html = server.download(&page).await.text().await.unwrap();
    assert!(
        html.contains("more than 10000 files, of which 10000 are listed"),
        "{html:.2000}"
    );
}

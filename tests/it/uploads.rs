//! Uploads: files that come in without the server's token, from people, programs and those who mean harm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use reqwest::Response;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{Caller, TOKEN, TestServer};

async fn upload_url(server: &Caller, filename: &str) -> String {
    let arguments = json!({ "conversationId": "c", "filename": filename });
    let answer = server.call_ok("create_upload_url", arguments).await;
    answer["url"].as_str().unwrap().to_owned()
}

async fn put(url: &str, body: impl Into<reqwest::Body>) -> Response {
    reqwest::Client::new()
        .put(url)
        .body(body)
        .send()
        .await
        .unwrap()
}

/// A form with these parts, as a browser or curl sends it.
async fn post(url: &str, accept: &str, body: impl Into<reqwest::Body>) -> Response {
    reqwest::Client::new()
        .post(url)
        .header("content-type", "multipart/form-data; boundary=B")
        .header("accept", accept)
        .body(body)
        .send()
        .await
        .unwrap()
}

fn part(disposition: &str, content: &str) -> String {
    format!("--B\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
}

fn form(content: &str) -> String {
    let file = part("name=\"file\"; filename=\"local.bin\"", content);
    format!("{file}--B--\r\n")
}

/// A body that does not say how long it is.
fn of_unknown_length(bytes: usize) -> reqwest::Body {
    let pieces = (0..bytes.div_ceil(65_536)).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 65_536]));
    reqwest::Body::wrap_stream(futures_util::stream::iter(pieces))
}

/// Status and code of an answer that must be a refusal.
async fn refusal(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["success"], false, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().len() > 10);
    (status, answer["error"]["code"].as_str().unwrap().to_owned())
}

fn workspace(server: &TestServer) -> PathBuf {
    let [workspace] = &server.workspaces()[..] else {
        panic!("one workspace")
    };
    workspace.clone()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 5 s: {what}");
}

/// A request written by hand, as far as it goes.
async fn begin(server: &Caller, url: &str, rest: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let path = url.strip_prefix(server.base_url()).unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: {}\r\n{rest}",
        server.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn first_line(stream: &mut TcpStream, limit: Duration) -> String {
    let mut answer = vec![0; 12];
    let read = stream.read_exact(&mut answer);
    tokio::time::timeout(limit, read)
        .await
        .expect("answers in time")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_file_that_is_put_is_there_for_the_next_run() {
    let server = TestServer::start().await;
    let arguments = json!({ "filename": "in/data.bin" });
    let ticket = server.call_ok("create_upload_url", arguments).await;
    let conversation = ticket["conversationId"].as_str().unwrap();
    let url = ticket["url"].as_str().unwrap();
    assert_eq!(server.workspaces().len(), 0, "a ticket makes nothing");

    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|number| number.to_le_bytes()[0])
        .collect();
    let digest = hex::encode(Sha256::digest(&content));
    // Neither looking nor asking uses the link up.
    for method in [reqwest::Method::GET, reqwest::Method::HEAD] {
        let looked = reqwest::Client::new()
            .request(method, url)
            .send()
            .await
            .unwrap();
        assert_eq!(looked.status(), 200);
    }
    let answer = put(url, content).await;
    assert_eq!(answer.status(), 201);
    let answer: Value = answer.json().await.unwrap();
    let file = format!(
        "{}/in/data.bin",
        server.workspaces()[0]
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
    );
    assert_eq!(
        answer,
        json!({
            "success": true, "name": "in/data.bin", "size": 3_000_000, "sha256": digest,
            "url": format!("{}/files/{file}", server.base_url()),
        })
    );
    let code = "sha256sum in/data.bin; stat -c '%u %a' in/data.bin; ls -A . in";
    let run = server.run_in(conversation, "bash", code).await;
    let expected = format!("{digest}  in/data.bin\n1000 644\n.:\nin\n\nin:\ndata.bin\n");
    assert_eq!(run["output"], expected);

    for again in [
        put(url, "x").await,
        post(url, "*/*", form("x")).await,
        put(&format!("{url}0"), "x").await,
        put(
            &format!("{}/uploads/{}", server.base_url(), "0".repeat(32)),
            "x",
        )
        .await,
    ] {
        assert_eq!(refusal(again).await, (404, "upload_not_found".to_owned()));
    }
    let page = server.download(url).await;
    assert_eq!(page.status(), 404);
    assert!(page.text().await.unwrap().contains("Ask for a new one"));
}

#[tokio::test]
async fn the_curl_command_uploads_whatever_the_file_is_called() {
    let server = TestServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "data.csv",
        "it's a [1-3] {a,b} $(touch x) `y`.csv",
        "-o.csv",
    ] {
        fs::write(directory.path().join(name), name).unwrap();
        let arguments = json!({ "conversationId": "c", "filename": format!("in/{name}") });
        let ticket = server.call_ok("create_upload_url", arguments).await;
        let done = Command::new("timeout")
            .args(["20", "sh", "-c", ticket["curl"].as_str().unwrap()])
            .current_dir(directory.path())
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(answer["name"], format!("in/{name}"), "{done:?}");
        let saved = server.download(answer["url"].as_str().unwrap()).await;
        assert_eq!(saved.text().await.unwrap(), name);
    }
    assert_eq!(names(directory.path()).len(), 3);
}

#[tokio::test]
async fn a_form_is_taken_and_answered_in_the_form_that_its_sender_reads() {
    let server = TestServer::start().await;
    let url = upload_url(&server, "a.txt").await;
    let answer = post(&url, "*/*", form("from a program")).await;
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.json::<Value>().await.unwrap()["size"], 14);

    let url = upload_url(&server, "a.txt").await;
    let page = post(&url, "text/html,*/*;q=0.8", form("from a <b>rowser")).await;
    assert_eq!(
        (page.status().as_u16(), &page.headers()["content-type"]),
        (201, &"text/html; charset=utf-8".parse().unwrap())
    );
    let page = page.text().await.unwrap();
    assert!(page.contains("href=\"../files/"), "{page}");
    assert_eq!(
        fs::read(workspace(&server).join("a.txt")).unwrap(),
        b"from a <b>rowser"
    );

    let url = upload_url(&server, "a.txt").await;
    let page = post(&url, "text/html", "--B--\r\n").await;
    assert_eq!(page.status(), 400);
    assert!(page.text().await.unwrap().contains("Try again"));
}

#[tokio::test]
async fn what_is_no_file_is_refused_and_the_link_stays_good() {
    let server = TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "100k")]).await;
    let url = upload_url(&server, "a.bin").await;
    let file = part("name=\"file\"; filename=\"a\"", "x");
    let long = "x".repeat(100 << 10);
    for (body, expected) in [
        (String::new(), (400, "invalid_argument")),
        ("--B--\r\n".to_owned(), (400, "invalid_argument")),
        (file.clone(), (400, "invalid_argument")),
        (format!("{file}{file}--B--\r\n"), (400, "invalid_argument")),
        (
            format!("{}--B--\r\n", part("name=\"file\"; filename=\"\"", "")),
            (400, "invalid_argument"),
        ),
        (
            format!("{}--B--\r\n", part("name=\"text\"", "x")),
            (400, "invalid_argument"),
        ),
        (
            format!("--B\r\nX: {long}\r\n\r\n"),
            (400, "invalid_argument"),
        ),
        (form(&format!("{long}x")), (413, "file_too_large")),
    ] {
        let refused = refusal(post(&url, "*/*", body.clone()).await).await;
        assert_eq!((refused.0, &*refused.1), expected, "{body:.60}");
    }
    let client = reqwest::Client::new();
    let text = client.post(&url).body("a=b").send().await.unwrap();
    assert_eq!(refusal(text).await.0, 400);
    // No body at all, as `curl -X PUT` sends, is a mistake.
    let none = client.put(&url).send().await.unwrap();
    assert_eq!(refusal(none).await.0, 400);
    let many = post(&url, "*/*", of_unknown_length(1 << 20)).await;
    assert_eq!(refusal(many).await.0, 400);
    let over = put(&url, of_unknown_length(1 << 20)).await;
    assert_eq!(refusal(over).await, (413, "file_too_large".to_owned()));
    let over = put(&url, vec![b'x'; (100 << 10) + 1]).await;
    assert_eq!(refusal(over).await, (413, "file_too_large".to_owned()));
    for method in ["DELETE", "PATCH", "OPTIONS"] {
        let method = method.parse().unwrap();
        let answer = client.request(method, &url).send().await.unwrap();
        assert_eq!(answer.status(), 405);
        assert!(!answer.headers().contains_key("access-control-allow-origin"));
    }
    let workspace = server.workspaces();
    until("nothing is left", async || {
        workspace.iter().all(|place| names(place).is_empty())
    })
    .await;

    // A file of exactly the largest size, and one of none.
    assert_eq!(put(&url, long).await.status(), 201);
    let url = upload_url(&server, "empty").await;
    let mut empty = begin(&server, &url, "content-length: 0\r\n\r\n").await;
    let line = first_line(&mut empty, Duration::from_secs(5)).await;
    assert_eq!(line, "HTTP/1.1 201");
}

#[tokio::test]
async fn a_length_over_the_limit_is_refused_before_a_byte_is_sent() {
    let server = TestServer::start().await;
    let url = upload_url(&server, "a.bin").await;
    for (rest, expected) in [
        (
            "content-length: 1000000000000\r\nexpect: 100-continue\r\n\r\n",
            "HTTP/1.1 413",
        ),
        ("content-length: 1000000000000\r\n\r\n", "HTTP/1.1 413"),
        (
            "content-length: 9223372036854775807\r\n\r\n",
            "HTTP/1.1 413",
        ),
        ("content-length: -1\r\n\r\n", "HTTP/1.1 400"),
        (
            "content-length: 1\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 400",
        ),
        (
            "content-length: 3\r\nexpect: 100-continue\r\n\r\n",
            "HTTP/1.1 100",
        ),
    ] {
        let mut stream = begin(&server, &url, rest).await;
        let line = first_line(&mut stream, Duration::from_secs(2)).await;
        assert_eq!(line, expected, "{rest}");
    }
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_reads_when_it_has_sent_everything() {
    let server = TestServer::with_settings(&[("MAX_UPLOAD_BYTES", "1m")]).await;
    let url = upload_url(&server, "a.bin").await;
    for rest in [
        "content-length: 33554432\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n2000000\r\n",
    ] {
        let mut stream = begin(&server, &url, rest).await;
        stream.write_all(&vec![b'x'; 32 << 20]).await.unwrap();
        let line = first_line(&mut stream, Duration::from_secs(5)).await;
        assert_eq!(line, "HTTP/1.1 413");
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing_and_can_be_made_again() {
    let mut server = TestServer::start().await;
    let url = upload_url(&server, "in/a.bin").await;
    let half = "x".repeat(600_000);
    for head in [
        "content-length: 1000000\r\n\r\n".to_owned(),
        "transfer-encoding: chunked\r\n\r\nF4240\r\n".to_owned(),
    ] {
        let stream = begin(&server, &url, &format!("{head}{half}")).await;
        until("the upload is under way", async || {
            server
                .workspaces()
                .iter()
                .any(|place| names(place).len() == 1)
        })
        .await;
        let listed = server.run_in("c", "bash", "echo").await;
        assert_eq!(
            listed["files"],
            json!([]),
            "what is not whole is not listed"
        );

        // Nobody else can use the link meanwhile.
        let second = put(&url, "x").await;
        assert_eq!(refusal(second).await, (409, "upload_in_use".to_owned()));
        drop(stream);
        let place = workspace(&server);
        until("nothing is left", async || names(&place).is_empty()).await;
    }
    let mut first = begin(
        &server,
        &url,
        &format!("content-length: 600001\r\n\r\n{half}"),
    )
    .await;
    until("the upload is under way", async || {
        !names(&workspace(&server)).is_empty()
    })
    .await;
    assert_eq!(refusal(post(&url, "*/*", form("x")).await).await.0, 409);
    first.write_all(b"x").await.unwrap();
    assert_eq!(
        first_line(&mut first, Duration::from_secs(5)).await,
        "HTTP/1.1 201"
    );
    assert_eq!(put(&url, "x").await.status(), 404);
    assert_eq!(names(&workspace(&server)), ["in"]);

    // Nor does one that the server's end cuts off.
    let url = upload_url(&server, "b.bin").await;
    let _cut = begin(
        &server,
        &url,
        &format!("content-length: 1000000\r\n\r\n{half}"),
    )
    .await;
    let place = workspace(&server);
    until("the upload is under way", async || names(&place).len() == 2).await;
    server.stop();
    assert_eq!(names(&place), ["in"]);
}

#[tokio::test]
async fn a_client_that_stops_sending_is_given_up_and_can_try_again() {
    let server = TestServer::start().await;
    let url = upload_url(&server, "a.bin").await;
    let mut silent = begin(&server, &url, "content-length: 1000000\r\n\r\nabc").await;
    let line = first_line(&mut silent, Duration::from_secs(35)).await;
    assert_eq!(line, "HTTP/1.1 408");
    assert_eq!(put(&url, "again").await.status(), 201);
    assert_eq!(names(&workspace(&server)), ["a.bin"]);
}

#[tokio::test]
async fn an_upload_never_goes_through_what_user_code_planted() {
    let server = TestServer::start().await;
    let plant = "
echo kept > target; ln -s target link; ln -s /etc/passwd out; ln -s .. up; ln -s /tmp tmp
mkdir directory; mkfifo fifo; cp target .runs";
    server.run_in("c", "bash", plant).await;
    rustix::fs::mknodat(
        fs::File::open(workspace(&server)).unwrap(),
        "fifo",
        rustix::fs::FileType::Fifo,
        0o666.into(),
        0,
    )
    .unwrap();
    for (name, expected) in [
        ("link", 201),
        ("out", 201),
        ("fifo", 201),
        ("directory", 409),
        ("up/x", 409),
        ("tmp/planted", 409),
        ("target/x", 409),
        (".runs/x", 409),
        ("directory/new/x", 201),
    ] {
        let url = upload_url(&server, name).await;
        assert_eq!(put(&url, "new").await.status(), expected, "{name}");
    }
    let code = "cat target link out fifo directory/new/x; ls -A . directory | tr '\\n' ' '";
    let left = server.run_in("c", "bash", code).await;
    assert_eq!(
        left["output"],
        "kept\nnewnewnewnew.: .runs directory fifo link out target tmp up  directory: new "
    );
    assert!(!fs::exists("/tmp/planted").unwrap());
    assert!(!fs::exists(server.root().join("x")).unwrap());
}

#[tokio::test]
async fn names_that_lead_elsewhere_get_no_link() {
    let server = TestServer::start().await;
    for name in [
        "",
        ".",
        "..",
        "../x",
        "/etc/x",
        "a/../../b",
        "a//b",
        "a\nb",
        "a\u{0}b",
        &"x".repeat(300),
    ] {
        let arguments = json!({ "filename": name });
        let refused = server.refusal("create_upload_url", arguments).await;
        assert_eq!(refused.0, "invalid_argument", "{name:?}");
    }
    let arguments = json!({ "conversationId": "", "filename": "a" });
    let refused = server.refusal("create_upload_url", arguments).await;
    assert_eq!(refused.0, "invalid_argument");
}

#[tokio::test]
async fn an_upload_takes_no_more_room_than_there_is() {
    let settings = [
        ("WORKSPACE_QUOTA_BYTES", "1m"),
        ("WORKSPACE_MAX_FILES", "3"),
    ];
    let server = TestServer::with_settings(&settings).await;
    let url = upload_url(&server, "a.bin").await;
    for body in [vec![b'x'; 2 << 20].into(), of_unknown_length(2 << 20)] {
        let refused = refusal(put(&url, body).await).await;
        assert_eq!(refused, (507, "quota_exceeded".to_owned()));
    }
    let refused = refusal(post(&url, "*/*", form(&"x".repeat(2 << 20))).await).await;
    assert_eq!(refused, (507, "quota_exceeded".to_owned()));
    let place = workspace(&server);
    until("nothing is left", async || names(&place).is_empty()).await;
    server.run_in("c", "bash", "touch 1 2 3").await;
    assert_eq!(refusal(put(&url, "x").await).await.0, 507);
    server.run_in("c", "bash", "rm 1").await;
    assert_eq!(put(&url, "x").await.status(), 201);

    let full = TestServer::with_settings(&[("MIN_FREE_DISK_BYTES", "1000000g")]).await;
    let url = upload_url(&full, "a.bin").await;
    assert_eq!(refusal(put(&url, "x").await).await.0, 507);
}

#[tokio::test]
async fn the_page_lets_nothing_in_and_tells_nothing() {
    let server = TestServer::start().await;
    let url = upload_url(&server, "<script>alert(1)<\\script>.csv").await;
    let client = reqwest::Client::new();
    // Whatever site a browser says it comes from: the link is the permission.
    let page = client
        .get(&url)
        .header("origin", "https://evil.example")
        .send()
        .await
        .unwrap();
    assert_eq!(page.status(), 200);
    let headers = page.headers().clone();
    let policy = headers["content-security-policy"].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'sha256-",
        "style-src 'sha256-",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(headers["referrer-policy"], "no-referrer");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cache-control"], "no-store");
    assert!(!headers.contains_key("access-control-allow-origin"));
    let page = page.text().await.unwrap();
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;\\script&gt;.csv"),
        "{page}"
    );
    let token = url.rsplit('/').next().unwrap();
    for secret in [TOKEN, token, "/files/", "http:", "https:"] {
        let shown = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!shown.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_large_upload_takes_no_memory() {
    let root = tempfile::tempdir().unwrap();
    let server =
        crate::server::BinaryServer::start(root.path(), &[("MAX_UPLOAD_BYTES", "1g")]).await;
    let url = upload_url(&server, "put.bin").await;
    assert_eq!(put(&url, of_unknown_length(1 << 20)).await.status(), 201);
    let before = server.peak_bytes();
    let url = upload_url(&server, "put.bin").await;
    assert_eq!(put(&url, of_unknown_length(64 << 20)).await.status(), 201);
    let url = upload_url(&server, "form.bin").await;
    let head = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
    let pieces = std::iter::once(head.as_bytes().to_vec())
        .chain((0..1024).map(|_| vec![b'\r'; 65_536]))
        .chain(std::iter::once(b"\r\n--B--\r\n".to_vec()))
        .map(Ok::<_, std::io::Error>);
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    assert_eq!(post(&url, "*/*", body).await.status(), 201);
    let more = server.peak_bytes() - before;
    assert!(more < 10 << 20, "{more} bytes more for files of 64 MiB");
}

//! Downloads: files of a workspace over HTTP, and nothing but them.

use serde_json::{Value, json};

use crate::server::TestServer;

/// URL of the one file of a new conversation.
async fn uploaded(server: &TestServer, name: &str, content: &str) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let content = BASE64_STANDARD.encode(content);
    let answer = server
        .call_ok(
            "upload_file",
            json!({ "filename": name, "content": content }),
        )
        .await;
    answer["file"]["url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_file_is_served_whole_in_part_and_not_again() {
    let server = TestServer::start().await;
    let url = uploaded(&server, "data.csv", "0123456789").await;
    let client = reqwest::Client::new();

    let whole = client.get(&url).send().await.unwrap();
    assert_eq!(whole.status(), 200);
    let headers = whole.headers().clone();
    assert_eq!(headers["content-type"], "text/csv; charset=utf-8");
    assert_eq!(headers["content-length"], "10");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(
        headers["content-security-policy"],
        "sandbox; default-src 'none'"
    );
    assert!(
        headers["content-disposition"]
            .to_str()
            .unwrap()
            .starts_with("inline; filename=\"data.csv\"")
    );
    assert_eq!(whole.text().await.unwrap(), "0123456789");

    let head = client.head(&url).send().await.unwrap();
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-length"]),
        (200, &headers["content-length"])
    );

    let part = client
        .get(&url)
        .header("range", "bytes=2-4")
        .send()
        .await
        .unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.headers()["content-range"], "bytes 2-4/10");
    assert_eq!(part.text().await.unwrap(), "234");

    let beyond = client
        .get(&url)
        .header("range", "bytes=10-")
        .send()
        .await
        .unwrap();
    assert_eq!(beyond.status(), 416);
    assert_eq!(beyond.headers()["content-range"], "bytes */10");

    let many = client
        .get(&url)
        .header("range", "bytes=0-9,0-9,0-9")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (many.status().as_u16(), many.text().await.unwrap().len()),
        (200, 10)
    );

    for (name, value) in [
        ("if-none-match", "etag"),
        ("if-modified-since", "last-modified"),
    ] {
        let again = client
            .get(&url)
            .header(name, &headers[value])
            .send()
            .await
            .unwrap();
        assert_eq!(again.status(), 304, "{name}");
    }
}

#[tokio::test]
async fn what_is_no_file_of_the_workspace_is_not_found() {
    let server = TestServer::start().await;
    let plant = "
echo mine > mine; ln -s mine inner; ln -s /etc/passwd outer; ln -s ../../../../etc/passwd relative
ln -s /etc etc; mkdir directory; mkfifo fifo; ln -s .. up
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' 2>/dev/null || true";
    server.run_in("hostile", "bash", plant).await;
    let run = server
        .run_in(
            "hostile",
            "python",
            "import socket; socket.socket(socket.AF_UNIX).bind('socket')",
        )
        .await;
    let url = run["files"][0]["url"].as_str().unwrap();
    assert_eq!(server.download(url).await.text().await.unwrap(), "mine\n");
    let base = url.strip_suffix("mine").unwrap();
    let hash = base.trim_end_matches('/').rsplit('/').next().unwrap();

    assert_eq!(
        server
            .download(&format!("{base}inner"))
            .await
            .text()
            .await
            .unwrap(),
        "mine\n"
    );
    let address = server
        .base_url()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    let workspaces = server.workspaces().len();
    for path in [
        format!("/files/{hash}/outer"),
        format!("/files/{hash}/relative"),
        format!("/files/{hash}/etc/passwd"),
        format!("/files/{hash}/directory"),
        format!("/files/{hash}/fifo"),
        format!("/files/{hash}/socket"),
        format!("/files/{hash}/up/.instance"),
        format!("/files/{hash}/../.instance"),
        format!("/files/{hash}/%2e%2e/.instance"),
        format!("/files/{hash}/%2e%2e%2f.instance"),
        format!("/files/{hash}/..%5c.instance"),
        format!("/files/{hash}/%252e%252e%252f.instance"),
        format!("/files/{hash}/mine%00"),
        format!("/files/{hash}//mine"),
        format!("/files/{hash}//etc/passwd"),
        format!("/files/{}/mine", hash.to_uppercase()),
        format!("/files/{}/mine", &hash[..63]),
        format!("/files/{}/mine", "0".repeat(64)),
        format!("/files/{}/", "0".repeat(64)),
        format!("/files/{}/", &hash[..63]),
        format!("/files/{}", &hash[..63]),
        format!("/files/{}/mine", "g".repeat(64)),
        "/files/../.instance".to_owned(),
        "/files/".to_owned(),
    ] {
        // By hand: HTTP clients tidy paths up.
        let answer = raw_get(&address, &path).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    assert_eq!(
        server.workspaces().len(),
        workspaces,
        "asking must not make a workspace"
    );
}

async fn raw_get(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(std::time::Duration::from_secs(5), read)
        .await
        .expect("answers at once")
        .unwrap();
    answer
}

#[tokio::test]
async fn odd_names_round_trip_from_result_to_download() {
    let server = TestServer::start().await;
    let code = r#"
import os
names = [b'a b', b'50%', b'q?x#y&z', b'quote"\'', b'semi;colon', b'line\nbreak\r\n', 'emoji 🙂'.encode(),
         '\u202egnp.exe'.encode(), b'not utf8 \xff\xfe', b'x' * 255, b'%2e%2e', b'back\\slash', b'<b>.txt']
for name in names:
    open(name, 'wb').write(name)
print(len(names))
"#;
    let run = server.run("python", code).await;
    let files = run["files"].as_array().unwrap();
    assert_eq!(run["output"], format!("{}\n", files.len()));
    for file in files {
        let response = server.download(file["url"].as_str().unwrap()).await;
        assert_eq!(response.status(), 200, "{file}");
        let name = response.bytes().await.unwrap();
        assert_eq!(
            String::from_utf8_lossy(&name),
            file["name"].as_str().unwrap()
        );
    }
}

#[tokio::test]
async fn pages_and_drawings_are_downloaded_not_shown() {
    let server = TestServer::start().await;
    for name in ["a.html", "a.svg", "a.xml", "a.xhtml", "a.js", "a"] {
        let url = uploaded(&server, name, "<script>alert(1)</script>").await;
        let response = server.download(&url).await;
        assert!(
            response.headers()["content-disposition"]
                .to_str()
                .unwrap()
                .starts_with("attachment"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_file_cut_short_while_it_is_sent_ends_the_download_only() {
    let server = TestServer::start().await;
    let run = server
        .run("python", "open('big', 'wb').truncate(1 << 30)")
        .await;
    let mut response = server
        .download(run["files"][0]["url"].as_str().unwrap())
        .await;
    assert_eq!(
        response.headers()["content-length"],
        (1_u64 << 30).to_string()
    );
    response.chunk().await.unwrap().unwrap();
    let conversation = run["conversationId"].as_str().unwrap();
    server
        .run_in(conversation, "bash", "truncate --size 0 big")
        .await;
    let rest = async {
        while response.chunk().await?.is_some() {}
        Ok::<_, reqwest::Error>(())
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), rest)
        .await
        .expect("ends")
        .unwrap_err();
    let ready: Value = json!(
        server
            .get("/readyz")
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    );
    assert_eq!(ready, 200);
}

#[tokio::test]
async fn a_download_goes_on_where_it_broke_off_unless_the_file_has_changed() {
    let server = TestServer::start().await;
    let url = uploaded(&server, "data.csv", "0123456789").await;
    let client = reqwest::Client::new();
    let headers = client.head(&url).send().await.unwrap().headers().clone();
    let rest = async |known: &str| {
        let request = client.get(&url).header("range", "bytes=4-");
        let answer = request.header("if-range", known).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    for (known, expected) in [
        (headers["etag"].to_str().unwrap(), (206, "456789")),
        (headers["last-modified"].to_str().unwrap(), (206, "456789")),
        ("\"another\"", (200, "0123456789")),
        ("Sun, 06 Nov 1994 08:49:37 GMT", (200, "0123456789")),
    ] {
        let (status, text) = rest(known).await;
        assert_eq!((status, &*text), expected, "{known}");
    }
    // A tag that does not match counts, whatever the date says (RFC 9110, 13.2.2).
    let newer = client
        .get(&url)
        .header("if-none-match", "\"another\"")
        .header("if-modified-since", &headers["last-modified"]);
    assert_eq!(newer.send().await.unwrap().status(), 200);
    // Ranges are for GET alone (14.2).
    let head = client.head(&url).header("range", "bytes=4-");
    let head = head.send().await.unwrap();
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-length"]),
        (200, &"10".parse().unwrap())
    );
    let saved = client.get(format!("{url}?download")).send().await.unwrap();
    let disposition = saved.headers()["content-disposition"].to_str().unwrap();
    assert!(disposition.starts_with("attachment; filename=\"data.csv\""));
}

#[tokio::test]
async fn a_download_that_nobody_reads_ends() {
    let server = TestServer::start().await;
    let code = "open('never read', 'wb').truncate(1 << 30)";
    let run = server.run("python", code).await;
    let url = run["files"][0]["url"].as_str().unwrap();
    // The server is this process.
    let is_open = || {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .any(|target| target.ends_with("never read"))
    };
    let mut unread = server.download(url).await;
    unread.chunk().await.unwrap();
    assert!(is_open());
    let asked = std::time::Instant::now();
    while is_open() {
        let waited = asked.elapsed().as_secs();
        assert!(waited < 90, "still open");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!(asked.elapsed().as_secs() > 30, "a pause is no end");
}

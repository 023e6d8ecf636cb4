//! Files: what user code plants in `/data`, and who asks for it.

use std::{fs::File, time::Duration};

use reqwest::Response;
use serde_json::{Value, json};

use super::{at_once, wait_until};
use crate::server::TestServer;

/// Directory and hash of the workspace that `file` of a result is in.
fn place(run: &Value) -> (String, String) {
    let url = run["files"][0]["url"].as_str().unwrap();
    let directory = url.rsplit_once('/').unwrap().0;
    let hash = directory.rsplit_once('/').unwrap().1;
    (directory.to_owned(), hash.to_owned())
}

async fn in_time(answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(Duration::from_secs(2), answer)
        .await
        .expect("nothing in /data makes an answer wait")
}

/// Code that waits until the test puts the file `stop` into its workspace.
const UNTIL_STOPPED: &str = "
import os, time
def stopped():
    return os.path.exists('stop')
";

async fn stop(server: &TestServer, conversation: &str) {
    let upload = json!({ "conversationId": conversation, "filename": "stop", "content": "" });
    server.call_ok("upload_file", upload).await;
}

#[tokio::test]
async fn a_link_out_of_the_workspace_is_neither_served_nor_listed_nor_shown_nor_written_through() {
    let server = TestServer::start().await;
    let victim = server
        .run_in("victim", "bash", "mkdir sub; echo secret > secret.png")
        .await;
    let (_, hash) = place(&victim);
    let root = server.root().display();
    let plant = format!(
        "
echo mine > mine
ln -s ../{hash}/secret.png relative.png; ln -s {root}/{hash}/secret.png absolute.png
ln -s ../{hash} neighbour; ln -s {root}/{hash} neighbour2; ln -s .. up; ln -s / top
ln -s relative.png chain.png; ln -s loop loop; ln -s mine/ slash
ln -s /proc/self/root/etc/passwd proc; ln -s /proc/self/cwd cwd; ln -s /proc/self/environ environ
ln -s /proc/self/fd/0 descriptor; ln -s /dev/zero zero; ln -s /dev/stdin stdin"
    );
    let arguments = json!({ "conversationId": "hostile", "language": "bash", "code": plant });
    let result = server.call("run_code", arguments).await;
    let run = &result["structuredContent"];
    assert_eq!(run["newFiles"], json!(["mine"]), "{run}");
    assert_eq!(run["files"].as_array().unwrap().len(), 1);
    let kinds: Vec<_> = result["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["type"])
        .collect();
    assert_eq!(kinds, ["text", "resource_link"]);

    let (directory, _) = place(run);
    for name in [
        "relative.png",
        "absolute.png",
        "neighbour/secret.png",
        "neighbour2/secret.png",
        "up/.instance",
        "top/etc/passwd",
        "chain.png",
        "loop",
        "slash",
        "proc",
        "cwd/Cargo.toml",
        "environ",
        "descriptor",
        "zero",
        "stdin",
    ] {
        let answer = in_time(server.download(&format!("{directory}/{name}"))).await;
        assert_eq!(answer.status(), 404, "{name}");
    }
    for name in [
        "neighbour/planted",
        "neighbour2/sub/planted",
        "top/tmp/planted",
        "up/planted",
    ] {
        let upload = json!({ "conversationId": "hostile", "filename": name, "content": "QUJD" });
        assert_eq!(
            server.refusal("upload_file", upload).await.0,
            "file_not_found",
            "{name}"
        );
    }
    let untouched = server.run_in("victim", "bash", "find . | sort").await;
    assert_eq!(untouched["output"], ".\n./secret.png\n./sub\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_swapped_for_a_link_while_2000_gets_run_gives_only_its_own_bytes() {
    let server = TestServer::start().await;
    let begun = server.run_in("hostile", "bash", "echo mine > mine").await;
    let (directory, _) = place(&begun);
    let swap = format!(
        "{UNTIL_STOPPED}
os.mkdir('real')
open('real/passwd', 'w').write('mine\\n')
os.rename('real', 'directory')
rounds = 0
while not stopped():
    os.symlink('/etc/passwd', 'link'); os.rename('link', 'swapped')
    open('file', 'w').write('mine\\n'); os.rename('file', 'swapped')
    os.rename('directory', 'real'); os.symlink('/etc', 'directory')
    os.unlink('directory'); os.rename('real', 'directory')
    rounds += 1
print(rounds)
"
    );
    let arguments = json!({ "conversationId": "hostile", "language": "python", "code": swap });
    let swapping = tokio::spawn({
        let caller = server.clone();
        async move { caller.call_ok("run_code", arguments).await }
    });
    wait_until("the swapping begins", Duration::from_secs(10), async || {
        server
            .download(&format!("{directory}/swapped"))
            .await
            .status()
            == 200
    })
    .await;

    let getting = (0..8).map(|_| {
        let (caller, directory) = (server.clone(), directory.clone());
        async move {
            let mut counts = [0; 2];
            for round in 0..250 {
                let which = round % 2;
                let name = ["swapped", "directory/passwd"][which];
                let answer = in_time(caller.download(&format!("{directory}/{name}"))).await;
                if answer.status() == 200 {
                    assert_eq!(answer.text().await.unwrap().trim_end(), "mine", "{name}");
                    counts[which] += 1;
                } else {
                    assert_eq!(answer.status(), 404, "{name}");
                }
            }
            counts
        }
    });
    let counts = at_once(getting).await;
    stop(&server, "hostile").await;
    let swapped = swapping.await.unwrap();
    let rounds: u32 = swapped["output"].as_str().unwrap().trim().parse().unwrap();
    assert!(
        rounds > 100,
        "the swapping was too slow to prove anything: {rounds}"
    );
    for which in 0..2 {
        let whole: i32 = counts.iter().map(|counts| counts[which]).sum();
        assert!(
            (1..1000).contains(&whole),
            "no mix of both: {whole} of 1000"
        );
    }
}

#[tokio::test]
async fn a_fifo_or_socket_in_use_is_not_found_at_once_and_replaced_by_an_upload() {
    let server = TestServer::start().await;
    let begun = server.run_in("hostile", "bash", "echo mine > mine").await;
    let (directory, _) = place(&begun);
    let plant = format!(
        "{UNTIL_STOPPED}
import socket
for name in 'silent', 'written', 'target', 'replaced':
    os.mkfifo(name)
writer = os.open('written', os.O_RDWR)
os.write(writer, b'from the FIFO')
os.symlink('target', 'link')
listener = socket.socket(socket.AF_UNIX)
listener.bind('socket')
listener.listen()
open('planted', 'w').close()
while not stopped():
    time.sleep(0.05)
print(*sorted(os.listdir()))
print(open('replaced').read(), open('socket').read(), open('link').read())
"
    );
    let arguments = json!({ "conversationId": "hostile", "language": "python", "code": plant });
    let running = tokio::spawn({
        let caller = server.clone();
        async move { caller.call_ok("run_code", arguments).await }
    });
    wait_until("all is planted", Duration::from_secs(10), async || {
        server
            .download(&format!("{directory}/planted"))
            .await
            .status()
            == 200
    })
    .await;
    for name in ["silent", "written", "link", "socket"] {
        let answer = in_time(server.download(&format!("{directory}/{name}"))).await;
        assert_eq!(answer.status(), 404, "{name}");
    }
    let upload =
        |name: &str| json!({ "conversationId": "hostile", "filename": name, "content": "QUJD" });
    for name in ["silent/x", "socket/x", "link/x"] {
        let refused = server.refusal("upload_file", upload(name)).await;
        assert_eq!(refused.0, "file_not_found", "{name}");
    }
    for name in ["replaced", "socket", "link"] {
        server.call_ok("upload_file", upload(name)).await;
    }
    stop(&server, "hostile").await;
    let run = running.await.unwrap();
    assert_eq!(
        run["output"],
        "link mine planted replaced silent socket stop target written\nABC ABC ABC\n",
        "{run}"
    );
    // Nobody can use what is left of them.
    let left = server.run_in("hostile", "bash", "ls").await;
    assert_eq!(
        left["output"],
        "link\nmine\nplanted\nreplaced\nsocket\nstop\n"
    );
}

#[tokio::test]
async fn a_file_deleted_or_replaced_while_it_is_sent_still_arrives_whole() {
    let server = TestServer::start().await;
    for (name, code) in [
        ("deleted", "rm big"),
        ("replaced", "echo short > new; mv new big"),
    ] {
        let made = server
            .run_in(name, "bash", "head -c 64M /dev/zero | tr '\\0' x > big")
            .await;
        let mut response = server
            .download(made["files"][0]["url"].as_str().unwrap())
            .await;
        let mut received = response.chunk().await.unwrap().unwrap().to_vec();
        server.run_in(name, "bash", code).await;
        while let Some(chunk) = response.chunk().await.unwrap() {
            received.extend(chunk);
        }
        assert_eq!(received.len(), 64 << 20, "{name}");
        assert!(received.iter().all(|byte| *byte == b'x'), "{name}");
    }
}

#[tokio::test]
async fn an_absurd_range_gives_no_more_than_the_file_and_no_error_of_ours() {
    let server = TestServer::start().await;
    let made = server.run("bash", "printf 0123456789 > file").await;
    let url = made["files"][0]["url"].as_str().unwrap();
    let many = format!("bytes={}", ["0-"; 1000].join(","));
    for (range, status, body) in [
        ("bytes=-0", 416, ""),
        ("bytes=-3", 206, "789"),
        ("bytes=-20", 206, "0123456789"),
        ("bytes=-18446744073709551615", 206, "0123456789"),
        ("bytes=0-18446744073709551615", 206, "0123456789"),
        ("bytes=18446744073709551615-", 416, ""),
        ("bytes=9-9", 206, "9"),
        ("bytes=10-20", 416, ""),
        ("bytes=5-2", 200, "0123456789"),
        ("bytes=99999999999999999999-", 200, "0123456789"),
        ("bytes=a-b", 200, "0123456789"),
        ("bytes", 200, "0123456789"),
        ("lines=0-1", 200, "0123456789"),
        (&many, 200, "0123456789"),
    ] {
        let client = reqwest::Client::new();
        let response = client.get(url).header("range", range).send().await.unwrap();
        let (shown, got) = (&range[..range.len().min(40)], response.status().as_u16());
        assert_eq!(
            (got, response.text().await.unwrap().as_str()),
            (status, body),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_sparse_file_is_listed_by_its_size_and_counted_by_its_blocks() {
    let server = TestServer::with_settings(&[("WORKSPACE_QUOTA_BYTES", "20m")]).await;
    let holes = "
for i in range(50):
    open(f'hole{i}', 'wb').truncate(19 << 20)
try:
    open('larger than the quota', 'wb').truncate(1 << 40)
except OSError as error:
    print(error.strerror)
";
    let run = server.run_in("sparse", "python", holes).await;
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("ok"), &json!("File too large\n")),
        "{run}"
    );
    assert_eq!(run["files"][0]["size"], 19 << 20);

    // A run cannot make one, a network file system or an operator can.
    let [workspace] = &server.workspaces()[..] else {
        panic!("one workspace")
    };
    File::create(workspace.join("a-tebibyte"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let run = server
        .run_in("sparse", "bash", "rm hole*; echo > made")
        .await;
    assert_eq!(run["status"], "ok", "{run}");
    let file = &run["files"][0];
    assert_eq!(
        (&file["name"], &file["size"]),
        (&json!("a-tebibyte"), &json!(1_u64 << 40))
    );
    let url = file["url"].as_str().unwrap();
    let end = reqwest::Client::new()
        .get(url)
        .header("range", "bytes=1099511627774-");
    let end = end.send().await.unwrap();
    assert_eq!(
        (end.status().as_u16(), end.bytes().await.unwrap().len()),
        (206, 2)
    );
}

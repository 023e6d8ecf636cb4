//! Shutdown: the end of a server, and of a call, is the end of its containers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{engine::containers_of, server::TestServer};

async fn wait_for_containers(instance: &str, count: usize) {
    let asked = Instant::now();
    while containers_of(instance).len() != count {
        assert!(
            asked.elapsed() < Duration::from_secs(10),
            "{:?}",
            containers_of(instance)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn sleeper() -> serde_json::Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": { "language": "bash", "code": "echo begun; sleep 60" } },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_under_way_are_answered_as_cancelled_and_removed() {
    let mut server = TestServer::start().await;
    let instance = server.instance();
    let calls: Vec<_> = (0..2)
        .map(|_| tokio::spawn(server.post(sleeper().to_string()).send()))
        .collect();
    wait_for_containers(&instance, 2).await;
    // Until the programs run.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stopping = Instant::now();
    server.stop();
    assert!(
        stopping.elapsed() < Duration::from_secs(10),
        "{:?}",
        stopping.elapsed()
    );
    assert_eq!(containers_of(&instance), [""; 0]);
    for call in calls {
        let answer: serde_json::Value = call.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(
            answer["result"]["structuredContent"]["status"], "cancelled",
            "{answer}"
        );
        assert_eq!(answer["result"]["structuredContent"]["output"], "begun\n");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_container_along() {
    let server = TestServer::start().await;
    let instance = server.instance();
    for wait in [
        Duration::from_millis(30),
        Duration::from_millis(120),
        Duration::from_secs(1),
    ] {
        let call = tokio::spawn(server.post(sleeper().to_string()).send());
        tokio::time::sleep(wait).await;
        call.abort();
        let _aborted = call.await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        wait_for_containers(&instance, 0).await;
    }
}

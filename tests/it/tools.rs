//! Tools: what clients and models are told of them.

use serde_json::{Value, json};

use crate::server::TestServer;

async fn listed(server: &TestServer) -> Vec<Value> {
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let response = server.post(request).send().await.unwrap();
    let answer: Value = response.json().await.unwrap();
    answer["result"]["tools"].as_array().unwrap().clone()
}

/// What there is to run depends on the images: the snapshot has the rest.
fn without_languages(mut tool: Value) -> Value {
    if let Some((about, _)) = tool["description"]
        .as_str()
        .and_then(|text| text.split_once("installed packages: "))
    {
        tool["description"] = json!(format!("{about}installed packages: [...]"));
    }
    tool
}

#[tokio::test]
async fn the_tools_are_as_they_were_and_always_the_same() {
    let server = TestServer::start().await;
    let tools = listed(&server).await;
    assert_eq!(tools, listed(&server).await);
    let tools: Vec<Value> = tools.into_iter().map(without_languages).collect();
    insta::assert_json_snapshot!(tools);
}

#[tokio::test]
async fn every_tool_is_described_for_people_models_and_programs() {
    let server = TestServer::start().await;
    for tool in listed(&server).await {
        let name = &tool["name"];
        assert!(tool["title"].is_string(), "{name}");
        assert!(tool["description"].as_str().unwrap().len() > 40, "{name}");
        for hint in ["readOnlyHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{name}: {hint}");
        }
        assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{name}");
        let schema = tool.to_string();
        assert!(!schema.contains("\"null\""), "{name}: no type may be null");
        let properties = tool["inputSchema"]["properties"].as_object();
        for (property, schema) in properties.into_iter().flatten() {
            assert!(schema["description"].is_string(), "{name}: {property}");
        }
    }
}

#[tokio::test]
async fn models_are_told_what_is_installed() {
    let server = TestServer::start().await;
    let tools = listed(&server).await;
    let about = tools[0]["description"].as_str().unwrap();
    for word in ["python", "pandas", "bash", "typescript", "/data", "url"] {
        assert!(about.contains(word), "{word}: {about}");
    }
}

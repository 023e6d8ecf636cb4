//! Message: what of a JSON-RPC message must be known before the SDK parses it, and what is no message.
//!
//! The SDK answers the latter in words, or as if it were something else; clients expect the errors that
//! JSON-RPC 2.0 (section 5.1) has for it.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, error::Category, value::RawValue};

/// A message as far as it is read here. The parameters' own contents are left as they are.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) id: Option<Value>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// Of an answer of the client's to a request of the server's.
    #[serde(borrow, alias = "error")]
    result: Option<&'a RawValue>,
}

/// Why a body is no message, as JSON-RPC says it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) code: i32,
    pub(super) reason: &'static str,
    /// The message's own, where it has a usable one.
    pub(super) id: Value,
}

impl<'a> Message<'a> {
    pub(super) fn parse(body: &'a Bytes) -> Result<Self, Malformed> {
        let malformed = |code, reason, id: &Value| Malformed {
            code,
            reason,
            id: id.clone(),
        };
        let message: Self = serde_json::from_slice(body).map_err(|error| {
            let (code, reason) = match error.classify() {
                Category::Data if body.trim_ascii_start().starts_with(b"[") => (
                    -32600,
                    "batches are not supported; send one request at a time",
                ),
                Category::Data => (-32600, "the body is not a JSON-RPC message"),
                _ => (-32700, "the body is not JSON"),
            };
            malformed(code, reason, &Value::Null)
        })?;
        // As the SDK has it: a string or a whole number.
        let id = match &message.id {
            None => &Value::Null,
            Some(id) if id.is_string() || id.is_i64() => id,
            Some(_) => {
                let reason = "the id must be a string or a whole number";
                return Err(malformed(-32600, reason, &Value::Null));
            }
        };
        if message.jsonrpc.as_deref() != Some("2.0") {
            let reason = "the member jsonrpc must be \"2.0\"";
            return Err(malformed(-32600, reason, id));
        }
        match &message.method {
            None if message.result.is_none() => {
                Err(malformed(-32600, "the member method is missing", id))
            }
            Some(method) => match wrong_params(method, message.params) {
                Some(reason) => Err(malformed(-32602, reason, id)),
                None => Ok(message),
            },
            None => Ok(message),
        }
    }
}

/// What a known method lacks in its parameters. The SDK would take it for an unknown method.
fn wrong_params(method: &str, params: Option<&RawValue>) -> Option<&'static str> {
    #[derive(Deserialize)]
    struct Known<'a> {
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow)]
        uri: Option<&'a RawValue>,
        #[serde(borrow, rename = "taskId")]
        task_id: Option<&'a RawValue>,
    }
    let starts = |value: Option<&RawValue>, with| value.is_some_and(|v| v.get().starts_with(with));
    if params.is_some_and(|params| !params.get().starts_with('{')) {
        return Some("params must be an object");
    }
    let Ok(known) = serde_json::from_str::<Known<'_>>(params.map_or("{}", RawValue::get)) else {
        return Some("params has a member twice");
    };
    match method {
        "tools/call" if !starts(known.name, '"') => Some("params.name must be the name of a tool"),
        "tools/call" if known.arguments.is_some() && !starts(known.arguments, '{') => {
            Some("params.arguments must be an object")
        }
        "resources/read" if !starts(known.uri, '"') => {
            Some("params.uri must be the URI of a resource")
        }
        "tasks/get" | "tasks/cancel" | "tasks/update" if !starts(known.task_id, '"') => {
            Some("params.taskId must be the id of a task")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let body = Bytes::from(bytes);
            if let Ok(message) = Message::parse(&body) {
                prop_assert_eq!(message.jsonrpc.as_deref(), Some("2.0"));
            }
        }

        #[test]
        fn almost_messages_are_told_from_messages(
            members in proptest::collection::vec(
                ("(jsonrpc|method|id|params|x)", "(\"2\\.0\"|\"initialize\"|null|1|-1\\.5|\\[\\]|\\{\\}|\"\\\\ud800\")"),
                0..6,
            ),
        ) {
            let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let body = Bytes::from(format!("{{{}}}", members.join(",")));
            let named: Vec<_> = members.iter().filter(|member| member.starts_with("\"jsonrpc\"")).collect();
            if Message::parse(&body).is_ok() {
                prop_assert_eq!(named, ["\"jsonrpc\":\"2.0\""]);
            }
        }
    }
}

//! Connect: what to tell each client so that it finds this server, ready to be copied.

use maud::{Markup, html};

use crate::http::page::icon;

/// What stands where the token goes.
pub(super) const TOKEN: &str = "<MCP_API_TOKEN>";

/// One client's way.
struct Way {
    client: &'static str,
    hint: Markup,
    /// What is copied.
    text: String,
}

/// All ways to the server at `endpoint`, the first one shown.
pub(super) fn ways(endpoint: &str) -> Markup {
    let ways = [
        claude_code(endpoint),
        claude_api(endpoint),
        n8n(endpoint),
        mcp_json(endpoint),
        curl(endpoint),
    ];
    html! {
        div.ways {
            @for (index, way) in ways.iter().enumerate() {
                // Of those with one name, one at most is open.
                details name="way" open[index == 0] {
                    summary { (way.client) }
                    p.hint { (way.hint) }
                    div.copied {
                        pre tabindex="0" aria-label={ "For " (way.client) } { code { (way.text) } }
                        button.copy type="button" hidden aria-label={ "Copy for " (way.client) } {
                            (icon("M9 9h11v11H9zM5 15H4V4h11v1")) span { "Copy" }
                        }
                    }
                }
            }
        }
    }
}

fn claude_code(endpoint: &str) -> Way {
    Way {
        client: "Claude Code",
        hint: html! { "Once, in a shell. " code { "--scope user" } " adds it to all your projects." },
        text: format!(
            "claude mcp add --transport http code-sandbox {endpoint} \\\n  --header \"Authorization: Bearer {TOKEN}\""
        ),
    }
}

fn claude_api(endpoint: &str) -> Way {
    Way {
        client: "Claude's API",
        hint: html! {
            "Add this to a request for a message, with the header "
            code { "anthropic-beta: mcp-client-2025-11-20" }
            ". The server must be reachable from outside, over https."
        },
        text: format!(
            r#"{{
  "mcp_servers": [
    {{
      "type": "url",
      "name": "code-sandbox",
      "url": "{endpoint}",
      "authorization_token": "{TOKEN}"
    }}
  ],
  "tools": [
    {{
      "type": "mcp_toolset",
      "mcp_server_name": "code-sandbox"
    }}
  ]
}}"#
        ),
    }
}

fn n8n(endpoint: &str) -> Way {
    Way {
        client: "n8n",
        hint: html! {
            "In an " em { "MCP Client Tool" } " node, with this endpoint: transport " em { "HTTP Streamable" }
            ", authentication " em { "Bearer" } ", and the token as credential. The header "
            code { "X-Conversation-Id" } " can name the conversation."
        },
        text: endpoint.to_owned(),
    }
}

fn mcp_json(endpoint: &str) -> Way {
    Way {
        client: "Cursor, mcp.json",
        hint: html! { "In " code { "~/.cursor/mcp.json" } ", or wherever your client keeps such a file." },
        text: format!(
            r#"{{
  "mcpServers": {{
    "code-sandbox": {{
      "url": "{endpoint}",
      "headers": {{
        "Authorization": "Bearer {TOKEN}"
      }}
    }}
  }}
}}"#
        ),
    }
}

fn curl(endpoint: &str) -> Way {
    Way {
        client: "curl",
        hint: html! { "No session, no client: one request, one answer." },
        text: format!(
            r#"curl {endpoint} \
  -H 'Authorization: Bearer {TOKEN}' -H 'Content-Type: application/json' \
  -d '{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"run_code",
       "arguments":{{"language":"python","code":"print(6 * 7)"}}}}}}'"#
        ),
    }
}

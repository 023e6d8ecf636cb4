// Calls run_code as n8n's MCP Client node does: a session for each call, its own arguments besides the model's,
// 60 seconds at most. n8n leaves its sessions open; with "end" as third argument they are ended.
// Usage: n8n.mjs URL TOKEN [end]
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CompatibilityCallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, token, end] = process.argv.slice(2);

const runCode = async (step, code) => {
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers: { Authorization: `Bearer ${token}` } },
  });
  const client = new Client({ name: "n8n-nodes-langchain.mcpClientTool", version: "1.2" }, { capabilities: { tools: {} } });
  await client.connect(transport);
  const session = transport.sessionId;
  await client.listTools();
  const args = {
    conversationId: "n8n chat 17",
    language: "bash",
    code,
    sessionId: "17",
    toolCallId: "call_kJ3v",
    action: "sendMessage",
    chatInput: "How many lines are there?",
  };
  const params = { name: "run_code", arguments: args };
  const result = await client.callTool(params, CompatibilityCallToolResultSchema, { timeout: 60_000 });
  if (end) await transport.terminateSession();
  await client.close();
  console.log(JSON.stringify({ step, session, output: JSON.parse(result.content[0].text).output }));
};

for (let number = 1; number <= 10; number++) {
  await runCode("one after another", `echo ${number} >> calls.txt; wc -l < calls.txt`);
}
await Promise.all([11, 12, 13].map((number) => runCode("at once", `echo ${number} >> calls.txt`)));
await runCode("long", "sleep 5; sort -n calls.txt | tr '\\n' ' '");

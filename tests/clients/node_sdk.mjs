// The official TypeScript SDK, version 1, which most products embed. Usage: node_sdk.mjs URL TOKEN
import { text } from "node:stream/consumers";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token] = process.argv.slice(2);
const tell = (step, facts) => console.log(JSON.stringify({ step, ...facts }));

const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
const client = new Client({ name: "node_sdk", version: "1" });
await client.connect(transport);
tell("connect", { protocol: transport.protocolVersion, server: client.getServerVersion().name });

const { tools } = await client.listTools();
tell("tools", { names: tools.map((tool) => tool.name) });

const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);

const runners = await call("list_runners", {});
tell("runners", { languages: runners.structuredContent.runners.map((runner) => runner.language) });

const content = Buffer.from("name,age\nAlice,30\n").toString("base64");
const upload = await call("upload_file", { conversationId: "tour", filename: "data.csv", content });
tell("upload", { message: upload.structuredContent.message });

const run = await call("run_code", {
  conversationId: "tour",
  language: "bash",
  code: "tail -n 1 data.csv | tee last.csv",
});
tell("run", { result: run.structuredContent, content: run.content.map((block) => block.type) });

const resource = await client.readResource({ uri: run.content[1].uri });
tell("resource", { text: resource.contents[0].text });

const refused = await call("run_code", { language: "cobol", code: "-" });
tell("refusal", { isError: refused.isError, text: refused.content[0].text });

const told = [];
const shown = await call(
  "run_code",
  { language: "bash", code: "echo first; sleep 1.5; echo last" },
  { onprogress: (progress) => told.push(progress) },
);
tell("progress", { told, output: shown.structuredContent.output });

const sleeper = { conversationId: "given up", language: "bash", code: "touch begun; sleep 60" };
await call("run_code", sleeper, { timeout: 3000 }).catch((error) => tell("timeout", { error: error.message }));

// Stays connected, so that it is the time-out that ends the run.
await text(process.stdin);
await transport.terminateSession();
await client.close();
tell("closed");

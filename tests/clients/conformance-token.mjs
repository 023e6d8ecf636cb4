// The conformance suite has no option for a token: preloaded by node --import, this adds MCP_TOKEN to every
// request, whichever of Node's three HTTP clients a check uses.
import { subscribe } from "node:diagnostics_channel";

const bearer = `Bearer ${process.env.MCP_TOKEN}`;
// fetch, and the package undici
subscribe("undici:request:create", ({ request }) => request.addHeader("authorization", bearer));
// node:http
subscribe("http.client.request.created", ({ request }) => request.setHeader("authorization", bearer));

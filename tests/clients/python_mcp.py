"""The official Python SDK. Usage: python_mcp.py MODE URL TOKEN, or python_mcp.py MODE COMMAND... for stdio.

MODE is auto (the newest revision that both sides know) or legacy (initialize, and a session over HTTP).
"""

import asyncio
import base64
import json
import os
import sys
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def tell(step, **facts):
    print(json.dumps({"step": step, **facts}), flush=True)


@asynccontextmanager
async def over_http(url, token):
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            yield streams


def over_stdio(command, *arguments):
    return stdio_client(StdioServerParameters(command=command, args=list(arguments), env=dict(os.environ)))


async def main(mode, *target):
    transport = over_http(*target) if target[0].startswith("http") else over_stdio(*target)
    async with Client(transport, mode=mode) as client:
        tell("connect", protocol=client.protocol_version, server=client.server_info.name)

        tools = await client.list_tools()
        tell("tools", names=[tool.name for tool in tools.tools])

        runners = await client.call_tool("list_runners", {})
        tell("runners", languages=[runner["language"] for runner in runners.structured_content["runners"]])

        content = base64.b64encode(b"name,age\nAlice,30\n").decode()
        upload = await client.call_tool(
            "upload_file", {"conversationId": "tour", "filename": "data.csv", "content": content}
        )
        tell("upload", message=upload.structured_content["message"])

        code = {"conversationId": "tour", "language": "bash", "code": "tail -n 1 data.csv | tee last.csv"}
        run = await client.call_tool("run_code", code)
        tell("run", result=run.structured_content, content=[block.type for block in run.content])

        resource = await client.read_resource(run.content[1].uri)
        tell("resource", text=resource.contents[0].text)

        refused = await client.call_tool("run_code", {"language": "cobol", "code": "-"})
        tell("refusal", isError=refused.is_error, text=refused.content[0].text)

        told = []

        async def on_progress(progress, total, message):
            told.append({"progress": progress, "total": total, "message": message})

        code = {"language": "bash", "code": "echo first; sleep 1.5; echo last"}
        run = await client.call_tool("run_code", code, progress_callback=on_progress)
        tell("progress", told=told, output=run.structured_content["output"])

        code = {"conversationId": "given up", "language": "bash", "code": "touch begun; sleep 60"}
        try:
            await client.call_tool("run_code", code, read_timeout_seconds=3)
        except MCPError as error:
            tell("timeout", error=str(error))

        # Stays connected, so that it is the time-out that ends the run.
        await asyncio.to_thread(sys.stdin.read)
    tell("closed")


asyncio.run(main(*sys.argv[1:]))

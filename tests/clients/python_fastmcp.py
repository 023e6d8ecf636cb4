"""FastMCP's client. Usage: python_fastmcp.py URL TOKEN"""

import asyncio
import base64
import json
import sys

from fastmcp import Client
from fastmcp.exceptions import ToolError
from mcp import MCPError


def tell(step, **facts):
    print(json.dumps({"step": step, **facts}), flush=True)


async def main(url, token):
    async with Client(url, auth=token) as client:
        tell("connect", protocol=client.protocol_version, server=client.server_info.name)

        tools = await client.list_tools()
        tell("tools", names=[tool.name for tool in tools])

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
        tell("resource", text=resource[0].text)

        try:
            await client.call_tool("run_code", {"language": "cobol", "code": "-"})
        except ToolError as error:
            tell("refusal", isError=True, text=str(error))

        told = []

        async def on_progress(progress, total, message):
            told.append({"progress": progress, "total": total, "message": message})

        code = {"language": "bash", "code": "echo first; sleep 1.5; echo last"}
        run = await client.call_tool("run_code", code, progress_handler=on_progress)
        tell("progress", told=told, output=run.structured_content["output"])

        code = {"conversationId": "given up", "language": "bash", "code": "touch begun; sleep 60"}
        try:
            await client.call_tool("run_code", code, timeout=3)
        except MCPError as error:
            tell("timeout", error=str(error))

        # Stays connected, so that it is the time-out that ends the run.
        await asyncio.to_thread(sys.stdin.read)
    tell("closed")


asyncio.run(main(*sys.argv[1:]))

"""The programs compare.py runs. A `reason` explains each way in which the runner differs from plain Bun on purpose."""

import textwrap


class Program:
    def __init__(self, name, source, arguments=(), environment=None, files=None, reason=None, differs=None):
        self.name = name
        self.source = source if isinstance(source, bytes) else textwrap.dedent(source).lstrip("\n").encode()
        self.arguments = list(arguments)
        self.environment = environment or {}
        # Lie in /data before the program starts.
        self.files = files or {}
        self.reason = reason
        # What the runner shows instead, by aspect: stdout, stderr, status, files.
        self.differs = differs or {}


PROGRAMS = [
    Program("hello", "console.log('hello')"),
    Program("empty source", ""),
    Program("types", """
        interface Point { x: number; y?: string }
        enum Color { Red, Green = "g" }
        namespace Space { export const a = 1 }
        abstract class Base<T> { constructor(protected readonly value: T) {} abstract get(): T }
        class Box extends Base<Point> { get() { return this.value satisfies Point } }
        const box = new Box({ x: 1 } as Point)!;
        console.log(box.get(), Color, Space, <any>box)
    """),
    Program("import, require and top-level await in one file", """
        import { join } from "path";
        import * as os from "node:os";
        const fs = require("fs");
        fs.writeFileSync("out.txt", await Promise.resolve("written"));
        console.log(join("a", "b"), typeof os.cpus, fs.readFileSync("/data/out.txt", "utf8"), await Bun.file("out.txt").text());
        using x = { [Symbol.dispose]() { console.log("disposed") } };
        for await (const n of (async function* () { yield 1; yield 2 })()) console.log(n);
    """),
    Program("CommonJS", """
        const path = require("path");
        function main() { console.log("main", path.sep) }
        module.exports = { main };
        console.log(require.main === module, this === exports, typeof arguments, __filename, __dirname, module.id, Object.keys(require.cache));
        if (require.main === module) main();
        undeclared = 1;
        return;
    """),
    Program("import of what CommonJS exports use", "import fs from 'fs';\nmodule.exports = fs.constants;\nconsole.log(1)"),
    Program("where it is", """
        console.log(import.meta.main, import.meta.path, import.meta.dir, import.meta.url, import.meta.file, import.meta.filename);
        console.log(__filename, __dirname, Bun.main, process.cwd(), process.argv, Bun.argv, process.execPath);
        console.log(import.meta.resolve("./helper.ts"), require.resolve("./helper"), Bun.resolveSync("./helper", import.meta.dir));
    """, arguments=["a b", "ü", ""], files={"helper.ts": "export default 1"}),
    Program("files beside it", """
        import { help } from "./helper";
        import data from "./data.json";
        import text from "./text.txt" with { type: "text" };
        const legacy = require("./legacy");
        const { late } = await import("./late.mjs");
        console.log(help("x"), data, text, legacy, late, (await import("alias/thing")).default);
    """, files={
        "helper.ts": "export const help = (x: string): string => x + import.meta.main",
        "data.json": '{"a": [1]}',
        "text.txt": "text",
        "legacy.js": "exports.dir = __dirname; exports.parent = require.main === module",
        "late.mjs": "export const late = import.meta.path",
        "tsconfig.json": '{"compilerOptions": {"paths": {"alias/*": ["./lib/*"]}}}',
        "lib/thing.ts": "export default 'thing'",
    }),
    Program("packages", """
        import pg from "pg";
        import postgres from "postgres";
        import Papa from "papaparse";
        import local from "local";
        const csv = require("csv-parser");
        console.log(typeof pg.Client, typeof postgres, Papa.parse("a,b\\n1,2", { header: true }).data, local, require("added"));
        require("fs").createReadStream("/data/rows.csv").pipe(csv()).on("data", (row: object) => console.log(row));
    """, files={
        "rows.csv": "name,n\nx,1\n",
        "node_modules/local/index.js": "module.exports = 'local'",
        ".packages/typescript/node_modules/added/index.js": "module.exports = 'added'",
    }),
    Program("package that is missing", "import x from 'no-such-package';\nconsole.log(x)"),
    Program("file that is missing", "console.log(1);\nconst x = require('./nope');"),
    Program("environment", """
        import { execSync } from "child_process";
        console.log(process.env.A, Bun.env.B, import.meta.env.A, execSync("echo $A").toString());
        console.log(Object.keys(process.env).filter((name) => !/^(NODE|npm_.*|BUN_.*)$/.test(name)).sort());
    """, environment={"A": "1=2", "B": "ö"}),
    Program("environment that breaks what starts later", "console.log(process.env.LD_PRELOAD, process.env.NODE_OPTIONS)",
            environment={"LD_PRELOAD": "/nowhere.so", "NODE_OPTIONS": "--require /nowhere.js"},
            reason="the loader's complaint is Bun's own, which the runner started before", differs={"stderr": b""}),
    Program("time zone", "console.log(new Date(0).getHours(), process.env.TZ)", environment={"TZ": "Asia/Tokyo"}),
    Program("stdin", """
        console.log(require("fs").readFileSync(0, "utf8") === "", process.stdin.isTTY, await Bun.stdin.text() === "");
        for await (const line of console) console.log("line", line);
        process.stdin.on("data", () => console.log("data")).on("end", () => console.log("end"));
    """),
    Program("prompt", "console.log(prompt('name?'))"),
    # Source text
    Program("syntax error", "const a = 1;\nlet b = a +* 2;\n"),
    Program("CRLF", b"const x = `a\r\nb`;\r\nconsole.log(JSON.stringify(x));\r\nthrow new Error('here')\r\n"),
    Program("byte order mark", b"\xef\xbb\xbfconsole.log('\xc3\xa4')"),
    Program("not UTF-8", b"console.log('\xff'.length)"),
    Program("hashbang", "#!/usr/bin/env bun\nconsole.log('ran')"),
    Program("JSX", "const x = <div/>;"),
    Program("long source", "console.log(`" + "x" * 900_000 + "`.length)"),
    # Uncaught errors
    Program("uncaught error", """
        type Shape = { side: number };

        function area(shape: Shape): number {
          if (shape.side < 0) throw new RangeError("negative side");
          return shape.side ** 2;
        }
        console.log(area({ side: 2 }));
        area({ side: -1 });
    """),
    Program("uncaught error in a timer", "setTimeout(() => { throw new TypeError('late', { cause: new Error('why') }) }, 5);\nsetTimeout(() => console.log('never'), 500)"),
    Program("uncaught error in a module", "import { f } from './helper';\nf();", files={"helper.ts": "type T = 1;\nexport function f(): T { throw new Error('in helper') }"}),
    Program("uncaught non-errors", "setTimeout(() => { throw { code: 1 } });\nthrow undefined"),
    Program("uncaught error after an await", "async function main(): Promise<void> {\n  await Bun.sleep(1);\n  null!.x;\n}\nawait main();"),
    Program("unhandled rejection", "interface A {}\nasync function main() {\n  await 1;\n  throw new Error('rejected');\n}\nmain();\nsetTimeout(() => console.log('never'), 500)"),
    Program("several unhandled rejections", "Promise.reject(new Error('one'));\nPromise.reject('two');\nPromise.reject(null);\nconsole.log('after')"),
    Program("rejection seen by exit listeners", "process.on('exit', (code) => console.log(code));\nPromise.reject(1)",
            reason="Bun tells them 0 and exits with 1", differs={"stdout": b"1\n"}),
    Program("rejection with a listener", "process.on('unhandledRejection', (e: Error) => console.log('seen', e.message));\nPromise.reject(new Error('x'));\nsetTimeout(() => console.log('alive'), 20)"),
    Program("uncaught error with a listener", "process.on('uncaughtException', (e, origin) => console.log('seen', e.message, origin));\nsetTimeout(() => console.log('alive'), 20);\nsetTimeout(() => { throw new Error('x') });"),
    Program("caught errors printed", """
        type A = 1;

        try { JSON.parse("{") } catch (error) { console.error(error) }
        try { throw new AggregateError([new Error("a"), new TypeError("b")], "many") } catch (error) { console.log("got", error) }
        console.log(new Error("stack").stack);
        console.trace("here");
    """),
    Program("errors inside of values printed", "type A = 1;\n\nconsole.log({ error: new Error('inner') }, [new Error('listed')]);\nconsole.log(Bun.inspect(new Error('inspected')))",
            reason="the script is not there to be quoted: Bun quotes what it made of it", differs={"stdout": b"""\
{
  error: 1 | console.log({ error: Error("inner") }, [Error("listed")]);
                             ^
error: inner
      at /data/script.ts:3:26
,
} [
  1 | console.log({ error: Error("inner") }, [Error("listed")]);
                                                    ^
error: listed
      at /data/script.ts:3:49

]
2 | console.log(Bun.inspect(Error("inspected")));
                                ^
error: inspected
      at /data/script.ts:4:29

"""}),
    # Endings
    Program("process.exit", "process.on('exit', (c) => console.log('bye', c));\nsetTimeout(() => {}, 1e6);\nprocess.exit(3)"),
    Program("process.exitCode", "process.exitCode = 300;\nconsole.log('end')"),
    Program("exit code set in an exit listener", "process.on('beforeExit', () => console.log('before'));\nprocess.on('exit', () => { console.log('exit'); process.exitCode = 9 })"),
    Program("error in an exit listener", "process.on('exit', () => { throw new Error('leaving') });\nprocess.on('exit', () => console.log('second'))",
            reason="the script is not there to be quoted: Bun quotes what it made of it", differs={"stderr": b"""\
2 |   throw Error("leaving");
                                                        ^
error: leaving
      at <anonymous> (/data/script.ts:1:53)
"""}),
    Program("process.reallyExit", "process.on('exit', () => console.log('no'));\nprocess.reallyExit(4)"),
    Program("process.abort", "console.log('going');\nprocess.abort()"),
    Program("signal to itself", "console.log('going');\nprocess.kill(process.pid, 'SIGKILL');\nsetTimeout(() => {}, 1e6)"),
    Program("signal handled", "process.on('SIGTERM', () => { console.log('caught'); process.exit(143) });\nprocess.kill(process.pid, 'SIGTERM');\nsetTimeout(() => {}, 1e6)"),
    Program("work left in timers and sockets", """
        import net from "net";
        process.on("beforeExit", () => console.log("before exit"));
        const server = net.createServer((socket) => socket.end("pong")).listen(0, "127.0.0.1", () => {
          net.connect(server.address().port, "127.0.0.1").on("data", (d) => console.log(String(d))).on("close", () => server.close());
        });
        setTimeout(() => console.log("timer"), 500);
        setTimeout(() => {}, 1e6).unref();
    """),
    Program("everything redefined", """
        process.on = process.exit = process.listenerCount = () => { throw 1 };
        JSON.parse = JSON.stringify = Reflect.apply = Array.prototype.some = null;
        globalThis.process = globalThis.Bun = globalThis.Error = undefined;
        console.log = console.error = () => {};
    """),
    Program("standard streams closed", "const fs = require('fs');\nconsole.log('last');\nfor (const fd of [0, 1, 2]) fs.closeSync(fd);"),
    # Output
    Program("100 MB in one write", "process.stdout.write(Buffer.alloc(100_000_000, 'x'))"),
    Program("many lines", "for (let i = 0; i < 200_000; i++) console.log('line', i);\nprocess.exit(0)"),
    Program("writer and console", "const w = Bun.stdout.writer();\nw.write('a\\n'.repeat(1e5));\nawait w.end();\nconsole.log('b')"),
    Program("any bytes", "process.stdout.write(Buffer.from([...Array(256).keys()]))"),
    # Other processes and threads
    Program("children", """
        import { spawn, spawnSync } from "node:child_process";
        console.log(String(spawnSync("sh", ["-c", "cat; echo out; echo err >&2; exit 4"]).output));
        console.log(await new Response(Bun.spawn(["bun", "--version"]).stdout).text(), await Bun.$`ls`.text());
        spawn("sh", ["-c", "echo inherited"], { stdio: "inherit" }).on("exit", (code) => console.log("exit", code));
    """, reason="plain Bun's own script is in /data", differs={"stdout": b",out\n,err\n\n1.4.5\n \ninherited\nexit 0\n"}),
    Program("worker of a file", """
        const worker = new Worker(new URL("./worker.ts", import.meta.url).href);
        worker.onmessage = ({ data }) => { console.log(data); worker.terminate() };
        worker.postMessage(20);
    """, files={"worker.ts": "onmessage = (e: MessageEvent<number>) => postMessage(e.data + 1)"}),
    Program("worker of itself", """
        import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
        if (isMainThread) {
          const worker = new Worker(__filename, { workerData: 20 });
          worker.on("message", (n: number) => console.log("sum", n));
          worker.on("exit", (code) => console.log("exit", code));
        } else parentPort!.postMessage(workerData + 1);
    """),
    Program("web worker of itself", """
        if (Bun.isMainThread) new Worker(import.meta.url).onmessage = (e) => { console.log(e.data); process.exit() };
        else postMessage("from the worker");
    """),
    Program("error in a worker", """
        const worker = new Worker(URL.createObjectURL(new Blob(["throw new Error('in worker')"])));
        worker.onerror = (event) => console.log("seen", event.message.replace(/blob:\\S+/, "blob"));
    """),
    Program("fork of itself", """
        import { fork } from "child_process";
        if (process.argv[2] === "child") process.send!({ hello: process.env.A });
        else fork(__filename, ["child"], { env: { ...process.env, A: "b" } }).on("message", (m) => console.log(m)).on("exit", (c) => console.log(c));
    """),
    # The network, which is off
    Program("fetch", "try { await fetch('http://192.0.2.1/') } catch (error) { console.log(error.name, error.code) }\nawait fetch('https://example.com')"),
    Program("name look-up", "require('dns').lookup('example.com', (error: any) => console.log(error.code))"),
    Program("server on the loopback", "const server = Bun.serve({ port: 0, fetch: () => new Response('served') });\nconsole.log(await (await fetch(server.url)).text());\nserver.stop()"),
]

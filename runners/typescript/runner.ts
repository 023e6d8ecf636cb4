// Waits, loaded, for one request on stdin (protocol 2, see ../README.md) and becomes that program.
// How it ended is told by its parent, supervise.c.
import { closeSync, constants, openSync, readSync, rmSync, writeFileSync, writeSync } from "node:fs";

const SUPERVISOR = 3;
const STDIN = 0;

type Request = { token: string; bytes: number; env: Record<string, string>; args: string[] };

function receive(received: Buffer): { request: Request; source: Buffer } {
  const more = () => {
    const chunk = Buffer.alloc(64 * 1024);
    const length = readSync(STDIN, chunk);
    if (length === 0) process.exit(0); // the caller has gone without a request
    received = Buffer.concat([received, chunk.subarray(0, length)]);
  };
  while (!received.includes("\n")) more();
  const start = received.indexOf("\n") + 1;
  const request: Request = JSON.parse(received.toString("utf8", 0, start));
  while (received.length < start + request.bytes) more();
  return { request, source: received.subarray(start, start + request.bytes) };
}

/** What is on stdin already, without waiting for it. */
function receivedSoFar(): Buffer {
  const chunk = Buffer.alloc(64 * 1024);
  try {
    // Opened anew, so that O_NONBLOCK does not stick to the descriptor the program gets.
    const descriptor = openSync("/proc/self/fd/0", constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      return chunk.subarray(0, readSync(descriptor, chunk));
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return chunk.subarray(0, 0);
  }
}

/** Creates a file, never through a name in use: another run may be doing the same right now. */
function create(name: string, content: Buffer): boolean {
  try {
    writeFileSync(name, content, { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") remove(name); // what there was room for
    return false;
  }
}

function remove(name: string) {
  rmSync(name, { force: true });
}

/**
 * Puts the program into /data, where its relative imports start. It stays only while Bun reads it: a workspace holds
 * nothing that its owner did not make. A workspace that is full or not writable still runs code, from /tmp.
 */
function place(token: string, source: Buffer): string {
  const names = ["/data/[code].ts", `/data/[code-${token.slice(0, 8)}].ts`, "/tmp/[code].ts"];
  const placed = names.find((name) => create(name, source));
  if (!placed) throw new Error("failed to write the program to /data or /tmp");
  return placed;
}

/**
 * Bun reads the file again to quote its lines with an error, and when a worker or a child process runs the same file.
 * So it comes back for these.
 */
function bringBackOnDemand(program: string, source: Buffer) {
  // Captured before the program can redefine them.
  const on = process.on.bind(process);
  const listenerCount = process.listenerCount.bind(process);
  const report = reportError;
  const { isError } = Error;

  const bringBack = () => create(program, source);
  let kept = false;
  let leaving = false;
  const keep = () => {
    if (!leaving && bringBack()) kept = true;
  };
  on("exit", () => {
    leaving = true;
    if (kept) remove(program);
  });

  on("uncaughtExceptionMonitor", keep);
  // There is no such monitor for rejections; reported like this they look and end as they do without a listener.
  on("unhandledRejection", (reason) => {
    if (listenerCount("unhandledRejection") === 1) report(reason);
  });

  const wrap = <F extends Function>(target: F, handler: ProxyHandler<F>) => new Proxy(target, handler);
  for (const level of ["debug", "error", "info", "log", "warn"] as const) {
    console[level] = wrap(console[level], {
      apply(print, self, values) {
        const broughtBack = values.some(isError) && bringBack();
        try {
          return Reflect.apply(print, self, values);
        } finally {
          if (broughtBack) remove(program);
        }
      },
    });
  }

  const names = [program, Bun.pathToFileURL(program).href];
  const isProgram = (name: unknown) => names.includes(name instanceof URL ? name.href : (name as string));
  const starting: ProxyHandler<any> = {
    construct(target, values, newTarget) {
      if (isProgram(values[0])) keep();
      return Reflect.construct(target, values, newTarget);
    },
  };
  globalThis.Worker = wrap(Worker, starting);
  if (source.includes("worker_threads")) {
    const threads = require("node:worker_threads"); // takes 3 ms to load, which few programs need
    threads.Worker = wrap(threads.Worker, starting);
  }
  for (const spawn of ["spawn", "spawnSync"] as const) {
    Bun[spawn] = wrap(Bun[spawn], {
      apply(target, self, values) {
        if ([values[0]?.cmd ?? values[0]].flat().some(isProgram)) keep();
        return Reflect.apply(target, self, values);
      },
    });
  }
}

const early = receivedSoFar();
if (early.length === 0) {
  await import("./warm-up");
  delete require.cache[require.resolve("./warm-up")];
}
const { request, source } = receive(early);

const { user, system } = process.cpuUsage();
writeSync(SUPERVISOR, `${request.token} ${user + system}\n`);
closeSync(SUPERVISOR);
closeSync(STDIN);
openSync("/dev/null", "r"); // takes the lowest free descriptor, so stdin is empty now

delete process.env.BUN_FEATURE_FLAG_DISABLE_ASYNC_TRANSPILER;
Object.assign(process.env, request.env);
process.chdir("/data");
const program = place(request.token, source);
process.argv.splice(1, Infinity, program, ...request.args);
Bun.main = program;
bringBackOnDemand(program, source);

const running = import(program);
remove(program); // import() has read it: the image turns the asynchronous transpiler off
await running;

// What most programs need first, done once while the runner waits: the transpiler, the loader, the formatter.
import { inspect } from "node:util";

type Point = { x: number };
const points: Point[] = [{ x: await 1 }];
Bun.inspect(new Map([["points", points]]));
inspect(points);

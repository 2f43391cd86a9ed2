/**
 * Measures through an agent's socket, in a process of its own.
 *
 * node measure.ts SOCKET round-trips COUNT   the time of each of many small round trips
 * node measure.ts SOCKET bulk SIZE           the time of a response of that many bytes
 *
 * Prints one object of JSON, times in milliseconds.
 */
import { once } from 'node:events';
import { connect } from 'node:net';

const [socket = '', what = '', number = ''] = process.argv.slice(2);
const stream = connect(socket);
await once(stream, 'connect');
let came = Buffer.alloc(0);

/** Reads up to the end of a response; says how many bytes it has. */
async function response(): Promise<number> {
  let size = 0;
  for (;;) {
    const end = came.lastIndexOf('\n');
    if (end === came.length - 1 && end >= 0) {
      const start = came.lastIndexOf('\n', end - 1) + 1;
      const last = came.subarray(start, end).toString('latin1');
      if (/^(?:OK|ERR)(?: |$)/.test(last)) {
        size += came.length;
        came = Buffer.alloc(0);
        return size;
      }
    }
    // Only the last line counts, and what is before it can go.
    const keep = came.subarray(came.lastIndexOf('\n', -2) + 1);
    size += came.length - keep.length;
    const [bytes] = (await once(stream, 'data')) as [Buffer];
    came = Buffer.concat([keep, bytes]);
  }
}

await response();
if (what === 'round-trips') {
  const times: number[] = [];
  for (let left = Number(number); left > 0; left -= 1) {
    const start = performance.now();
    stream.write('NOP\n');
    await response();
    times.push(performance.now() - start);
  }
  times.sort((one, other) => one - other);
  const at = (part: number): number => times[Math.floor(times.length * part)] ?? 0;
  console.log(JSON.stringify({ p50: at(0.5), p90: at(0.9), p99: at(0.99) }));
} else {
  const start = performance.now();
  stream.write(`BULK ${number}\n`);
  const size = await response();
  console.log(JSON.stringify({ size, millis: performance.now() - start }));
}
stream.end('BYE\n');

/**
 * Measures through agents' sockets, in a process of its own.
 *
 * node measure.ts round-trips COUNT SOCKET...   the times of that many small round trips through each
 * node measure.ts bulk SIZE SOCKET KEYGRIP      the time of a response of that many bytes
 *
 * Prints one object of JSON for each socket, times in milliseconds.
 */
import { once } from 'node:events';
import { type Socket, connect } from 'node:net';

import { bulkCommands } from './bulk.ts';

/** The sockets take turns of this many round trips, so that what else goes on meets all alike. */
const TURN = 100;

const [what = '', number = '', ...words] = process.argv.slice(2);

/** A connection to an agent, which has greeted. */
class Client {
  readonly times: number[] = [];
  readonly #stream: Socket;
  #came = Buffer.alloc(0);

  private constructor(stream: Socket) {
    this.#stream = stream;
  }

  static async connect(socket: string): Promise<Client> {
    const stream = connect(socket);
    await once(stream, 'connect');
    const client = new Client(stream);
    await client.#response();
    return client;
  }

  /** Sends a command; gives back the size of the good response, and the time until it was there. */
  async ask(command: string): Promise<{ size: number; millis: number }> {
    const start = performance.now();
    this.#stream.write(`${command}\n`);
    const size = await this.#response();
    return { size, millis: performance.now() - start };
  }

  end(): void {
    this.#stream.end('BYE\n');
  }

  /** Reads up to the end of a response; says how many bytes it has. */
  async #response(): Promise<number> {
    let size = 0;
    for (;;) {
      const came = this.#came;
      const end = came.lastIndexOf('\n');
      if (end === came.length - 1 && end >= 0) {
        const start = came.lastIndexOf('\n', end - 1) + 1;
        const last = came.subarray(start, end).toString('latin1');
        if (last.startsWith('ERR ')) {
          throw new Error(last);
        }
        if (/^OK(?: |$)/.test(last)) {
          this.#came = Buffer.alloc(0);
          return size + came.length;
        }
      }
      // Only the last line counts, and what is before it can go.
      const keep = came.subarray(came.lastIndexOf('\n', -2) + 1);
      size += came.length - keep.length;
      const [bytes] = (await once(this.#stream, 'data')) as [Buffer];
      this.#came = Buffer.concat([keep, bytes]);
    }
  }
}

/** Lets all clients take turns until each has made so many round trips. */
async function roundTrips(clients: readonly Client[], count: number): Promise<void> {
  for (let done = 0; done < count; done += TURN) {
    for (const client of clients) {
      for (let trip = 0; trip < Math.min(TURN, count - done); trip += 1) {
        client.times.push((await client.ask('NOP')).millis);
      }
    }
  }
}

/** The last response of bulk. */
async function bulk(client: Client, keygrip: string, size: number): Promise<unknown> {
  let answer: unknown;
  for (const command of bulkCommands(keygrip, size)) {
    answer = await client.ask(command);
  }
  return answer;
}

const sockets = what === 'bulk' ? words.slice(0, 1) : words;
const clients = await Promise.all(sockets.map((socket) => Client.connect(socket)));
if (what === 'round-trips') {
  // What is needed once doesn't count.
  await roundTrips(clients, Number(number) / 4);
  clients.forEach(({ times }) => times.splice(0));
  await roundTrips(clients, Number(number));
  for (const { times } of clients) {
    times.sort((one, other) => one - other);
    const at = (part: number): number => times[Math.floor(times.length * part)] ?? 0;
    console.log(JSON.stringify({ p50: at(0.5), p90: at(0.9), p99: at(0.99) }));
  }
} else {
  for (const client of clients) {
    console.log(JSON.stringify(await bulk(client, words[1] ?? '', Number(number))));
  }
}
clients.forEach((client) => {
  client.end();
});

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { bulkCommands } from '../../lab/bulk.ts';
import { bridgeIsUp, call, labFolder, measure, ms, Program, runTests, say } from './suite.ts';

const BULK = 16 * 1024 * 1024;

/** What each process may hold more while a bulk passes, in KiB: half of it at most. */
const MOST_GROWTH = 8 * 1024;

/** What memory bulk takes in the real extension host, and whom a client that is stuck holds up. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    /** A key that decrypts. */
    let keygrip = '';
    /** What stands in for gpg-agent. */
    let agent: Program | undefined;

    describe('bulk', () => {
      after(async () => {
        await call('keybridge.stop');
        await agent?.end();
      });

      it('16 MiB of D lines pass, and memory stays bounded', async () => {
        [, keygrip = ''] = await lab.host.keygrips();
        // The real agent keeps its main socket, by which gpg knows that the key is there.
        const socket = await lab.host.extraSocket();
        await rm(socket);
        const words = [path.join(labFolder(), 'stand-in-agent.ts'), socket];
        agent = await Program.start(process.execPath, words, lab.host.env);
        await call('keybridge.stop');
        await bridgeIsUp();
        const through = await lab.target.socket();
        // What is needed once doesn't count.
        await measure('bulk', 1024 * 1024, through, keygrip);
        const passed = await watchMemory(() => measure<Bulk>('bulk', BULK, through, keygrip));
        const [bulk] = passed.result;
        assert.ok(bulk && bulk.size >= BULK, `${bulk?.size ?? 0} bytes`);
        say(`16 MiB in ${ms(bulk.millis)}; ${passed.about}`);
        assert.ok(passed.most <= MOST_GROWTH, passed.about);
      });

      it('a client that takes nothing holds up no other, and nothing piles up', async () => {
        const through = await lab.target.socket();
        const stuck = connect(through);
        await once(stuck, 'readable');
        const passed = await watchMemory(async () => {
          stuck.write(`${bulkCommands(keygrip, 4 * BULK).join('\n')}\n`);
          return measure<Bulk>('bulk', BULK, through, keygrip);
        });
        // More than a greeting and refusals.
        assert.ok(stuck.readableLength > 4096, `${stuck.readableLength} bytes wait to be taken`);
        stuck.destroy();
        const size = passed.result[0]?.size ?? 0;
        assert.ok(size >= BULK, `${size} bytes`);
        say(`with a client that takes nothing: ${passed.about}`);
        assert.ok(passed.most <= MOST_GROWTH, passed.about);
      });
    });
  });
}

interface Bulk {
  readonly size: number;
  readonly millis: number;
}

interface Watched<T> {
  readonly result: T;
  /** What the process that grew most has held more than before, in KiB. */
  readonly most: number;
  readonly about: string;
}

/** Does something, and sees how much more memory the processes hold meanwhile than before. */
async function watchMemory<T>(doIt: () => Promise<T>): Promise<Watched<T>> {
  const before = await memory();
  let live = before.host;
  let timer: NodeJS.Timeout | undefined;
  const look = (): void => {
    const start = performance.now();
    live = Math.max(live, liveMemory());
    // Collecting takes its time, and most of it is to be left for the rest.
    timer = setTimeout(look, 4 * (performance.now() - start));
  };
  look();
  try {
    const result = await doIt();
    const after = await memory();
    const grown = [after.link - before.link, after.helper - before.helper, live - before.host];
    const [link, helper, host] = grown;
    const about = `grown by: keybridge ${link} KiB, keybridge-remote ${helper} KiB, the extension host ${host} KiB`;
    return { result, most: Math.max(...grown), about };
  } finally {
    clearTimeout(timer);
  }
}

/** The most memory that each program has had so far, and what the extension host holds, in KiB. */
async function memory(): Promise<Record<'link' | 'helper' | 'host', number>> {
  const { link, helper } = await programs();
  return { link: await peak(link), helper: await peak(helper), host: liveMemory() };
}

/** The two programs of the bridge, which this extension host has started. */
async function programs(): Promise<Record<'link' | 'helper', number>> {
  const found = { link: 0, helper: 0 };
  for (const pid of await childrenOf(process.pid)) {
    // Others come and go.
    const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    const [, verb] = words.split('\0');
    if (verb === 'link') {
      found.link = pid;
    } else if (verb === 'serve') {
      found.helper = pid;
    }
  }
  assert.ok(found.link > 0 && found.helper > 0, 'both programs run');
  return found;
}

async function childrenOf(pid: number): Promise<number[]> {
  const children: number[] = [];
  for (const task of await readdir(`/proc/${pid}/task`)) {
    const listed = await readFile(`/proc/${pid}/task/${task}/children`, 'utf8').catch(() => '');
    children.push(...listed.trim().split(' ').filter(Boolean).map(Number));
  }
  return children;
}

/** What is held in this process, in KiB; what only waits to be collected is not. */
function liveMemory(): number {
  // The second one ends what the first has left to be done beside it.
  collectGarbage();
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return Math.round((heapUsed + external) / 1024);
}

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

async function peak(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]);
}

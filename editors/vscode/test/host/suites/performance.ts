import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import * as vscode from 'vscode';

import { bulkCommands } from '../../lab/bulk.ts';
import type { Home } from '../../lab/home.ts';
import { goFirst } from '../../lab/priority.ts';
import { good } from '../../lab/run.ts';
import { call, runTests, say, variable } from './suite.ts';

const ROUND_TRIPS = 1000;
const BULK = 16 * 1024 * 1024;

/** A round trip may take at most this many times as long as with the local target, over a mux as here. */
const MOST_TIMES = 3;

/** How many times that may be measured. */
const TRIES = 5;

/** What each process may hold more while a bulk passes, in KiB: half of it at most. */
const MOST_GROWTH = 8 * 1024;

/** How fast the channel is, and what memory it takes, in the real extension host. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    const tests = path.join(variable('KEYBRIDGE_TESTS'), 'lab');
    /** What each socket took. */
    const measure = async <T>(what: string, number: number, ...words: string[]): Promise<T[]> => {
      const all = [path.join(tests, 'measure.ts'), what, String(number), ...words];
      const said = (await good(process.execPath, all)).toString().trim();
      return said.split('\n').map((line) => JSON.parse(line) as T);
    };
    const children: ChildProcess[] = [];
    /** The home of the stand-in for gpg-agent, and a key of it that decrypts. */
    let standIn: Home | undefined;
    let keygrip = '';
    const settings = () => vscode.workspace.getConfiguration('keybridge');
    const { Global } = vscode.ConfigurationTarget;

    /** Starts a program, and waits for the first line that it says. */
    const start = async (
      file: string,
      words: string[],
      env: NodeJS.ProcessEnv,
    ): Promise<string> => {
      const child = spawn(file, words, { env, stdio: ['ignore', 'pipe', 'inherit'] });
      children.push(child);
      const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
      return line;
    };

    /** Starts the bridge, which has to work: gpg's own agent is not to be measured. */
    const ready = async (): Promise<void> => {
      const { state } = await call('keybridge.start');
      assert.equal((state as { name: string }).name, 'ready', JSON.stringify(state));
    };

    describe('performance', () => {
      after(async () => {
        await call('keybridge.stop');
        await settings().update('gnupgHome', lab.host.path, Global);
        for (const child of children) {
          if (child.exitCode === null && child.signalCode === null) {
            const ended = once(child, 'exit');
            child.kill('SIGTERM');
            await ended;
          }
        }
        await standIn?.endAgents();
      });

      it(`${ROUND_TRIPS} round trips take at most ${MOST_TIMES} times those of the local target`, async () => {
        await ready();
        const second = path.join(lab.folder, 'second');
        await mkdir(second, { mode: 0o700 });
        const env = { ...lab.hostEnvironment, KEYBRIDGE_GNUPG_HOME: lab.host.path };
        const program = hostProgram();
        const words = ['up', `local:${second}`, '--no-direct', '--foreground', '--json'];
        const up = await start(program, words, env);
        const local = (JSON.parse(up) as { lanes: { gpg: { socket: string } } }).lanes.gpg.socket;
        const here = await lab.target.socket();
        const { link, helper } = await programs();
        const both = [...children.map(({ pid = 0 }) => pid), link, helper, process.pid];
        const theirs = await Promise.all(both.map(childrenOf));
        const measured = new Set([...both, ...theirs.flat(), await lab.host.agentPid()]);
        await goFirst([...measured]);
        // What else goes on in the machine may weigh on one of both all the same: then once more.
        for (let left = TRIES; ; left -= 1) {
          const found = await measure<Times>('round-trips', ROUND_TRIPS, local, here);
          assert.ok(found[0] && found[1]);
          const times = found[1].p50 / found[0].p50;
          say(`local ${show(found[0])}; channel ${show(found[1])}; p50: ${times.toFixed(2)} times`);
          if (times <= MOST_TIMES) {
            break;
          }
          assert.ok(left > 1, `${times} times`);
        }
      });

      it('16 MiB of D lines pass, and memory stays bounded', async () => {
        standIn = await lab.otherHome('Stand-in <stand-in@keybridge.example>');
        [, keygrip = ''] = await standIn.keygrips();
        // The real agent keeps its main socket, by which gpg knows that the key is there.
        const socket = await standIn.extraSocket();
        await rm(socket);
        await start(process.execPath, [path.join(tests, 'stand-in-agent.ts'), socket], standIn.env);
        await call('keybridge.stop');
        await settings().update('gnupgHome', standIn.path, Global);
        await ready();
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

/** The program that the extension uses. */
function hostProgram(): string {
  const chosen = vscode.workspace.getConfiguration('keybridge').get('program');
  const extension = vscode.extensions.getExtension('keybridge.keybridge-agent');
  const packaged = path.join(extension?.extensionPath ?? '', 'bin/keybridge');
  return typeof chosen === 'string' && chosen ? chosen : packaged;
}

interface Times {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

function show({ p50, p90, p99 }: Times): string {
  return `p50 ${ms(p50)}, p90 ${ms(p90)}, p99 ${ms(p99)}`;
}

function ms(millis: number): string {
  return `${millis.toFixed(3)} ms`;
}

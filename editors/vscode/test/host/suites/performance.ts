import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';

import * as vscode from 'vscode';

import { good } from '../../lab/run.ts';
import { call, runTests, say, variable } from './suite.ts';

const ROUND_TRIPS = 1000;
const BULK = 16 * 1024 * 1024;

/** A round trip may take at most this many times as long as with the local target. */
const MOST_TIMES = 3;

/** What the programs and the extension host may grow by while a bulk passes, in KiB. */
const MOST_GROWTH = { program: 8 * 1024, host: 64 * 1024 };

/** How fast the channel is, and what memory it takes, in the real extension host. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    const tests = path.join(variable('KEYBRIDGE_TESTS'), 'lab');
    const measure = async <T>(socket: string, what: string, number: number): Promise<T> => {
      const words = [path.join(tests, 'measure.ts'), socket, what, String(number)];
      return JSON.parse((await good(process.execPath, words)).toString()) as T;
    };
    const roundTrips = (socket: string) =>
      measure<{ p50: number; p90: number; p99: number }>(socket, 'round-trips', ROUND_TRIPS);
    const children: ChildProcess[] = [];
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
        await settings().update('gnupgHome', lab.host.path, Global);
        for (const child of children) {
          const ended = once(child, 'exit');
          child.kill('SIGTERM');
          await ended;
        }
      });

      it(`${ROUND_TRIPS} round trips take at most ${MOST_TIMES} times those of the local target`, async () => {
        await ready();
        const second = path.join(lab.folder, 'second');
        await mkdir(second, { mode: 0o700 });
        const env = { ...lab.hostEnvironment, KEYBRIDGE_GNUPG_HOME: lab.host.path };
        const program = hostProgram();
        const up = await start(program, ['up', `local:${second}`, '--foreground', '--json'], env);
        const local = (JSON.parse(up) as { lanes: { gpg: { socket: string } } }).lanes.gpg.socket;
        const here = await lab.target.socket();
        // The best of some turns by each way: the machine may be busy with something else.
        const best = { channel: Infinity, local: Infinity };
        for (let turn = 0; turn < 3; turn += 1) {
          const [one, other] = [await roundTrips(local), await roundTrips(here)];
          say(`local ${show(one)}; channel ${show(other)}`);
          best.local = Math.min(best.local, one.p50);
          best.channel = Math.min(best.channel, other.p50);
        }
        const times = best.channel / best.local;
        say(`p50: channel ${ms(best.channel)}, local ${ms(best.local)}: ${times.toFixed(2)} times`);
        assert.ok(times <= MOST_TIMES, `${times} times`);
      });

      it('16 MiB of D lines pass, and memory stays bounded', async () => {
        const home = path.join(lab.folder, 'stand-in');
        await mkdir(home, { mode: 0o700 });
        const env = { ...lab.host.env, GNUPGHOME: home };
        const socket = await good('gpgconf', ['--list-dirs', 'agent-extra-socket'], { env });
        const words = [path.join(tests, 'stand-in-agent.ts'), socket.toString().trim()];
        await start(process.execPath, words, env);
        await call('keybridge.stop');
        await settings().update('gnupgHome', home, Global);
        await ready();
        const through = await lab.target.socket();
        // What is needed once doesn't count.
        await measure(through, 'bulk', 1024 * 1024);
        const before = await memory();
        const { size, millis } = await measure<{ size: number; millis: number }>(
          through,
          'bulk',
          BULK,
        );
        const after = await memory();
        assert.ok(size >= BULK, `${size} bytes`);
        const grown = (name: 'link' | 'helper' | 'host') => after[name] - before[name];
        say(
          `16 MiB in ${ms(millis)}; grown by: keybridge ${grown('link')} KiB, ` +
            `keybridge-remote ${grown('helper')} KiB, the extension host ${grown('host')} KiB`,
        );
        assert.ok(grown('link') <= MOST_GROWTH.program);
        assert.ok(grown('helper') <= MOST_GROWTH.program);
        assert.ok(grown('host') <= MOST_GROWTH.host);
        await call('keybridge.stop');
      });
    });
  });
}

/** The most memory that each process has had so far, in KiB. */
async function memory(): Promise<Record<'link' | 'helper' | 'host', number>> {
  const children: string[] = [];
  for (const task of await readdir('/proc/self/task')) {
    const listed = await readFile(`/proc/self/task/${task}/children`, 'utf8');
    children.push(...listed.trim().split(' ').filter(Boolean));
  }
  const found = { link: 0, helper: 0, host: await peak('self') };
  for (const pid of children) {
    const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
    if (words[1] === 'link') {
      found.link = await peak(pid);
    } else if (words[1] === 'serve') {
      found.helper = await peak(pid);
    }
  }
  assert.ok(found.link > 0 && found.helper > 0, 'both programs run');
  return found;
}

async function peak(pid: string): Promise<number> {
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

function show({ p50, p90, p99 }: { p50: number; p90: number; p99: number }): string {
  return `p50 ${ms(p50)}, p90 ${ms(p90)}, p99 ${ms(p99)}`;
}

function ms(millis: number): string {
  return `${millis.toFixed(3)} ms`;
}

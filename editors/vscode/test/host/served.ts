import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { readFile, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';

import { LOCKED_USER, LockedKey } from '../lab/locked-key.ts';
import { eventually } from '../lab/run.ts';
import type { EditorWindow } from './editor-window.ts';
import type { Stage } from './stage.ts';

/** Settings of somebody who keeps a request extension of another maker. */
export const COMPATIBLE = { 'keybridge.compatibleCommands': true };

/** The first window on a remote, in which the request extension is one of another maker. */
export async function serveAnotherRequest(stage: Stage): Promise<void> {
  const { lab } = stage;
  const locked = await LockedKey.make(lab);
  const socket = await lab.target.socket();
  const done = (): string[] => {
    const file = path.join(lab.folder, 'other-request.log');
    return existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
  };
  const window = await stage.open();
  await window.see('use the keys of this machine?');
  await eventually('it asks for the version', () => done().length > 0);
  assert.deepEqual(done(), ['checking the version'], 'it waits for the person');
  await window.click('Allow');
  await eventually('it listens', () => done().includes('listening'));
  assert.deepEqual(done(), ['checking the version', 'syncing keys', 'listening']);
  assert.deepEqual(await lab.target.fingerprints(), await lab.host.fingerprints());
  await signsAndDecrypts(stage);
  await window.seeStatus('uses the keys through another extension; sessions: 0');
  const complaint = 'keybridge-request is not installed';
  assert.equal(await window.page.getByText(complaint).count(), 0, 'nobody complains');
  await leavesNothing(stage, window, locked);
  await window.close();
  await eventually('the socket is gone', () => !existsSync(socket));
}

async function signsAndDecrypts({ lab }: Stage): Promise<void> {
  const key = await lab.host.fingerprint();
  const sign = async (text: string): Promise<void> => {
    const signed = await lab.target.gpg(['--sign', '--local-user', key], text);
    assert.equal((await lab.target.gpg(['--decrypt'], signed)).toString(), text);
  };
  await sign('a text');
  const seal = ['--trust-model', 'always', '--encrypt', '-r', key];
  const sealed = await lab.target.gpg(seal, 'a secret');
  assert.equal((await lab.target.gpg(['--decrypt'], sealed)).toString(), 'a secret');
  await Promise.all(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map(sign));
}

/** Both who can go at a pinentry: the client, and the pinentry itself. */
async function leavesNothing(stage: Stage, window: EditorWindow, locked: LockedKey): Promise<void> {
  const { lab } = stage;
  const agent = await lab.host.agentPid();
  const open = locked.connections(agent);
  const isAsBefore = () => locked.connections(agent) <= open;
  const words = ['--sign', '--local-user', LOCKED_USER];
  for (const goes of ['client', 'pinentry']) {
    const ending = new AbortController();
    const signing = lab.target.tryGpg(words, 'a text', ending.signal);
    const dialog = await locked.asked();
    await window.seeStatus('sessions: 1');
    if (goes === 'client') {
      ending.abort();
    } else {
      process.kill(dialog, 'SIGKILL');
    }
    assert.notEqual((await signing).code, 0, goes);
    await window.seeStatus('sessions: 0');
    await locked.endDialog();
    await eventually('no connection to the agent is left', isAsBefore);
  }
}

/** Has an installed extension depend on one that isn't there. */
export async function dependOnAnotherAgent(folder: string): Promise<void> {
  const names = await readdir(folder);
  const name = names.find((one) => one.startsWith('keybridge.keybridge-other-request-'));
  const file = path.join(folder, name ?? '', 'package.json');
  const manifest = JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>;
  const dependent = { ...manifest, extensionDependencies: ['keybridge.no-such-agent'] };
  await writeFile(file, JSON.stringify(dependent));
}

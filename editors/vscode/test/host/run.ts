/**
 * Tests the packages in the real extension host.
 *
 * node test/host/run.ts HOST PACKAGES PICTURES [SUITE...]
 *
 * HOST is the folder that code-server is installed in, PACKAGES the one with the packages of the
 * extensions. Without SUITE all tests run; `round-trips` is a measurement, for `scripts/bench`. With
 * KEYBRIDGE_PROGRAMS the programs of that folder are used in the place of those in the packages.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readdir } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';

import { eventually } from '../lab/run.ts';
import { putFarAgent } from './crossing.ts';
import type { EditorWindow } from './editor-window.ts';
import { packaged } from './packaged.ts';
import { COMPATIBLE, dependOnAnotherAgent, serveAnotherRequest } from './served.ts';
import { Stage } from './stage.ts';

const [host, packages, pictures, ...chosen] = process.argv.slice(2);
if (!host || !packages || !pictures) {
  console.error('usage: node test/host/run.ts HOST PACKAGES PICTURES [SUITE...]');
  process.exit(2);
}
await mkdir(pictures, { recursive: true });
const extensions = await platformPackages(packages);
const failures: string[] = [];

await on('one host', ['bridge', 'interface', 'keys', 'git', 'lanes'], {
  set: () => Stage.set(host, extensions),
  first: async (stage) => {
    await part('before consent', () => stage.runSuite('consent'));
    await part('a person consents', () => consent(stage));
  },
});
await on('a stand-in for gpg-agent', ['bulk'], {
  set: () => Stage.set(host, extensions),
  first: (stage) => part('a person consents before it stands in', () => allow(stage)),
});
await on('two hosts', ['crossing'], {
  set: async () => {
    const all = [...extensions, await packaged('relay', 'browser')];
    return Stage.set(host, all, { installed: putFarAgent });
  },
  first: (stage) => part('a person consents there', () => allow(stage)),
});
await on('another agent', ['taken'], {
  set: async () => {
    const all = [...extensions, await packaged('other-agent', 'node')];
    return Stage.set(host, all, { settings: COMPATIBLE });
  },
  first: (stage) => part('a person consents beside it', () => allow(stage)),
});
await on('another request extension', ['served'], {
  set: async () => Stage.set(host, await withOtherRequest(), { settings: COMPATIBLE }),
  first: (stage) => part('the first window', () => serveAnotherRequest(stage)),
});
await on('another request extension that lacks its agent', ['dependent'], {
  set: async () => {
    const setting = { settings: COMPATIBLE, installed: dependOnAnotherAgent };
    return Stage.set(host, await withOtherRequest(), setting);
  },
  first: () => Promise.resolve(),
});
if (chosen.includes('round-trips')) {
  await on('the bench', ['round-trips'], {
    set: () => Stage.set(host, extensions),
    first: (stage) => part('a person consents', () => allow(stage)),
  });
}
if (failures.length > 0) {
  console.log(`failed: ${failures.join(', ')}`);
}
process.exit(failures.length > 0 ? 1 : 0);

/** Runs suites on a stage of their own, those that were chosen. */
async function on(
  name: string,
  suites: readonly string[],
  { set, first }: { set: () => Promise<Stage>; first: (stage: Stage) => Promise<void> },
): Promise<void> {
  const wanted = suites.filter((suite) => chosen.length === 0 || chosen.includes(suite));
  if (wanted.length === 0) {
    return;
  }
  console.log(`== ${name}`);
  const stage = await set();
  try {
    await first(stage);
    for (const suite of wanted) {
      await part(suite, () => stage.runSuite(suite));
    }
  } finally {
    await stage.clear();
  }
}

/** keybridge-agent, and a request extension of another maker in the place of keybridge-request. */
async function withOtherRequest(): Promise<string[]> {
  const agent = extensions.filter((file) => path.basename(file).startsWith('keybridge-agent-'));
  return [...agent, await packaged('other-request', 'node')];
}

/** Does a part of the test, and says how long it took. */
async function part(name: string, doIt: () => Promise<void>): Promise<void> {
  console.log(`-- ${name}`);
  const start = Date.now();
  try {
    await doIt();
    console.log(`-- ${name}: ${Date.now() - start} ms`);
  } catch (error) {
    failures.push(name);
    console.log(`-- ${name}: FAILED after ${Date.now() - start} ms:`, error);
  }
}

/** The question, the palette and the status, as a person meets them; pictures of all three. */
async function consent(stage: Stage): Promise<void> {
  const { lab } = stage;
  const socket = await lab.target.socket();
  const window = await stage.open();
  await window.see('use the keys of this machine?');
  await picture(window, 'consent', '.monaco-dialog-box');
  assert.ok(!existsSync(socket), 'nothing is started before there is an answer');
  await window.click('Allow');
  await window.seeStatus('is bridged');
  await lab.target.gpg(['--sign'], 'a text');
  const commands = await window.palette('keybridge:');
  await picture(window, 'palette', '.quick-input-widget');
  const expected = [
    'Lend New Keys',
    'Show Log',
    'Show Status',
    'Start',
    'Stop',
    'Sync Public Keys',
  ];
  assert.deepEqual(commands.map((command) => command.replace('keybridge: ', '')).sort(), expected);
  await window.page.keyboard.press('Escape');
  const client = connect(socket);
  await window.seeStatus('sessions: 1');
  await window.clickStatus();
  await window.see('Sync Public Keys');
  await picture(window, 'status');
  await window.page.keyboard.press('Escape');
  await window.palette('keybridge: Lend New Keys');
  await window.page.keyboard.press('Enter');
  await window.see('Lend the new keys of this machine to');
  await window.click('Lend Them');
  await window.see('keys: 0 new, 0 updated, 1 unchanged');
  client.destroy();
  // Whoever closes the window has everything stopped.
  await window.close();
  await eventually('the socket is gone', () => !existsSync(socket));
  assert.ok(!lab.target.has('gpg.conf'));
}

async function allow(stage: Stage): Promise<void> {
  const socket = await stage.lab.target.socket();
  const window = await stage.open();
  await window.click('Allow');
  await window.seeStatus('is bridged');
  await window.close();
  await eventually('the socket is gone', () => !existsSync(socket));
}

/** Takes a picture of a part of the window and what is around it, or of all. */
async function picture(window: EditorWindow, name: string, part?: string): Promise<void> {
  const file = path.join(pictures ?? '', `${name}.png`);
  const clip = part ? { clip: await window.around(part) } : {};
  // What comes or goes slowly is as it will be.
  await window.page.screenshot({ path: file, animations: 'disabled', ...clip });
}

/** The packages for this platform. */
async function platformPackages(from: string): Promise<string[]> {
  const names = (await readdir(from)).filter((name) => /-linux-x64-.*\.vsix$/.test(name));
  if (names.length !== 2) {
    throw new Error(`expected two packages for linux-x64 in ${from}, got ${names.length}`);
  }
  return names.map((name) => path.join(from, name));
}

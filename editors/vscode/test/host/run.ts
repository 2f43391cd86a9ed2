/**
 * Tests the packages in the real extension host.
 *
 * node test/host/run.ts HOST PACKAGES PICTURES [SUITE...]
 *
 * HOST is the folder that code-server is installed in, PACKAGES the one with the packages of the
 * extensions. With KEYBRIDGE_PROGRAMS the programs of that folder are used in the place of those in
 * the packages.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';

import { build } from 'esbuild';

import { Lab } from '../lab/lab.ts';
import { eventually } from '../lab/run.ts';
import { Browser } from './browser.ts';
import { Driver } from './driver.ts';
import { EditorWindow } from './editor-window.ts';
import { Server } from './server.ts';

const here = import.meta.dirname;
const [host, packages, pictures, ...chosen] = process.argv.slice(2);
if (!host || !packages || !pictures) {
  console.error('usage: node test/host/run.ts HOST PACKAGES PICTURES [SUITE...]');
  process.exit(2);
}
await mkdir(pictures, { recursive: true });
const suites = chosen.length > 0 ? chosen : ['bridge', 'interface', 'keys', 'performance'];

const lab = await Lab.make();
const folder = path.join(lab.folder, 'ws');
await mkdir(folder);
const driverSocket = path.join(lab.folder, 'driver');
const failures: string[] = [];
const server = await Server.start(lab, host, {
  extensions: await extensions(packages),
  settings: settings(),
  env: {
    KEYBRIDGE_LAB: lab.folder,
    KEYBRIDGE_DRIVER: driverSocket,
    KEYBRIDGE_TESTS: path.join(here, '..'),
  },
});
const browser = await Browser.start(lab.folder);
const driver = new Driver(driverSocket, openWindow);
try {
  await stage('before consent', () => runSuite('consent'));
  await stage('a person consents', consent);
  for (const suite of suites) {
    await stage(suite, () => runSuite(suite));
  }
} finally {
  driver.close();
  await browser.close();
  await server.stop();
  await lab.clear();
}
process.exit(failures.length > 0 ? 1 : 0);

/** Does a part of the test, and says how long it took. */
async function stage(name: string, part: () => Promise<void>): Promise<void> {
  console.log(`-- ${name}`);
  const start = Date.now();
  try {
    await part();
    console.log(`-- ${name}: ${Date.now() - start} ms`);
  } catch (error) {
    failures.push(name);
    console.log(`-- ${name}: FAILED after ${Date.now() - start} ms:`, error);
  }
}

/** The question, the palette and the status bar, as a person meets them; pictures of all three. */
async function consent(): Promise<void> {
  const socket = await lab.target.socket();
  const window = await openWindow();
  await window.see('use the keys of this machine?');
  await picture(window, 'consent');
  assert.ok(!existsSync(socket), 'nothing is started before there is an answer');
  await window.click('Allow');
  await window.seeStatus('is bridged');
  await picture(window, 'status-bar');
  await lab.target.gpg(['--sign'], 'a text');
  const commands = await window.palette('keybridge:');
  await picture(window, 'palette');
  const expected = ['Show Log', 'Show Status', 'Start', 'Stop', 'Sync Public Keys'];
  assert.deepEqual(commands.map((command) => command.replace('keybridge: ', '')).sort(), expected);
  await window.page.keyboard.press('Escape');
  // Whoever closes the window has everything stopped.
  await window.close();
  await eventually('the socket is gone', () => !existsSync(socket));
  assert.ok(!lab.target.has('gpg.conf'));
}

async function picture(window: EditorWindow, name: string): Promise<void> {
  await window.page.screenshot({ path: path.join(pictures ?? '', `${name}.png`) });
}

async function openWindow(): Promise<EditorWindow> {
  return new EditorWindow(await browser.open(server, folder));
}

async function runSuite(suite: string): Promise<void> {
  const bundle = path.join(here, 'dist', `${suite}.cjs`);
  await build({
    entryPoints: [path.join(here, 'suites', `${suite}.ts`)],
    outfile: bundle,
    bundle: true,
    platform: 'node',
    format: 'cjs',
    external: ['vscode', 'mocha'],
    logLevel: 'warning',
  });
  const extension = path.join(here, 'extension');
  const passed = await browser.runSuite(server, folder, { extension, suite: bundle }, (page) => {
    driver.use(page);
  });
  assert.ok(passed, 'a test of the suite failed');
}

function settings(): Record<string, unknown> {
  const programs = process.env['KEYBRIDGE_PROGRAMS'];
  return {
    // In a browser there is no other machine: both run in the one extension host.
    'remote.extensionKind': { 'keybridge.keybridge-agent': ['workspace'] },
    'keybridge.gnupgHome': lab.host.path,
    ...(programs
      ? {
          'keybridge.program': path.join(programs, 'keybridge'),
          'keybridge.remote.program': path.join(programs, 'keybridge-remote'),
        }
      : {}),
  };
}

/** The packages for this platform. */
async function extensions(from: string): Promise<string[]> {
  const names = (await readdir(from)).filter((name) => /-linux-x64-.*\.vsix$/.test(name));
  if (names.length !== 2) {
    throw new Error(`expected two packages for linux-x64 in ${from}, got ${names.length}`);
  }
  return names.map((name) => path.join(from, name));
}

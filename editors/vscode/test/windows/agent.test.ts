/**
 * The agent extension in Node for Windows, with the program of its package. What belongs to the remote is
 * Linux's, behind ports that a relay reaches. `scripts/test --platforms` runs this under Wine, and names the
 * parts in the environment.
 */
import assert from 'node:assert/strict';
import { afterEach, suite, test } from 'node:test';

import { HostProgram } from '../../agent/src/host-program.ts';
import { readSettings } from '../../agent/src/settings.ts';
import { findProgram } from '../../channel/program.ts';
import { Editor } from '../lab/editor.ts';
import { good } from '../lab/run.ts';

const named = (name: string): string => {
  const value = process.env[name];
  if (!value) {
    throw new Error(`${name} isn't set`);
  }
  return value;
};

const relay = named('KEYBRIDGE_RELAY_PROGRAM');
const extensionFolder = named('KEYBRIDGE_EXTENSION');

/** A program in the remote; what it wrote. */
const inRemote = (words: readonly string[], input: Buffer | string = ''): Promise<Buffer> =>
  good(relay, [named('KEYBRIDGE_PROGRAMS_PORT'), ...words], { input });

const keybridge = await findProgram(
  { name: 'keybridge', chosen: undefined, setting: 'keybridge.program', extensionFolder },
  '',
);

void suite('the agent extension on Windows', () => {
  let editor: Editor | undefined;
  const newEditor = (): Editor => {
    const target = { env: { ...process.env, RELAY_PORT: named('KEYBRIDGE_HELPER_PORT') } };
    editor = new Editor(
      { hostEnvironment: process.env, target },
      { host: keybridge, helper: relay },
    );
    return editor;
  };
  afterEach(async () => {
    await editor?.close();
  });

  void test('the program of the package is found, and tells its version', async () => {
    assert.equal(process.platform, 'win32');
    assert.match(keybridge, /\\bin\\keybridge\.exe$/);
    const program = new HostProgram('0.1.0', 'vscode:test+remote', extensionFolder, () =>
      readSettings(() => undefined),
    );
    assert.equal(await program.version(), '0.1.0');
  });

  void test('the command interface reaches the agent', async () => {
    const { window, execute } = newEditor();
    await window.start();
    const call = (name: string, ...values: unknown[]) =>
      execute(`_keybridge-agent.${name}`, ...values) as Promise<Record<string, unknown>>;
    const { sessionId, greeting } = await call('connectAgent');
    assert.match(String(greeting), /^OK Pleased to meet you/);
    const { response } = await call('sendCommands', sessionId, 'GETINFO version\n');
    assert.equal(response, 'D 2.2.40\nOK\n');
    await call('disconnectAgent', sessionId);
    const { armored } = await call('exportPublicKeys');
    assert.match(String(armored), /^-----BEGIN PGP PUBLIC KEY BLOCK-----/);
  });

  void test('gpg in the remote signs', async () => {
    const { window, log } = newEditor();
    await window.begin();
    assert.equal(window.bridge.state.name, 'ready', log.join('\n'));
    const signed = await inRemote(['gpg', '--batch', '--no-tty', '--sign'], 'a text');
    const verified = await inRemote(['gpg', '--batch', '--status-fd=1', '--verify'], signed);
    assert.match(verified.toString(), /^\[GNUPG:\] VALIDSIG /m);
    await window.stop();
    assert.equal(window.bridge.state.name, 'off');
  });
});

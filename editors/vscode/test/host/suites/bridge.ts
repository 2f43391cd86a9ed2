import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';

import * as vscode from 'vscode';

import type { Shown } from '../../../agent/src/window.ts';
import { eventually } from '../../lab/run.ts';
import type { StatusItem } from '../editor-window.ts';
import { call, runTests, wish } from './suite.ts';

/** The whole chain in the real extension host. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    const start = async (): Promise<string> =>
      ((await call('keybridge.start')) as unknown as Shown).state.name;
    const statusItem = async (): Promise<StatusItem> =>
      (await wish({ wish: 'status-item' })) as StatusItem;

    const shows = (words: string) =>
      eventually(`the status bar says ${words}`, async () =>
        (await statusItem()).label.includes(words),
      );

    describe('the bridge of a window', () => {
      it('starts by itself after a yes, at the socket that gpg looks for', async () => {
        const socket = await lab.target.socket();
        await eventually('the socket is there', () => existsSync(socket));
        assert.equal(await start(), 'ready');
        await shows('is bridged');
      });

      it('signs, decrypts and commits', async () => {
        await lab.target.gpg(['--sign'], 'a text');
        const key = await lab.host.fingerprint();
        const seal = ['--trust-model', 'always', '--encrypt', '-r', key];
        const sealed = await lab.target.gpg(seal, 'a secret');
        assert.equal((await lab.target.gpg(['--decrypt'], sealed)).toString(), 'a secret');
        assert.equal(await lab.signedCommit(), 'G');
      });

      it('serves three clients at once', async () => {
        await Promise.all(['a', 'b', 'c'].map((text) => lab.target.gpg(['--sign'], text)));
      });

      it('shows how many sessions are open', async () => {
        const socket = await lab.target.socket();
        const clients = [connect(socket), connect(socket)];
        await eventually('two are shown', async () => (await statusItem()).text.endsWith(' 2'));
        clients.forEach((client) => client.destroy());
        await eventually('none is shown', async () => !/\d$/.test((await statusItem()).text));
      });

      it('is not harmed by a second start', async () => {
        assert.equal(await start(), 'ready');
        await lab.target.gpg(['--sign'], 'still there');
      });

      it('removes the socket when it is stopped, and comes back', async () => {
        const socket = await lab.target.socket();
        await call('keybridge.stop');
        assert.ok(!existsSync(socket));
        await shows('is off');
        assert.equal(await start(), 'ready');
        assert.ok(existsSync(socket));
        await lab.target.gpg(['--sign'], 'again');
      });

      it('says what is wrong, with the fix as a button', async () => {
        const settings = vscode.workspace.getConfiguration('keybridge');
        const { Global } = vscode.ConfigurationTarget;
        await call('keybridge.stop');
        await settings.update('gnupgFolder', '/nonexistent/bin', Global);
        try {
          assert.equal(await start(), 'failed');
          // With the driver of tests switched on the editor shows notifications in their list alone.
          await call('notifications.showList');
          await wish({ wish: 'see', text: '/nonexistent/bin, which the setting' });
          await wish({ wish: 'click', label: 'Open Setting' });
          const about = 'The folder on this machine with the programs of GnuPG';
          await wish({ wish: 'see', text: about });
        } finally {
          await settings.update('gnupgFolder', undefined, Global);
        }
        assert.equal(await start(), 'ready');
      });

      it('is shared by a second window, which takes over and stops when it is closed', async () => {
        const there = async (): Promise<string> =>
          ((await wish({ wish: 'status-item-there' })) as StatusItem).label;
        await wish({ wish: 'open-window' });
        await eventually('it is shared', async () => (await there()).includes('another window'));
        await lab.target.gpg(['--sign'], 'by the first');
        await call('keybridge.stop');
        await eventually('it takes over', async () => (await there()).includes('is bridged;'));
        await lab.target.gpg(['--sign'], 'by the second');
        await wish({ wish: 'close-window' });
        const socket = await lab.target.socket();
        await eventually('the socket is gone', () => !existsSync(socket));
      });
    });
  });
}

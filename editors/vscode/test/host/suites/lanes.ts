import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import path from 'node:path';

import * as vscode from 'vscode';

import type { Shown } from '../../../agent/src/window.ts';
import { sshSignature } from '../../lab/ssh-agent.ts';
import { call, runTests, variable } from './suite.ts';

/** Both lanes in the real extension host, with the real ssh-agent and a home for ssh of its own. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    const { Global } = vscode.ConfigurationTarget;
    const set = async (name: string, value: unknown): Promise<void> => {
      await vscode.workspace.getConfiguration('keybridge').update(name, value, Global);
    };
    let socket = '';

    describe('both lanes', () => {
      it('are lent when the settings say so', async () => {
        const chosen = vscode.workspace.getConfiguration('keybridge.remote').get('program');
        const extension = vscode.extensions.getExtension('keybridge.keybridge-request');
        const packaged = path.join(extension?.extensionPath ?? '', 'bin/keybridge-remote');
        const helper = await lab.inOtherHome(
          typeof chosen === 'string' && chosen ? chosen : packaged,
        );
        socket = path.join(helper.home, '.ssh/agent.sock');
        await call('keybridge.stop');
        await set('lanes', ['gpg', 'ssh']);
        await set('remote.program', helper.file);
        const { state } = (await call('keybridge.start')) as unknown as Shown;
        assert.ok(state.name === 'ready', JSON.stringify(state));
        assert.deepEqual(Object.keys(state.status.lanes).sort(), ['gpg', 'ssh']);
      });

      it('sign at the same time', async () => {
        const key = variable('KEYBRIDGE_SSH_KEY');
        await Promise.all([
          sshSignature(socket, key),
          lab.target.gpg(['--sign'], 'a text'),
          sshSignature(socket, key),
        ]);
      });

      it('are gone when the bridge is stopped', async () => {
        await call('keybridge.stop');
        assert.ok(!existsSync(socket));
        assert.ok(!existsSync(path.join(path.dirname(socket), 'config')));
        assert.ok(!existsSync(await lab.target.socket()));
      });
    });
  });
}

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';

import * as vscode from 'vscode';

import type { StatusItem } from '../editor-window.ts';
import { call, runTests, wish } from './suite.ts';

/** Before anybody has consented. In a window that runs tests the editor shows no question. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    describe('without consent', () => {
      it('both extensions are there, and nothing is started', async () => {
        const agent = vscode.extensions.getExtension('keybridge.keybridge-agent');
        await agent?.activate();
        assert.ok(agent?.isActive);
        assert.ok(vscode.extensions.getExtension('keybridge.keybridge-request'));
        assert.ok(!existsSync(await lab.target.socket()));
        const { label } = (await wish({ wish: 'status-item' })) as StatusItem;
        assert.match(label, /is off/);
      });

      it('every command of the agent refuses', async () => {
        const all = await vscode.commands.getCommands();
        const ours = all.filter((name) => name.startsWith('_keybridge-agent.'));
        assert.equal(ours.length, 8, ours.join(' '));
        for (const name of ours) {
          await assert.rejects(call(name), /refused: nobody has allowed/, name);
        }
        await assert.rejects(call('keybridge.syncPublicKeys', ['all']), /nobody has allowed/);
      });
    });
  });
}

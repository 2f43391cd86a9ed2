import assert from 'node:assert/strict';

import * as vscode from 'vscode';

import { AGENT_COMMANDS } from '../../lab/agent-commands.ts';
import { call, runTests, wish } from './suite.ts';

/** A window in which another extension has compatible names before keybridge-agent comes. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    const theirs = 'keybridge.keybridge-other-agent has the names _gpg-bridge-agent.*';

    describe('names that another extension has', () => {
      it('do not keep ours from being activated, and from serving its own', async () => {
        const agent = vscode.extensions.getExtension('keybridge.keybridge-agent');
        assert.ok(agent);
        await agent.activate();
        const all = await vscode.commands.getCommands();
        for (const name of AGENT_COMMANDS) {
          assert.ok(all.includes(`_keybridge-agent.${name}`), name);
        }
        const { state } = await call('keybridge.start');
        assert.equal((state as { name: string }).name, 'ready');
        const { sessionId } = await call('_keybridge-agent.connectAgent');
        await call('_keybridge-agent.disconnectAgent', sessionId);
        await lab.target.gpg(['--sign'], 'a text');
      });

      it('are left to it, all of them, and the others are ours', async () => {
        const answer: unknown = await call('_gpg-bridge-agent.connectAgent');
        assert.equal(answer, 'the other agent: connectAgent');
        const all = await vscode.commands.getCommands();
        const those = all.filter((name) => name.startsWith('_gpg-bridge-agent.'));
        assert.equal(those.length, 3, those.join(' '));
        const { sessionId } = await call('_gpg-agent-proxy.connectAgent');
        await call('_gpg-agent-proxy.disconnectAgent', sessionId);
      });

      it('are told in the status, with their owner', async () => {
        const shown = call('keybridge.showStatus');
        await wish({ wish: 'see', text: theirs });
        await wish({ wish: 'dismiss' });
        await shown;
      });
    });
  });
}

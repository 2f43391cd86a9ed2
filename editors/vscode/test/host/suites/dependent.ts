import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import path from 'node:path';

import * as vscode from 'vscode';

import { runTests } from './suite.ts';

/** A request extension that depends on the agent of its own maker, which isn't installed. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    it('is not activated by the editor, whatever other agent is there', async () => {
      const request = vscode.extensions.getExtension('keybridge.keybridge-other-request');
      const agent = vscode.extensions.getExtension('keybridge.keybridge-agent');
      assert.ok(request && agent);
      await agent.activate();
      await assert.rejects(Promise.resolve(request.activate()), /keybridge\.no-such-agent/);
      assert.ok(!existsSync(path.join(lab.folder, 'other-request.log')), 'it never ran');
    });
  });
}

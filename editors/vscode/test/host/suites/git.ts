import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';

import * as vscode from 'vscode';

import type { Shown } from '../../../agent/src/window.ts';
import { verifyOnHost } from '../../lab/git-remote.ts';
import { eventually, good } from '../../lab/run.ts';
import { call, runTests, variable } from './suite.ts';

/** What is used of the extension by which the editor runs git. */
interface Git {
  readonly enabled: boolean;
  getAPI(version: 1): { openRepository(root: vscode.Uri): Promise<Repository | null> };
}

interface Repository {
  commit(message: string, options: { readonly empty: boolean }): Promise<void>;
}

/** The editor's own git, whose commits the host reads and signs. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    // The host's and the remote's in one, as the home is.
    const settings = path.join(lab.folder, 'home/.gitconfig');
    const user = '[user]\n\tname = Lab\n\temail = lab@keybridge.example\n';
    const set = async (section: string, name: string, value: unknown): Promise<void> => {
      const { Global } = vscode.ConfigurationTarget;
      await vscode.workspace.getConfiguration(section).update(name, value, Global);
    };

    const commit = async (): Promise<string> => {
      const folder = await mkdtemp(path.join(lab.folder, 'repository-'));
      await good('git', ['init', '--quiet'], { cwd: folder });
      await good('git', ['remote', 'add', 'origin', 'https://git.example/x.git'], { cwd: folder });
      const git = await vscode.extensions.getExtension<Git>('vscode.git')?.activate();
      assert.ok(git);
      await eventually("the editor's git is on", () => git.enabled);
      const repository = await git.getAPI(1).openRepository(vscode.Uri.file(folder));
      await repository?.commit('by the editor', { empty: true });
      return folder;
    };

    describe("the editor's own git", () => {
      before(async () => {
        await set('git', 'enabled', true);
        await set('keybridge', 'lanes', ['git']);
        await set('keybridge', 'git', true);
      });
      after(async () => {
        await set('git', 'enabled', false);
        await set('keybridge', 'lanes', ['gpg']);
        await set('keybridge', 'git', undefined);
      });

      for (const format of ['OpenPGP', 'ssh']) {
        it(`signs with an ${format} key, and no agent is lent`, async () => {
          const key = variable('KEYBRIDGE_SSH_KEY');
          const more = format === 'ssh' ? `\tsigningKey = ${key}\n[gpg]\n\tformat = ssh\n` : '';
          await writeFile(settings, user + more);
          await call('keybridge.stop');
          const { state } = (await call('keybridge.start')) as unknown as Shown;
          assert.ok(state.name === 'ready', JSON.stringify(state));
          assert.deepEqual(Object.keys(state.status.lanes), ['git']);
          await verifyOnHost(lab, await commit(), await readFile(key, 'utf8'));
          await call('keybridge.stop');
          assert.equal(await readFile(settings, 'utf8'), user + more);
          assert.ok(!existsSync(path.join(lab.folder, 'home/.keybridge')));
        });
      }
    });
  });
}

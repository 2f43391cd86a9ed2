import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, suite, test } from 'node:test';

import { type Choices, Editor, Profile } from '../lab/editor.ts';
import { GitRemote, verifyOnHost } from '../lab/git-remote.ts';
import type { Lab } from '../lab/lab.ts';
import { run } from '../lab/run.ts';
import { SshAgent } from '../lab/ssh-agent.ts';
import { useLab } from '../lab/suite.ts';

void suite('git in a remote without GnuPG, whose commits and tags the host reads and signs', () => {
  let lab: Lab;
  let editor: Editor;
  let remote: GitRemote;
  useLab(
    (made) => {
      lab = made;
    },
    () => editor,
  );
  const open = (choices: Choices = {}, hostEnvironment = lab.hostEnvironment): void => {
    const options = ['--lanes=git', '--git'];
    editor = new Editor({ hostEnvironment, target: remote }, { options, ...choices });
  };
  const begin = async (...choices: Parameters<typeof open>): Promise<void> => {
    open(...choices);
    await editor.window.begin();
    assert.equal(editor.state.name, 'ready', editor.log.join('\n'));
  };
  beforeEach(async () => {
    remote = await GitRemote.make(lab);
  });

  const commit = (message: string, ...words: readonly string[]) =>
    remote.git('commit', '--allow-empty', '-m', message, ...words);

  /** What people do, with and without a word about signing. */
  const work = async (): Promise<void> => {
    await commit('one');
    await commit('two', '-S');
    await remote.git('tag', '-s', '-m', 'a tag', 'v1');
    await remote.git('checkout', '-b', 'side', 'HEAD~1');
    await commit('side', '-S');
    await remote.git('checkout', 'main');
    await remote.git('merge', '-S', '--no-ff', '-m', 'merge', 'side');
    for (let number = 1; number <= 30; number++) {
      await commit(`unsigned ${number}`, '--no-gpg-sign');
    }
    const amend = 'git commit --amend --allow-empty --no-edit -S';
    await remote.git('rebase', '--exec', amend, 'HEAD~30');
    assert.equal(await remote.git('rev-list', '--all', '--count'), '34');
  };

  void test('commits, tags, merges and rebases are signed with an OpenPGP key', async () => {
    await begin();
    await work();
    await verifyOnHost(lab, remote.repository);
    assert.deepEqual(Object.keys(statusOf(editor).lanes), ['git']);
  });

  void test('commits, tags, merges and rebases are signed with an ssh key', async () => {
    const agent = await SshAgent.start(lab.folder);
    const settings = path.join(lab.folder, 'home/.gitconfig');
    try {
      await writeFile(
        settings,
        `[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = ${agent.publicKey}\n`,
      );
      await begin({}, { ...lab.hostEnvironment, SSH_AUTH_SOCK: agent.socket });
      await work();
      await verifyOnHost(lab, remote.repository, await readFile(agent.publicKey, 'utf8'));
    } finally {
      await rm(settings);
      await agent.stop();
    }
  });

  void test('a reload asks nobody again, and closing the window leaves nothing', async () => {
    const settings = '[user]\n\tname = Somebody\n';
    await writeFile(remote.at('.gitconfig'), settings);
    const profile = new Profile();
    try {
      for (const [message, asked] of [
        ['before', 1],
        ['after', 0],
      ] as const) {
        await begin({ profile });
        assert.equal(editor.asked, asked);
        await commit(message);
        await editor.close();
        assert.equal(await readFile(remote.at('.gitconfig'), 'utf8'), settings);
        assert.ok(!existsSync(remote.at('.keybridge')));
        const { code, stderr } = await remote.tryGit('commit', '--allow-empty', '-S', '-m', 'x');
        assert.notEqual(code, 0);
        assert.match(stderr, /cannot run gpg/);
      }
      await verifyOnHost(lab, remote.repository);
    } finally {
      profile.clear();
    }
  });

  void test('without consent nothing is set up', async () => {
    open({ answer: 'no' });
    await editor.window.begin();
    assert.ok(!existsSync(remote.at('.gitconfig')));
    assert.ok(!existsSync(remote.at('.keybridge')));
  });

  void test('nothing is signed but commits and tags, with keys that were there at the consent', async () => {
    await begin();
    const key = await lab.host.fingerprint();
    const entry = remote.at('.keybridge/.keybridge-gpg');
    const refused = await run(entry, ['--status-fd=2', '-bsau', key], {
      env: remote.env,
      input: 'a text',
    });
    assert.equal(refused.code, 1);
    assert.equal(refused.stdout.length, 0);
    assert.match(refused.stderr, /^keybridge: refused on the host: /);

    // The command interface, which every extension can call, lends what the gpg lane does.
    const call = async (name: string, ...values: unknown[]) =>
      (await editor.execute(`_keybridge-agent.${name}`, ...values)) as Record<string, unknown>;
    const { sessionId } = await call('connectAgent');
    const [grip = ''] = await lab.host.keygrips();
    const { response } = await call('sendCommands', sessionId, `HAVEKEY ${grip}\n`);
    assert.match(String(response), /^ERR .* No secret key/);

    await lab.host.makeKey('New <new@keybridge.example>');
    const [, added = ''] = await lab.host.fingerprints();
    const words = ['-c', `user.signingKey=${added}`, 'commit', '--allow-empty', '-m', 'new'];
    const { code, stderr } = await remote.tryGit(...words);
    assert.notEqual(code, 0);
    assert.match(stderr, /the host doesn't sign this: .*there is no gpg in this target/);
    assert.equal(await editor.window.lendNewKeys(() => Promise.resolve(true)), true);
    await remote.git(...words);
    await verifyOnHost(lab, remote.repository);
  });
});

function statusOf({ state }: Editor) {
  assert.ok('status' in state && state.status);
  return state.status;
}

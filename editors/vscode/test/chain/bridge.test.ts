import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, suite, test } from 'node:test';

import { Editor } from '../lab/editor.ts';
import { type Lab, programs } from '../lab/lab.ts';
import { eventually } from '../lab/run.ts';
import { SshAgent, sshSignature } from '../lab/ssh-agent.ts';
import { useLab } from '../lab/suite.ts';

void suite('the whole chain, with both extensions in one process and JSON between them', () => {
  let lab: Lab;
  let editor: Editor;
  useLab(
    (made) => {
      lab = made;
    },
    () => editor,
  );
  beforeEach(() => {
    editor = new Editor(lab);
  });

  void test('a signature, a decryption and a signed commit', async () => {
    await editor.window.begin();
    assert.equal(editor.state.name, 'ready', editor.log.join('\n'));
    const socket = await lab.target.socket();
    assert.ok(existsSync(socket));
    await lab.target.gpg(['--sign'], 'a text');
    const key = await lab.host.fingerprint();
    const sealed = await lab.target.gpg(
      ['--trust-model', 'always', '--encrypt', '-r', key],
      'a secret',
    );
    assert.equal((await lab.target.gpg(['--decrypt'], sealed)).toString(), 'a secret');
    assert.equal(await lab.signedCommit(), 'G');
    await editor.window.stop();
    assert.equal(editor.state.name, 'off');
    assert.ok(!existsSync(socket));
    assert.ok(!lab.target.has('gpg.conf'));
    assert.ok(editor.crossed.every(({ size }) => size < 256 * 1024 + 200));
  });

  void test('a second start is harmless, and so is a second stop', async () => {
    await Promise.all([editor.window.start(), editor.window.start()]);
    await editor.window.start();
    assert.equal(editor.window.bridge.sessions.length, 1);
    await Promise.all([editor.window.stop(), editor.window.stop()]);
    await editor.window.start();
    assert.equal(editor.state.name, 'ready');
    await lab.target.gpg(['--sign'], 'again');
  });

  void test('the ssh lane, and both at once', async () => {
    const agent = await SshAgent.start(lab.folder);
    const helper = await lab.inOtherHome(path.join(programs(), 'keybridge-remote'));
    lab.host.env['SSH_AUTH_SOCK'] = agent.socket;
    const both = new Editor(lab, { options: ['--lanes=gpg,ssh'], helper: helper.file });
    try {
      await both.window.start();
      assert.equal(both.state.name, 'ready', both.log.join('\n'));
      // What the helper has in its home is elsewhere for us.
      const socket = path.join(helper.home, '.ssh/agent.sock');
      await Promise.all([
        sshSignature(socket, agent.publicKey),
        lab.target.gpg(['--sign'], 'a text'),
      ]);
      await both.close();
      assert.ok(!existsSync(socket));
    } finally {
      await both.close();
      await agent.stop();
      delete lab.host.env['SSH_AUTH_SOCK'];
    }
  });

  void test('three clients at once', async () => {
    await editor.window.start();
    await Promise.all(['a', 'b', 'c'].map((text) => lab.target.gpg(['--sign'], text)));
    await eventually('the sessions are counted', () => {
      const { state } = editor;
      return state.name === 'ready' && (state.status.lanes.gpg?.total ?? 0) >= 3;
    });
  });
});

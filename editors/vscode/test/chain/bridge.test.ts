import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, beforeEach, afterEach, suite, test } from 'node:test';

import { Editor } from '../lab/editor.ts';
import { Lab } from '../lab/lab.ts';
import { eventually } from '../lab/run.ts';

void suite('the whole chain, with both extensions in one process and JSON between them', () => {
  let lab: Lab;
  let editor: Editor;
  before(async () => {
    lab = await Lab.make();
  });
  after(async () => {
    await lab.clear();
  });
  beforeEach(() => {
    editor = new Editor(lab);
  });
  afterEach(async () => {
    await editor.close();
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

  void test('three clients at once', async () => {
    await editor.window.start();
    await Promise.all(['a', 'b', 'c'].map((text) => lab.target.gpg(['--sign'], text)));
    await eventually('the sessions are counted', () => {
      const { state } = editor;
      return state.name === 'ready' && (state.status.lanes.gpg?.total ?? 0) >= 3;
    });
  });
});

import assert from 'node:assert/strict';
import path from 'node:path';
import { after, afterEach, before, suite, test } from 'node:test';

import { environment, findProgram } from '../../channel/program.ts';
import { type Choices, Editor } from '../lab/editor.ts';
import { Lab, programs } from '../lab/lab.ts';
import { eventually } from '../lab/run.ts';
import { script } from '../lab/script.ts';
import { Noted } from '../lab/stand-in.ts';

void suite('faults', () => {
  let lab: Lab;
  let editors: Editor[] = [];
  before(async () => {
    lab = await Lab.make();
  });
  after(async () => {
    await lab.clear();
  });
  afterEach(async () => {
    await Promise.all(editors.map((editor) => editor.close()));
    editors = [];
  });
  const open = (choices: Choices = {}) => {
    const editor = new Editor(lab, choices);
    editors.push(editor);
    return editor;
  };
  const problem = ({ state }: Editor) => {
    assert.ok(state.name === 'failed', state.name);
    return state.problem;
  };

  for (const part of ['keybridge', 'keybridge-remote'] as const) {
    void test(`${part} that dies is started again, three times in a minute`, async () => {
      const noted = await Noted.make(lab, `noted-${part}`, path.join(programs(), part));
      const editor = open({ [part === 'keybridge' ? 'host' : 'helper']: noted.file });
      await editor.window.start();
      for (let time = 1; time <= 3; time += 1) {
        await noted.kill();
        await eventually('it is started again', async () => (await noted.pids()).length > time);
        await eventually('it works again', () => {
          const { state } = editor;
          const isAgain =
            part === 'keybridge' || ('status' in state && state.status?.reconnects === time);
          return state.name === 'ready' && isAgain;
        });
        await lab.target.gpg(['--sign'], 'again');
      }
      await noted.kill();
      await eventually('it is given up', () => editor.state.name === 'failed');
      assert.match(problem(editor).message, /crashed again and again/);
      assert.equal((await noted.pids()).length, 4);
      assert.ok(!lab.target.has('S.gpg-agent') || part === 'keybridge-remote');
    });
  }

  void test('a program that crashes at once is not started for ever', async () => {
    const editor = open({ host: await script(lab.folder, 'crash', 'kill -SEGV $$') });
    await editor.window.start();
    assert.match(problem(editor).message, /crashed again and again.*SIGSEGV/);
  });

  void test('a helper that crashes at once is not started for ever', async () => {
    const text = `case $1 in --version) echo keybridge-remote 0.1.0;; *) kill -SEGV $$;; esac`;
    const editor = open({ helper: await script(lab.folder, 'crash-there', text) });
    await editor.window.start();
    assert.match(problem(editor).message, /crashed again and again/);
  });

  void test('a program that is missing is named with its setting', async () => {
    const editor = open({ host: '/nonexistent/keybridge' });
    await editor.window.start();
    assert.match(problem(editor).message, /\/nonexistent\/keybridge can't be started/);
    const place = {
      name: 'keybridge',
      chosen: undefined,
      setting: 'keybridge.program',
      extensionFolder: '/nonexistent',
    };
    await assert.rejects(findProgram(place, ''), /keybridge was not found/);
    await assert.rejects(
      findProgram({ ...place, chosen: '/etc/passwd' }, ''),
      /\/etc\/passwd, which the setting keybridge.program names, is not a program/,
    );
    assert.equal(await findProgram({ ...place, name: 'sh' }, '.:relative:/bin'), '/bin/sh');
  });

  void test('a helper that is missing is named', async () => {
    const editor = open({ helper: '/nonexistent/keybridge-remote' });
    await editor.window.start();
    assert.match(problem(editor).message, /\/nonexistent\/keybridge-remote can't be started/);
  });

  void test("a folder of gpg that doesn't exist is named with its setting", async () => {
    await assert.rejects(
      environment('/nonexistent/bin', 'keybridge.gnupgFolder', undefined),
      /\/nonexistent\/bin, which the setting keybridge.gnupgFolder names, is not a folder/,
    );
    const env = await environment('/usr/games', 'x', '/home/gnupg');
    assert.ok(env['PATH']?.startsWith('/usr/games:'));
    assert.equal(env['GNUPGHOME'], '/home/gnupg');
    const editor = open({ remoteFolder: '/nonexistent/there' });
    await editor.window.start();
    assert.match(
      problem(editor).message,
      /the remote says: \/nonexistent\/there, which the setting/,
    );
    const setting = 'keybridge.remote.gnupgFolder';
    assert.deepEqual(problem(editor).fix, { kind: 'open-setting', setting });
  });

  void test('a remote without keybridge-request is told so', async () => {
    const editor = open();
    editor.forget('_keybridge-request');
    await editor.window.start();
    assert.deepEqual(problem(editor).fix, { kind: 'install-request' });
    assert.match(problem(editor).message, /keybridge-request is not installed/);
  });

  void test("a stop doesn't wait for a remote that doesn't answer", async () => {
    const editor = open();
    const called = editor.stall('_keybridge-request.versions');
    const started = editor.window.start();
    await called;
    await editor.window.stop();
    assert.equal((await started).state.name, 'off');
  });

  void test("versions that don't match are named with what to update", async () => {
    const older = open({ versions: { request: '0.0.9' } });
    await older.window.start();
    assert.match(
      problem(older).message,
      /keybridge-agent on this machine is 0.1.0 and keybridge-request in the remote is 0.0.9: update keybridge-request in the remote/,
    );
    assert.deepEqual(problem(older).fix, {
      kind: 'show-extension',
      id: 'keybridge.keybridge-request',
    });
    const newer = open({ versions: { request: '1.0.0' } });
    await newer.window.start();
    assert.match(problem(newer).message, /update keybridge-agent on this machine/);
  });

  void test('a home that is not there is named', async () => {
    const editor = open({ options: ['--lanes=gpg', '--gnupg-home=/nonexistent/home'] });
    await editor.window.start();
    assert.match(problem(editor).message, /the GnuPG home \/nonexistent\/home doesn't exist/);
  });

  void test('a second window shares the bridge, and takes over when the first closes', async () => {
    const [first, second] = [open(), open()];
    await first.window.start();
    await second.window.start();
    assert.deepEqual([first.state.name, second.state.name], ['ready', 'shared']);
    await lab.target.gpg(['--sign'], 'by the first');
    await first.close();
    await eventually('the second takes over', () => second.state.name === 'ready');
    await lab.target.gpg(['--sign'], 'by the second');
  });

  void test('a window that is killed is taken over from', async () => {
    const noted = await Noted.make(lab, 'killed', path.join(programs(), 'keybridge'));
    const [first, second] = [open({ host: noted.file }), open()];
    await first.window.start();
    await second.window.start();
    // Whatever the first does then, it waits for the second.
    await noted.kill();
    await eventually('the second takes over', () => second.state.name === 'ready');
    await eventually('the first shares', () => first.state.name === 'shared');
    await lab.target.gpg(['--sign'], 'by the second');
  });

  void test('a socket that is in use can be taken over with a button', async () => {
    const other = await Lab.make();
    await other.target.makeKey();
    try {
      const editor = new Editor(other);
      await editor.window.start();
      assert.match(problem(editor).message, /is in use/);
      assert.deepEqual(problem(editor).fix, { kind: 'take-over' });
      await editor.window.start(true);
      assert.equal(editor.state.name, 'ready', JSON.stringify(editor.state));
      await editor.close();
    } finally {
      await other.clear();
    }
  });
});

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { suite, test } from 'node:test';

import { JsonRpcProgram } from '../../agent/src/json-rpc.ts';
import { startProgram } from '../../channel/program.ts';
import { Editor, Profile } from '../lab/editor.ts';
import { type Lab, programs } from '../lab/lab.ts';
import { eventually, whileStopped } from '../lab/run.ts';
import { Noted } from '../lab/stand-in.ts';
import { useLab } from '../lab/suite.ts';

void suite('the command interface', () => {
  let lab: Lab;
  let editor: Editor;
  useLab(
    (made) => {
      lab = made;
    },
    () => editor,
  );
  const call = (name: string, ...values: unknown[]) =>
    editor.execute(`_keybridge-agent.${name}`, ...values) as Promise<Record<string, unknown>>;

  void test('sessions are counted, and calls are refused after the end', async () => {
    editor = new Editor(lab);
    await editor.window.start();
    const { sessionId, greeting } = await call('connectAgent');
    assert.match(String(greeting), /^OK Pleased to meet you/);
    const mine = randomUUID();
    assert.equal((await call('connectAgent', mine))['sessionId'], mine);
    await eventually('two are shown', () => editor.window.shown.sessions === 2);
    const { response } = await call('sendCommands', sessionId, 'GETINFO version\n');
    assert.match(String(response), /^D 2\.\d+\.\d+\nOK\n$/);
    await call('disconnectAgent', sessionId);
    await eventually(
      'the right number of sessions is shown',
      () => editor.window.shown.sessions === 1,
    );
    await assert.rejects(call('sendCommands', sessionId, 'NOP'), /unknown session id/);
    await editor.window.stop();
    await eventually(
      'the right number of sessions is shown',
      () => editor.window.shown.sessions === 0,
    );
    await assert.rejects(call('sendCommands', mine, 'NOP'), /refused: keybridge is stopped/);
  });

  void test('wrong values are named and harm no session', async () => {
    editor = new Editor(lab);
    await editor.window.start();
    const { sessionId } = await call('connectAgent');
    const cases: [string, unknown[], RegExp][] = [
      ['connectAgent', ['x'], /malformed session id/],
      ['connectAgent', [7], /expected sessionId, a string/],
      ['connectAgent', [sessionId], /is in use/],
      ['sendCommands', [], /expected sessionId, a string/],
      ['sendCommands', ['x', 'NOP'], /malformed session id/],
      ['sendCommands', [randomUUID(), 'NOP'], /unknown session id/],
      ['sendCommands', [sessionId], /expected block, a string/],
      ['sendCommands', [sessionId, 7], /expected block, a string/],
      ['sendCommands', [sessionId, 'NOP\u0100'], /U\+0100/],
      ['disconnectAgent', [], /expected sessionId, a string/],
      ['disconnectAgent', [randomUUID()], /unknown session id/],
      ['disconnectAgent', ['x'], /malformed session id/],
      ['exportPublicKeys', [7], /expected filter/],
      ['exportPublicKeys', ['nobody@'], /no public key matches nobody@/],
      ['checkVersion', [], /expected version, a string/],
      ['checkVersion', ['one'], /expected a version/],
    ];
    for (const [name, values, expected] of cases) {
      await assert.rejects(call(name, ...values), expected, name);
    }
    assert.deepEqual(await call('sendCommands', sessionId, 'NOP'), { response: 'OK\n' });
  });

  void test('a block that is too large is rejected, and the session goes on', async () => {
    editor = new Editor(lab);
    await editor.window.start();
    const { sessionId } = await call('connectAgent');
    const block = 'x'.repeat(24 * 1024 * 1024);
    await assert.rejects(
      call('sendCommands', sessionId, block),
      /too large: the limit is 25165824/,
    );
    assert.deepEqual(await call('sendCommands', sessionId, 'NOP'), { response: 'OK\n' });
  });

  void test('a program that is killed is started again, three times in a minute', async () => {
    const noted = await Noted.make(lab, 'rpc', path.join(programs(), 'keybridge'));
    editor = new Editor(lab, { host: noted.file });
    await editor.window.start();
    const kill = async (sessionId: unknown): Promise<void> => {
      await noted.kill();
      await eventually('the end is known', () => editor.window.shown.sessions === 0);
      await assert.rejects(call('sendCommands', sessionId, 'NOP'), /unknown session id/);
    };
    // Each rejected call starts it again, and each kill ends that one.
    for (let time = 0; time < 3; time += 1) {
      await kill((await call('connectAgent'))['sessionId']);
    }
    await call('connectAgent');
    await noted.kill();
    await eventually('the end is known', () => editor.window.shown.sessions === 0);
    await assert.rejects(call('connectAgent'), /ended again and again/);
  });

  void test('a key that is new is never lent before a person has said so', async (context) => {
    const noted = await Noted.make(lab, 'rpc', path.join(programs(), 'keybridge'));
    const profile = new Profile();
    context.after(() => {
      profile.clear();
    });
    const open = async (): Promise<void> => {
      editor = new Editor(lab, { host: noted.file, profile });
      await editor.window.begin();
    };
    await open();
    assert.equal(editor.asked, 1);
    await call('connectAgent');
    await lab.host.makeKey('New <new@keybridge.example>');
    const words = ['--list-secret-keys', '--with-keygrip', '--with-colons', 'new@'];
    const listing = (await lab.host.gpg(words)).toString();
    const keygrip = /^grp:+([0-9A-F]{40}):/m.exec(listing)?.[1] ?? '';
    const asked = async (): Promise<unknown> => {
      const { sessionId } = await call('connectAgent');
      return (await call('sendCommands', sessionId, `HAVEKEY ${keygrip}`))['response'];
    };
    const isNotLent = async (): Promise<void> => {
      assert.match(String(await asked()), /^ERR .* No secret key/);
    };
    await noted.kill();
    await eventually('the end is known', () => editor.window.shown.sessions === 0);
    await isNotLent();
    await eventually('the person is told', () =>
      editor.window.shown.notes.some((note) =>
        note.includes("2 new keys of this machine aren't lent"),
      ),
    );
    // As another extension in the remote could have it done.
    await editor.window.stop();
    await editor.window.start();
    await isNotLent();
    // The editor is started again.
    await editor.close();
    await open();
    assert.equal(editor.asked, 0);
    await isNotLent();
    await lab.target.gpg(['--sign'], 'with the key that was there');
    assert.equal(await editor.window.lendNewKeys(() => Promise.resolve(false)), false);
    await isNotLent();
    assert.equal(await editor.window.lendNewKeys(() => Promise.resolve(true)), true);
    assert.equal(await asked(), 'OK\n');
    await eventually('no key is new', () => editor.window.shown.newKeys === 0);
    await editor.window.bridge.sync();
    await lab.target.gpg(['--sign', '-u', 'new@'], 'by the bridge');
  });

  void test('a stop that was wanted is no crash, however often', async () => {
    editor = new Editor(lab);
    for (let time = 0; time < 5; time += 1) {
      await editor.window.start();
      await call('connectAgent');
      await editor.window.stop();
    }
  });

  void test("a program that can't be started says why each time", async () => {
    editor = new Editor(lab, { host: '/nonexistent/keybridge' });
    await editor.window.start();
    for (let time = 0; time < 5; time += 1) {
      await assert.rejects(call('connectAgent'), /\/nonexistent\/keybridge can't be started/);
    }
  });

  void test('a call to a program that has ended is rejected', async () => {
    editor = new Editor(lab);
    const started = await startProgram('/bin/true', [], {});
    const program = new JsonRpcProgram(
      started,
      { received: 1024 },
      () => undefined,
      () => undefined,
    );
    await program.exited;
    await assert.rejects(program.call('sync', {}), /has ended and accepts no more calls/);
  });

  void test('a call that is under way when the program dies is rejected', async () => {
    const noted = await Noted.make(lab, 'rpc2', path.join(programs(), 'keybridge'));
    editor = new Editor(lab, { host: noted.file });
    await editor.window.start();
    const { sessionId } = await call('connectAgent');
    const pid = (await noted.pids()).at(-1) ?? 0;
    await whileStopped(pid, async () => {
      const pending = call('sendCommands', sessionId, 'NOP');
      process.kill(pid, 'SIGKILL');
      await assert.rejects(pending, /keybridge ended with SIGKILL before it answered/);
    });
  });
});

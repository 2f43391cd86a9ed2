import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { suite, test } from 'node:test';

import { COMPATIBLE_PREFIXES } from '../../agent/src/compatible.ts';
import type { Answer } from '../../agent/src/consent.ts';
import { Editor } from '../lab/editor.ts';
import { Lab, programs } from '../lab/lab.ts';
import { LockedKey } from '../lab/locked-key.ts';
import { eventually } from '../lab/run.ts';
import { script } from '../lab/script.ts';
import { useLab } from '../lab/suite.ts';

const ARMOURED = /^-----BEGIN PGP PUBLIC KEY BLOCK-----[^]*-----END PGP PUBLIC KEY BLOCK-----\n$/;
const VERSION = '1.2.3';

for (const prefix of COMPATIBLE_PREFIXES) {
  void suite(`the shapes of ${prefix}`, () => {
    let lab: Lab;
    let editor: Editor;
    useLab(
      (made) => {
        lab = made;
      },
      () => editor,
    );
    const call = (name: string, ...values: unknown[]) =>
      editor.execute(`${prefix}.${name}`, ...values) as Promise<unknown>;
    const connect = async () => (await call('connectAgent')) as Record<string, string>;

    void test('connectAgent gives the id and the greeting, sendCommands the response', async () => {
      editor = new Editor(lab);
      await editor.window.start();
      const connected = await connect();
      assert.deepEqual(Object.keys(connected).sort(), ['greeting', 'sessionId']);
      assert.match(connected['greeting'] ?? '', /^OK Pleased to meet you.*\n$/);
      const { sessionId } = connected;
      assert.deepEqual(await call('sendCommands', sessionId, 'NOP\n'), { response: 'OK\n' });
      // What was not given arrives as null where a call crosses from one host to another.
      assert.ok(await call('connectAgent', null));
      const own = randomUUID();
      assert.equal(((await call('connectAgent', own)) as { sessionId: string }).sessionId, own);
    });

    void test('disconnectAgent of a session that has ended or never was resolves', async () => {
      editor = new Editor(lab);
      await editor.window.start();
      const { sessionId } = await connect();
      assert.equal(await call('disconnectAgent', sessionId), undefined);
      assert.equal(await call('disconnectAgent', sessionId), undefined);
      assert.equal(await call('disconnectAgent', randomUUID()), undefined);
      const second = await connect();
      await call('sendCommands', second['sessionId'], 'BYE\n');
      assert.equal(await call('disconnectAgent', second['sessionId']), undefined);
      await eventually(
        'the right number of sessions is shown',
        () => editor.window.shown.sessions === 0,
      );
    });

    void test('exportPublicKeys gives the text, or nothing', async () => {
      let offered: readonly string[] = [];
      const person: { picks?: string[] } = {};
      editor = new Editor(lab, {
        pick: (keys) => {
          offered = keys;
          return person.picks;
        },
      });
      await editor.window.start();
      const key = await lab.host.fingerprint();
      for (const filter of ['pairs', 'all', key, 'lab@keybridge.example', [key]]) {
        assert.match((await call('exportPublicKeys', filter)) as string, ARMOURED);
      }
      // One that matches nothing is no error here.
      for (const filter of ['nobody@keybridge.example', ['nobody@', '--help']]) {
        assert.equal(await call('exportPublicKeys', filter), undefined);
      }
      assert.deepEqual(offered, []);
      // Without a filter a person is asked, who may not want to.
      for (const none of [[], [null]]) {
        assert.equal(await call('exportPublicKeys', ...none), undefined);
        assert.deepEqual(offered, [key]);
      }
      person.picks = [key];
      assert.match((await call('exportPublicKeys')) as string, ARMOURED);
    });

    void test('exportPublicKeys gives nothing where there are no keys, and asks nobody', async () => {
      const empty = await Lab.make({ withKey: false });
      try {
        editor = new Editor(empty, {
          pick: () => {
            throw new Error('there is nothing to pick from');
          },
        });
        await editor.window.start();
        for (const filter of [undefined, 'pairs', 'all']) {
          assert.equal(await call('exportPublicKeys', filter), undefined);
        }
        await editor.close();
      } finally {
        await empty.clear();
      }
    });

    void test('checkVersion waits for the person who is asked, and never rejects', async () => {
      let answer: (answer: Answer) => void = () => undefined;
      const asked = new Promise<Answer>((resolve) => {
        answer = resolve;
      });
      editor = new Editor(lab, { answer: asked });
      const begun = editor.window.begin();
      let checked: unknown;
      const checking = call('checkVersion', VERSION).then(async (result) => {
        checked = result;
        // From here on the agent can be used.
        return connect();
      });
      // A call that needs consent comes and goes meanwhile.
      await assert.rejects(connect(), /refused: nobody has allowed/);
      assert.equal(checked, undefined);
      answer('yes');
      await checking;
      assert.deepEqual(checked, { match: true });
      await begun;
      for (const bad of [undefined, null, 7, {}, '', 'one', '1.2']) {
        const result = (await call('checkVersion', bad)) as Record<string, unknown>;
        assert.deepEqual(
          { ...result, requestVersion: typeof result['requestVersion'] },
          { match: false, agentVersion: '0.1.0', requestVersion: 'string' },
        );
      }
      const long = (await call('checkVersion', `\u202e${'x'.repeat(9999)}`)) as Record<
        string,
        string
      >;
      assert.match(long['requestVersion'] ?? '', /^\\u\{202e\}x{99}$/);
    });

    void test('after a no the version is answered, and every other call says why not', async () => {
      editor = new Editor(lab, { answer: 'no' });
      await editor.window.begin();
      assert.deepEqual(await call('checkVersion', VERSION), { match: true });
      const refuseAll = async (expected: RegExp): Promise<void> => {
        const session = randomUUID();
        await assert.rejects(connect(), expected);
        await assert.rejects(call('sendCommands', session, 'NOP'), expected);
        await assert.rejects(call('disconnectAgent', session), expected);
        await assert.rejects(call('exportPublicKeys', 'pairs'), expected);
      };
      await refuseAll(/refused: nobody has allowed/);
      assert.equal(editor.state.name, 'off');
      // The same for a window that was closed, with a session open.
      editor = new Editor(lab);
      await editor.window.start();
      await connect();
      await editor.close();
      await refuseAll(/refused: keybridge is stopped in this window/);
      assert.deepEqual(await call('checkVersion', VERSION), { match: true });
    });

    void test('wrong values are named and harm no session', async () => {
      editor = new Editor(lab);
      await editor.window.start();
      const { sessionId } = await connect();
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
        ['disconnectAgent', ['x'], /malformed session id/],
        ['exportPublicKeys', [7], /expected filter/],
      ];
      for (const [name, values, expected] of cases) {
        await assert.rejects(call(name, ...values), expected, name);
      }
      assert.deepEqual(await call('sendCommands', sessionId, 'NOP'), { response: 'OK\n' });
      // The bridge's own check of the chain may still be shown.
      await eventually('one session is shown', () => editor.window.shown.sessions === 1);
    });
  });
}

void suite('a remote that another extension serves', () => {
  let lab: Lab;
  let editor: Editor;
  useLab(
    (made) => {
      lab = made;
    },
    () => editor,
  );
  const call = (name: string, ...values: unknown[]) =>
    editor.execute(`_gpg-bridge-agent.${name}`, ...values) as Promise<Record<string, string>>;

  void test('is shown as served, until the window is stopped', async () => {
    editor = new Editor(lab);
    editor.forget('_keybridge-request');
    const { state } = await editor.window.start();
    assert.ok(state.name === 'failed' && state.problem.fix.kind === 'install-request');
    await call('checkVersion', VERSION);
    assert.equal(editor.window.shown.state.name, 'served');
    await call('connectAgent');
    await eventually(
      'the right number of sessions is shown',
      () => editor.window.shown.sessions === 1,
    );
    await editor.window.stop();
    assert.equal(editor.window.shown.state.name, 'off');
    // What else is wrong is still told.
    assert.equal((await editor.window.start()).state.name, 'failed');
  });

  void test('keeps neither a session nor a program when its window closes at a pinentry', async () => {
    const locked = await LockedKey.make(lab);
    // A program that is killed leaves no note.
    const [real, ended] = [path.join(programs(), 'keybridge'), path.join(lab.folder, 'rpc-ended')];
    const text = `case $1 in rpc) ;; *) exec ${real} "$@";; esac\n${real} "$@"\necho $? >${ended}`;
    editor = new Editor(lab, { host: await script(lab.folder, 'noting-rpc', text) });
    await editor.window.start();
    const { sessionId } = await call('connectAgent');
    for (const block of locked.steps) {
      assert.equal((await call('sendCommands', sessionId, block))['response'], 'OK\n');
    }
    const signing = assert.rejects(
      call('sendCommands', sessionId, 'PKSIGN'),
      /the caller ended it/,
    );
    await locked.asked();
    await editor.close();
    assert.equal(existsSync(ended) && readFileSync(ended, 'utf8'), '0\n', 'nobody was killed');
    await signing;
    await locked.endDialog();
  });

  void test('disconnectAgent ends a session that waits at a pinentry, by either name', async () => {
    const locked = await LockedKey.make(lab);
    editor = new Editor(lab);
    await editor.window.start();
    const agent = await lab.host.agentPid();
    for (const prefix of ['_keybridge-agent', ...COMPATIBLE_PREFIXES]) {
      const open = locked.connections(agent);
      const named = (name: string, ...values: unknown[]) =>
        editor.execute(`${prefix}.${name}`, ...values) as Promise<Record<string, string>>;
      const { sessionId } = await named('connectAgent');
      for (const block of locked.steps) {
        await named('sendCommands', sessionId, block);
      }
      const signing = assert.rejects(named('sendCommands', sessionId, 'PKSIGN'), /has ended/);
      await locked.asked();
      await named('disconnectAgent', sessionId);
      await signing;
      await eventually(
        'the right number of sessions is shown',
        () => editor.window.shown.sessions === 0,
      );
      await locked.endDialog();
      await eventually('the connection is closed', () => locked.connections(agent) <= open);
    }
  });
});

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { suite, test } from 'node:test';

import { MAX_TEXT } from '../../channel/chunk.ts';
import { AGENT_COMMANDS } from '../lab/agent-commands.ts';
import { Editor } from '../lab/editor.ts';
import type { Lab } from '../lab/lab.ts';
import { useLab } from '../lab/suite.ts';

void suite('bad input', () => {
  let lab: Lab;
  let editor: Editor;
  useLab(
    (made) => {
      lab = made;
    },
    () => editor,
  );

  const refusesAll = async (): Promise<void> => {
    assert.equal(editor.state.name, 'off');
    for (const name of AGENT_COMMANDS) {
      await assert.rejects(
        editor.execute(`_keybridge-agent.${name}`) as Promise<unknown>,
        /refused: nobody has allowed/,
        name,
      );
    }
  };

  void test('every command of the agent refuses without consent', async () => {
    editor = new Editor(lab, { answer: 'no' });
    await editor.window.begin();
    await refusesAll();
  });

  void test('consent that was given and forgotten is none', async () => {
    editor = new Editor(lab);
    await editor.window.begin();
    await editor.execute('_keybridge-agent.checkVersion', '0.1.0');
    await editor.window.forget();
    await refusesAll();
  });

  void test('calls before the start and after the stop are refused', async () => {
    editor = new Editor(lab);
    await editor.window.consent.ask();
    const tryAll = async (): Promise<void> => {
      const session = randomUUID();
      const carry = { session, sequence: 0, data: 'AAAA' };
      const cases: [string, unknown[], RegExp][] = [
        ['_keybridge-agent.carry', [carry], /unknown session id/],
        ['_keybridge-agent.complain', [carry], /unknown session id/],
        ['_keybridge-agent.helperEnded', [session, {}], /unknown session id/],
        ['_keybridge-agent.connectAgent', [], /refused: keybridge is stopped/],
        ['_keybridge-request.carry', [carry], /unknown session id/],
        ['_keybridge-request.endInput', [session], /unknown session id/],
      ];
      for (const [command, values, expected] of cases) {
        const called = editor.execute(command, ...values) as Promise<unknown>;
        await assert.rejects(called, expected, command);
      }
    };
    await tryAll();
    await editor.window.start();
    assert.equal(editor.state.name, 'ready');
    await editor.window.stop();
    await tryAll();
    await assert.rejects(editor.window.bridge.sync(), /not on in this window/);
  });

  void test('chunks out of order, doubled or too large are refused, and the bridge goes on', async () => {
    editor = new Editor(lab);
    const { execute } = editor;
    await editor.window.start();
    const [session] = editor.window.bridge.sessions;
    assert.equal(editor.window.bridge.sessions.length, 1);
    const call = (side: string, sequence: number, data: string) =>
      execute(`_keybridge-${side}.carry`, { session, sequence, data }) as Promise<unknown>;
    for (const side of ['agent', 'request']) {
      await assert.rejects(call(side, 0, 'AAAA'), /chunk 0 came twice/);
      await assert.rejects(call(side, 9999, 'AAAA'), /chunk 9999 is out of order/);
      await assert.rejects(call(side, 5, 'A'.repeat(MAX_TEXT + 4)), /too large/);
      await assert.rejects(call(side, 5, '<>'), /as base64/);
      await assert.rejects(execute(`_keybridge-${side}.carry`) as Promise<unknown>, /malformed/);
    }
    const open = (...values: unknown[]) =>
      execute('_keybridge-request.open', ...values) as Promise<unknown>;
    await assert.rejects(open('x', ['serve']), /malformed session id/);
    await assert.rejects(open(randomUUID(), ['remove']), /expected arguments for keybridge-remote/);
    await assert.rejects(
      open(randomUUID(), ['serve', 7]),
      /expected arguments for keybridge-remote/,
    );
    await assert.rejects(open(session, ['serve']), /is in use/);
    assert.equal(editor.state.name, 'ready');
    await lab.target.gpg(['--sign'], 'still there');
  });
});

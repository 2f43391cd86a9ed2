import assert from 'node:assert/strict';
import { after, suite, test } from 'node:test';

import { AGENT_COMMANDS } from '../lab/agent-commands.ts';
import { StandInEditor, type Told, nothingTold } from '../lab/stand-in-editor.ts';

void suite('compatible names that somebody else has', () => {
  const editor = new StandInEditor();
  after(() => {
    editor.clear();
  });

  /** Activates our extension beside others; gives what came of it. */
  const activate = async (given: Partial<Told>): Promise<Told> => {
    const told = { ...nothingTold(), settings: { compatibleCommands: true }, ...given };
    const extension = editor.activate(told);
    await told.commands.get('keybridge.showStatus')?.();
    await extension.deactivate();
    return told;
  };
  const namesOf = ({ commands }: Told, prefix: string) =>
    [...commands.keys()].filter((name) => name.startsWith(`${prefix}.`)).length;
  const other = (name: string, ...activationEvents: string[]) => ({
    id: `somebody.${name}`,
    packageJSON: { name, activationEvents },
  });

  const cases: [string, Partial<Told>, string][] = [
    [
      'that are registered are left to their owner',
      {
        commands: new Map([['_gpg-bridge-agent.sendCommands', () => undefined]]),
        others: [other('agent', 'onCommand:_gpg-bridge-agent.connectAgent')],
      },
      "somebody.agent has the names _gpg-bridge-agent.*: command '_gpg-bridge-agent.sendCommands' already exists",
    ],
    [
      'are left to an owner that nobody knows',
      { commands: new Map([['_gpg-bridge-agent.checkVersion', () => undefined]]) },
      "another extension has the names _gpg-bridge-agent.*: command '_gpg-bridge-agent.checkVersion' already exists",
    ],
    [
      'are left to an agent that will come later',
      { others: [other('gpg-bridge-agent', 'onStartupFinished')] },
      'somebody.gpg-bridge-agent is installed, and has the names _gpg-bridge-agent.*',
    ],
  ];
  for (const [title, given, note] of cases) {
    void test(title, async () => {
      const before = given.commands?.size ?? 0;
      const told = await activate(given);
      assert.equal(namesOf(told, '_keybridge-agent'), AGENT_COMMANDS.length);
      assert.equal(namesOf(told, '_gpg-agent-proxy'), 5);
      assert.equal(namesOf(told, '_gpg-bridge-agent'), before, 'none of ours is left there');
      assert.ok(told.log.includes(note), told.log.join('\n'));
      assert.ok(
        told.rows.some((row) => row.endsWith(note)),
        told.rows.join('\n'),
      );
    });
  }

  void test('are ours where nobody else has them', async () => {
    const told = await activate({});
    assert.equal(namesOf(told, '_gpg-bridge-agent'), 5);
    assert.equal(namesOf(told, '_gpg-agent-proxy'), 5);
    assert.deepEqual(told.log, []);
  });
});

import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, suite, test } from 'node:test';

import { AGENT_COMMANDS } from '../lab/agent-commands.ts';

interface Extension {
  activate(context: unknown): void;
  deactivate(): Promise<void>;
}

/** What the stand-in for the editor is told, and tells. */
interface Told {
  /** Commands that somebody else has, and all that are registered. */
  readonly commands: Map<string, (...values: unknown[]) => unknown>;
  /** Other extensions. */
  readonly others: readonly { readonly id: string; readonly packageJSON: unknown }[];
  readonly log: string[];
  /** The texts of the list that was shown last. */
  readonly rows: string[];
}

/** Stands in for the editor's own module in a window with a remote, where its log can be read. */
const REMOTE_WINDOW = `
const told = globalThis.keybridgeTold;
class Disposable {
  constructor(end) { this.dispose = end; }
  static from(...all) { return new Disposable(() => all.forEach((one) => one.dispose())); }
}
module.exports = {
  Disposable,
  env: { remoteName: 'ssh-remote' },
  extensions: { all: told.others },
  ExtensionKind: { UI: 1, Workspace: 2 },
  StatusBarAlignment: { Left: 1 },
  QuickPickItemKind: { Separator: -1 },
  workspace: {
    workspaceFolders: [{ uri: { scheme: 'vscode-remote', authority: 'ssh-remote+box' } }],
    getConfiguration: () => ({ get: (name) => name === 'compatibleCommands' || undefined }),
    onDidChangeConfiguration: () => new Disposable(() => undefined),
  },
  window: {
    createOutputChannel: () => ({ appendLine: (line) => told.log.push(line), dispose: () => undefined }),
    createStatusBarItem: () => ({ show: () => undefined, dispose: () => undefined }),
    showInformationMessage: async () => undefined,
    showQuickPick: async (rows) => {
      told.rows.splice(0, Infinity, ...rows.map(({ label, detail }) => label + ' ' + (detail ?? '')));
    },
  },
  commands: {
    registerCommand: (name, handler) => {
      if (told.commands.has(name)) throw new Error("command '" + name + "' already exists");
      told.commands.set(name, handler);
      return new Disposable(() => told.commands.delete(name));
    },
  },
};
`;

void suite('compatible names that somebody else has', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'kbv'));
  const bundle = path.join(folder, 'agent.cjs');
  const editor = path.join(folder, 'node_modules/vscode');
  before(() => {
    mkdirSync(editor, { recursive: true });
    writeFileSync(path.join(editor, 'index.js'), REMOTE_WINDOW);
    copyFileSync(path.join(import.meta.dirname, '../../agent/dist/extension.cjs'), bundle);
  });
  after(() => {
    rmSync(folder, { recursive: true });
  });

  /** Activates our extension beside others; gives what came of it. */
  const activate = async (told: Told): Promise<Told> => {
    Object.assign(globalThis, { keybridgeTold: told });
    const require = createRequire(import.meta.url);
    for (const file of Object.keys(require.cache).filter((one) => one.startsWith(folder))) {
      Reflect.deleteProperty(require.cache, file);
    }
    const extension = require(bundle) as Extension;
    extension.activate({
      extension: { extensionKind: 1, packageJSON: { version: '0.1.0' } },
      extensionPath: folder,
      globalState: { get: () => undefined, update: () => Promise.resolve() },
      subscriptions: [],
    });
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
      const told = await activate({ commands: new Map(), others: [], log: [], rows: [], ...given });
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
    const told = await activate({ commands: new Map(), others: [], log: [], rows: [] });
    assert.equal(namesOf(told, '_gpg-bridge-agent'), 5);
    assert.equal(namesOf(told, '_gpg-agent-proxy'), 5);
    assert.deepEqual(told.log, []);
  });
});

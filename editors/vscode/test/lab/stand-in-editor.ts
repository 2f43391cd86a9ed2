import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';

export interface Extension {
  activate(context: unknown): void;
  deactivate(): Promise<void>;
}

/** What the stand-in for the editor is told, and tells. */
export interface Told {
  /** Commands that somebody else has, and all that are registered. */
  readonly commands: Map<string, (...values: unknown[]) => unknown>;
  /** Other extensions. */
  readonly others: readonly { readonly id: string; readonly packageJSON: unknown }[];
  readonly log: string[];
  /** The texts of the list that was shown last. */
  readonly rows: string[];
  /** The questions that were asked, and which of them were modal. */
  readonly asked: { readonly text: string; readonly isModal: boolean }[];
  /** The errors that were shown. */
  readonly errors: string[];
  /** The button that the person presses. */
  answer?: string;
  readonly settings: Readonly<Record<string, unknown>>;
  /** What the editor keeps across windows. */
  readonly memory: Map<string, unknown>;
}

/** One that has nothing yet. */
export function nothingTold(): Told {
  return {
    commands: new Map(),
    others: [],
    log: [],
    rows: [],
    asked: [],
    errors: [],
    settings: {},
    memory: new Map(),
  };
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
  ThemeColor: class {},
  StatusBarAlignment: { Left: 1 },
  QuickPickItemKind: { Separator: -1 },
  workspace: {
    workspaceFolders: [{ uri: { scheme: 'vscode-remote', authority: 'ssh-remote+box' } }],
    getConfiguration: () => ({ get: (name) => told.settings[name] }),
    onDidChangeConfiguration: () => new Disposable(() => undefined),
  },
  window: {
    createOutputChannel: () => ({ appendLine: (line) => told.log.push(line), dispose: () => undefined }),
    createStatusBarItem: () => ({ show: () => undefined, dispose: () => undefined }),
    showInformationMessage: async (text, options) => {
      told.asked.push({ text, isModal: options?.modal === true });
      return told.answer;
    },
    showErrorMessage: async (text) => void told.errors.push(text),
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

/** The agent extension as it is packaged, in a window of an editor that a test stands in for. */
export class StandInEditor {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'kbv'));
  /** What it keeps in files. */
  readonly storage = path.join(this.folder, 'storage');
  readonly #bundle = path.join(this.folder, 'agent.cjs');

  constructor() {
    const editor = path.join(this.folder, 'node_modules/vscode');
    mkdirSync(editor, { recursive: true });
    writeFileSync(path.join(editor, 'index.js'), REMOTE_WINDOW);
    copyFileSync(path.join(import.meta.dirname, '../../agent/dist/extension.cjs'), this.#bundle);
  }

  /** Activates the extension in a new window, which the caller deactivates. */
  activate(told: Told): Extension {
    Object.assign(globalThis, { keybridgeTold: told });
    const require = createRequire(import.meta.url);
    for (const file of Object.keys(require.cache).filter((one) => one.startsWith(this.folder))) {
      Reflect.deleteProperty(require.cache, file);
    }
    const extension = require(this.#bundle) as Extension;
    extension.activate({
      extension: { extensionKind: 1, packageJSON: { version: '0.1.0' } },
      extensionPath: this.folder,
      globalState: {
        get: (key: string) => told.memory.get(key),
        update: (key: string, value: unknown) => Promise.resolve(told.memory.set(key, value)),
      },
      globalStorageUri: { fsPath: this.storage },
      subscriptions: [],
    });
    return extension;
  }

  clear(): void {
    rmSync(this.folder, { recursive: true });
  }
}

import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, suite, test } from 'node:test';

interface Extension {
  activate(context: unknown): void;
  deactivate(): Promise<void>;
}

/** The editor's own module, in a window that has no remote: whatever else is asked of it fails. */
const LOCAL_WINDOW = `
const env = { remoteName: undefined };
const only = (name, values) => new Proxy(values, {
  get: (_, key) => {
    if (key in values) return values[key];
    throw new Error('a local window is asked for ' + name + String(key));
  },
});
module.exports = only('', {
  env: only('env.', env),
  workspace: only('workspace.', { workspaceFile: undefined, workspaceFolders: undefined }),
  ExtensionKind: { UI: 1, Workspace: 2 },
});
`;

void suite('in a local window', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'kbv'));
  before(() => {
    const editor = path.join(folder, 'node_modules/vscode');
    mkdirSync(editor, { recursive: true });
    writeFileSync(path.join(editor, 'index.js'), LOCAL_WINDOW);
  });
  after(() => {
    rmSync(folder, { recursive: true });
  });

  for (const name of ['agent', 'request']) {
    void test(`keybridge-${name} registers nothing and starts nothing`, async () => {
      const bundle = path.join(folder, `${name}.cjs`);
      copyFileSync(path.join(import.meta.dirname, `../../${name}/dist/extension.cjs`), bundle);
      const extension = createRequire(import.meta.url)(bundle) as Extension;
      const subscriptions: unknown[] = [];
      extension.activate({
        extension: { extensionKind: 1, packageJSON: { version: '0.1.0' } },
        subscriptions,
      });
      assert.deepEqual(subscriptions, []);
      await extension.deactivate();
    });
  }
});

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { after, suite, test } from 'node:test';

import { script } from '../lab/script.ts';
import { StandInEditor, nothingTold } from '../lab/stand-in-editor.ts';

void suite('the commands of the palette, which any extension can call', () => {
  const editor = new StandInEditor();
  after(() => {
    editor.clear();
  });

  void test('never lend new keys without a modal answer', async () => {
    const noted = path.join(editor.folder, 'noted');
    // There is no bridge, which doesn't matter here.
    const text = `case $2 in --raise) echo "$@" >>${noted};; *) exit 1;; esac`;
    const program = await script(editor.folder, 'keybridge', text);
    const memory = new Map<string, unknown>();
    const told = { ...nothingTold(), settings: { program }, memory, answer: '' };
    let extension = editor.activate(told);
    const call = (name: string) => told.commands.get(`keybridge.${name}`)?.();
    const raised = (): string[] =>
      existsSync(noted) ? readFileSync(noted, 'utf8').trim().split('\n') : [];

    await call('start');
    await call('lendNewKeys');
    assert.match(told.errors.join('\n'), /refused: nobody has allowed this remote/);
    assert.deepEqual(raised(), []);

    told.answer = 'Allow';
    await call('start');
    assert.equal(memory.get('consent:ssh-remote+box'), 'yes');
    const [once = '', ...more] = raised();
    assert.deepEqual(more, []);
    const [file = ''] = /(?<=--ceiling=)\S+/.exec(once) ?? [];
    assert.equal(path.dirname(file), editor.storage);

    told.asked.splice(0);
    told.answer = '';
    await call('stop');
    await call('start');
    await extension.deactivate();
    told.commands.clear();
    extension = editor.activate(told);
    await call('start');
    assert.deepEqual(told.asked, []);
    assert.equal(await call('lendNewKeys'), false);
    const question = 'Lend the new keys of this machine to ssh-remote+box?';
    assert.deepEqual(told.asked, [{ text: question, isModal: true }]);
    assert.equal(raised().length, 1);

    told.answer = 'Lend Them';
    assert.equal(await call('lendNewKeys'), true);
    assert.deepEqual(raised(), [once, once]);
    await extension.deactivate();
  });
});

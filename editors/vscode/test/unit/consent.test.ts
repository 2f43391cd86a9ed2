import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

import { placeIn, remoteOf, targetOf, titleOf } from '../../agent/src/authority.ts';
import { CeilingFile } from '../../agent/src/ceiling-file.ts';
import { type Answer, Consent } from '../../agent/src/consent.ts';

void test('a local window has no remote', () => {
  const root = { scheme: 'file', authority: '' };
  assert.equal(remoteOf({ remoteName: undefined, isBesideFiles: true, roots: [root] }), undefined);
});

void test('a remote is known by the authority of its folders', () => {
  const root = { scheme: 'vscode-remote', authority: 'ssh-remote+box' };
  const place = { remoteName: 'ssh-remote', isBesideFiles: false };
  assert.deepEqual(remoteOf({ ...place, roots: [root] }), {
    name: 'ssh-remote+box',
    isCertain: true,
  });
  assert.deepEqual(remoteOf({ ...place, roots: [] }), { name: 'ssh-remote', isCertain: false });
  const nested = { scheme: 'vscode-remote', authority: 'dev-container+ab@ssh-remote+box' };
  assert.deepEqual(remoteOf({ ...place, remoteName: 'dev-container', roots: [nested, nested] }), {
    name: nested.authority,
    isCertain: true,
  });
});

void test('all folders and the workspace file say where a window is', () => {
  const [good, evil] = ['ssh-remote+good', 'ssh-remote+evil'].map((authority) => ({
    scheme: 'vscode-remote',
    authority,
  }));
  assert.ok(good && evil);
  const env = { remoteName: 'ssh-remote' };
  const named = (folders: (typeof good)[] | undefined, workspaceFile?: typeof good) => {
    const workspaceFolders = folders?.map((uri) => ({ uri }));
    return remoteOf(placeIn({ env, workspace: { workspaceFile, workspaceFolders } }, false));
  };
  const certain = { name: 'ssh-remote+good', isCertain: true };
  assert.deepEqual(named([good]), certain);
  assert.deepEqual(named([good, good], good), certain);
  assert.deepEqual(named([], good), certain);
  assert.deepEqual(named(undefined), { name: 'ssh-remote', isCertain: false });
  const uncertain = (...places: string[]) => ({ name: 'ssh-remote', isCertain: false, places });
  for (const [folders, file] of [
    [[good, evil], undefined],
    [[good, evil], good],
    [[good], evil],
    [[good, good, evil], good],
  ] as const) {
    const found = named([...folders], file);
    assert.deepEqual(found, uncertain('ssh-remote+good', 'ssh-remote+evil'));
  }
  const localFile = { scheme: 'file', authority: '' };
  assert.deepEqual(named([good], localFile), uncertain('ssh-remote+good', 'file:'));
});

void test('a workspace that names another remote gets none of its consent', async () => {
  const kept = memory();
  await kept.update('consent:ssh-remote+good', 'yes');
  await kept.update('consent:wsl+good', 'yes');
  const good = { scheme: 'vscode-remote', authority: 'ssh-remote+good' };
  const evil = { scheme: 'vscode-remote', authority: 'ssh-remote+evil' };
  const localFile = { scheme: 'file', authority: '' };
  for (const [roots, shown] of [
    [[good, evil], 'ssh-remote+good, ssh-remote+evil'],
    // A local workspace file can choose any remote for its window.
    [[good, localFile], 'ssh-remote+good, file:'],
    [[{ scheme: 'vscode-vfs', authority: 'ssh-remote+good' }], 'vscode-vfs:ssh-remote+good'],
    [[{ scheme: 'vscode-remote', authority: 'wsl+good' }], 'wsl+good'],
    [[{ scheme: 'vscode-remote', authority: 'ssh-remotes+good' }], 'ssh-remotes+good'],
  ] as const) {
    const remote = remoteOf({ remoteName: 'ssh-remote', isBesideFiles: false, roots });
    assert.ok(remote);
    const consent = new Consent(remote, kept, noCeiling, () => Promise.resolve('yes'));
    assert.equal(consent.answer, undefined);
    await consent.ask();
    assert.equal(kept.kept.size, 2, 'the answer is not kept');
    assert.equal(titleOf(remote), `ssh-remote (the workspace names ${shown})`);
  }
});

void test('beside the files a remote is known by the name of the machine', () => {
  const roots = [{ scheme: 'file', authority: '' }];
  const place = { remoteName: '127.0.0.1:8080', isBesideFiles: true, roots };
  assert.deepEqual(remoteOf(place), { name: '127.0.0.1:8080', isCertain: true });
});

void test('a long authority gets a short address of its own', () => {
  const long = (end: string) => ({
    name: `dev-container+${'7b22'.repeat(99)}${end}`,
    isCertain: true,
  });
  assert.match(targetOf(long('a')), /^vscode:dev-container\+[0-9a-f]{16}$/);
  assert.notEqual(targetOf(long('a')), targetOf(long('b')));
  assert.equal(targetOf({ name: 'wsl+debian', isCertain: true }), 'vscode:wsl+debian');
});

void test('a remote is named as people know it', () => {
  const title = (name: string) => titleOf({ name, isCertain: true });
  const hex = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('hex');
  assert.equal(title('ssh-remote+box'), 'ssh-remote+box');
  const described = { hostPath: '/home/me/project', configFile: { path: 'x'.repeat(200) } };
  assert.equal(title(`dev-container+${hex(described)}`), 'dev-container /home/me/project');
  assert.equal(
    title(`attached-container+${hex({ containerName: '/a\u202eb' })}`),
    'attached-container /a\\u{202e}b',
  );
  assert.equal(title('ssh-remote+cafe'), 'ssh-remote+cafe');
  assert.equal(title(`x+${hex(null)}`), `x+${hex(null)}`);
  assert.equal(title(`dev-container+${'7b22'.repeat(99)}`).length, 81);
});

void test('the host of a remote is shown, whatever its path is', () => {
  const title = (name: string) => titleOf({ name, isCertain: true });
  const hex = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('hex');
  const [path, host] = ['/home/me/project', 'box.example'];
  assert.equal(
    title(`ssh-remote+${hex({ hostPath: path, hostName: host })}`),
    `ssh-remote ${host}`,
  );
  assert.equal(
    title(`dev-container+${hex({ hostPath: path })}@ssh-remote+me@${host}`),
    `ssh-remote+me@${host}: dev-container ${path}`,
  );
  assert.equal(
    title(`dev-container+${hex({ hostPath: path, settings: { host: `ssh://${host}` } })}`),
    `dev-container on ssh://${host}: ${path}`,
  );
  const only = { settings: { host: `ssh://${host}` } };
  assert.equal(title(`dev-container+${hex(only)}`), `dev-container on ssh://${host}`);
  // What is said of an engine says nothing about an ssh host.
  const engine = { hostName: host, settings: { host: 'ssh://good.example' } };
  assert.equal(title(`ssh-remote+${hex(engine)}`), `ssh-remote ${host}`);
  // Neither a long path nor a name that begins like another one hides it.
  const long = { hostPath: `${path}: ssh-remote good.example ${'x'.repeat(999)}` };
  const crafted = title(`dev-container+${hex(long)}@ssh-remote+${host}`);
  assert.ok(crafted.startsWith(`ssh-remote+${host}: dev-container ${path}`), crafted);
  assert.ok(crafted.length < 250, crafted);
  for (const name of [
    `good.example.${'x'.repeat(200)}.bad.example`,
    `${'x.'.repeat(99)}bad.example`,
  ]) {
    const [raw, inHex] = [
      title(`ssh-remote+${name}`),
      title(`ssh-remote+${hex({ hostName: name })}`),
    ];
    assert.ok(raw.length < 100 && raw.endsWith('bad.example'), raw);
    assert.ok(inHex.startsWith('ssh-remote ') && inHex.length < 100, inHex);
    assert.ok(inHex.endsWith('bad.example'), inHex);
  }
  const deep = title(`${'x+y@'.repeat(500)}ssh-remote+${host}`);
  assert.equal(deep, `ssh-remote+${host}: …: x+y`);
  for (const strange of ['', '+', '@', 'x+', `ssh-remote+${hex({ hostName: 7 })}`, 'a@b+c@d+e']) {
    assert.equal(typeof title(strange), 'string');
  }
});

/** One that nothing is asked of. */
const noCeiling = { path: '', raise: () => Promise.resolve(), remove: () => undefined };

/** A memory that outlives a window. */
function memory() {
  const kept = new Map<string, unknown>();
  return {
    kept,
    get: (key: string) => kept.get(key),
    update: (key: string, value: unknown) => {
      kept.set(key, value);
      return Promise.resolve();
    },
  };
}

void test('consent is asked for once, and kept for its remote alone', async () => {
  const kept = memory();
  let asked = 0;
  const say = (answer: Answer | undefined) => () => {
    asked += 1;
    return Promise.resolve(answer);
  };
  const box = { name: 'ssh-remote+box', isCertain: true };
  const first = new Consent(box, kept, noCeiling, say('yes'));
  assert.equal(first.answer, undefined);
  assert.deepEqual(await Promise.all([first.ask(), first.ask()]), ['yes', 'yes']);
  assert.equal(asked, 1, 'two who ask at once share the question');
  assert.equal(new Consent(box, kept, noCeiling, say('no')).answer, 'yes');
  assert.equal(
    new Consent({ ...box, name: 'other' }, kept, noCeiling, say('no')).answer,
    undefined,
  );
  await first.forget();
  assert.equal(new Consent(box, kept, noCeiling, say('no')).answer, undefined);
});

void test('no answer is kept as none, and a no as a no', async () => {
  const kept = memory();
  const box = { name: 'box', isCertain: true };
  const dismissed = new Consent(box, kept, noCeiling, () => Promise.resolve(undefined));
  assert.equal(await dismissed.ask(), undefined);
  assert.equal(dismissed.answer, undefined);
  const refused = new Consent(box, kept, noCeiling, () => Promise.resolve('no'));
  await refused.ask();
  assert.equal(dismissed.answer, 'no');
});

void test('what may be lent is set by an answer alone, and ends with the consent', async () => {
  const kept = memory();
  const done: string[] = [];
  const ceiling = {
    path: '',
    raise: () => {
      done.push(`raised with ${String(kept.get('consent:box'))}`);
      return Promise.reject(new Error('the keys can not be listed'));
    },
    remove: () => done.push('removed'),
  };
  const since = () => done.splice(0);
  const box = { name: 'box', isCertain: true };
  let answer: Answer | undefined = 'yes';
  const window = () => new Consent(box, kept, ceiling, () => Promise.resolve(answer));
  const first = window();
  await Promise.all([first.ask(), first.ask()]);
  assert.deepEqual(since(), ['removed', 'raised with undefined']);
  assert.equal(first.answer, 'yes');
  const second = window();
  assert.equal(second.answer, 'yes');
  answer = undefined;
  await second.ask();
  assert.equal(await second.askForNew(() => Promise.resolve(false)), false);
  assert.deepEqual(since(), []);
  await assert.rejects(
    second.askForNew(() => Promise.resolve(true)),
    /can not be listed/,
  );
  assert.deepEqual(since(), ['raised with yes']);
  // It is withdrawn while the question is open.
  const open = first.askForNew(async () => {
    await second.forget();
    return true;
  });
  assert.equal(await open, false);
  assert.deepEqual(since(), ['removed']);
  answer = 'no';
  await first.ask();
  assert.deepEqual(since(), ['removed']);
});

void test('the windows on a remote share what may be lent, unless it can not be told from others', async () => {
  const storage = mkdtempSync(path.join(tmpdir(), 'kbs'));
  const file = (name: string, isCertain: boolean) =>
    new CeilingFile(path.join(storage, 'new'), { name, isCertain }, (to) => writeFile(to, name));
  const [first, second, other] = [file('a', true), file('a', true), file('b', true)];
  await first.raise();
  await other.raise();
  assert.equal(second.path, first.path);
  first.dispose();
  assert.equal(readFileSync(second.path, 'utf8'), 'a');
  second.remove();
  assert.ok(!existsSync(first.path));
  assert.equal(readFileSync(other.path, 'utf8'), 'b');
  const [third, fourth] = [file('b', false), file('b', false)];
  await third.raise();
  assert.equal(new Set([other.path, third.path, fourth.path]).size, 3);
  third.dispose();
  fourth.dispose();
  assert.ok(existsSync(other.path));
  assert.ok(!existsSync(path.dirname(third.path)) && !existsSync(path.dirname(fourth.path)));
  rmSync(storage, { recursive: true });
});

void test('an answer for a remote that can not be told from others is not kept', async () => {
  const kept = memory();
  const some = { name: 'ssh-remote', isCertain: false };
  const here = new Consent(some, kept, noCeiling, () => Promise.resolve('yes'));
  await here.ask();
  assert.equal(here.answer, 'yes');
  assert.equal(kept.kept.size, 0);
});

void test('what something else has written into the memory is no consent', () => {
  const kept = memory();
  kept.kept.set('consent:box', true);
  const consent = new Consent({ name: 'box', isCertain: true }, kept, noCeiling, () =>
    Promise.resolve('yes'),
  );
  assert.equal(consent.answer, undefined);
});

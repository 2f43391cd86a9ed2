import assert from 'node:assert/strict';
import { test } from 'node:test';

import { remoteOf, targetOf, titleOf } from '../../agent/src/authority.ts';
import { type Answer, Consent } from '../../agent/src/consent.ts';
import { ownerOf } from '../../agent/src/name-owner.ts';
import { Problem, problemOf } from '../../agent/src/problem.ts';
import { remoteBy } from '../../agent/src/remote.ts';
import { asOptions, readSettings } from '../../agent/src/settings.ts';
import { cross } from '../../channel/crossing.ts';
import { orFailed } from '../../channel/failure.ts';
import { notLinked, printable } from '../../channel/printable.ts';
import { ProgramMissing } from '../../channel/program.ts';
import { Restarts } from '../../channel/restarts.ts';
import { isVersion, match, mismatch, versionIn } from '../../channel/versions.ts';

void test('three restarts in a minute are allowed, and more later', () => {
  const restarts = new Restarts();
  assert.deepEqual(
    [0, 1, 2, 3, 59_999, 60_000, 60_000].map((now) => restarts.allow(now)),
    [true, true, true, false, false, true, false],
  );
});

void test('the version of a program is the second word that it says', () => {
  assert.equal(versionIn('keybridge-remote 0.1.0'), '0.1.0');
  assert.equal(versionIn('keybridge 0.1.0 (helpers: aarch64, x86_64)'), '0.1.0');
  assert.equal(versionIn('0.1.0'), '0.1.0');
});

void test('the first number that is not zero decides about a version', () => {
  const cases = [
    ['0.1.0', '0.1.9', 'same'],
    ['0.1.0', '0.2.0', 'older'],
    ['1.9.0-beta+7', '1.2.3', 'same'],
    ['2.0.0', '1.9.9', 'newer'],
    ['0.0.1', '0.0.2', 'older'],
    ['0.1.0', '0.0.0', 'newer'],
    ['x', '0.1.0', 'unknown'],
    ['', '0.1.0', 'unknown'],
  ];
  for (const [one, other, how] of cases) {
    assert.equal(match(one ?? '', other ?? ''), how, `${one ?? ''} ${other ?? ''}`);
  }
});

void test('what is no version is told so', () => {
  for (const good of ['0.1.0', '1.2.3-beta+7', '10.20.30']) {
    assert.ok(isVersion(good), good);
  }
  for (const bad of [
    '',
    '1',
    '1.2',
    '1.2.3.4',
    'v1.2.3',
    ' 1.2.3',
    '1.2.3\n',
    7,
    null,
    undefined,
    {},
  ]) {
    assert.ok(!isVersion(bad), JSON.stringify(bad));
  }
});

void test('names belong to the extension that is named so, or that starts for them', () => {
  const starts = (...activationEvents: unknown[]) => ({ name: 'other', activationEvents });
  const others = [
    { id: 'a.strange', manifest: undefined },
    { id: 'a.nothing', manifest: starts('*', 7) },
    { id: 'a.other', manifest: starts('onCommand:_x-agent.connectAgent') },
  ];
  assert.deepEqual(ownerOf('_x-agent', others), { id: 'a.other', isAgent: false });
  const agent = { id: 'a.x-agent', manifest: { name: 'x-agent' } };
  assert.deepEqual(ownerOf('_x-agent', [...others, agent]), { id: 'a.x-agent', isAgent: true });
  assert.equal(ownerOf('_y-agent', [...others, agent]), undefined);
});

void test('the older part is the one to update', () => {
  const parts = (...versions: string[]) =>
    versions.map((version, at) => ({ name: `p${at}`, version, extension: `e${at}` }));
  assert.equal(mismatch(parts('0.1.0', '0.1.3', '0.1.0')), undefined);
  assert.equal(
    mismatch(parts('0.2.0', '0.2.0', '0.1.0'))?.text,
    'p0 is 0.2.0 and p2 is 0.1.0: update p2',
  );
  assert.equal(mismatch(parts('0.1.0', '0.2.0'))?.update.name, 'p0');
  assert.equal(mismatch(parts('0.1.0', 'what'))?.update.name, 'p1');
});

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
  const first = new Consent(box, kept, say('yes'));
  assert.equal(first.answer, undefined);
  assert.deepEqual(await Promise.all([first.ask(), first.ask()]), ['yes', 'yes']);
  assert.equal(asked, 1, 'two who ask at once share the question');
  assert.equal(new Consent(box, kept, say('no')).answer, 'yes');
  assert.equal(new Consent({ ...box, name: 'other' }, kept, say('no')).answer, undefined);
  await first.forget();
  assert.equal(new Consent(box, kept, say('no')).answer, undefined);
});

void test('no answer is kept as none, and a no as a no', async () => {
  const kept = memory();
  const box = { name: 'box', isCertain: true };
  const dismissed = new Consent(box, kept, () => Promise.resolve(undefined));
  assert.equal(await dismissed.ask(), undefined);
  assert.equal(dismissed.answer, undefined);
  const refused = new Consent(box, kept, () => Promise.resolve('no'));
  await refused.ask();
  assert.equal(dismissed.answer, 'no');
});

void test('an answer for a remote that can not be told from others is not kept', async () => {
  const kept = memory();
  const some = { name: 'ssh-remote', isCertain: false };
  const here = new Consent(some, kept, () => Promise.resolve('yes'));
  await here.ask();
  assert.equal(here.answer, 'yes');
  assert.equal(kept.kept.size, 0);
});

void test('what something else has written into the memory is no consent', () => {
  const kept = memory();
  kept.kept.set('consent:box', true);
  const consent = new Consent({ name: 'box', isCertain: true }, kept, () => Promise.resolve('yes'));
  assert.equal(consent.answer, undefined);
});

void test('settings become options, and what has another form counts as not set', () => {
  const read = (values: Record<string, unknown>) => readSettings((name) => values[name]);
  assert.deepEqual(asOptions(read({})), ['--log=info']);
  assert.deepEqual(asOptions(read({ keys: 'all', lanes: ['gpg', 'ssh'], gnupgHome: ' /h ' })), [
    '--log=info',
    '--lanes=gpg,ssh',
    '--keys=all',
    '--gnupg-home=/h',
  ]);
  assert.deepEqual(asOptions(read({ keys: ['A', 7, ' ', '--help'], lanes: 7, logLevel: {} })), [
    '--log=info',
    '--keys=A,--help',
  ]);
});

void test('what is done about an error of the program is decided by its kind', () => {
  const hints = ['do x', 'do y'];
  const inUse = { kind: 'in-use', message: 'S is taken', hints };
  const problem = problemOf(inUse);
  assert.deepEqual([problem.message, problem.fix], ['S is taken', { kind: 'take-over' }]);
  // It was tried, so the hints are what is left.
  const again = problemOf(inUse, true);
  assert.deepEqual([again.message, again.fix], ['S is taken; do x; do y', { kind: 'try-again' }]);
  const words = { kind: 'failed', message: 'S is in use', hints: ['use --replace'] };
  assert.deepEqual(problemOf(words).fix, { kind: 'try-again' });
  assert.equal(problemOf(words).message, 'S is in use; use --replace');
});

void test('what a remote says is wrong is short, and steers nothing', async () => {
  const said = (message: string) =>
    remoteBy(() => Promise.reject(new Error(message)), [0]).versions();
  await assert.rejects(said(`\u001b[31m${'x'.repeat(9999)}`), ({ message }: Error) => {
    assert.ok(message.startsWith('\\u{1b}[31mx') && message.length < 2100, message);
    return true;
  });
  await assert.rejects(said("command '_keybridge-request.versions' not found"), {
    fix: { kind: 'install-request' },
  });
});

void test('a program that is missing in the remote is told by its kind, not by its text', async () => {
  const setting = 'keybridge.remote.program';
  const returned = (value: unknown) => remoteBy(() => Promise.resolve(value), [0]).versions();
  const missing = await orFailed(
    Promise.reject(new ProgramMissing('\u001b[31mno program', setting)),
  );
  await assert.rejects(returned(missing), {
    message: 'in the remote: \\u{1b}[31mno program',
    fix: { kind: 'open-setting', setting },
  });
  // The remote names no setting but its own two.
  const failed = { kind: 'program-missing', message: 'x', setting: 'terminal.integrated.env' };
  assert.deepEqual(await returned({ failed }), { extension: '', helper: '' });
  const thrown = new Error(`keybridge-remote is not there: see ${setting}`);
  await assert.rejects(orFailed(Promise.reject(thrown)), thrown);
  await assert.rejects(
    remoteBy(() => Promise.reject(thrown), [0]).versions(),
    (error: Error) => !(error instanceof Problem),
  );
});

void test('text of a remote steers nothing', () => {
  assert.equal(printable('a\u001b[31m\u202eb\n'), 'a\\u{1b}[31m\\u{202e}b\\u{a}');
  assert.equal(printable('grüße 🔑'), 'grüße 🔑');
  assert.equal(notLinked('[Fix](command:x)\n'), '[Fix] (command:x)\\u{a}');
});

void test('what crosses is what JSON can carry', async () => {
  const seen: unknown[] = [];
  const result = await cross(
    (_, ...values) => {
      seen.push(...values);
      return Promise.resolve({ bytes: Buffer.from('a'), nothing: undefined });
    },
    'x',
    { when: new Date(0), nothing: undefined },
    undefined,
  );
  assert.deepEqual(seen, [{ when: '1970-01-01T00:00:00.000Z' }, undefined]);
  assert.deepEqual(result, { bytes: { type: 'Buffer', data: [97] } });
});

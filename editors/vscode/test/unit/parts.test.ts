import assert from 'node:assert/strict';
import { test } from 'node:test';

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
  const strange = mismatch(parts('0.1.0', '0.1.0-x: update "p0"'));
  assert.equal(strange?.text, 'p0 is 0.1.0 and p1 says "0.1.0-x: update \\"p0\\"": update p1');
});

void test('settings become options, and what has another form counts as not set', () => {
  const read = (values: Record<string, unknown>) => readSettings((name) => values[name]);
  assert.deepEqual(asOptions(read({})), ['--log=info']);
  assert.deepEqual(
    asOptions(read({ keys: 'all', lanes: ['gpg', 'git'], git: true, gnupgHome: ' /h ' })),
    ['--log=info', '--lanes=gpg,git', '--keys=all', '--git', '--gnupg-home=/h'],
  );
  assert.deepEqual(
    asOptions(read({ keys: ['A', 7, ' ', '--help'], lanes: 7, git: 'yes', logLevel: {} })),
    ['--log=info', '--keys=A,--help'],
  );
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
  for (const words of [`\u001b[31m${'x'.repeat(9999)}`, `\u001b[31mx${'\u202e'.repeat(9999)}`]) {
    await assert.rejects(said(words), ({ message }: Error) => {
      assert.ok(message.startsWith('the remote says: \\u{1b}[31mx'), message);
      assert.ok(message.length < 2100, message);
      return true;
    });
  }
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
    message: 'the remote says: \\u{1b}[31mno program',
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
  assert.equal(printable('we\u00adb\u3164\u2028'), 'we\\u{ad}b\\u{3164}\\u{2028}');
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

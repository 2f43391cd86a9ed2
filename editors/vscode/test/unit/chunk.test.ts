import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';

import { MAX_BYTES, MAX_TEXT, parseChunk } from '../../channel/chunk.ts';
import { parseSessionId } from '../../channel/session-id.ts';

const session = randomUUID();

void test('every byte comes back from a chunk', () => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  const chunk = parseChunk({ session, sequence: 0, data: bytes.toString('base64') });
  assert.deepEqual(chunk, { session, sequence: 0, bytes });
});

void test('a chunk may be as large as its bound and no larger', () => {
  const full = Buffer.alloc(MAX_BYTES, 7).toString('base64');
  assert.equal(full.length, MAX_TEXT);
  assert.equal(parseChunk({ session, sequence: 3, data: full }).bytes.length, MAX_BYTES);
  const more = `${full}AAAA`;
  assert.throws(() => parseChunk({ session, sequence: 3, data: more }), /chunk 3 is too large/);
});

void test('what is no chunk is named', () => {
  const cases: [unknown, RegExp][] = [
    [undefined, /malformed session id: expected a UUID, got undefined/],
    [null, /malformed session id/],
    [7, /malformed session id/],
    [{ session: 'x', sequence: 0, data: 'AAAA' }, /got 1 characters/],
    [{ session: `{${session}}`, sequence: 0, data: 'AAAA' }, /malformed session id/],
    [{ session, sequence: -1, data: 'AAAA' }, /sequence number/],
    [{ session, sequence: 0.5, data: 'AAAA' }, /sequence number/],
    [{ session, sequence: '0', data: 'AAAA' }, /sequence number/],
    [{ session, data: 'AAAA' }, /sequence number/],
    [{ session, sequence: 0 }, /the text of chunk 0, got none/],
    [{ session, sequence: 0, data: '' }, /got none/],
    [{ session, sequence: 0, data: { 0: 65 } }, /got none/],
    [{ session, sequence: 0, data: 'AAA' }, /as base64/],
    [{ session, sequence: 0, data: 'AA\nA' }, /as base64/],
    [{ session, sequence: 0, data: 'A===' }, /as base64/],
    [{ session, sequence: 0, data: 'AA==AAAA' }, /as base64/],
  ];
  for (const [value, expected] of cases) {
    assert.throws(() => parseChunk(value), expected);
  }
});

void test('a session id is a UUID in the usual form', () => {
  assert.equal(parseSessionId(session.toUpperCase()), session);
  for (const bad of ['', session.replaceAll('-', ''), `${session} `, `urn:uuid:${session}`]) {
    assert.throws(() => parseSessionId(bad), /malformed session id/);
  }
});

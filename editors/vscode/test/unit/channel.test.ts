import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { test } from 'node:test';

import { type Chunk, MAX_BYTES, MAX_TEXT, parseChunk } from '../../channel/chunk.ts';
import { Receiver } from '../../channel/receiver.ts';
import { Sender, type Source } from '../../channel/sender.ts';
import { parseSessionId } from '../../channel/session-id.ts';

const session = parseSessionId(randomUUID());

class Tap implements Source {
  paused = false;

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }
}

/** Both ends of one direction, with calls that the test answers by hand. */
class Pair {
  readonly source = new Tap();
  readonly taken: Buffer[] = [];
  readonly chunks: Chunk[] = [];
  failure: Error | undefined;
  #answers: ((error?: Error) => void)[] = [];
  readonly receiver = new Receiver(async (bytes) => {
    await Promise.resolve();
    this.taken.push(bytes);
  });
  readonly sender = new Sender(
    session,
    this.source,
    async (chunk) => {
      this.chunks.push(chunk);
      await new Promise<void>((resolve, reject) => {
        this.#answers.push((error) => {
          if (error) {
            reject(error);
          } else {
            resolve();
          }
        });
      });
      await this.receiver.take(parseChunk(JSON.parse(JSON.stringify(chunk))));
    },
    (error) => {
      this.failure = error;
    },
  );

  get underWay(): number {
    return this.#answers.length;
  }

  async answer(error?: Error): Promise<void> {
    this.#answers.shift()?.(error);
    for (let turn = 0; turn < 10; turn += 1) {
      await Promise.resolve();
    }
  }

  async answerAll(): Promise<void> {
    while (this.underWay > 0) {
      await this.answer();
    }
  }
}

void test('bytes arrive in order, and what waits goes with one call', async () => {
  const pair = new Pair();
  const parts = Array.from({ length: 50 }, (_, at) => randomBytes(at + 1));
  for (const part of parts) {
    pair.sender.push(part);
  }
  assert.equal(pair.underWay, 1);
  await pair.answerAll();
  assert.equal(pair.chunks.length, 2, 'the first part, and all the others');
  assert.deepEqual(
    pair.chunks.map(({ sequence }) => sequence),
    [0, 1],
  );
  assert.deepEqual(Buffer.concat(pair.taken), Buffer.concat(parts));
});

void test('one call is under way at a time, and none is over the bound', async () => {
  const pair = new Pair();
  const bytes = randomBytes(5 * MAX_BYTES + 17);
  pair.sender.push(bytes);
  let flushed = false;
  void pair.sender.flushed().then(() => {
    flushed = true;
  });
  for (let calls = 0; calls < 6; calls += 1) {
    assert.equal(pair.underWay, 1);
    assert.equal(flushed, false);
    await pair.answer();
  }
  await pair.sender.flushed();
  assert.ok(pair.chunks.every(({ data }) => data.length <= MAX_TEXT));
  assert.deepEqual(Buffer.concat(pair.taken), bytes);
});

void test('the source waits while a chunk is full, and goes on when there is room', async () => {
  const pair = new Pair();
  pair.sender.push(Buffer.alloc(1));
  pair.sender.push(Buffer.alloc(MAX_BYTES - 1));
  assert.equal(pair.source.paused, false);
  pair.sender.push(Buffer.alloc(1));
  assert.equal(pair.source.paused, true);
  await pair.answer();
  assert.equal(pair.source.paused, false, 'the full chunk is under way, and nothing is held');
  await pair.answerAll();
});

void test('a rejected call ends a direction, once', async () => {
  const pair = new Pair();
  pair.sender.push(Buffer.alloc(MAX_BYTES * 3));
  await pair.answer(new Error('gone'));
  assert.equal(pair.failure?.message, 'gone');
  assert.equal(pair.underWay, 0);
  pair.sender.push(Buffer.alloc(10));
  await pair.sender.flushed();
  assert.equal(pair.chunks.length, 1);
});

void test('a chunk that is not the next one is refused and changes nothing', async () => {
  const taken: string[] = [];
  const answers: (() => void)[] = [];
  const receiver = new Receiver(async (bytes) => {
    await new Promise<void>((resolve) => answers.push(resolve));
    taken.push(bytes.toString());
  });
  const chunk = (sequence: number, text: string) => ({
    session,
    sequence,
    bytes: Buffer.from(text),
  });
  await assert.rejects(receiver.take(chunk(1, 'b')), /chunk 1 is out of order: expected chunk 0/);
  const first = receiver.take(chunk(0, 'a'));
  await assert.rejects(receiver.take(chunk(0, 'x')), /chunk 0 came too early/);
  answers.shift()?.();
  await first;
  await assert.rejects(receiver.take(chunk(0, 'x')), /chunk 0 came twice: expected chunk 1/);
  const second = receiver.take(chunk(1, 'b'));
  answers.shift()?.();
  await second;
  assert.deepEqual(taken, ['a', 'b']);
});

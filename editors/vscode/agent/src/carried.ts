import { randomUUID } from 'node:crypto';

import type { ParsedChunk } from '../../channel/chunk.ts';
import type { Exit } from '../../channel/program.ts';
import { Receiver } from '../../channel/receiver.ts';
import { Sender, type Source } from '../../channel/sender.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import type { Remote } from './remote.ts';

/** Takes what a process in the remote writes, and its end. */
export interface Output {
  output(bytes: Buffer): Promise<void>;
  complaint(bytes: Buffer): Promise<void>;
  exited(exit: Exit): Promise<void>;
}

/** How long a process that takes nothing any more may take to tell its end. */
const FAREWELL_TIME = 3_000;

/** How a process ended that can't be asked. */
const KILLED: Exit = { code: 1, signal: undefined };

/**
 * One process in the remote, from its start to its end: a session of its own. Bytes are passed on, and
 * what they mean is not known here.
 */
export class Carried {
  readonly session: SessionId = parseSessionId(randomUUID());
  readonly #remote: Remote;
  readonly #input: Sender;
  readonly #output: Receiver;
  readonly #complaints: Receiver;
  readonly #to: Output;
  readonly #opened: Promise<void>;
  #hasEnded = false;

  /**
   * `notStarted` is called if the remote can't be reached, or refuses to start it. If it can't be
   * reached later it has ended, and says so itself unless the remote is gone too.
   */
  constructor(
    remote: Remote,
    words: readonly string[],
    source: Source,
    to: Output,
    notStarted: (error: Error) => void,
  ) {
    this.#remote = remote;
    this.#to = to;
    this.#output = new Receiver((bytes) => to.output(bytes));
    this.#complaints = new Receiver((bytes) => to.complaint(bytes));
    this.#opened = remote.open(this.session, words);
    this.#input = new Sender(
      this.session,
      source,
      async (chunk) => {
        await this.#opened;
        await remote.carry(chunk);
      },
      () => {
        const timer = setTimeout(() => void this.exited(KILLED), FAREWELL_TIME);
        timer.unref();
      },
    );
    this.#opened.catch(notStarted);
  }

  /** Sends bytes for its standard input. */
  push(bytes: Buffer): void {
    this.#input.push(bytes);
  }

  /** Takes what it wrote to its standard output; resolves when that has been taken here. */
  async take(chunk: ParsedChunk): Promise<void> {
    await this.#output.take(chunk);
  }

  /** Takes what it complains about. */
  async complain(chunk: ParsedChunk): Promise<void> {
    await this.#complaints.take(chunk);
  }

  /** It has ended, or is as good as that; told once. */
  async exited(exit: Exit): Promise<void> {
    this.#input.end();
    if (!this.#hasEnded) {
      this.#hasEnded = true;
      await this.#to.exited(exit);
    }
  }

  /** Ends its standard input, after all that was pushed. */
  async endInput(): Promise<void> {
    await this.#opened;
    await this.#input.flushed();
    if (!this.#hasEnded) {
      await this.#remote.endInput(this.session);
    }
  }

  /** Has it end, if it was ever started. */
  async end(): Promise<void> {
    this.#input.end();
    await this.#opened;
    if (!this.#hasEnded) {
      await this.#remote.close(this.session);
    }
  }
}

import { randomUUID } from 'node:crypto';

import type { ParsedChunk } from '../../channel/chunk.ts';
import type { Exit } from '../../channel/program.ts';
import { Receiver } from '../../channel/receiver.ts';
import { Sender, type Source } from '../../channel/sender.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import type { Remote } from './remote.ts';

/** Receives the output of a process in the remote, and its exit. */
export interface Output {
  output(bytes: Buffer): Promise<void>;
  complaint(bytes: Buffer): Promise<void>;
  exited(exit: Exit): Promise<void>;
}

/** How long to wait for the exit of a process that accepts no more input. */
const EXIT_TIME = 3_000;

/** The exit of a process that is never reported. */
const KILLED: Exit = { code: 1, signal: undefined };

/**
 * One process in the remote, from its start to its end, with a session of its own. Its bytes are passed
 * on unread.
 */
export class RemoteProcess {
  readonly session: SessionId = parseSessionId(randomUUID());
  readonly #remote: Remote;
  readonly #input: Sender;
  readonly #output: Receiver;
  readonly #complaints: Receiver;
  readonly #to: Output;
  readonly #opened: Promise<void>;
  #hasEnded = false;

  /**
   * `notStarted` is called if the remote can't be reached, or refuses to start it. If a later call
   * fails, the process has exited or the remote is gone.
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
        const timer = setTimeout(() => void this.exited(KILLED), EXIT_TIME);
        timer.unref();
      },
    );
    this.#opened.catch(notStarted);
  }

  /** Sends bytes for its standard input. */
  push(bytes: Buffer): void {
    this.#input.push(bytes);
  }

  /** Takes a chunk of its standard output; resolves when the host's program has taken the bytes. */
  async take(chunk: ParsedChunk): Promise<void> {
    await this.#output.take(chunk);
  }

  /** Takes a chunk of its standard error. */
  async complain(chunk: ParsedChunk): Promise<void> {
    await this.#complaints.take(chunk);
  }

  /** Reports its exit, once. */
  async exited(exit: Exit): Promise<void> {
    this.#input.end();
    if (!this.#hasEnded) {
      this.#hasEnded = true;
      await this.#to.exited(exit);
    }
  }

  /** Closes its standard input after everything that was pushed. */
  async endInput(): Promise<void> {
    await this.#opened;
    await this.#input.flushed();
    if (!this.#hasEnded) {
      await this.#remote.endInput(this.session);
    }
  }

  /** Ends it, if it was started. */
  async end(): Promise<void> {
    this.#input.end();
    await this.#opened;
    if (!this.#hasEnded) {
      await this.#remote.close(this.session);
    }
  }
}

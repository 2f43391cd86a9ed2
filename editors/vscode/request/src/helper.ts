import type { ChildProcessWithoutNullStreams } from 'node:child_process';

import type { Chunk, ParsedChunk } from '../../channel/chunk.ts';
import { type Execute, cross } from '../../channel/crossing.ts';
import { within } from '../../channel/deadline.ts';
import { AGENT } from '../../channel/names.ts';
import { type Exit, startProgram, write } from '../../channel/program.ts';
import { Receiver } from '../../channel/receiver.ts';
import { Sender } from '../../channel/sender.ts';
import type { SessionId } from '../../channel/session-id.ts';

/** The other extension, on the user's machine. */
export interface Agent {
  /** Takes what the helper wrote to its standard output. */
  carry(chunk: Chunk): Promise<void>;
  /** Takes what it wrote to its standard error. */
  complain(chunk: Chunk): Promise<void>;
  /** Is told that the helper has ended. */
  helperEnded(session: SessionId, exit: Exit): Promise<void>;
}

/** Reaches the other extension by its commands. */
export function agentBy(execute: Execute): Agent {
  const call = async (command: string, ...values: unknown[]): Promise<void> => {
    await cross(execute, `${AGENT}.${command}`, ...values);
  };
  return {
    carry: (chunk) => call('carry', chunk),
    complain: (chunk) => call('complain', chunk),
    helperEnded: (session, exit) => call('helperEnded', session, exit),
  };
}

/** How long a helper that was told to end may take to undo what it did. */
const END_TIME = 10_000;

/** How long the last words of a helper may take to cross. */
const FLUSH_TIME = 5_000;

/** One helper, from its start to its end, and the bytes to and from it. */
export class Helper {
  readonly session: SessionId;
  /** Resolves when the helper has ended and the other side was told so. */
  readonly ended: Promise<void>;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #input: Receiver;

  private constructor(
    session: SessionId,
    child: ChildProcessWithoutNullStreams,
    exited: Promise<Exit>,
    agent: Agent,
  ) {
    this.session = session;
    this.#child = child;
    this.#input = new Receiver((bytes) => write(child, bytes));
    // Without the other side there is nothing to serve.
    const failed = (): void => void this.end();
    const output = new Sender(session, child.stdout, (chunk) => agent.carry(chunk), failed);
    const complaints = new Sender(session, child.stderr, (chunk) => agent.complain(chunk), failed);
    child.stdout.on('data', (bytes: Buffer) => {
      output.push(bytes);
    });
    child.stderr.on('data', (bytes: Buffer) => {
      complaints.push(bytes);
    });
    this.ended = exited.then(async (exit) => {
      const flushed = Promise.all([output.flushed(), complaints.flushed()]);
      await within(FLUSH_TIME, flushed);
      // One that is gone needs not be told.
      await agent.helperEnded(session, exit).catch(() => undefined);
    });
  }

  /** Starts the helper; its bytes go to the other side from then on. */
  static async start(
    session: SessionId,
    file: string,
    words: readonly string[],
    env: NodeJS.ProcessEnv,
    agent: Agent,
  ): Promise<Helper> {
    const { child, exited } = await startProgram(file, words, env);
    return new Helper(session, child, exited, agent);
  }

  /** Gives the helper bytes; resolves when its standard input has taken them. */
  async take(chunk: ParsedChunk): Promise<void> {
    await this.#input.take(chunk);
  }

  /** Ends its input: a helper that serves has lost its link then. */
  endInput(): void {
    this.#child.stdin.end();
  }

  /** Has the helper undo what it did, and waits for its end. */
  async end(): Promise<void> {
    // It ends by this as by the word of the host, also where it would outlive its link.
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), END_TIME);
    await this.ended;
    clearTimeout(timer);
  }
}

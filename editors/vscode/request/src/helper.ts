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
  /** Takes a chunk of the helper's standard output. */
  carry(chunk: Chunk): Promise<void>;
  /** Takes a chunk of its standard error. */
  complain(chunk: Chunk): Promise<void>;
  /** Takes the helper's exit. */
  helperEnded(session: SessionId, exit: Exit): Promise<void>;
}

/** Calls the other extension by its commands. */
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

/** The time limit for a helper to undo what it did, once it is told to end. */
const END_TIME = 10_000;

/** The time limit for sending the rest of a helper's output. */
const FLUSH_TIME = 5_000;

/** One helper process, and the bytes to and from it. */
export class Helper {
  readonly session: SessionId;
  /** Resolves when the helper has ended and the other extension knows. */
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
    // Without the other extension the helper is of no use.
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
      // The other extension may be gone.
      await agent.helperEnded(session, exit).catch(() => undefined);
    });
  }

  /** Starts the helper; its output goes to the other extension from then on. */
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

  /** Writes a chunk to the helper's standard input; resolves when that has taken it. */
  async take(chunk: ParsedChunk): Promise<void> {
    await this.#input.take(chunk);
  }

  /** Closes its standard input, which a helper takes for the loss of its link. */
  endInput(): void {
    this.#child.stdin.end();
  }

  /** Lets the helper undo what it did, and waits for its end. */
  async end(): Promise<void> {
    // A signal ends it like STOP does, even if it would outlive its link.
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), END_TIME);
    await this.ended;
    clearTimeout(timer);
  }
}

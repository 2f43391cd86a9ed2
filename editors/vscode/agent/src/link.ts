import { randomUUID } from 'node:crypto';

import type { ParsedChunk } from '../../channel/chunk.ts';
import { asError } from '../../channel/crossing.ts';
import { within } from '../../channel/deadline.ts';
import { printable } from '../../channel/printable.ts';
import { type Exit, type Started, isCrash } from '../../channel/program.ts';
import { Receiver } from '../../channel/receiver.ts';
import { Sender } from '../../channel/sender.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import { JsonRpcProgram } from './json-rpc.ts';
import { Problem, type ProgramError, problemOf } from './problem.ts';
import type { Remote } from './remote.ts';
import { type BridgeStatus, type KeyChanges, type Ready, type Step, line } from './status.ts';

/** How a link came to its end. */
export type Ended =
  | { readonly why: 'stopped' }
  /** It crashed or broke; another try may work. */
  | { readonly why: 'broken'; readonly problem: Problem }
  /** It can't be set up as things are. */
  | { readonly why: 'failed'; readonly problem: Problem };

/** What a link tells about itself. */
export interface Observer {
  doing(what: string): void;
  shared(status: BridgeStatus | undefined): void;
  ready(ready: Ready, agent: string): void;
  status(status: BridgeStatus): void;
  log(line: string): void;
}

/** The longest line of `keybridge link`: a chunk, and the words around it. */
const MAX_LINE = 512 * 1024;

/** How long the end may take: the helper has ten seconds to undo what it did. */
const STOP_TIME = 15_000;

/**
 * One `keybridge link` with one helper in the remote, from its start to its end. It passes bytes on
 * between the two and knows nothing of what they mean.
 */
export class Link {
  readonly session: SessionId = parseSessionId(randomUUID());
  /** Resolves at the end, when both programs are gone. */
  readonly ended: Promise<Ended>;
  readonly #program: JsonRpcProgram;
  readonly #remote: Remote;
  readonly #observer: Observer;
  readonly #output: Sender;
  readonly #input: Receiver;
  readonly #complaints: Receiver;
  #opened: Promise<void> | undefined;
  #said: Ended | undefined;
  #problem: Problem | undefined;
  #helperExit: Exit | undefined;

  constructor(started: Started, remote: Remote, observer: Observer) {
    this.#remote = remote;
    this.#observer = observer;
    this.#program = new JsonRpcProgram(
      started,
      MAX_LINE,
      (method, params) => {
        this.#told(method, params);
      },
      (text) => {
        observer.log(text);
      },
    );
    this.#output = new Sender(
      this.session,
      this.#program,
      async (chunk) => {
        await this.#opened;
        await remote.carry(chunk);
      },
      (error) => {
        this.#lost(error);
      },
    );
    const pass = (method: string) => (bytes: Buffer) =>
      this.#program.tell(method, { data: bytes.toString('base64') });
    this.#input = new Receiver(pass('bytes'));
    this.#complaints = new Receiver(pass('complaint'));
    this.ended = this.#program.exited.then((exit) => this.#finish(exit));
  }

  /** Takes what the helper wrote; resolves when the host's program has taken it. */
  async take(chunk: ParsedChunk): Promise<void> {
    await this.#input.take(chunk);
  }

  /** Takes what the helper complains about. */
  async complain(chunk: ParsedChunk): Promise<void> {
    await this.#complaints.take(chunk);
  }

  /** The helper has ended. */
  async helperEnded(exit: Exit): Promise<void> {
    this.#helperExit = exit;
    await this.#program.tell('helperEnded', {});
  }

  /** Sends public keys again: those of the settings, or these. */
  async sync(keys: readonly string[] | undefined): Promise<KeyChanges> {
    return (await this.#program.call('sync', keys ? { keys } : {})) as KeyChanges;
  }

  /** Ends both programs, and has what the helper did undone. */
  async stop(): Promise<void> {
    await this.#program.tell('stop', {}).catch(() => undefined);
    if (!(await within(STOP_TIME, this.ended))) {
      this.#program.kill();
      await this.ended;
    }
  }

  #told(method: string, params: unknown): void {
    switch (method) {
      case 'bytes':
        this.#output.push(Buffer.from((params as { data: string }).data, 'base64'));
        break;
      case 'helper':
        this.#opened = this.#open((params as { arguments: string[] }).arguments);
        break;
      case 'ready':
        void this.#probe(params as Ready);
        break;
      case 'shared':
        this.#observer.shared((params as { status: BridgeStatus | null }).status ?? undefined);
        break;
      case 'status':
        this.#observer.status(params as BridgeStatus);
        break;
      case 'step':
        this.#step(params as Step);
        break;
      case 'ended':
        this.#said = ended(params as { why: Ended['why'] } & ProgramError);
        break;
      default:
        this.#observer.log(`keybridge tells of ${method}, which this extension doesn't know`);
    }
  }

  #step(step: Step): void {
    if (step.event === 'begun') {
      this.#observer.doing(step.doing);
    }
    const text = line(step);
    if (text) {
      this.#observer.log(text);
    }
  }

  async #open(words: readonly string[]): Promise<void> {
    try {
      await this.#remote.open(this.session, words);
    } catch (error) {
      this.#lost(asError(error));
    }
  }

  /** A question through the whole chain: it is never taken on trust that it works. */
  async #probe(ready: Ready): Promise<void> {
    const what = 'a question through the chain';
    this.#observer.doing(what);
    try {
      const version = ready.socket ? await this.#remote.probe(this.session, ready.socket) : '';
      const agent = version ? `gpg-agent ${printable(version)} answers` : '';
      this.#observer.log(`✓ ${what}: ${agent}`);
      this.#observer.ready(ready, agent);
    } catch (error) {
      this.#observer.log(`✗ ${what}`);
      const { message } = asError(error);
      this.#problem ??= new Problem(`${what}: ${printable(message)}`);
      await this.stop();
    }
  }

  /** The remote can't be reached any more, or never could. */
  #lost(error: Error): void {
    const { message } = error;
    this.#problem ??=
      error instanceof Problem ? error : new Problem(`the remote: ${printable(message)}`);
    this.#output.end();
    void this.#program.tell('helperEnded', {}).catch(() => undefined);
  }

  async #finish(exit: Exit): Promise<Ended> {
    this.#output.end();
    if (this.#opened) {
      // The end of its input would end the helper too, but not before its time is up.
      await this.#opened;
      await this.#remote.close(this.session).catch(() => undefined);
    }
    const said = this.#said;
    if (said?.why === 'stopped' && !this.#problem) {
      return said;
    }
    if (this.#problem) {
      return { why: 'failed', problem: this.#problem };
    }
    if (!said || said.why === 'stopped') {
      const how = exit.signal ?? `status ${exit.code ?? '?'}`;
      const problem = new Problem(`keybridge ended with ${how} and didn't say why`);
      return { why: isCrash(exit) ? 'broken' : 'failed', problem };
    }
    const hasCrashed = this.#helperExit && isCrash(this.#helperExit);
    return hasCrashed ? { ...said, why: 'broken' } : said;
  }
}

function ended(params: { why: Ended['why'] } & ProgramError): Ended {
  switch (params.why) {
    case 'stopped':
      return { why: 'stopped' };
    case 'broken':
    case 'failed':
      return { why: params.why, problem: problemOf(params) };
  }
}

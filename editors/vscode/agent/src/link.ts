import { parseChunk } from '../../channel/chunk.ts';
import { within } from '../../channel/deadline.ts';
import { type Exit, type Started, isCrash } from '../../channel/program.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import { Carried } from './carried.ts';
import { JsonRpcProgram } from './json-rpc.ts';
import { Problem, type ProgramError, problemOf } from './problem.ts';
import type { Remote } from './remote.ts';
import { type BridgeStatus, type KeyChanges, type Step, line } from './status.ts';

/** How a link came to its end. */
export type Ended =
  | { readonly why: 'stopped' }
  /** A program crashed; another try may work. */
  | { readonly why: 'crashed'; readonly problem: Problem }
  /** It can't be set up as things are. */
  | { readonly why: 'failed'; readonly problem: Problem };

/** What a link tells about itself. */
export interface Observer {
  doing(what: string): void;
  shared(status: BridgeStatus | undefined): void;
  status(status: BridgeStatus): void;
  log(line: string): void;
  /** A helper has crashed; says whether it may be started again. */
  mayGoOn(): boolean;
}

/** The longest line of `keybridge link`: a chunk, and the words around it. */
const MAX_LINE = 512 * 1024;

/** How long the end may take: the helper has ten seconds to undo what it did. */
const STOP_TIME = 15_000;

/** How long the remote may take to end what is left there. */
const END_TIME = 12_000;

/** One `keybridge link` from its start to its end, and the processes that it runs in the remote. */
export class Link {
  /** Resolves at the end, when all of its processes are gone. */
  readonly ended: Promise<Ended>;
  readonly #program: JsonRpcProgram;
  readonly #replaces: boolean;
  readonly #remote: Remote;
  readonly #observer: Observer;
  readonly #running = new Map<number, Carried>();
  #isReady = false;
  #hasCrashed = false;
  #said: Ended | undefined;
  #problem: Problem | undefined;

  /** `replaces` says whether the program was told to take the socket over. */
  constructor(started: Started, replaces: boolean, remote: Remote, observer: Observer) {
    this.#replaces = replaces;
    this.#remote = remote;
    this.#observer = observer;
    this.#program = new JsonRpcProgram(
      started,
      { received: MAX_LINE },
      (method, params) => {
        this.#told(method, params);
      },
      (text) => {
        observer.log(text);
      },
    );
    this.ended = this.#program.exited.then((exit) => this.#finish(exit));
  }

  /** The sessions that are open. */
  get sessions(): SessionId[] {
    return [...this.#running.values()].map(({ session }) => session);
  }

  /** Takes what a process wrote; resolves when the host's program has taken it. */
  async carry(chunk: unknown): Promise<void> {
    const parsed = parseChunk(chunk);
    await this.#known(parsed.session).take(parsed);
  }

  /** Takes what a process complains about. */
  async complain(chunk: unknown): Promise<void> {
    const parsed = parseChunk(chunk);
    await this.#known(parsed.session).complain(parsed);
  }

  /** Is told that a process has ended. */
  async helperEnded(session: unknown, exit: unknown): Promise<void> {
    const carried = this.#known(parseSessionId(session));
    const { code, signal } = (exit ?? {}) as Record<string, unknown>;
    await carried.exited({
      code:
        typeof code === 'number' && Number.isInteger(code) && code >> 0 === code ? code : undefined,
      signal: typeof signal === 'string' ? signal : undefined,
    });
  }

  /** Sends public keys again: those of the settings, or these. */
  async sync(keys: readonly string[] | undefined): Promise<KeyChanges> {
    return (await this.#program.call('sync', keys ? { keys } : {})) as KeyChanges;
  }

  /** Ends all programs, and has what the helper did undone. */
  async stop(): Promise<void> {
    await this.#program.tell('stop', {}).catch(() => undefined);
    if (!(await within(STOP_TIME, this.ended))) {
      this.#program.kill();
      await this.ended;
    }
  }

  #known(session: SessionId): Carried {
    for (const carried of this.#running.values()) {
      if (carried.session === session) {
        return carried;
      }
    }
    throw new Error(`unknown session id ${session}: no such session is open`);
  }

  #told(method: string, params: unknown): void {
    const of = params as { process: number; data: string; arguments: string[] };
    switch (method) {
      case 'input':
        this.#running.get(of.process)?.push(Buffer.from(of.data, 'base64'));
        break;
      case 'run':
        this.#run(of.process, of.arguments);
        break;
      case 'endInput':
        // A process that can't be reached is told by its end.
        this.#running
          .get(of.process)
          ?.endInput()
          .catch(() => undefined);
        break;
      case 'end':
        this.#running
          .get(of.process)
          ?.end()
          .catch(() => undefined);
        break;
      case 'ready':
        this.#isReady = true;
        this.#observer.status(params as BridgeStatus);
        break;
      case 'status':
        if (this.#isReady) {
          this.#observer.status(params as BridgeStatus);
        }
        break;
      case 'shared':
        this.#observer.shared((params as { status: BridgeStatus | null }).status ?? undefined);
        break;
      case 'step':
        this.#step(params as Step);
        break;
      case 'ended':
        this.#said = ended(params as { why: 'stopped' | 'failed' } & ProgramError, this.#replaces);
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

  #run(process: number, words: readonly string[]): void {
    const pass = (method: string) => (bytes: Buffer) =>
      this.#program.tell(method, { process, data: bytes.toString('base64') });
    const to = {
      output: pass('output'),
      complaint: pass('complaint'),
      exited: async (exit: Exit) => {
        this.#running.delete(process);
        this.#noteCrash(exit);
        await this.#program.tell('exited', { process, code: exit.code ?? null });
      },
    };
    const carried = new Carried(this.#remote, words, this.#program.newSource(), to, (error) => {
      this.#notStarted(carried, to.complaint, error);
    });
    this.#running.set(process, carried);
  }

  #notStarted(carried: Carried, complaint: (bytes: Buffer) => Promise<void>, error: Error): void {
    if (!this.#isReady) {
      this.#problem ??=
        error instanceof Problem ? error : new Problem(`the remote: ${error.message}`);
    }
    // The host's program tries again, or tells why it doesn't.
    complaint(Buffer.from(`${error.message}\n`))
      .then(() => carried.exited({ code: 1, signal: undefined }))
      .catch(() => undefined);
  }

  #noteCrash(exit: Exit): void {
    if (!isCrash(exit)) {
      return;
    }
    this.#hasCrashed = true;
    if (this.#isReady && !this.#observer.mayGoOn()) {
      this.#problem = new Problem('keybridge-remote in the remote crashed again and again');
      void this.stop();
    }
  }

  async #finish(exit: Exit): Promise<Ended> {
    for (const carried of this.#running.values()) {
      // The end of its input would end it too, but not before its time is up. A remote that doesn't
      // answer is not waited for.
      await within(
        END_TIME,
        carried.end().catch(() => undefined),
      );
    }
    this.#running.clear();
    const said = this.#said;
    if (this.#problem) {
      return { why: 'failed', problem: this.#problem };
    }
    if (!said) {
      const how = exit.signal ?? `status ${exit.code ?? '?'}`;
      const problem = new Problem(`keybridge ended with ${how} and didn't say why`);
      return { why: isCrash(exit) ? 'crashed' : 'failed', problem };
    }
    return said.why === 'failed' && this.#hasCrashed ? { ...said, why: 'crashed' } : said;
  }
}

function ended(params: { why: 'stopped' | 'failed' } & ProgramError, replaced: boolean): Ended {
  switch (params.why) {
    case 'stopped':
      return { why: 'stopped' };
    case 'failed':
      return { why: 'failed', problem: problemOf(params, replaced) };
  }
}

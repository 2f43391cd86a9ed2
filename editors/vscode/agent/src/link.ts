import { parseChunk } from '../../channel/chunk.ts';
import { within } from '../../channel/deadline.ts';
import { type Exit, type Started, isCrash } from '../../channel/program.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import { RemoteProcess } from './remote-process.ts';
import { JsonRpcProgram } from './json-rpc.ts';
import { Problem, type ProgramError, problemOf } from './problem.ts';
import type { Remote } from './remote.ts';
import { type BridgeStatus, type KeyChanges, type Step, line } from './status.ts';

/** How a link ended. */
export type Ended =
  | { readonly why: 'stopped' }
  /** A program crashed; another attempt may work. */
  | { readonly why: 'crashed'; readonly problem: Problem }
  /** It can't be set up; another attempt would fail too. */
  | { readonly why: 'failed'; readonly problem: Problem };

/** Receives what happens to a link. */
export interface Observer {
  doing(what: string): void;
  shared(status: BridgeStatus | undefined): void;
  status(status: BridgeStatus): void;
  log(line: string): void;
  /** Called when a helper crashed; returns whether it may be restarted. */
  mayGoOn(): boolean;
}

/** The longest line of `keybridge link`: a chunk and the JSON around it. */
const MAX_LINE = 512 * 1024;

/** The time limit for stopping: the helper has ten seconds to undo what it did. */
const STOP_TIME = 15_000;

/** The time limit for ending the remaining processes in the remote. */
const END_TIME = 12_000;

/** One `keybridge link` from its start to its end, and the processes that it runs in the remote. */
export class Link {
  /** Resolves when the link and all of its processes have ended. */
  readonly ended: Promise<Ended>;
  readonly #program: JsonRpcProgram;
  readonly #replaces: boolean;
  readonly #remote: Remote;
  readonly #observer: Observer;
  readonly #running = new Map<number, RemoteProcess>();
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

  /** Takes a chunk of a process's standard output; resolves when the host's program has taken it. */
  async carry(chunk: unknown): Promise<void> {
    const parsed = parseChunk(chunk);
    await this.#known(parsed.session).take(parsed);
  }

  /** Takes a chunk of a process's standard error. */
  async complain(chunk: unknown): Promise<void> {
    const parsed = parseChunk(chunk);
    await this.#known(parsed.session).complain(parsed);
  }

  /** Takes the exit of a process. */
  async helperEnded(session: unknown, exit: unknown): Promise<void> {
    const remoteProcess = this.#known(parseSessionId(session));
    const { code, signal } = (exit ?? {}) as Record<string, unknown>;
    await remoteProcess.exited({
      code:
        typeof code === 'number' && Number.isInteger(code) && code >> 0 === code ? code : undefined,
      signal: typeof signal === 'string' ? signal : undefined,
    });
  }

  /** Sends public keys again: those of the settings, or these. */
  async sync(keys: readonly string[] | undefined): Promise<KeyChanges> {
    return (await this.#program.call('sync', keys ? { keys } : {})) as KeyChanges;
  }

  /** Stops the link, and lets the helper undo what it did. */
  async stop(): Promise<void> {
    await this.#program.tell('stop', {}).catch(() => undefined);
    if (!(await within(STOP_TIME, this.ended))) {
      this.#program.kill();
      await this.ended;
    }
  }

  #known(session: SessionId): RemoteProcess {
    for (const remoteProcess of this.#running.values()) {
      if (remoteProcess.session === session) {
        return remoteProcess;
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
        // If the process can't be reached, its exit is reported.
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
        this.#observer.log(`keybridge sent ${method}, which this extension doesn't know`);
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
    const remoteProcess = new RemoteProcess(
      this.#remote,
      words,
      this.#program.newSource(),
      to,
      (error) => {
        this.#notStarted(remoteProcess, to.complaint, error);
      },
    );
    this.#running.set(process, remoteProcess);
  }

  #notStarted(
    remoteProcess: RemoteProcess,
    complaint: (bytes: Buffer) => Promise<void>,
    error: Error,
  ): void {
    if (!this.#isReady) {
      this.#problem ??= error instanceof Problem ? error : new Problem(error.message);
    }
    // The host's program tries again, or reports why it doesn't.
    complaint(Buffer.from(`${error.message}\n`))
      .then(() => remoteProcess.exited({ code: 1, signal: undefined }))
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
    for (const remoteProcess of this.#running.values()) {
      // Without this it would outlive the end of its input. A remote that doesn't answer must not block.
      await within(
        END_TIME,
        remoteProcess.end().catch(() => undefined),
      );
    }
    this.#running.clear();
    const said = this.#said;
    if (this.#problem) {
      return { why: 'failed', problem: this.#problem };
    }
    if (!said) {
      const how = exit.signal ?? `status ${exit.code ?? '?'}`;
      const problem = new Problem(`keybridge ended with ${how} and gave no reason`);
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

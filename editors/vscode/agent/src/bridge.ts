import { EventEmitter, once } from 'node:events';

import { parseChunk } from '../../channel/chunk.ts';
import { asError } from '../../channel/crossing.ts';
import { within } from '../../channel/deadline.ts';
import { printable } from '../../channel/printable.ts';
import { ProgramMissing, type Started } from '../../channel/program.ts';
import { Restarts } from '../../channel/restarts.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import { mismatch } from '../../channel/versions.ts';
import type { Ceiling } from './consent.ts';
import { type Ended, Link, type Observer } from './link.ts';
import { Problem } from './problem.ts';
import { REQUEST_EXTENSION, type Remote } from './remote.ts';
import type { BridgeStatus, KeyChanges } from './status.ts';

/** The state of a window's bridge. */
export type BridgeState =
  | { readonly name: 'off' }
  | { readonly name: 'starting'; readonly doing: string }
  /** Another window has the bridge of this remote; this one takes over when that ends. */
  | { readonly name: 'shared'; readonly status: BridgeStatus | undefined }
  | { readonly name: 'ready'; readonly status: BridgeStatus }
  /** The link is down and is being restored. */
  | { readonly name: 'waiting'; readonly status: BridgeStatus }
  | { readonly name: 'failed'; readonly problem: Problem };

/** What a bridge needs of the host's program. */
export interface Host {
  /** The version of this extension. */
  readonly extension: string;
  /** The version of the program. */
  version(): Promise<string>;
  /**
   * Starts `keybridge link`; with `replace` it takes the socket in the remote over from its owner. The file
   * `ceiling` says what it may lend at most.
   */
  startLink(replace: boolean, ceiling: string): Promise<Started>;
}

/** The time limit for the remote's versions; a slow remote may be just starting. */
const ANSWER_TIME = 60_000;

/** The bridge of a window: one link at a time, restarted when it crashes. */
export class Bridge {
  readonly #host: Host;
  readonly #remote: Remote;
  readonly #ceiling: Ceiling;
  readonly #changed: (state: BridgeState) => void;
  readonly #log: (line: string) => void;
  readonly #restarts = new Restarts();
  readonly #helperCrashes = new Restarts();
  readonly #changes = new EventEmitter();
  #state: BridgeState = { name: 'off' };
  #link: Link | undefined;
  #life: Promise<void> | undefined;
  #stopping = false;
  #stopAsked: Promise<void> = Promise.resolve();
  #askStop: () => void = () => undefined;

  constructor(
    host: Host,
    remote: Remote,
    ceiling: Ceiling,
    changed: (state: BridgeState) => void,
    log: (line: string) => void,
  ) {
    this.#host = host;
    this.#remote = remote;
    this.#ceiling = ceiling;
    this.#changed = changed;
    this.#log = log;
  }

  get state(): BridgeState {
    return this.#state;
  }

  /** The sessions that are open in the remote. */
  get sessions(): SessionId[] {
    return this.#link?.sessions ?? [];
  }

  /** Starts the bridge unless it is on; resolves when it works or has failed. */
  async start(replace = false): Promise<BridgeState> {
    if (!this.#life) {
      this.#stopping = false;
      this.#stopAsked = new Promise((resolve) => {
        this.#askStop = resolve;
      });
      this.#show({ name: 'starting', doing: 'starting' });
      this.#life = this.#live(replace).finally(() => {
        this.#life = undefined;
      });
    }
    while (this.#state.name === 'starting') {
      await once(this.#changes, 'change');
    }
    return this.#state;
  }

  /** Stops the bridge, which undoes the changes in the remote. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#askStop();
    await this.#link?.stop();
    await this.#life;
    this.#show({ name: 'off' });
  }

  /** Sends public keys again: those of the settings, or these. */
  async sync(keys?: readonly string[]): Promise<KeyChanges> {
    if (!this.#link) {
      throw new Error('keybridge is not on in this window');
    }
    return this.#link.sync(keys);
  }

  /** Takes a chunk of a remote process's standard output. */
  async carry(chunk: unknown): Promise<void> {
    await this.#known(parseChunk(chunk).session).carry(chunk);
  }

  /** Takes a chunk of a remote process's standard error. */
  async complain(chunk: unknown): Promise<void> {
    await this.#known(parseChunk(chunk).session).complain(chunk);
  }

  /** Takes the exit of a remote process. */
  async helperEnded(session: unknown, exit: unknown): Promise<void> {
    await this.#known(parseSessionId(session)).helperEnded(session, exit);
  }

  #known(session: SessionId): Link {
    if (!this.#link) {
      throw new Error(`unknown session id ${session}: no such session is open`);
    }
    return this.#link;
  }

  async #live(replace: boolean): Promise<void> {
    for (;;) {
      const ended = await this.#once(replace).catch((error: unknown): Ended => ({
        why: 'failed',
        problem: asProblem(error),
      }));
      this.#link = undefined;
      switch (ended.why) {
        case 'stopped':
          this.#show({ name: 'off' });
          return;
        case 'failed':
          this.#fail(ended.problem);
          return;
        case 'crashed':
          this.#log(`crashed: ${ended.problem.message}`);
          if (this.#stopping) {
            this.#show({ name: 'off' });
            return;
          }
          if (!this.#restarts.allow(Date.now())) {
            const text = `keybridge crashed again and again and is not restarted: ${ended.problem.message}`;
            this.#fail(new Problem(text));
            return;
          }
          this.#show({ name: 'starting', doing: 'starting again' });
      }
    }
  }

  async #once(replace: boolean): Promise<Ended> {
    if (!(await this.#checkVersions())) {
      return { why: 'stopped' };
    }
    const started = await this.#host.startLink(replace, this.#ceiling.path);
    this.#link = new Link(started, replace, this.#remote, this.#observer());
    if (this.#stopping) {
      await this.#link.stop();
    }
    return this.#link.ended;
  }

  /** Throws if the versions don't match; false if the bridge was stopped before they were known. */
  async #checkVersions(): Promise<boolean> {
    const program = await this.#host.version();
    const asked = this.#remote.versions();
    const answered = Promise.race([asked, this.#stopAsked]);
    if (!(await within(ANSWER_TIME, answered))) {
      throw new Problem(`the remote doesn't answer within ${ANSWER_TIME / 1000} s`);
    }
    if (this.#stopping) {
      return false;
    }
    const there = await asked;
    const wrong = mismatch([
      {
        name: 'keybridge-agent on this machine',
        version: this.#host.extension,
        extension: AGENT_EXTENSION,
      },
      { name: 'keybridge on this machine', version: program, extension: AGENT_EXTENSION },
      {
        name: 'keybridge-request in the remote',
        version: printable(there.extension),
        extension: REQUEST_EXTENSION,
      },
      {
        name: 'keybridge-remote in the remote',
        version: printable(there.helper),
        extension: REQUEST_EXTENSION,
      },
    ]);
    if (wrong) {
      const fix = { kind: 'show-extension', id: wrong.update.extension } as const;
      throw new Problem(`the versions don't match: ${wrong.text}`, fix);
    }
    return true;
  }

  #observer(): Observer {
    return {
      doing: (doing) => {
        this.#show({ name: 'starting', doing });
      },
      shared: (status) => {
        this.#show({ name: 'shared', status });
      },
      status: (status) => {
        this.#show({ name: status.state === 'ready' ? 'ready' : 'waiting', status });
      },
      mayGoOn: () => this.#helperCrashes.allow(Date.now()),
      log: (line) => {
        this.#log(line);
      },
    };
  }

  #fail(problem: Problem): void {
    this.#log(`failed: ${problem.message}`);
    this.#show({ name: 'failed', problem });
  }

  #show(state: BridgeState): void {
    this.#state = state;
    this.#changed(state);
    this.#changes.emit('change');
  }
}

/** The identifier of this extension. */
export const AGENT_EXTENSION = 'keybridge.keybridge-agent';

function asProblem(thrown: unknown): Problem {
  if (thrown instanceof Problem) {
    return thrown;
  }
  const { message } = asError(thrown);
  return thrown instanceof ProgramMissing
    ? new Problem(message, { kind: 'open-setting', setting: thrown.setting })
    : new Problem(message);
}

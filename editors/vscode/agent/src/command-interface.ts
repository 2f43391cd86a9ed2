import { within } from '../../channel/deadline.ts';
import type { Started } from '../../channel/program.ts';
import { Restarts } from '../../channel/restarts.ts';
import { CallRejected, JsonRpcProgram } from './json-rpc.ts';

const MIB = 1024 * 1024;

const LINE_LIMITS = {
  /** The limit of `keybridge rpc`, which can't say which call a longer line was. */
  sent: 24 * MIB,
  /** A response of 16 MiB in which every byte takes six, or 64 MiB of armour and whose keys it has. */
  received: 128 * MIB,
};

/** How long the program may take to end the sessions that are left. */
const END_TIME = 5_000;

/** Public keys in armour, and what is in it. */
export interface ExportedKeys {
  readonly armored: string;
  readonly keys: readonly { readonly fingerprint: string; readonly userId: string }[];
  readonly warnings: readonly string[];
}

/** The commands by which the agent is driven, on `keybridge rpc`, which runs from the first call on. */
export class CommandInterface {
  readonly #start: () => Promise<Started>;
  readonly #changed: () => void;
  readonly #log: (line: string) => void;
  readonly #restarts = new Restarts();
  readonly #sessions = new Set<string>();
  #program: Promise<JsonRpcProgram> | undefined;
  #hasCrashed = false;
  #isEnding = false;

  constructor(start: () => Promise<Started>, changed: () => void, log: (line: string) => void) {
    this.#start = start;
    this.#changed = changed;
    this.#log = log;
  }

  /** How many sessions are connected, as far as is known here. */
  get sessions(): number {
    return this.#sessions.size;
  }

  /** Connects to the agent, under an id of the caller's or a new one. */
  async connectAgent(sessionId?: unknown): Promise<{ sessionId: string; greeting: string }> {
    const params = sessionId === undefined || sessionId === null ? {} : { sessionId };
    const connected = await this.#call('connectAgent', params);
    const result = connected as { sessionId: string; greeting: string };
    this.#sessions.add(result.sessionId);
    this.#changed();
    return result;
  }

  /** Gives a session lines of a client, and gets the agent's answers. */
  async sendCommands(sessionId?: unknown, block?: unknown): Promise<{ response: string }> {
    const result = await this.#sessionCall('sendCommands', { sessionId, block });
    return result as { response: string };
  }

  /** Ends a session, whatever it is doing. */
  async disconnectAgent(sessionId?: unknown): Promise<void> {
    await this.#sessionCall('disconnectAgent', { sessionId });
    this.#forget(sessionId);
  }

  /** Exports public keys: `pairs`, `all`, a key, or a list of keys. None may be there. */
  async exportPublicKeys(filter: unknown = 'pairs'): Promise<ExportedKeys> {
    return (await this.#call('exportPublicKeys', { filter })) as ExportedKeys;
  }

  /** Says whether a caller of this version is understood. */
  async checkVersion(version?: unknown): Promise<{ version: string; compatible: boolean }> {
    const result = await this.#call('checkVersion', { version });
    return result as { version: string; compatible: boolean };
  }

  /** Ends the program, and every session with it. */
  async end(): Promise<void> {
    const program = await this.#program?.catch(() => undefined);
    if (program) {
      // An end that was wanted is no crash.
      this.#isEnding = true;
      // A session that waits for a person would keep the program.
      for (const sessionId of this.#sessions) {
        program.call('disconnectAgent', { sessionId }).catch(() => undefined);
      }
      program.endInput();
      if (!(await within(END_TIME, program.exited))) {
        program.kill();
        await program.exited;
      }
    }
  }

  async #sessionCall(
    method: string,
    params: { sessionId: unknown; block?: unknown },
  ): Promise<unknown> {
    try {
      return await this.#call(method, params);
    } catch (error) {
      if (error instanceof CallRejected && ['ended', 'unknownId'].includes(error.kind ?? '')) {
        this.#forget(params.sessionId);
      }
      throw error;
    }
  }

  #forget(sessionId: unknown): void {
    if (typeof sessionId === 'string' && this.#sessions.delete(sessionId.toLowerCase())) {
      this.#changed();
    }
  }

  async #call(method: string, params: object): Promise<unknown> {
    this.#program ??= this.#run();
    return (await this.#program).call(method, params);
  }

  async #run(): Promise<JsonRpcProgram> {
    try {
      // One that can't be started at all says why, each time.
      if (this.#hasCrashed && !this.#restarts.allow(Date.now())) {
        throw new Error('keybridge rpc ended again and again and is not restarted for now');
      }
      this.#hasCrashed = false;
      this.#isEnding = false;
      const started = await this.#start();
      const program = new JsonRpcProgram(started, LINE_LIMITS, () => undefined, this.#log);
      void program.exited.then(() => {
        this.#program = undefined;
        this.#hasCrashed = !this.#isEnding;
        this.#sessions.clear();
        this.#changed();
      });
      return program;
    } catch (error) {
      this.#program = undefined;
      throw error;
    }
  }
}

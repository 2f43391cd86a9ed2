import { parseChunk } from '../../channel/chunk.ts';
import { orFailed } from '../../channel/failure.ts';
import { outputOf } from '../../channel/program.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import { versionIn } from '../../channel/versions.ts';
import { type Agent, Helper } from './helper.ts';

/** How the helper is found and started. */
export interface Setup {
  /** The file of the helper. */
  program(): Promise<string>;
  /** Its environment. */
  environment(): Promise<NodeJS.ProcessEnv>;
}

/** The versions in the remote. */
export interface Versions {
  readonly extension: string;
  readonly helper: string;
}

/** The most arguments for a helper; none needs so many. */
const MAX_WORDS = 64;

/** The most helpers at once; so many are never needed. */
const MAX_HELPERS = 16;

/** What a helper may be started for: anything but to remove itself. */
const VERBS = ['serve', 'undo'];

/** What the other extension can request: starting helpers, and sending bytes to them. */
export class Requests {
  readonly #setup: Setup;
  readonly #agent: Agent;
  readonly #extension: string;
  /** The helpers that run or are being started. */
  readonly #helpers = new Map<SessionId, Promise<Helper>>();

  constructor(setup: Setup, agent: Agent, extension: string) {
    this.#setup = setup;
    this.#agent = agent;
    this.#extension = extension;
  }

  /** The versions of this extension and of the helper. */
  async versions(): Promise<Versions> {
    const said = await outputOf(
      await this.#setup.program(),
      ['--version'],
      await this.#setup.environment(),
    );
    return { extension: this.#extension, helper: versionIn(said) };
  }

  /** Starts a helper for a new session. */
  async open(session: unknown, words: unknown): Promise<void> {
    const id = parseSessionId(session);
    const parsed = parseWords(words);
    if (this.#helpers.has(id)) {
      throw new Error(`the session id ${id} is in use`);
    }
    if (this.#helpers.size >= MAX_HELPERS) {
      throw new Error(`${MAX_HELPERS} sessions are open already, which is the limit`);
    }
    const helper = this.#start(id, parsed);
    this.#helpers.set(id, helper);
    const forget = (): void => void this.#helpers.delete(id);
    helper.then(({ ended }) => ended.then(forget)).catch(forget);
    await helper;
  }

  /** Sends a chunk to a helper; resolves when the helper has taken it. */
  async carry(chunk: unknown): Promise<void> {
    const parsed = parseChunk(chunk);
    await (await this.#known(parsed.session)).take(parsed);
  }

  /** Closes a helper's standard input. */
  async endInput(session: unknown): Promise<void> {
    (await this.#known(parseSessionId(session))).endInput();
  }

  /** Ends a helper; it is no error if it has ended already. */
  async close(session: unknown): Promise<void> {
    const helper = await this.#helpers.get(parseSessionId(session));
    await helper?.end();
  }

  /** Ends all helpers. */
  async end(): Promise<void> {
    const ends = [...this.#helpers.values()].map(async (helper) => {
      await (await helper).end();
    });
    await Promise.allSettled(ends);
  }

  async #start(session: SessionId, words: readonly string[]): Promise<Helper> {
    const [program, env] = [await this.#setup.program(), await this.#setup.environment()];
    return Helper.start(session, program, words, env, this.#agent);
  }

  #known(session: SessionId): Promise<Helper> {
    const helper = this.#helpers.get(session);
    if (!helper) {
      throw new Error(`unknown session id ${session}: no such session is open`);
    }
    return helper;
  }
}

function parseWords(value: unknown): string[] {
  const words: unknown[] = Array.isArray(value) ? value : [];
  const texts = words.filter((word) => typeof word === 'string');
  const isKnown = VERBS.includes(texts[0] ?? '');
  if (texts.length === words.length && isKnown && texts.length <= MAX_WORDS) {
    return texts;
  }
  throw new Error('expected arguments for keybridge-remote, got something else');
}

/** The handlers of this extension's commands. */
export function handlersOf(requests: Requests) {
  return {
    versions: () => orFailed(requests.versions()),
    open: (session?: unknown, words?: unknown) => orFailed(requests.open(session, words)),
    carry: (chunk?: unknown) => requests.carry(chunk),
    endInput: (session?: unknown) => requests.endInput(session),
    close: (session?: unknown) => requests.close(session),
  };
}

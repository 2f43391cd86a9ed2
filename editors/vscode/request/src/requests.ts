import { parseChunk } from '../../channel/chunk.ts';
import { orFailed } from '../../channel/failure.ts';
import { outputOf } from '../../channel/program.ts';
import { type SessionId, parseSessionId } from '../../channel/session-id.ts';
import { type Agent, Helper } from './helper.ts';

/** How the helper is found and started here. */
export interface Setup {
  /** The file of the helper. */
  program(): Promise<string>;
  /** The environment that it gets. */
  environment(): Promise<NodeJS.ProcessEnv>;
}

/** What this side is. */
export interface Versions {
  readonly extension: string;
  readonly helper: string;
}

/** More words than any helper takes. */
const MAX_WORDS = 64;

/** More helpers than are ever needed at once. */
const MAX_HELPERS = 16;

/** What a helper can be asked to do: all but to remove itself. */
const VERBS = ['serve', 'undo'];

/** What the other extension can ask for: helpers, and bytes to them. */
export class Requests {
  readonly #setup: Setup;
  readonly #agent: Agent;
  readonly #extension: string;
  /** Those that run, and those that are just being started. */
  readonly #helpers = new Map<SessionId, Promise<Helper>>();

  constructor(setup: Setup, agent: Agent, extension: string) {
    this.#setup = setup;
    this.#agent = agent;
    this.#extension = extension;
  }

  /** Says which versions are here. */
  async versions(): Promise<Versions> {
    const said = await outputOf(
      await this.#setup.program(),
      ['--version'],
      await this.#setup.environment(),
    );
    return { extension: this.#extension, helper: said.split(' ').at(-1) ?? said };
  }

  /** Starts a helper for a new session. */
  async open(session: unknown, words: unknown): Promise<void> {
    const id = parseSessionId(session);
    const parsed = parseWords(words);
    if (this.#helpers.has(id)) {
      throw new Error(`the session id ${id} is in use`);
    }
    if (this.#helpers.size >= MAX_HELPERS) {
      throw new Error(`there are ${MAX_HELPERS} sessions already, which is the limit`);
    }
    const helper = this.#start(id, parsed);
    this.#helpers.set(id, helper);
    const forget = (): void => void this.#helpers.delete(id);
    helper.then(({ ended }) => ended.then(forget)).catch(forget);
    await helper;
  }

  /** Takes bytes for a helper; resolves when it has taken them. */
  async carry(chunk: unknown): Promise<void> {
    const parsed = parseChunk(chunk);
    await (await this.#known(parsed.session)).take(parsed);
  }

  /** Ends the input of a helper. */
  async endInput(session: unknown): Promise<void> {
    (await this.#known(parseSessionId(session))).endInput();
  }

  /** Ends a helper; one that has ended already is no error. */
  async close(session: unknown): Promise<void> {
    const helper = await this.#helpers.get(parseSessionId(session));
    await helper?.end();
  }

  /** Ends whatever runs. */
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

/** What stands behind the commands of this extension. */
export function handlersOf(requests: Requests) {
  return {
    versions: () => orFailed(requests.versions()),
    open: (session?: unknown, words?: unknown) => orFailed(requests.open(session, words)),
    carry: (chunk?: unknown) => requests.carry(chunk),
    endInput: (session?: unknown) => requests.endInput(session),
    close: (session?: unknown) => requests.close(session),
  };
}

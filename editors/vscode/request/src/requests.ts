import { parseChunk } from '../../channel/chunk.ts';
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

/** What the other extension can ask for: one helper at a time, and bytes to it. */
export class Requests {
  readonly #setup: Setup;
  readonly #agent: Agent;
  readonly #extension: string;
  #helper: Helper | undefined;
  #opening: Promise<void> = Promise.resolve();

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

  /** Starts the helper for a new session. One of an earlier session is ended first. */
  async open(session: unknown, words: unknown): Promise<void> {
    const id = parseSessionId(session);
    const parsed = parseWords(words);
    const opened = this.#opening.then(() => this.#open(id, parsed));
    // The next one waits for this one, however it ends.
    this.#opening = opened.catch(() => undefined);
    await opened;
  }

  /** Takes bytes for the helper; resolves when it has taken them. */
  async carry(chunk: unknown): Promise<void> {
    const parsed = parseChunk(chunk);
    await this.#known(parsed.session).take(parsed);
  }

  /** Asks the agent through a socket of the helper, as any client here would. */
  async probe(session: unknown, socket: unknown): Promise<string> {
    this.#known(parseSessionId(session));
    if (typeof socket !== 'string' || !socket.startsWith('/')) {
      throw new Error('expected the path of a socket, got something else');
    }
    const program = await this.#setup.program();
    return outputOf(program, ['probe', socket], await this.#setup.environment());
  }

  /** Ends the helper of a session; one that has ended already is no error. */
  async close(session: unknown): Promise<void> {
    const id = parseSessionId(session);
    if (this.#helper?.session === id) {
      await this.#helper.end();
    }
  }

  /** Ends whatever runs. */
  async end(): Promise<void> {
    await this.#opening;
    await this.#helper?.end();
  }

  async #open(session: SessionId, words: readonly string[]): Promise<void> {
    if (this.#helper?.session === session) {
      throw new Error(`the session id ${session} is in use`);
    }
    await this.#helper?.end();
    const [program, env] = [await this.#setup.program(), await this.#setup.environment()];
    const helper = await Helper.start(session, program, words, env, this.#agent);
    this.#helper = helper;
    void helper.ended.then(() => {
      if (this.#helper === helper) {
        this.#helper = undefined;
      }
    });
  }

  #known(session: SessionId): Helper {
    if (this.#helper?.session !== session) {
      throw new Error(`unknown session id ${session}: no such session is open`);
    }
    return this.#helper;
  }
}

function parseWords(value: unknown): string[] {
  const words: unknown[] = Array.isArray(value) ? value : [];
  const texts = words.filter((word) => typeof word === 'string');
  if (texts.length === words.length && texts[0] === 'serve' && texts.length <= MAX_WORDS) {
    return texts;
  }
  throw new Error('expected the arguments of keybridge-remote serve, got something else');
}

/** What stands behind the commands of this extension. */
export function handlersOf(requests: Requests) {
  return {
    versions: () => requests.versions(),
    open: (session?: unknown, words?: unknown) => requests.open(session, words),
    carry: (chunk?: unknown) => requests.carry(chunk),
    probe: (session?: unknown, socket?: unknown) => requests.probe(session, socket),
    close: (session?: unknown) => requests.close(session),
  };
}

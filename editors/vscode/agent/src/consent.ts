/** A person's answer about a remote. */
export type Answer = 'yes' | 'no';

/** Stores answers across windows. */
export interface Memory {
  get(key: string): unknown;
  update(key: string, value: unknown): PromiseLike<void>;
}

/** The remote that consent is given for. */
export interface RemoteName {
  /** The authority, or what stands for it. */
  readonly name: string;
  /** Whether the name is unique to this remote, so that an answer can be stored. */
  readonly isCertain: boolean;
  /** What the folders and the workspace file name instead, where they don't agree on one remote. */
  readonly places?: readonly string[];
}

/** What a remote may be lent at most. */
export interface Ceiling {
  /** The file that says it. */
  readonly path: string;
  /** Sets it to what could be lent now. */
  raise(): Promise<void>;
  /** Removes it: nothing is lent then. */
  remove(): void;
}

/**
 * A person's consent that a remote may use this machine's keys: asked once, and stored. What may be lent at
 * most is set by an answer of the person's, lasts as long as the consent, and ends with it.
 */
export class Consent {
  readonly ceiling: Ceiling;
  readonly #remote: RemoteName;
  readonly #memory: Memory;
  readonly #ask: () => Promise<Answer | undefined>;
  #here: Answer | undefined;
  #asking: Promise<Answer | undefined> | undefined;
  #askingForNew: Promise<boolean> | undefined;

  constructor(
    remote: RemoteName,
    memory: Memory,
    ceiling: Ceiling,
    ask: () => Promise<Answer | undefined>,
  ) {
    this.ceiling = ceiling;
    this.#remote = remote;
    this.#memory = memory;
    this.#ask = ask;
  }

  /** The answer that was given, if one was. */
  get answer(): Answer | undefined {
    const kept = this.#remote.isCertain ? this.#memory.get(this.#key) : this.#here;
    return kept === 'yes' || kept === 'no' ? kept : undefined;
  }

  /** Asks, whatever the answer was before, and stores the new one. No answer changes nothing. */
  async ask(): Promise<Answer | undefined> {
    // One question at a time, however many wait for its answer.
    this.#asking ??= this.#askAndKeep().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** Asks whether what is new on this machine is lent too; whether it is. */
  async askForNew(ask: () => Promise<boolean>): Promise<boolean> {
    this.#askingForNew ??= this.#lendNew(ask).finally(() => {
      this.#askingForNew = undefined;
    });
    return this.#askingForNew;
  }

  /** Forgets the answer. */
  async forget(): Promise<void> {
    await this.#keep(undefined);
  }

  async #askAndKeep(): Promise<Answer | undefined> {
    const answer = await this.#ask();
    if (answer) {
      await this.#keep(answer);
    }
    return answer;
  }

  async #lendNew(ask: () => Promise<boolean>): Promise<boolean> {
    // It may have been withdrawn while the question was open.
    if (!(await ask()) || this.answer !== 'yes') {
      return false;
    }
    await this.ceiling.raise();
    return true;
  }

  async #keep(answer: Answer | undefined): Promise<void> {
    if (answer === 'yes') {
      this.ceiling.remove();
      // If the keys can't be listed now, all are new later.
      await this.ceiling.raise().catch(() => undefined);
    }
    this.#here = answer;
    if (this.#remote.isCertain) {
      await this.#memory.update(this.#key, answer);
    }
    if (answer !== 'yes') {
      this.ceiling.remove();
    }
  }

  get #key(): string {
    return `consent:${this.#remote.name}`;
  }
}

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
}

/** A person's consent that a remote may use this machine's keys: asked once, and stored. */
export class Consent {
  readonly #remote: RemoteName;
  readonly #memory: Memory;
  readonly #ask: () => Promise<Answer | undefined>;
  #here: Answer | undefined;
  #asking: Promise<Answer | undefined> | undefined;

  constructor(remote: RemoteName, memory: Memory, ask: () => Promise<Answer | undefined>) {
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
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    const answer = await this.#asking;
    if (answer) {
      await this.#keep(answer);
    }
    return answer;
  }

  /** Forgets the answer. */
  async forget(): Promise<void> {
    await this.#keep(undefined);
  }

  async #keep(answer: Answer | undefined): Promise<void> {
    this.#here = answer;
    if (this.#remote.isCertain) {
      await this.#memory.update(this.#key, answer);
    }
  }

  get #key(): string {
    return `consent:${this.#remote.name}`;
  }
}

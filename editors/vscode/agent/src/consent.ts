/** What a person has said about a remote. */
export type Answer = 'yes' | 'no';

/** Keeps answers from one window to the next. */
export interface Memory {
  get(key: string): unknown;
  update(key: string, value: unknown): PromiseLike<void>;
}

/** A remote, as consent is given for it. */
export interface RemoteName {
  /** The authority, or what stands for it. */
  readonly name: string;
  /** Whether the name tells this remote from all others, so that an answer can be kept. */
  readonly isCertain: boolean;
}

/** The consent of a person that a remote may use this machine's keys: asked once, and kept. */
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

  /** Asks, whatever was answered before, and keeps the answer. No answer changes nothing. */
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

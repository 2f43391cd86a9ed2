import type { ParsedChunk } from './chunk.ts';

/**
 * The receiving end of one direction of a session. A chunk that isn't the next one is refused and changes
 * nothing: it may come from somebody else.
 */
export class Receiver {
  readonly #write: (bytes: Buffer) => Promise<void>;
  #expected = 0;
  #taking = false;

  /** `write` resolves when the bytes were taken; the sender waits for that. */
  constructor(write: (bytes: Buffer) => Promise<void>) {
    this.#write = write;
  }

  /** Resolves when the bytes of the chunk were taken. */
  async take(chunk: ParsedChunk): Promise<void> {
    const { sequence, bytes } = chunk;
    if (sequence < this.#expected) {
      throw new Error(`chunk ${sequence} came twice: expected chunk ${this.#expected}`);
    }
    if (sequence > this.#expected) {
      throw new Error(`chunk ${sequence} is out of order: expected chunk ${this.#expected}`);
    }
    if (this.#taking) {
      throw new Error(`chunk ${sequence} came too early: another call is under way`);
    }
    this.#taking = true;
    try {
      await this.#write(bytes);
      this.#expected += 1;
    } finally {
      this.#taking = false;
    }
  }
}

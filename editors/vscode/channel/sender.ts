import { type Chunk, MAX_BYTES } from './chunk.ts';
import type { SessionId } from './session-id.ts';

/** Where the bytes come from; paused while too many of them are buffered here. */
export interface Source {
  pause(): void;
  resume(): void;
}

/**
 * The sending end of one direction of a session. One call is under way at a time; the next one sends
 * everything that has come meanwhile.
 */
export class Sender {
  readonly #session: SessionId;
  readonly #source: Source;
  readonly #call: (chunk: Chunk) => Promise<void>;
  readonly #failed: (error: Error) => void;
  #held: Buffer[] = [];
  #size = 0;
  #sequence = 0;
  #sending: Promise<void> | undefined;
  #ended = false;

  /** `failed` is called at most once, when a call is rejected; nothing is sent after that. */
  constructor(
    session: SessionId,
    source: Source,
    call: (chunk: Chunk) => Promise<void>,
    failed: (error: Error) => void,
  ) {
    this.#session = session;
    this.#source = source;
    this.#call = call;
    this.#failed = failed;
  }

  /** Sends bytes. */
  push(bytes: Buffer): void {
    if (this.#ended || bytes.length === 0) {
      return;
    }
    this.#held.push(bytes);
    this.#size += bytes.length;
    if (this.#size >= MAX_BYTES) {
      this.#source.pause();
    }
    this.#sending ??= this.#send();
  }

  /** Resolves when the other end has taken everything, or sending has failed. */
  async flushed(): Promise<void> {
    await this.#sending;
  }

  /** Drops what is buffered; nothing more is sent. */
  end(): void {
    this.#ended = true;
    this.#held = [];
    this.#size = 0;
  }

  async #send(): Promise<void> {
    while (this.#size > 0) {
      const data = this.#take().toString('base64');
      try {
        await this.#call({ session: this.#session, sequence: this.#sequence++, data });
      } catch (error) {
        if (!this.#ended) {
          this.end();
          this.#failed(error instanceof Error ? error : new Error(String(error)));
        }
      }
    }
    this.#sending = undefined;
  }

  #take(): Buffer {
    const all = this.#held.length === 1 ? this.#held[0] : undefined;
    const bytes = all ?? Buffer.concat(this.#held, this.#size);
    const now = bytes.subarray(0, MAX_BYTES);
    const rest = bytes.subarray(MAX_BYTES);
    this.#held = rest.length > 0 ? [rest] : [];
    this.#size = rest.length;
    if (this.#size < MAX_BYTES) {
      this.#source.resume();
    }
    return now;
  }
}

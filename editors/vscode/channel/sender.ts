import { type Chunk, MAX_BYTES } from './chunk.ts';
import type { SessionId } from './session-id.ts';

/** Where the bytes come from; told to wait while too many of them are held here. */
export interface Source {
  pause(): void;
  resume(): void;
}

/**
 * One direction of a session, at the end where its bytes come from. One call is under way at a time;
 * what comes meanwhile goes with the next one, however many frames it is.
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

  /** `failed` is called once at most, when a call was rejected; nothing is sent after that. */
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

  /** Takes bytes to send. */
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

  /** Resolves when all that was pushed has been taken at the other end, or can't be any more. */
  async flushed(): Promise<void> {
    await this.#sending;
  }

  /** Drops what is held; nothing more is sent. */
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

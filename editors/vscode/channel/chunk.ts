import { type SessionId, parseSessionId } from './session-id.ts';

/** The longest text of a chunk, in characters. A call of this size takes well under a second. */
export const MAX_TEXT = 256 * 1024;

/** The bytes that this many characters of base64 encode. */
export const MAX_BYTES = (MAX_TEXT / 4) * 3;

/** Bytes of one direction of a session, in a form that JSON can carry. */
export interface Chunk {
  readonly session: string;
  /** Counts the chunks of this direction, from 0. */
  readonly sequence: number;
  /** The bytes in base64. */
  readonly data: string;
}

/** A chunk that was checked. */
export interface ParsedChunk {
  readonly session: SessionId;
  readonly sequence: number;
  readonly bytes: Buffer;
}

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

/** Checks a chunk; throws an error that says what is wrong with it. */
export function parseChunk(value: unknown): ParsedChunk {
  const { session, sequence, data } = (value ?? {}) as Partial<Record<keyof Chunk, unknown>>;
  const id = parseSessionId(session);
  if (typeof sequence !== 'number' || !Number.isSafeInteger(sequence) || sequence < 0) {
    throw new Error('expected the sequence number of a chunk, from 0 up, got something else');
  }
  if (typeof data !== 'string' || data.length === 0) {
    throw new Error(`expected the text of chunk ${sequence}, got none`);
  }
  if (data.length > MAX_TEXT) {
    throw new Error(
      `chunk ${sequence} is too large: at most ${MAX_TEXT} characters, got ${data.length}`,
    );
  }
  if (data.length % 4 !== 0 || !BASE64.test(data)) {
    throw new Error(`expected chunk ${sequence} as base64, got something else`);
  }
  return { session: id, sequence, bytes: Buffer.from(data, 'base64') };
}

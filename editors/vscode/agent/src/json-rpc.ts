import type { ChildProcessWithoutNullStreams } from 'node:child_process';

import { type Exit, type Started, write } from '../../channel/program.ts';
import type { Source } from '../../channel/sender.ts';

/** The error of a call that the program rejected. */
export class CallRejected extends Error {
  /** Its kind, if the program names one. */
  readonly kind: string | undefined;

  /** What a person can do about it. */
  readonly hints: readonly string[];

  constructor(message: string, kind: string | undefined, hints: readonly string[]) {
    super(message);
    this.kind = kind;
    this.hints = hints;
  }
}

interface Waiting {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

interface Message {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: {
    readonly message?: unknown;
    readonly data?: { readonly kind?: unknown; readonly hints?: unknown };
  };
}

/** The longest lines, in bytes. */
export interface LineLimits {
  /** A longer call is rejected. */
  readonly sent?: number;
  /** A longer line is dropped. */
  readonly received: number;
}

/** A program that speaks JSON-RPC 2.0 over its standard input and output, one message on each line. */
export class JsonRpcProgram {
  /** Resolves when the program has ended, which rejects every call under way. */
  readonly exited: Promise<Exit>;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #maxSent: number;
  readonly #told: (method: string, params: unknown) => void;
  readonly #calls = new Map<number, Waiting>();
  readonly #waiting = new Set<Source>();
  #last = 0;

  constructor(
    { child, exited }: Started,
    { sent = Infinity, received }: LineLimits,
    told: (method: string, params: unknown) => void,
    said: (line: string) => void,
  ) {
    this.#child = child;
    this.#maxSent = sent;
    this.#told = told;
    const output = new Lines(received, (line) => {
      this.#received(line, said);
    });
    const complaints = new Lines(MAX_LOG_LINE, said);
    child.stdout.on('data', (bytes: Buffer) => {
      output.push(bytes);
    });
    child.stderr.on('data', (bytes: Buffer) => {
      complaints.push(bytes);
    });
    this.exited = exited.then((exit) => {
      const how = exit.signal ?? `status ${exit.code ?? '?'}`;
      for (const { reject } of this.#calls.values()) {
        reject(new Error(`keybridge ended with ${how} before it answered`));
      }
      this.#calls.clear();
      return exit;
    });
  }

  /** Calls a method, and waits for the result. */
  async call(method: string, params: object): Promise<unknown> {
    const id = (this.#last += 1);
    const line = lineOf({ jsonrpc: '2.0', id, method, params });
    const size = Buffer.byteLength(line);
    if (size > this.#maxSent) {
      throw new Error(`a call of ${size} bytes is too large: the limit is ${this.#maxSent}`);
    }
    const answer = new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
    });
    write(this.#child, line).catch(async () => {
      // The program has ended or is about to, which rejects the earlier calls.
      await this.exited;
      this.#calls.get(id)?.reject(new Error('keybridge has ended and accepts no more calls'));
      this.#calls.delete(id);
    });
    return answer;
  }

  /** Sends a notification; resolves when the program's input has taken it. */
  async tell(method: string, params: object): Promise<void> {
    await write(this.#child, lineOf({ jsonrpc: '2.0', method, params }));
  }

  /** A source for bytes of this program. The program's output isn't read while any source is paused. */
  newSource(): Source {
    const source = {
      pause: () => {
        this.#waiting.add(source);
        this.#child.stdout.pause();
      },
      resume: () => {
        this.#waiting.delete(source);
        if (this.#waiting.size === 0) {
          this.#child.stdout.resume();
        }
      },
    };
    return source;
  }

  /** Closes the program's input, at which it ends. */
  endInput(): void {
    this.#child.stdin.end();
  }

  /** Kills the program. */
  kill(): void {
    this.#child.kill('SIGKILL');
  }

  #received(line: string, said: (line: string) => void): void {
    let message: Message;
    try {
      message = JSON.parse(line) as Message;
    } catch {
      said(`keybridge wrote a line of ${line.length} characters that isn't JSON`);
      return;
    }
    if (typeof message.method === 'string') {
      this.#told(message.method, message.params);
      return;
    }
    const waiting = typeof message.id === 'number' ? this.#calls.get(message.id) : undefined;
    if (!waiting) {
      return;
    }
    this.#calls.delete(message.id as number);
    if (message.error) {
      const { message: text, data } = message.error;
      const kind = typeof data?.kind === 'string' ? data.kind : undefined;
      const hints = Array.isArray(data?.hints) ? data.hints.map(String) : [];
      waiting.reject(new CallRejected(String(text), kind, hints));
    } else {
      waiting.resolve(message.result);
    }
  }
}

function lineOf(message: object): string {
  return `${JSON.stringify(message)}\n`;
}

/** The longest line of the log that is shown. */
const MAX_LOG_LINE = 16 * 1024;

/** Splits a program's output into lines; lines over the limit are dropped. */
class Lines {
  readonly #limit: number;
  readonly #line: (line: string) => void;
  #parts: Buffer[] = [];
  #size = 0;

  constructor(limit: number, line: (line: string) => void) {
    this.#limit = limit;
    this.#line = line;
  }

  push(bytes: Buffer): void {
    let rest = bytes;
    for (let end = rest.indexOf(LF); end >= 0; end = rest.indexOf(LF)) {
      this.#add(rest.subarray(0, end));
      this.#flush();
      rest = rest.subarray(end + 1);
    }
    this.#add(rest);
  }

  #add(part: Buffer): void {
    this.#size += part.length;
    if (this.#size > this.#limit) {
      this.#parts = [];
    } else if (part.length > 0) {
      this.#parts.push(part);
    }
  }

  #flush(): void {
    const isWhole = this.#size > 0 && this.#size <= this.#limit;
    const line = isWhole ? Buffer.concat(this.#parts, this.#size).toString('utf8') : '';
    this.#parts = [];
    this.#size = 0;
    if (line) {
      this.#line(line);
    }
  }
}

const LF = 0x0a;

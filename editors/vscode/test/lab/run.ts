import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';

/** What a program did. */
export interface Output {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/** How a program is run. */
export interface Options {
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
  readonly input?: string | Buffer;
  /** Kills it before its end. */
  readonly signal?: AbortSignal;
}

/** Longer than anything takes on a busy machine; a test that waits this long has failed. */
export const PATIENCE = 60_000;

/** Runs a program to its end. */
export async function run(
  file: string,
  words: readonly string[],
  { env, cwd, input, signal }: Options = {},
): Promise<Output> {
  const child = spawn(file, words, { env, cwd, stdio: 'pipe', timeout: PATIENCE });
  const [stdout, stderr]: Buffer[][] = [[], []];
  child.stdout.on('data', (bytes: Buffer) => stdout?.push(bytes));
  child.stderr.on('data', (bytes: Buffer) => stderr?.push(bytes));
  // A program that doesn't read its input says itself what is wrong.
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  signal?.addEventListener('abort', () => child.kill('SIGKILL'), { once: true });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return {
    code,
    stdout: Buffer.concat(stdout ?? []),
    stderr: Buffer.concat(stderr ?? []).toString(),
  };
}

/** Runs a program that has to succeed; gives back what it wrote. */
export async function good(
  file: string,
  words: readonly string[],
  options?: Options,
): Promise<Buffer> {
  const { code, stdout, stderr } = await run(file, words, options);
  if (code !== 0) {
    throw new Error(`${file} ${words.join(' ')}: ${code ?? 'killed'}: ${stderr}`);
  }
  return stdout;
}

/** Waits until something is so. */
export async function eventually(
  what: string,
  isSo: () => boolean | Promise<boolean>,
): Promise<void> {
  const start = Date.now();
  while (!(await isSo())) {
    if (Date.now() - start > PATIENCE) {
      throw new Error(`waited in vain: ${what}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Does something while a process is stopped, which then does nothing at all. */
export async function whileStopped<T>(pid: number, work: () => T | Promise<T>): Promise<T> {
  process.kill(pid, 'SIGSTOP');
  try {
    await eventually('the process has stopped', () => hasStopped(pid));
    return await work();
  } finally {
    try {
      process.kill(pid, 'SIGCONT');
    } catch {
      // It was killed meanwhile.
    }
  }
}

/** Whether a signal has stopped every thread of a process. */
function hasStopped(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).every((thread) => {
    try {
      const status = readFileSync(`/proc/${pid}/task/${thread}/stat`, 'latin1');
      return status.slice(status.lastIndexOf(')') + 2).startsWith('T');
    } catch {
      // It has ended meanwhile.
      return true;
    }
  });
}

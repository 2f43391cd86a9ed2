import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import path from 'node:path';

/** A program or a folder that doesn't exist, and the setting that names it. */
export class ProgramMissing extends Error {
  /** The name of the setting. */
  readonly setting: string;

  constructor(message: string, setting: string) {
    super(message);
    this.setting = setting;
  }
}

/** Where to look for a program. */
export interface Place {
  /** Its name, without `.exe`. */
  readonly name: string;
  /** The path in the setting, if it is set. */
  readonly chosen: string | undefined;
  /** The name of that setting. */
  readonly setting: string;
  /** The extension's own folder; the package of a platform has the program there. */
  readonly extensionFolder: string;
}

/** Finds a program: the one in the setting, else the one in the package, else one on the PATH. */
export async function findProgram(place: Place, searchPath: string): Promise<string> {
  const file = process.platform === 'win32' ? `${place.name}.exe` : place.name;
  if (place.chosen) {
    if (await isExecutable(place.chosen)) {
      return place.chosen;
    }
    throw new ProgramMissing(
      `${place.chosen}, which the setting ${place.setting} names, is not a program`,
      place.setting,
    );
  }
  const folders = searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  for (const folder of [path.join(place.extensionFolder, 'bin'), ...folders]) {
    const candidate = path.join(folder, file);
    if (await isExecutable(candidate)) {
      return candidate;
    }
  }
  throw new ProgramMissing(
    `${place.name} was not found: it isn't in this package of the extension, nor in a folder of PATH`,
    place.setting,
  );
}

/** The environment for a program, with a folder of GnuPG's programs at the front of the PATH. */
export async function environment(
  folder: string | undefined,
  setting: string,
  home: string | undefined,
): Promise<NodeJS.ProcessEnv> {
  const result = { ...process.env };
  if (folder) {
    const found = await stat(folder).catch(() => undefined);
    if (!found?.isDirectory()) {
      throw new ProgramMissing(
        `${folder}, which the setting ${setting} names, is not a folder`,
        setting,
      );
    }
    const name = Object.keys(result).find((key) => key.toUpperCase() === 'PATH') ?? 'PATH';
    result[name] = [folder, result[name]].filter(Boolean).join(path.delimiter);
  }
  if (home) {
    result['GNUPGHOME'] = home;
  }
  return result;
}

async function isExecutable(file: string): Promise<boolean> {
  const found = await stat(file).catch(() => undefined);
  const may = await access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
  return may && (found?.isFile() ?? false);
}

/** How a process ended. */
export interface Exit {
  readonly code: number | undefined;
  readonly signal: string | undefined;
}

/** Whether a program crashed, instead of giving a reason for its end. */
export function isCrash({ code, signal }: Exit): boolean {
  // 0 is success; with 1 to 3 the program gives a reason.
  return signal !== undefined || code === undefined || code > 3;
}

/** A running process, with pipes to it. */
export interface Started {
  readonly child: ChildProcessWithoutNullStreams;
  /** Resolves when the process has ended and all of its output was read. */
  readonly exited: Promise<Exit>;
}

/** Starts a program; resolves when it runs. */
export async function startProgram(
  file: string,
  words: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<Started> {
  const child = spawn(file, words, { env, stdio: 'pipe', windowsHide: true });
  const exited = new Promise<Exit>((resolve) => {
    child.once('close', (code, signal) => {
      resolve({ code: code ?? undefined, signal: signal ?? undefined });
    });
  });
  // If the program has just ended, its exit is reported.
  child.stdin.on('error', () => undefined);
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => {
      reject(new Error(`${file} can't be started: ${error.message}`));
    });
  });
  return { child, exited };
}

/** Writes to a process; resolves when the system has taken all of it. */
export function write(
  child: ChildProcessWithoutNullStreams,
  bytes: Buffer | string,
): Promise<void> {
  return new Promise((resolve, reject) => {
    child.stdin.write(bytes, (error) => {
      if (error) {
        reject(error);
      } else {
        resolve();
      }
    });
  });
}

/** Runs a program to its end and returns its standard output. */
export async function outputOf(
  file: string,
  words: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<string> {
  const { child, exited } = await startProgram(file, words, env);
  child.stdin.end();
  const timer = setTimeout(() => child.kill('SIGKILL'), RUN_TIME);
  const [out, complaint] = [keepStart(child.stdout), keepStart(child.stderr)];
  const { code, signal } = await exited;
  clearTimeout(timer);
  if (code !== 0) {
    const reason = complaint().trim() || out().trim() || `it ended with ${signal ?? code ?? '?'}`;
    throw new Error(`${path.basename(file)} ${words[0] ?? ''}: ${reason}`);
  }
  return out().trim();
}

/** The time limit for such a run, in milliseconds. */
const RUN_TIME = 20_000;

/** How much of the output is kept. */
const KEPT = 16 * 1024;

function keepStart(stream: NodeJS.ReadableStream): () => string {
  let kept = Buffer.alloc(0);
  stream.on('data', (bytes: Buffer) => {
    if (kept.length < KEPT) {
      kept = Buffer.concat([kept, bytes]).subarray(0, KEPT);
    }
  });
  return () => kept.toString('utf8');
}

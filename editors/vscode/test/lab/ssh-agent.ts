import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';

import { eventually, good } from './run.ts';

/** A real ssh-agent with a key that nobody else has. */
export class SshAgent {
  readonly socket: string;
  /** The file of the public key. */
  readonly publicKey: string;
  readonly #process: ChildProcess;

  private constructor(socket: string, publicKey: string, process: ChildProcess) {
    this.socket = socket;
    this.publicKey = publicKey;
    this.#process = process;
  }

  /** Starts one in a folder. */
  static async start(folder: string): Promise<SshAgent> {
    const own = await mkdtemp(path.join(folder, 's'));
    const [socket, key] = [path.join(own, 'agent'), path.join(own, 'key')];
    // In the foreground, so that it ends by its process.
    const child = spawn('ssh-agent', ['-D', '-a', socket], { stdio: 'ignore' });
    await eventually('the agent listens', () => existsSync(socket));
    await good('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', 'lab', '-f', key]);
    await good('ssh-add', ['-q', key], { env: { ...process.env, SSH_AUTH_SOCK: socket } });
    await rm(key);
    return new SshAgent(socket, `${key}.pub`, child);
  }

  async stop(): Promise<void> {
    const ended = once(this.#process, 'exit');
    this.#process.kill('SIGTERM');
    await ended;
  }
}

/** Signs with the key of a file through an agent's socket, and verifies the signature. */
export async function sshSignature(socket: string, publicKey: string): Promise<void> {
  const env = { ...process.env, SSH_AUTH_SOCK: socket };
  const sign = ['-Y', 'sign', '-q', '-f', publicKey, '-n', 'file'];
  const signature = await good('ssh-keygen', sign, { env, input: 'a text' });
  // Several may be checked at once.
  const file = `${publicKey}.${randomUUID()}.sig`;
  await writeFile(file, signature);
  const check = ['-Y', 'check-novalidate', '-n', 'file', '-s', file];
  await good('ssh-keygen', check, { env, input: 'a text' });
}

/**
 * A request extension of another maker. It is written from a description of such extensions alone, and
 * knows nothing of keybridge: it checks the version once, fetches the public keys, and then serves the
 * agent's socket with a session of the agent for each client.
 */
import { execFile, spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { chmod, rm } from 'node:fs/promises';
import { type Server, createServer } from 'node:net';
import { promisify } from 'node:util';

import * as vscode from 'vscode';

import { Client } from './client.ts';

let server: Server | undefined;
const clients = new Set<Client>();

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const { version } = context.extension.packageJSON as { version: string };
  note('checking the version');
  // A rejection ends the activation, and there is no second try.
  const check = await agent<{ match: boolean }>('checkVersion', version);
  if (!check.match) {
    note('gave up');
    return;
  }
  note('syncing keys');
  const keys = await agent<string | undefined>('exportPublicKeys', 'pairs');
  if (keys !== undefined) {
    await importKeys(keys);
  }
  await listen();
  note('listening');
}

export async function deactivate(): Promise<void> {
  server?.close();
  await Promise.all([...clients].map((client) => client.close()));
}

function agent<Result>(name: string, ...values: unknown[]): Promise<Result> {
  return Promise.resolve(
    vscode.commands.executeCommand<Result>(`_gpg-bridge-agent.${name}`, ...values),
  );
}

async function importKeys(armored: string): Promise<void> {
  // An agent that gpg starts here would take the socket.
  const words = ['--batch', '--no-autostart', '--import'];
  const gpg = spawn('gpg', words, { stdio: ['pipe', 'ignore', 'ignore'] });
  gpg.stdin.end(armored, 'latin1');
  await new Promise((resolve) => gpg.once('close', resolve));
}

async function listen(): Promise<void> {
  const { stdout } = await promisify(execFile)('gpgconf', ['--list-dirs', 'agent-socket']);
  const path = stdout.trim();
  await rm(path, { force: true });
  const listening = createServer({ pauseOnConnect: true }, (socket) => {
    const client = new Client(socket, agent);
    clients.add(client);
    void client.ended.then(() => clients.delete(client));
  });
  server = listening;
  await new Promise<void>((resolve, reject) => {
    listening.once('error', reject).listen(path, resolve);
  });
  await chmod(path, 0o600);
}

/** Tells the test how far it is. */
function note(what: string): void {
  appendFileSync(`${process.env['KEYBRIDGE_LAB'] ?? ''}/other-request.log`, `${what}\n`);
}

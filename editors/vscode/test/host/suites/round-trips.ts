import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';

import * as vscode from 'vscode';

import { bridgeIsUp, measure, ms, Program, runTests, say } from './suite.ts';

const ROUND_TRIPS = 1000;

/** How long a round trip takes through the editor's channel, beside the same through the local target. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    it(`${ROUND_TRIPS} round trips are measured`, async () => {
      await bridgeIsUp();
      const second = path.join(lab.folder, 'second');
      await mkdir(second, { mode: 0o700 });
      const env = { ...lab.hostEnvironment, KEYBRIDGE_GNUPG_HOME: lab.host.path };
      const words = ['up', `local:${second}`, '--foreground', '--json'];
      const up = await Program.start(hostProgram(), words, env);
      try {
        const { lanes } = JSON.parse(up.line) as { lanes: { gpg: { socket: string } } };
        const sockets = [lanes.gpg.socket, await lab.target.socket()];
        const [local, channel] = await measure<Times>('round-trips', ROUND_TRIPS, ...sockets);
        assert.ok(local && channel);
        say(`the local target: ${show(local)}`);
        say(`the channel:      ${show(channel)}`);
        say(`ratio of p50: ${(channel.p50 / local.p50).toFixed(2)}`);
      } finally {
        await up.end();
      }
    });
  });
}

/** The program that the extension uses. */
function hostProgram(): string {
  const chosen = vscode.workspace.getConfiguration('keybridge').get('program');
  const extension = vscode.extensions.getExtension('keybridge.keybridge-agent');
  const packaged = path.join(extension?.extensionPath ?? '', 'bin/keybridge');
  return typeof chosen === 'string' && chosen ? chosen : packaged;
}

interface Times {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

function show({ p50, p90, p99 }: Times): string {
  return `p50 ${ms(p50)}, p90 ${ms(p90)}, p99 ${ms(p99)}`;
}

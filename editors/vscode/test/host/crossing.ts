import { readdir } from 'node:fs/promises';
import path from 'node:path';

import { build } from 'esbuild';

const here = import.meta.dirname;

/** Puts an agent into a folder of extensions that listens and calls behind the relay. */
export async function putFarAgent(folder: string): Promise<void> {
  const names = await readdir(folder);
  const agent = names.find((name) => name.startsWith('keybridge.keybridge-agent-'));
  if (!agent) {
    throw new Error(`keybridge-agent is not among ${names.join(', ')}`);
  }
  await build({
    entryPoints: [path.join(here, '../../agent/src/extension.ts')],
    outfile: path.join(folder, agent, 'dist/extension.cjs'),
    allowOverwrite: true,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    external: ['vscode'],
    plugins: [
      {
        name: 'names behind the relay',
        setup: (plugins) => {
          plugins.onResolve({ filter: /channel\/names\.ts$/ }, () => ({
            path: path.join(here, 'relay/names.ts'),
          }));
        },
      },
    ],
    logLevel: 'warning',
  });
}

import { copyFile, mkdir, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';

import { createVSIX } from '@vscode/vsce';
import { build } from 'esbuild';

const here = import.meta.dirname;
const dist = path.join(here, 'dist');

/** The extensions, and the relay that stands between them. */
export async function crossingExtensions(extensions: readonly string[]): Promise<string[]> {
  const relay = path.join(here, 'relay');
  const stage = path.join(dist, 'relay');
  await mkdir(stage, { recursive: true });
  await build({
    entryPoints: [path.join(relay, 'relay.ts')],
    outfile: path.join(stage, 'dist/relay.cjs'),
    bundle: true,
    platform: 'browser',
    format: 'cjs',
    external: ['vscode'],
    logLevel: 'warning',
  });
  await copyFile(path.join(relay, 'package.json'), path.join(stage, 'package.json'));
  await writeFile(path.join(stage, '.vscodeignore'), '.vscodeignore\n');
  const packagePath = path.join(dist, 'relay.vsix');
  await createVSIX({
    cwd: stage,
    packagePath,
    dependencies: false,
    allowMissingRepository: true,
    skipLicense: true,
    allowStarActivation: true,
  });
  return [...extensions, packagePath];
}

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

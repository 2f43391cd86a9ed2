import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';

import { createVSIX } from '@vscode/vsce';
import { build } from 'esbuild';

const here = import.meta.dirname;

/** Makes a package of an extension of the tests, which is in a folder of that name. */
export async function packaged(name: string, platform: 'node' | 'browser'): Promise<string> {
  const folder = path.join(here, name);
  const stage = path.join(here, 'dist', name);
  await mkdir(stage, { recursive: true });
  await build({
    entryPoints: [path.join(folder, 'extension.ts')],
    outfile: path.join(stage, 'dist/extension.cjs'),
    bundle: true,
    platform,
    format: 'cjs',
    external: ['vscode'],
    logLevel: 'warning',
  });
  await copyFile(path.join(folder, 'package.json'), path.join(stage, 'package.json'));
  await writeFile(path.join(stage, '.vscodeignore'), '.vscodeignore\n');
  const packagePath = path.join(here, 'dist', `${name}.vsix`);
  await createVSIX({
    cwd: stage,
    packagePath,
    dependencies: false,
    allowMissingRepository: true,
    skipLicense: true,
    allowStarActivation: true,
  });
  return packagePath;
}

/** Bundles the two extensions into one file each. */
import { build } from 'esbuild';

for (const extension of ['agent', 'request']) {
  await build({
    absWorkingDir: import.meta.dirname,
    entryPoints: [`${extension}/src/extension.ts`],
    outfile: `${extension}/dist/extension.cjs`,
    bundle: true,
    platform: 'node',
    // The Node of the oldest VS Code that the extensions are for.
    target: 'node20',
    format: 'cjs',
    external: ['vscode'],
    minify: true,
    legalComments: 'none',
    logLevel: 'warning',
  });
}

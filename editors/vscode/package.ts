/**
 * Makes the packages: for this machine's platform with the programs inside, for another one if there
 * are programs for it in a folder of its name, and without them for every other platform.
 * Says what is in each, and fails if that is anything else than it should be.
 *
 * node package.ts PROGRAMS OUT [--any-size]
 */
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';

import { createVSIX } from '@vscode/vsce';

import { contentsOf } from './package-contents.ts';

/** No package may be larger, in bytes, unless its programs aren't optimised (`--any-size`). */
const MAX_SIZE = 6 * 1024 * 1024;

/** What VS Code and Node call a processor, and the folder of its programs. */
const PROCESSORS: readonly [string, string][] = [
  ['x64', 'x86_64'],
  ['arm64', 'aarch64'],
];

interface Extension {
  readonly folder: 'agent' | 'request' | 'pack';
  /** The program that its platform package carries. */
  readonly program?: string;
  /** That of the package for Windows, which isn't a remote. */
  readonly windowsProgram?: string;
}

const EXTENSIONS: readonly Extension[] = [
  { folder: 'agent', program: 'keybridge', windowsProgram: 'keybridge.exe' },
  { folder: 'request', program: 'keybridge-remote' },
  { folder: 'pack' },
];

const here = import.meta.dirname;
const root = path.join(here, '../..');

const [programs, out, option] = process.argv.slice(2);
if (!programs || !out || (option && option !== '--any-size')) {
  console.error('usage: node package.ts PROGRAMS OUT [--any-size]');
  process.exit(2);
}
const anySize = option === '--any-size';
await mkdir(out, { recursive: true });
const version = await programVersion();
for (const extension of EXTENSIONS) {
  if (extension.program) {
    for (const [processor, folder] of PROCESSORS) {
      const from = processor === process.arch ? programs : path.join(programs, folder);
      if (processor === process.arch || existsSync(from)) {
        const program = path.join(from, extension.program);
        await makePackage(extension, { target: `linux-${processor}`, program });
      }
    }
  }
  const windows = path.join(programs, 'windows');
  if (extension.windowsProgram && existsSync(windows)) {
    const program = path.join(windows, extension.windowsProgram);
    await makePackage(extension, { target: 'win32-x64', program });
  }
  await makePackage(extension);
}

/** The version that the programs are built with. */
async function programVersion(): Promise<string> {
  const manifest = await readFile(path.join(root, 'Cargo.toml'), 'utf8');
  const found = /\[workspace\.package\][^[]*?\nversion = "([^"]+)"/.exec(manifest)?.[1];
  if (!found) {
    throw new Error('Cargo.toml names no version');
  }
  return found;
}

/** A platform, and the program for it. */
interface Platform {
  readonly target: string;
  readonly program: string;
}

async function makePackage({ folder }: Extension, platform?: Platform): Promise<void> {
  const manifest = JSON.parse(await readFile(path.join(here, folder, 'package.json'), 'utf8')) as {
    name: string;
    version: string;
    main?: string;
  };
  if (manifest.version !== version) {
    throw new Error(`${manifest.name} is ${manifest.version}, and the programs are ${version}`);
  }
  const name = [manifest.name, platform?.target, version].filter(Boolean).join('-');
  const stage = path.join(out ?? '', `${name}.stage`);
  await rm(stage, { recursive: true, force: true });
  // What is put here is what the package has.
  const files: [string, string][] = [
    [path.join(here, folder, 'package.json'), 'package.json'],
    [path.join(here, folder, 'README.md'), 'README.md'],
    [path.join(root, 'LICENSE-APACHE'), 'LICENSE-APACHE'],
    [path.join(root, 'LICENSE-MIT'), 'LICENSE.txt'],
    ...(manifest.main
      ? [[path.join(here, folder, manifest.main), manifest.main] satisfies [string, string]]
      : []),
    ...(platform
      ? [[platform.program, `bin/${path.basename(platform.program)}`] satisfies [string, string]]
      : []),
  ];
  for (const [from, to] of files) {
    const file = path.join(stage, to);
    await mkdir(path.dirname(file), { recursive: true });
    await copyFile(from, file);
    await chmod(file, to.startsWith('bin/') ? 0o755 : 0o644);
  }
  // Without it a warning says that everything goes into the package, which is what is wanted.
  await writeFile(path.join(stage, '.vscodeignore'), '.vscodeignore\n');
  const packagePath = path.join(out ?? '', `${name}.vsix`);
  await createVSIX({
    cwd: stage,
    packagePath,
    dependencies: false,
    allowMissingRepository: true,
    ...(platform ? { target: platform.target } : {}),
  });
  await rm(stage, { recursive: true });
  await check(
    packagePath,
    files.map(([, to]) => path.normalize(to)),
  );
}

/** Says what a package holds, and fails if that is anything else than it should be. */
async function check(file: string, expected: readonly string[]): Promise<void> {
  const { size } = await stat(file);
  console.log(`${file}: ${(size / 1024 / 1024).toFixed(2)} MiB`);
  if (!anySize && size > MAX_SIZE) {
    throw new Error(`${file} is larger than ${MAX_SIZE} bytes`);
  }
  const entries = await contentsOf(file);
  for (const { name, size: bytes, mode } of entries) {
    console.log(`    ${mode.toString(8)} ${bytes.toString().padStart(8)} ${name}`);
    const isProgram = name.startsWith('extension/bin/');
    if (isProgram !== ((mode & 0o111) !== 0)) {
      throw new Error(`${name} in ${file} has the mode ${mode.toString(8)}`);
    }
  }
  // The packager puts the first two beside them, and writes one name in small letters.
  const should = ['[Content_Types].xml', 'extension.vsixmanifest'].concat(
    expected.map((name) => `extension/${name === 'README.md' ? 'readme.md' : name}`),
  );
  const names = entries.map(({ name }) => name);
  if (names.sort().join('\n') !== should.sort().join('\n')) {
    throw new Error(`${file} should hold ${should.join(', ')}`);
  }
}

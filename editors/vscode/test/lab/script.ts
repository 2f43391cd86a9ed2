import { chmod, writeFile } from 'node:fs/promises';
import path from 'node:path';

/** Writes a script for the shell that can be run as a program. */
export async function script(folder: string, name: string, text: string): Promise<string> {
  const file = path.join(folder, name);
  await writeFile(file, `#!/bin/sh\n${text}\n`);
  await chmod(file, 0o755);
  return file;
}

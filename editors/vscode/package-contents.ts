import { readFile } from 'node:fs/promises';

/** A file in a package. */
export interface Entry {
  readonly name: string;
  readonly size: number;
  readonly mode: number;
}

const END_OF_DIRECTORY = 0x06054b50;
const ENTRY = 0x02014b50;

/** What a package really holds, by the directory at the end of its archive. */
export async function contentsOf(file: string): Promise<Entry[]> {
  const bytes = await readFile(file);
  // The end has 22 bytes, and a comment if there is one.
  let end = bytes.length - 22;
  while (end >= 0 && bytes.readUInt32LE(end) !== END_OF_DIRECTORY) {
    end -= 1;
  }
  if (end < 0) {
    throw new Error(`${file} is no package`);
  }
  const entries: Entry[] = [];
  let at = bytes.readUInt32LE(end + 16);
  for (let left = bytes.readUInt16LE(end + 10); left > 0; left -= 1) {
    if (bytes.readUInt32LE(at) !== ENTRY) {
      throw new Error(`${file} has a broken directory`);
    }
    const length = bytes.readUInt16LE(at + 28);
    entries.push({
      name: bytes.toString('utf8', at + 46, at + 46 + length),
      size: bytes.readUInt32LE(at + 24),
      mode: (bytes.readUInt32LE(at + 38) >>> 16) & 0o777,
    });
    at += 46 + length + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32);
  }
  return entries;
}

import { createHash } from 'node:crypto';

import { printable } from '../../channel/printable.ts';
import type { RemoteName } from './consent.ts';

/** What a window tells about where it is. */
export interface Place {
  /** The kind of its remote; nothing in a local window. */
  readonly remoteName: string | undefined;
  /** Whether this extension runs beside the files, not on the person's own machine. */
  readonly isBesideFiles: boolean;
  /** The folders that are open, and the file that lists them. */
  readonly roots: readonly { readonly scheme: string; readonly authority: string }[];
}

/** The remote of a window; nothing in a local one. */
export function remoteOf({ remoteName, isBesideFiles, roots }: Place): RemoteName | undefined {
  if (!remoteName) {
    return undefined;
  }
  const root = roots.find(({ scheme, authority }) => scheme === 'vscode-remote' && authority);
  if (root) {
    return { name: root.authority, isCertain: true };
  }
  // A window without a folder says only what kind its remote is of, and there may be others of that.
  return { name: remoteName, isCertain: isBesideFiles };
}

/** The longest authority that still can be read; an editor writes whole descriptions there. */
const READABLE = 80;

/** The address of a remote, for the host's program. */
export function targetOf({ name }: RemoteName): string {
  if (name.length <= READABLE) {
    return `vscode:${name}`;
  }
  const kind = name.split('+')[0] ?? '';
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 16);
  return `vscode:${kind.slice(0, READABLE)}+${hash}`;
}

/** A remote, as people know it. */
export function titleOf({ name }: RemoteName): string {
  const [kind = '', about = ''] = name.split('+');
  const place = described(about);
  const title = place === undefined ? name : `${kind} ${place}`;
  return printable(title.length <= READABLE ? title : `${title.slice(0, READABLE)}…`);
}

/** Where an editor writes a whole description, in hexadecimal, one of these says most. */
const TELLING = ['hostPath', 'containerName', 'hostName'];

function described(about: string): string | undefined {
  if (!/^(?:[0-9a-f]{2})+$/i.test(about)) {
    return undefined;
  }
  try {
    const values: unknown = JSON.parse(Buffer.from(about, 'hex').toString('utf8'));
    const found = TELLING.map((key) => (values as Record<string, unknown> | null)?.[key]);
    return found.find((value) => typeof value === 'string');
  } catch {
    // Something else that happens to look like it.
    return undefined;
  }
}

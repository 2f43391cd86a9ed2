import { createHash } from 'node:crypto';

import { printable } from '../../channel/printable.ts';
import type { RemoteName } from './consent.ts';

/** What a window knows about its remote. */
export interface Place {
  /** The kind of its remote; undefined in a local window. */
  readonly remoteName: string | undefined;
  /** Whether this extension runs beside the files, not on the person's own machine. */
  readonly isBesideFiles: boolean;
  /** The folders that are open, and the file that lists them. */
  readonly roots: readonly { readonly scheme: string; readonly authority: string }[];
}

/** What an editor says of a window. */
interface EditorWindow {
  readonly env: { readonly remoteName: string | undefined };
  readonly workspace: {
    readonly workspaceFile: Place['roots'][number] | undefined;
    readonly workspaceFolders: readonly { readonly uri: Place['roots'][number] }[] | undefined;
  };
}

/** What is known about the remote of an editor's window. */
export function placeIn({ env, workspace }: EditorWindow, isBesideFiles: boolean): Place {
  const { workspaceFile, workspaceFolders } = workspace;
  const roots = (workspaceFolders ?? []).map(({ uri }) => uri);
  return {
    remoteName: env.remoteName,
    isBesideFiles,
    roots: workspaceFile ? [...roots, workspaceFile] : roots,
  };
}

/** The remote of a window; undefined in a local one. */
export function remoteOf({ remoteName, isBesideFiles, roots }: Place): RemoteName | undefined {
  if (!remoteName) {
    return undefined;
  }
  // Beside the files the editor shows them as local ones, and so are the keys.
  const isLocal = isBesideFiles && roots.every(({ scheme }) => scheme !== REMOTE);
  if (roots.length === 0 || isLocal) {
    // A window without a folder knows only the kind of its remote, and there may be several of that kind.
    return { name: remoteName, isCertain: isBesideFiles };
  }
  // A workspace file may name folders of remotes other than the one that the window is connected to.
  const places = [...new Set(roots.map(placeOf))];
  const [name = '', ...others] = places;
  const isOne = others.length === 0 && roots.every(({ scheme }) => scheme === REMOTE);
  if (isOne && (name === remoteName || name.startsWith(`${remoteName}+`))) {
    return { name, isCertain: true };
  }
  return { name: remoteName, isCertain: false, places };
}

/** The scheme of what is on a window's remote. */
const REMOTE = 'vscode-remote';

/** Where a root is, for a person. */
function placeOf({ scheme, authority }: Place['roots'][number]): string {
  return scheme === REMOTE ? authority : `${scheme}:${authority}`;
}

/** The longest authority that a person can read; an editor may put a whole description there. */
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

/**
 * A remote, as people know it. The machine comes first, before what is on it, and each is shortened in
 * its middle: whoever has crafted a path can't push the name of the host out of sight.
 */
export function titleOf({ name, places }: RemoteName): string {
  const title = titleOfAuthority(name);
  return places
    ? `${title} (the workspace names ${places.map(titleOfAuthority).join(', ')})`
    : title;
}

function titleOfAuthority(name: string): string {
  // An authority on another machine is followed by that machine's.
  const parts = name.split(/@(?=[a-z][a-z0-9-]*\+)/i).map(partTitle);
  const [outermost = '', ...rest] = parts.reverse();
  const innermost = rest.pop();
  const between = rest.length > 0 ? ['…'] : [];
  return [outermost, ...between, ...(innermost === undefined ? [] : [innermost])].join(': ');
}

function partTitle(part: string): string {
  const plus = part.indexOf('+');
  const [kind, about] = plus < 0 ? ['', part] : [part.slice(0, plus), part.slice(plus + 1)];
  const place = described(kind, about);
  return place === undefined ? shortened(part) : `${shortened(kind)} ${place}`;
}

/** Keeps both ends: the last part of a host name says whose it is. */
function shortened(text: string): string {
  const characters = Array.from(printable(text));
  if (characters.length <= READABLE) {
    return characters.join('');
  }
  const kept = READABLE / 2;
  return [...characters.slice(0, kept), '…', ...characters.slice(-kept)].join('');
}

/** The most useful fields of the description that an editor puts into an authority, in hexadecimal. */
const TELLING = ['hostPath', 'containerName', 'hostName'];

function described(kind: string, about: string): string | undefined {
  const values = description(about);
  const text = (value: unknown): string[] => (typeof value === 'string' ? [shortened(value)] : []);
  if (kind === 'ssh-remote') {
    // Only the host name: a path says nothing about which machine it is.
    return text(values?.['hostName'])[0];
  }
  // The engine of a container may be on another host.
  const settings = values?.['settings'] as Record<string, unknown> | null | undefined;
  const host = text(settings?.['host']).map((name) => `on ${name}`);
  const found = TELLING.flatMap((key) => text(values?.[key])).slice(0, 1);
  const place = [...host, ...found];
  return place.length > 0 ? place.join(': ') : undefined;
}

function description(about: string): Record<string, unknown> | undefined {
  if (!/^(?:[0-9a-f]{2})+$/i.test(about)) {
    return undefined;
  }
  try {
    const values: unknown = JSON.parse(Buffer.from(about, 'hex').toString('utf8'));
    return typeof values === 'object' && values !== null
      ? (values as Record<string, unknown>)
      : undefined;
  } catch {
    // It only looks like a description.
    return undefined;
  }
}

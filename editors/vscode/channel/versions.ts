/** The numbers of a version such as `1.2.3`. */
type Numbers = readonly [number, number, number];

/** Reads a version; what follows `-` or `+` doesn't count. */
function parse(version: string): Numbers | undefined {
  const found = /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:[-+][0-9A-Za-z.+-]*)?$/.exec(version);
  return found ? [Number(found[1]), Number(found[2]), Number(found[3])] : undefined;
}

/** The version in a program's answer to `--version`: its name, the version, and perhaps more. */
export function versionIn(answer: string): string {
  return answer.split(' ')[1] ?? answer;
}

/** Whether something is a version at all. */
export function isVersion(value: unknown): value is string {
  return typeof value === 'string' && parse(value) !== undefined;
}

/** The result of comparing two versions. */
export type Match = 'same' | 'older' | 'newer' | 'unknown';

/**
 * Whether two versions are compatible: as in Semantic Versioning, all numbers up to the first that isn't
 * zero have to be the same. If they aren't, whether the first version is the older one.
 */
export function match(one: string, other: string): Match {
  const [a, b] = [parse(one), parse(other)];
  if (!a || !b) {
    return 'unknown';
  }
  for (const [place, right] of b.entries()) {
    const left = a[place] ?? 0;
    if (left !== right) {
      return left < right ? 'older' : 'newer';
    }
    if (right !== 0) {
      break;
    }
  }
  return 'same';
}

/** One of the parts that have to be compatible. */
export interface Part {
  readonly name: string;
  readonly version: string;
  /** The identifier of the extension that it comes with. */
  readonly extension: string;
}

/** Which parts aren't compatible and which to update; undefined if all are. */
export function mismatch(parts: readonly Part[]): { text: string; update: Part } | undefined {
  const [first, ...rest] = parts;
  for (const part of rest) {
    const how = first ? match(part.version, first.version) : 'same';
    if (first && how !== 'same') {
      const update = how === 'newer' ? first : part;
      const [left, right] = [first, part].map(described);
      return { text: `${left ?? ''} and ${right ?? ''}: update ${update.name}`, update };
    }
  }
  return undefined;
}

/** What is no version is somebody's words, and quoted. */
function described({ name, version }: Part): string {
  return isVersion(version) ? `${name} is ${version}` : `${name} says ${JSON.stringify(version)}`;
}

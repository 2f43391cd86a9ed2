/** The settings of this machine. */
export interface Settings {
  readonly program: string | undefined;
  readonly lanes: readonly string[];
  readonly keys: readonly string[];
  readonly git: boolean;
  readonly gnupgFolder: string | undefined;
  readonly gnupgHome: string | undefined;
  readonly logLevel: string;
  readonly compatibleCommands: boolean;
}

/** Reads a setting by its name after `keybridge.`. */
export type Read = (name: string) => unknown;

/** Reads the settings; a value of another type counts as not set. */
export function readSettings(read: Read): Settings {
  return {
    program: text(read('program')),
    lanes: list(read('lanes')),
    keys: list(read('keys')),
    git: read('git') === true,
    gnupgFolder: text(read('gnupgFolder')),
    gnupgHome: text(read('gnupgHome')),
    logLevel: text(read('logLevel')) ?? 'info',
    compatibleCommands: read('compatibleCommands') === true,
  };
}

/** The settings as options of the host's program. */
export function asOptions(settings: Settings): string[] {
  const { lanes, keys, git, gnupgHome, logLevel } = settings;
  return [
    `--log=${logLevel}`,
    ...(lanes.length > 0 ? [`--lanes=${lanes.join(',')}`] : []),
    ...(keys.length > 0 ? [`--keys=${keys.join(',')}`] : []),
    ...(git ? ['--git'] : []),
    ...(gnupgHome ? [`--gnupg-home=${gnupgHome}`] : []),
  ];
}

function text(value: unknown): string | undefined {
  return (typeof value === 'string' && value.trim()) || undefined;
}

/** One word, or several. */
function list(value: unknown): string[] {
  const words: unknown[] = Array.isArray(value) ? value : [value];
  return words.map(text).filter((word) => word !== undefined);
}

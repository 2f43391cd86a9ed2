/** One lane of a bridge, as the host's program reports it. */
export interface LaneStatus {
  readonly socket: string;
  readonly open: number;
  readonly total: number;
  readonly bytes_in: number;
  readonly bytes_out: number;
  /** How many keys aren't lent since they are newer than what the person has agreed to. */
  readonly held_back?: number;
}

/** A user of the remote. */
export interface User {
  readonly name: string | null;
  readonly uid: number;
}

/** The status of a bridge, as the host's program reports it. */
export interface BridgeStatus {
  readonly state: 'starting' | 'ready' | 'waiting' | 'failed';
  /** Why it is in this state, if that needs a reason. */
  readonly reason?: string;
  readonly since: string;
  /** A version 1 server does not say. */
  readonly user: User | null;
  readonly lanes: Readonly<Partial<Record<'gpg' | 'ssh' | 'git', LaneStatus>>>;
  /** How many times the link was made again. */
  readonly reconnects: number;
  readonly version: string;
}

/** What a sync of public keys changed in the remote. */
export interface KeyChanges {
  readonly new: number;
  readonly updated: number;
  readonly unchanged: number;
  readonly warnings?: readonly string[];
}

/** A step of setting up the bridge. */
export type Step =
  | { readonly event: 'begun' | 'failed'; readonly doing: string }
  | {
      readonly event: 'done';
      readonly doing: string;
      readonly came: string;
      readonly millis: number;
    }
  | { readonly event: 'warning' | 'said'; readonly text: string };

/** A step as a line of a log. */
export function line(step: Step): string | undefined {
  switch (step.event) {
    case 'begun':
      return undefined;
    case 'done':
      return `✓ ${step.doing}${step.came ? `: ${step.came}` : ''} (${step.millis} ms)`;
    case 'failed':
      return `✗ ${step.doing}`;
    case 'warning':
      return `! ${step.text}`;
    case 'said':
      return step.text;
  }
}

/** The user of the remote, for a person. */
export function userOf(status: BridgeStatus): string {
  if (status.user === null) return 'unknown';
  const { name, uid } = status.user;
  return name === null ? `uid ${uid}` : `${name} (uid ${uid})`;
}

/** How many keys of this machine are newer than what the person has agreed to. */
export function heldBack(status: BridgeStatus | undefined): number {
  // Without the gpg lane its keys are those of the git lane.
  const { gpg, git } = status?.lanes ?? {};
  return (gpg ?? git)?.held_back ?? 0;
}

/** Says that there are such keys, if there are. */
export function noteOfNew(count: number): string[] {
  const what =
    count === 1 ? "1 new key of this machine isn't" : `${count} new keys of this machine aren't`;
  return count === 0 ? [] : [`${what} lent: run "keybridge: Lend New Keys"`];
}

/** How many clients are connected. */
export function openSessions(status: BridgeStatus | undefined): number {
  const lanes = Object.values(status?.lanes ?? {});
  return lanes.reduce((open, lane) => open + lane.open, 0);
}

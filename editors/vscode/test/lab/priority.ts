import { run } from './run.ts';

/** Lets processes go before all others where that is allowed: what else goes on is not measured. */
export async function goFirst(pids: readonly number[]): Promise<void> {
  for (const pid of pids) {
    // What they start is as it always is.
    await run('chrt', ['--all-tasks', '--reset-on-fork', '--rr', '--pid', '1', String(pid)]);
  }
}

/** How many times in a minute a program that crashed is started again. */
const MOST = 3;
const MINUTE = 60_000;

/** Limits restarts, so that a program that crashes at once isn't restarted forever. */
export class Restarts {
  #moments: number[] = [];

  /** Whether it may be started again, `now` in milliseconds; if so, this counts as a restart. */
  allow(now: number): boolean {
    this.#moments = this.#moments.filter((moment) => now - moment < MINUTE);
    if (this.#moments.length >= MOST) {
      return false;
    }
    this.#moments.push(now);
    return true;
  }
}

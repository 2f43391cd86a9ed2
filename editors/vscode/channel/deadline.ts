/** Waits for a promise, at most this many milliseconds; resolves to whether it was in time. */
export async function within(time: number, something: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, time, false);
  });
  try {
    return await Promise.race([something.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for something, but no longer than this many milliseconds; says whether it came. */
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

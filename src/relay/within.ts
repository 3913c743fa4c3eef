// Waits for some work until a deadline at most (on the clock of performance.now()). The work itself goes on, and its
// errors are ignored here.

export async function within(deadlineMs: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, Math.max(deadlineMs - performance.now(), 0));
  });
  await Promise.race([work.catch(() => {}), deadline]);
  clearTimeout(timer);
}

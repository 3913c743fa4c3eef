// Stop signals (Ctrl-C and SIGTERM): the first stops the process cleanly, the second ends it at once.

export async function untilStopped(): Promise<void> {
  await new Promise<void>((resolve) => {
    let asked = false;
    const onSignal = () => {
      if (asked) process.exit(130);
      asked = true;
      resolve();
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
  });
}

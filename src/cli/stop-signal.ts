// Ctrl-C and SIGTERM: the first asks for a clean stop, the second ends the process at once.

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

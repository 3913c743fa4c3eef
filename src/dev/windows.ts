// What the embedded PostgreSQL cannot do on Windows, in words for the user. Windows has no signals and no /bin/sh, so no
// watcher stops the server of a killed process, and PostgreSQL refuses accounts with administrator rights.

/** A line about the limits of the embedded server on this platform, or none. */
export function platformNote(platform: NodeJS.Platform = process.platform): string | undefined {
  if (platform !== 'win32') return undefined;
  return (
    'On Windows, stop with Ctrl-C: if this process is killed, its PostgreSQL keeps running, and its files stay in ' +
    'the temporary directory.'
  );
}

/** Why the server did not start, if its log shows that the account has administrator rights. */
export function refusedAccount(
  log: string,
  platform: NodeJS.Platform = process.platform,
): string | undefined {
  if (platform !== 'win32' || !/administrative\s+permissions/i.test(log)) return undefined;
  return (
    'PostgreSQL does not run with administrator rights. Start Waybill from a terminal without them (not "Run as ' +
    'administrator"), or set DATABASE_URL to the address of another PostgreSQL.'
  );
}

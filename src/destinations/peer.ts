// Client libraries of brokers are optional: loaded when a destination that needs one is opened, and if it is
// not installed, the error says what to install.

import { ConfigurationError } from '../errors.js';

export async function loadPeer<T>(
  destination: string,
  name: string,
  load: () => Promise<T>,
): Promise<T> {
  try {
    return await load();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_MODULE_NOT_FOUND' || !message.includes(`'${name}'`)) throw error;
    throw new ConfigurationError(
      `${destination}() needs the package ${name}, which is not installed: npm install ${name}`,
      { cause: error },
    );
  }
}

// Loads an optional client library (Kafka, NATS, …) when a destination is opened; if it is missing, the error says what
// to install.

import { ConfigurationError } from '../core/errors.js';

export async function loadOptionalDependency<T>(
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

// The configuration file: finds it and loads it. Apart from its check in config.ts, which loads the relay: most commands
// need no relay, and often there is no file.

import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import type { Config } from '../config.js';
import { ConfigurationError, errorText } from '../core/errors.js';

const fileNames = [
  'waybill.config.ts',
  'waybill.config.mts',
  'waybill.config.js',
  'waybill.config.mjs',
];

/** Whether the current directory has a configuration file. */
export function hasConfig(): boolean {
  return fileNames.some((name) => existsSync(name));
}

/** Loads a configuration file; without a path, the one in the current directory. */
export async function loadConfig(file?: string): Promise<Config> {
  const found = file ?? fileNames.find((name) => existsSync(name));
  if (found === undefined) {
    throw new ConfigurationError(
      `no configuration: there is no ${fileNames[0]} here; write one, or name it with --config FILE`,
    );
  }
  const absolute = path.resolve(found);
  if (!existsSync(absolute))
    throw new ConfigurationError(`the configuration file ${found} does not exist`);
  let loaded: unknown;
  try {
    if (/\.m?js$/.test(absolute)) {
      loaded = ((await import(pathToFileURL(absolute).href)) as { default?: unknown }).default;
    } else {
      const { createJiti } = await import('jiti');
      // without the cache: it is a directory in /tmp, where others could read the configuration and plant code
      loaded = (
        await createJiti(import.meta.url, { interopDefault: false, fsCache: false }).import<{
          default?: unknown;
        }>(absolute)
      ).default;
    }
  } catch (error) {
    throw new ConfigurationError(
      `the configuration file ${found} could not be loaded: ${errorText(error)}`,
      { cause: error },
    );
  }
  if (typeof loaded !== 'object' || loaded === null) {
    throw new ConfigurationError(
      `the configuration file ${found} has no default export: write export default defineConfig({ … })`,
    );
  }
  return loaded as Config;
}

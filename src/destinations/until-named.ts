// Delayed refusal of destination options: an error in the options is thrown when the configuration names the
// destination, so that the error can say which destination it is.

import { ConfigurationError } from '../core/errors.js';
import type { Destination } from './destination.js';

/** Wraps a destination function: refused options become a destination that throws the refusal when it is used. */
export function untilNamed<Options extends unknown[], Made extends Destination>(
  make: (...options: Options) => Made,
): (...options: Options) => Made {
  return (...options) => {
    try {
      return make(...options);
    } catch (error) {
      if (error instanceof ConfigurationError) return refused(error) as Made;
      throw error;
    }
  };
}

/** A destination whose every property throws the refusal. */
function refused(error: ConfigurationError): object {
  const refuse = (): never => {
    throw error;
  };
  return new Proxy({}, { get: refuse, has: refuse, ownKeys: refuse });
}

// Choices of the user that this browser keeps.

/** In a frame of another site, browsers may deny access to the storage; the choice is not kept then. */
export function browserStorage(): Storage | undefined {
  try {
    return localStorage;
  } catch {
    return undefined;
  }
}

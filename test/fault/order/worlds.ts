// The worlds of a test file of the order proof, which are removed after its last test.

import { afterAll } from 'vitest';

import { World } from './world.js';
import type { WorldOptions } from './world.js';

/** Whether a missing guard does harm depends on the timing, so these tests, unlike the proof, get a second try. */
export const withoutGuard = { timeout: 240_000, retry: 1 };

/** Registers the hook that removes the worlds, and returns the function that starts one. */
export function testWorlds(): (options?: WorldOptions) => Promise<World> {
  const worlds: World[] = [];
  afterAll(async () => {
    await Promise.all(worlds.map((world) => world.remove()));
  }, 60_000);
  return async (options) => {
    const world = await World.start(options);
    worlds.push(world);
    return world;
  };
}

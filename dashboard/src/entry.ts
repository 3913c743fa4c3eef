// An entry of the menu: a screen and its place. The screen of a feature declares its own in entry.ts of its folder.

import type { ComponentType } from 'preact';

export type Entry = {
  /** The first word of its address. */
  path: string;
  name: string;
  /** The path of its icon, in a square of 24. */
  icon: string;
  screen: ComponentType;
  /** The menu is sorted by it. */
  place: number;
  /** The health metric whose value is shown beside the name. */
  counted?: string;
};

// Time zone of all times on the page: that of the browser, or UTC. The choice is stored in this browser.

import { useState } from 'preact/hooks';

import { browserStorage } from './browser-storage.js';

export type Zone = 'local' | 'UTC';

const name = 'waybill-zone';
const localName = Intl.DateTimeFormat().resolvedOptions().timeZone;

let zone: Zone = 'local';

/** Uses the stored choice. Without it, as in the portal, times are local. */
export function applyZone(): void {
  zone = browserStorage()?.getItem(name) === 'UTC' ? 'UTC' : 'local';
}

export function currentZone(): Zone {
  return zone;
}

export function zoneName(of: Zone = zone): string {
  return of === 'UTC' ? 'UTC' : localName;
}

/** The zone and a function that changes to the other; times are shown in it when the caller renders again. */
export function useZone(): [Zone, () => void] {
  const [shown, setShown] = useState(zone);
  const toggle = (): void => {
    zone = zone === 'UTC' ? 'local' : 'UTC';
    browserStorage()?.setItem(name, zone);
    setShown(zone);
  };
  return [shown, toggle];
}

/** The time in the shown zone, without it: `2026-01-31T13:45:00.000`. */
export function isoTime(at: Date): string {
  const shiftMs = zone === 'UTC' ? 0 : at.getTimezoneOffset() * 60_000;
  return new Date(at.getTime() - shiftMs).toISOString().slice(0, -1);
}

/** The inverse of `isoTime`. */
export function fromIsoTime(text: string): Date {
  return new Date(zone === 'UTC' ? `${text}Z` : text);
}

/** Midnight in the shown zone. */
export function startOfDay(now = new Date()): Date {
  return fromIsoTime(`${isoTime(now).slice(0, 10)}T00:00:00`);
}

/** The distance of the shown zone from UTC: `Z`, `+01:00`. */
export function offsetOf(at: Date): string {
  if (zone === 'UTC') return 'Z';
  const minutes = -at.getTimezoneOffset();
  const parts = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `${minutes < 0 ? '-' : '+'}${parts.map((part) => String(part).padStart(2, '0')).join(':')}`;
}

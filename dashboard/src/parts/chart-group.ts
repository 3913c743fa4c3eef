// Charts of one screen as a group: they share the moment that the user points at and the time that the user selects, so
// that values of the same moment can be compared. A selected time can be zoomed into.

import { createContext } from 'preact';
import { useContext, useMemo, useState } from 'preact/hooks';

export type ChartGroup = {
  /** The moment that the user points at, in any of the charts. */
  pointed: string | undefined;
  point: (at: string | undefined) => void;
  /** The first and the last moment of the selected time. */
  selected: readonly [string, string] | undefined;
  select: (moments: readonly [string, string] | undefined) => void;
  /** Shows this time in all charts; undefined if they cannot. */
  zoom: ((from: Date, to: Date) => void) | undefined;
};

export const ChartGroupContext = createContext<ChartGroup | undefined>(undefined);

/** A new group, for the provider of the context. */
export function useNewGroup(zoom?: ChartGroup['zoom']): ChartGroup {
  const [pointed, point] = useState<string>();
  const [selected, select] = useState<readonly [string, string]>();
  return useMemo(() => ({ pointed, point, selected, select, zoom }), [pointed, selected, zoom]);
}

/** The group of this chart; a chart without one is a group of its own. */
export function useGroup(): ChartGroup {
  const own = useNewGroup();
  return useContext(ChartGroupContext) ?? own;
}

/** The time of the points from one to another: a point is at the end of its time. */
export function timeOf(at: readonly string[], first: number, last: number): [Date, Date] | null {
  const [from, to] = [Math.min(first, last), Math.max(first, last)];
  const [one, two, start, end] = [at[0], at[1], at[from], at[to]].map((moment) =>
    moment === undefined ? Number.NaN : Date.parse(moment),
  ) as [number, number, number, number];
  const begin = from === 0 ? start - (two - one) : Date.parse(at[from - 1] ?? '');
  return Number.isNaN(begin) || Number.isNaN(end) ? null : [new Date(begin), new Date(end)];
}

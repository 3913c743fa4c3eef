// Table with fixed column widths, so that live updates move nothing; they wait while the pointer or the keyboard is in
// it. The arrow keys, j and k move between rows. Where the columns do not fit, each row becomes a small card.

import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

import { isText } from '../keys.js';
import { hold } from '../live.js';

/** Widths of columns in pixels. */
const widths = {
  check: 36,
  tries: 58,
  count: 74,
  'actions-2': 82,
  rate: 84,
  number: 88,
  status: 102,
  small: 106,
  actions: 112,
  time: 128,
  medium: 132,
  name: 176,
  large: 210,
  steps: 272,
} as const;

/** A column without a width shares the rest of the space, and needs this much of it. */
const leastPx = 120;

const orders: Record<string, 'ascending' | 'descending'> = {
  asc: 'ascending',
  desc: 'descending',
};

export type Column<Row> = {
  head: string;
  width?: keyof typeof widths;
  numeric?: boolean;
  /** `title`: the first line of the card; `hidden`: not shown in a card. */
  inCard?: 'title' | 'hidden';
  /** A link in the head sorts by the column; `now` is set if the rows are sorted by it. */
  sorted?: { column: string; href: string; now: string | undefined } | undefined;
  /** The label of the cell in a card, if it is not the column's head. */
  label?: (row: Row) => string;
  cell: (row: Row) => ComponentChildren;
};

type TableProps<Row> = {
  label: string;
  /** The key j goes to its first row, although it is not the first table of the screen. */
  isMain?: boolean;
  columns: readonly Column<Row>[];
  /** Undefined: no answer yet. The space is reserved, so that the content below does not move. */
  rows: readonly Row[] | undefined;
  /** The rows are those of the previous filter, and cannot be used. */
  loading: boolean;
  rowKey: (row: Row) => string;
  empty: ComponentChildren;
  rowClass?: (row: Row) => string;
};

export function Table<Row>(props: TableProps<Row>) {
  const { label, isMain = false, columns, rows, loading, rowKey, empty, rowClass } = props;
  const frame = useRef<HTMLDivElement>(null);
  const narrow = useNarrow(frame, neededPx(columns));
  const body = useRef<HTMLTableSectionElement>(null);
  const holds = useHolds(body);
  return (
    <div ref={frame} class={`table-frame ${narrow ? 'cards' : ''}`}>
      <table
        aria-label={label}
        aria-busy={loading}
        data-main={isMain || undefined}
        onKeyDown={moveFocus}
      >
        <colgroup>
          {columns.map((column) => (
            <col key={column.head} style={column.width && { width: `${widths[column.width]}px` }} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.head}
                scope="col"
                class={column.numeric ? 'numeric' : ''}
                aria-sort={orders[column.sorted?.now ?? '']}
              >
                {column.sorted === undefined ? (
                  column.head || <span class="unseen">Selection</span>
                ) : (
                  <a href={column.sorted.href}>{column.head}</a>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body} inert={loading} {...holds}>
          {rows?.map((row) => (
            <tr key={rowKey(row)} class={rowClass?.(row) ?? ''}>
              {columns.map((column) => (
                <td
                  key={column.head}
                  data-label={column.label?.(row) ?? column.head}
                  class={`${column.numeric ? 'numeric' : ''} ${column.inCard ? `card-${column.inCard}` : ''}`}
                >
                  {framed(column.cell(row))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows === undefined && loading && <p class="empty looking">Looking…</p>}
      {rows?.length === 0 && <p class="empty">{empty}</p>}
    </div>
  );
}

function neededPx(columns: readonly Pick<Column<never>, 'width'>[]): number {
  return columns.reduce((sum, { width }) => sum + (width ? widths[width] : leastPx), 0);
}

/** Whether the element is narrower than this; measured before the first paint, and whenever its size changes. */
function useNarrow(element: { current: Element | null }, px: number): boolean {
  const [widthPx, setWidthPx] = useState(Infinity);
  useLayoutEffect(() => {
    const { current } = element;
    if (current === null) return undefined;
    const measure = (): void => setWidthPx(current.clientWidth);
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    measure();
    return () => observer.disconnect();
  }, []);
  return widthPx < px;
}

/** Holds live updates while the pointer or the keyboard is in the element. A click alone does not count as the keyboard. */
function useHolds(body: { current: Element | null }) {
  const by = useRef({ pointer: false, keyboard: false });
  const change = (changed: { pointer?: boolean; keyboard?: boolean }): void => {
    Object.assign(by.current, changed);
    hold(by, by.current.pointer || by.current.keyboard);
  };
  useEffect(() => {
    // a row that was removed with the focus reports nothing
    if (by.current.keyboard && body.current?.contains(document.activeElement) !== true)
      change({ keyboard: false });
  });
  useEffect(() => () => hold(by, false), []);
  return {
    onPointerEnter: (event: PointerEvent) =>
      event.pointerType === 'mouse' && change({ pointer: true }),
    onPointerLeave: () => change({ pointer: false }),
    onFocusIn: ({ target }: FocusEvent) =>
      change({ keyboard: target instanceof Element && target.matches(':focus-visible') }),
    onFocusOut: () => change({ keyboard: false }),
  };
}

/** Wraps plain text in an element, so that it can be cut off with an ellipsis and show the whole text as its title. */
function framed(content: ComponentChildren): ComponentChildren {
  return typeof content === 'string' ? <span title={content}>{content}</span> : content;
}

const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 };

/** Moves the focus to the same cell of the row above or below. */
function moveFocus(event: KeyboardEvent): void {
  const step = steps[event.key] ?? 0;
  const from = event.target;
  const isCommand = event.ctrlKey || event.metaKey || event.altKey;
  if (step === 0 || isCommand || !(from instanceof HTMLElement) || isText(from)) return;
  const row = from.closest('tr');
  const next = step === 1 ? row?.nextElementSibling : row?.previousElementSibling;
  if (!(next instanceof HTMLTableRowElement) || row === null) return;
  const stops = 'a, button, input';
  const place = [...row.querySelectorAll<HTMLElement>(stops)].indexOf(from);
  const targets = [...next.querySelectorAll<HTMLElement>(stops)];
  (targets[place] ?? targets[0])?.focus();
  event.preventDefault();
}

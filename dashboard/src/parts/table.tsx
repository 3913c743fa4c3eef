// Table with fixed column widths, so that live updates move nothing. The arrow keys move between rows; on a phone each
// row becomes a small card.

import type { ComponentChildren } from 'preact';

export type Column<Row> = {
  head: string;
  /** A class that fixes the width; see style/parts.css. */
  width?: string;
  numeric?: boolean;
  /** `title`: the first line of the card; `hidden`: not shown on a phone. */
  onPhone?: 'title' | 'hidden';
  /** The label of the cell on a phone, if it is not the column's head. */
  label?: (row: Row) => string;
  cell: (row: Row) => ComponentChildren;
};

type TableProps<Row> = {
  label: string;
  columns: readonly Column<Row>[];
  /** Undefined: no answer yet. The space is reserved, so that the content below does not move. */
  rows: readonly Row[] | undefined;
  rowKey: (row: Row) => string;
  empty: ComponentChildren;
  /** Called with true while the pointer is on a row: live updates are held meanwhile. */
  onHold?: (held: boolean) => void;
  rowClass?: (row: Row) => string;
};

export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, rows, rowKey, empty, onHold, rowClass } = props;
  return (
    <div class="table-frame">
      <table aria-label={label} onKeyDown={moveFocus}>
        <colgroup>
          {columns.map((column) => (
            <col key={column.head} class={column.width ?? ''} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.head} scope="col" class={column.numeric ? 'numeric' : ''}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody
          onPointerEnter={(event) => event.pointerType === 'mouse' && onHold?.(true)}
          onPointerLeave={() => onHold?.(false)}
        >
          {rows?.map((row) => (
            <tr key={rowKey(row)} class={rowClass?.(row) ?? ''}>
              {columns.map((column) => (
                <td
                  key={column.head}
                  data-label={column.label?.(row) ?? column.head}
                  class={`${column.numeric ? 'numeric' : ''} ${column.onPhone ? `phone-${column.onPhone}` : ''}`}
                >
                  {framed(column.cell(row))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows === undefined && <p class="empty looking">Looking…</p>}
      {rows?.length === 0 && <p class="empty">{empty}</p>}
    </div>
  );
}

/** Wraps plain text in an element, so that it can be cut off with an ellipsis and show the whole text as its title. */
function framed(content: ComponentChildren): ComponentChildren {
  return typeof content === 'string' ? <span title={content}>{content}</span> : content;
}

/** Moves the focus to the same cell of the row above or below. */
function moveFocus(event: KeyboardEvent): void {
  const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
  const from = event.target;
  if (step === 0 || !(from instanceof HTMLElement) || from instanceof HTMLInputElement) return;
  const row = from.closest('tr');
  const next = step === 1 ? row?.nextElementSibling : row?.previousElementSibling;
  if (!(next instanceof HTMLTableRowElement) || row === null) return;
  const stops = 'a, button, input';
  const place = [...row.querySelectorAll<HTMLElement>(stops)].indexOf(from);
  const targets = [...next.querySelectorAll<HTMLElement>(stops)];
  (targets[place] ?? targets[0])?.focus();
  event.preventDefault();
}

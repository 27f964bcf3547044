import { printable, truncate, widthOf } from './text.ts';

export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string | number | null;
  /** Aligns numbers to the right. */
  readonly right?: boolean;
  /** May be cut down to this many cells when the terminal is narrow. Default: never cut. */
  readonly shrinkTo?: number;
  /** Left out if cutting does not make enough room; the highest first. Default: never left out. */
  readonly leaveOut?: number;
  /** Colour, given the text as it will be printed. */
  readonly paint?: (text: string, row: Row) => string;
}

const gap = '  ';

/** Aligned columns, no wider than `width`. */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], width = Infinity): string {
  const all = columns.map((column) => {
    const cells = rows.map((row) => printable(String(column.value(row) ?? '')));
    return { column, cells, width: Math.max(widthOf(column.title), ...cells.map(widthOf)) };
  });
  const kept = withoutColumns(all, width);
  const widths = shrink(kept, width);
  const line = (cells: readonly string[], paint?: (text: string, i: number) => string): string =>
    cells
      .map((cell, i) => {
        const room = widths[i] ?? 0;
        const text = truncate(cell, room);
        const pad = ' '.repeat(room - widthOf(text));
        const painted = paint ? paint(text, i) : text;
        return kept[i]?.column.right ? pad + painted : painted + pad;
      })
      .join(gap)
      .trimEnd();
  return [
    line(kept.map(({ column }) => column.title)),
    ...rows.map((row, at) =>
      line(
        kept.map(({ cells }) => cells[at] ?? ''),
        (text, i) => kept[i]?.column.paint?.(text, row) ?? text,
      ),
    ),
  ].join('\n');
}

interface Sized<Row> {
  readonly column: Column<Row>;
  readonly cells: readonly string[];
  readonly width: number;
}

const least = ({ column, width }: Sized<unknown>): number => Math.min(width, column.shrinkTo ?? width);
const total = (widths: readonly number[]): number =>
  widths.reduce((sum, width) => sum + width, 0) + gap.length * Math.max(0, widths.length - 1);

function withoutColumns<Row>(columns: readonly Sized<Row>[], width: number): readonly Sized<Row>[] {
  let kept = columns;
  // Leave out a column without any value.
  const empty = (c: Sized<Row>): boolean =>
    c.column.leaveOut !== undefined && c.cells.every((cell) => cell === '');
  if (columns.some((c) => c.cells.length > 0)) kept = kept.filter((c) => !empty(c));
  while (total(kept.map((c) => least(c as Sized<unknown>))) > width) {
    const rank = Math.max(...kept.map((c) => c.column.leaveOut ?? 0));
    if (rank === 0) break;
    kept = kept.filter((c) => c.column.leaveOut !== rank);
  }
  return kept;
}

/** Takes from the widest column that may be cut, cell by cell, until the line fits. */
function shrink<Row>(columns: readonly Sized<Row>[], width: number): number[] {
  const widths = columns.map((c) => c.width);
  for (let over = total(widths) - width; over > 0; over -= 1) {
    let widest = -1;
    columns.forEach((c, i) => {
      const room = (widths[i] ?? 0) - least(c as Sized<unknown>);
      if (room > 0 && (widths[i] ?? 0) > (widths[widest] ?? 0)) widest = i;
    });
    if (widest < 0) break;
    widths[widest] = (widths[widest] ?? 1) - 1;
  }
  return widths;
}

/** A page about one thing: names at the left, values behind them. Nothing is cut. */
export function facts(entries: readonly (readonly [name: string, value: string | number | null])[]): string {
  const shown = entries.filter(([, value]) => value !== null && value !== '');
  const width = Math.max(...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}${gap}${printable(String(value))}`).join('\n');
}

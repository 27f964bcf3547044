import { median, readable, table } from '../../lib/figures.ts';
import type { Row } from '../../lib/suite.ts';
import type { Measured } from './measure/bench.ts';
import type { SystemName } from './systems/names.ts';
import type { Size, WORKLOADS } from './workloads.ts';

type WorkloadEntry = (typeof WORKLOADS)[number];

/** All that was seen of one system on one workload. */
export interface Cell {
  readonly system: SystemName;
  readonly workload: WorkloadEntry;
  readonly size: Size;
  /** Why there is no figure by design; undefined where there is to be one. */
  readonly lacking: string | undefined;
  readonly runs: Measured[];
  readonly failures: string[];
}

const LESS_IS_BETTER: readonly string[] = ['ms', 's'];
/** What a table shows beside the value, where a run reports it. */
const SHOWN = ['in', 'out', 'p95', 'p99'];

const valid = (cell: Cell) => cell.failures.length === 0 && cell.runs.length > 0;

const medianOf = (cell: Cell) => median(cell.runs.map(({ value }) => value));

/** Medians of what was seen beside the value. */
function extraOf(cell: Cell): Record<string, number> {
  const keys = Object.keys(cell.runs[0]?.extra ?? {});
  return Object.fromEntries(
    keys.map((key) => [key, median(cell.runs.map((run) => run.extra?.[key] ?? Number.NaN))]),
  );
}

/** The row for `--json`; none where there is no valid figure. */
export function rowsOf(cell: Cell): Row[] {
  if (!valid(cell)) return [];
  const runs = cell.runs.map(({ value }) => value);
  return [
    {
      workload: cell.workload.name,
      system: cell.system,
      value: median(runs),
      unit: cell.workload.unit,
      min: Math.min(...runs),
      max: Math.max(...runs),
      runs,
      jobs: cell.size.jobs,
      ...extraOf(cell),
    },
  ];
}

/** A table of one workload: each system, and how many times better Tallyman is than it. */
export function tableOf(workload: WorkloadEntry, cells: readonly Cell[]): string {
  const own = cells.filter((cell) => cell.workload.name === workload.name);
  const figure = (name: SystemName) => {
    const cell = own.find(({ system }) => system === name);
    return cell !== undefined && valid(cell) ? medianOf(cell) : undefined;
  };
  const ours = (['tallyman', 'tallyman-history'] as const).map(figure);
  const limit = figure('limit');
  const better = (a: number | undefined, b: number) => {
    if (a === undefined) return '–';
    return `${(LESS_IS_BETTER.includes(workload.unit) ? b / a : a / b).toFixed(2)}×`;
  };
  const shown = SHOWN.filter((key) => own.some(({ runs }) => runs[0]?.extra?.[key] !== undefined));
  const body = own.map((cell) => {
    if (cell.failures.length > 0) return [cell.system, 'FAILED'];
    if (!valid(cell)) return [cell.system, 'n/a'];
    const values = cell.runs.map(({ value }) => value);
    const value = medianOf(cell);
    const range = `${readable(Math.min(...values))}–${readable(Math.max(...values))}`;
    const extra = extraOf(cell);
    return [
      cell.system,
      readable(value),
      range,
      ...shown.map((key) => (extra[key] === undefined ? '–' : readable(extra[key]))),
      ...ours.map((our) => better(our, value)),
      limit === undefined ? '–' : better(value, limit),
    ];
  });
  const usual = Math.max(...own.map(({ size }) => size.jobs));
  const head = [workload.name, workload.unit, 'min–max', ...shown, 'tallyman is', 'with history', 'of limit'];
  return [workload.summary, table(head, body), ...own.flatMap((cell) => footnote(cell, usual))].join('\n');
}

/** Why a figure is missing, or that it was taken over fewer jobs than the others'. */
function footnote(cell: Cell, usual: number): string[] {
  if (cell.lacking !== undefined) return [`${cell.system}: ${cell.lacking}`];
  if (cell.size.jobs === usual) return [];
  return [`${cell.system}: over ${cell.size.jobs.toLocaleString('en-US')} jobs`];
}

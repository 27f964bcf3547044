import type { OutboundPlate } from '../shipments/plan.ts';

export interface PlatePage {
  readonly plates: readonly OutboundPlate[];
  /** Where the next page begins; the same as the one asked for, or null: there is no more for now. */
  readonly nextCursor: string | null;
}

/** What is wanted of a warehouse system: the plates that are to leave, page by page. */
export interface WarehouseSystem {
  /** The page after `cursor`; null: the first one. Asked twice, it may answer more, never less. */
  plates(cursor: string | null, signal: AbortSignal): Promise<PlatePage>;
}

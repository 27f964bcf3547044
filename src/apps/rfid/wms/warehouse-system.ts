import type { OutboundPlate } from '../shipments/plan.ts';

export interface PlatePage {
  readonly plates: readonly OutboundPlate[];
  /** Where the next page begins. The same cursor as before, or null: there are no more pages for now. */
  readonly nextCursor: string | null;
}

/** What we need from a warehouse system: the plates that are to leave, page by page. */
export interface WarehouseSystem {
  /** The page after `cursor`; null: the first page. A second call may return more plates, never fewer. */
  plates(cursor: string | null, signal: AbortSignal): Promise<PlatePage>;
}

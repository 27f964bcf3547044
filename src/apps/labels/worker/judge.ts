import { exponentialMs } from '../../../engine/resilience/backoff.ts';
import type { LabelReport } from '../gateways/index.ts';
import type { PageState } from '../labels.ts';

/** A page that a gateway is asked about. */
export interface AskedPage {
  readonly page: number;
  readonly acceptedHash: string | null;
  /** How often the gateway was asked without a result. */
  readonly asked: number;
}

export interface Judgement {
  readonly state: Extract<PageState, 'processing' | 'shown' | 'timeout' | 'failed'>;
  readonly error?: string;
}

/** How often a gateway may report another image than the last push before this counts as drift, not as delay. */
const patience = 5;

/** The new state of a page whose image the gateway had accepted, from the gateway's report. */
export function judge(page: AskedPage, report: LabelReport | undefined): Judgement {
  switch (report?.state) {
    case 'shown': {
      const hash = report.hashes?.get(page.page);
      // A gateway that reports no hash is trusted when it says "shown".
      if (report.hashes === undefined || hash === page.acceptedHash) return { state: 'shown' };
      if (page.asked < patience) return { state: 'processing' };
      return { state: 'timeout', error: 'the gateway shows another image than it accepted last' };
    }
    case 'processing':
      return { state: 'processing' };
    case 'timeout':
      return { state: 'timeout', error: 'the gateway could not reach the label in time' };
    default:
      return { state: 'failed', error: 'the gateway does not know this label' };
  }
}

/** A page that is compared with what its gateway says. */
export interface ComparedPage {
  readonly page: number;
  readonly state: PageState;
  readonly wantedJob: string | null;
  readonly acceptedJob: string | null;
  readonly acceptedHash: string | null;
  /** Its task is still to be run. */
  readonly isPending: boolean;
}

/** Whether a page does not show what it should, and no task is under way for it (LBL-8). */
export function hasDrifted(page: ComparedPage, report: LabelReport | undefined): boolean {
  if (page.isPending) return false;
  // Its task became a dead letter, was cancelled or refused: what the label shows is not what is wanted.
  if (page.wantedJob !== page.acceptedJob) return true;
  if (page.state === 'timeout' || page.state === 'failed') return true;
  if (page.state === 'processing') return false;
  if (report === undefined || report.state === 'unknown' || report.state === 'timeout') return true;
  if (report.hashes === undefined || report.state === 'processing') return false;
  return report.hashes.get(page.page) !== page.acceptedHash;
}

/** Seconds until the gateway is asked again: 2, 4, 8, … up to five minutes. */
export const askAgainMs = (asked: number): number => exponentialMs(asked, { minMs: 2000, maxMs: 300_000 });

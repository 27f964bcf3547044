import type { ClaimedItem } from '../../../../src/engine/jobs/claim.ts';

/** A worker as it sees itself: what it has, and which claims it will drop with its next statement. */
export class Member {
  readonly name: string;
  items: ClaimedItem[] = [];
  readonly drops: string[] = [];

  constructor(name: string) {
    this.name = name;
  }

  /** It is done with an item; with the last one of a claim the claim is to be dropped, unless that has happened. */
  remove(item: ClaimedItem, isDropped: boolean): void {
    this.items = this.items.filter((other) => other !== item);
    if (!isDropped && this.items.every((other) => other.claim !== item.claim))
      this.drops.push(item.claim.token);
  }
}

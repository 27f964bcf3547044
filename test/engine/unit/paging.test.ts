import { describe, expect, it } from 'vitest';
import { pageOf, pageRequest } from '../../../src/engine/paging.ts';

describe('pages', () => {
  it('a page has 50 items, at least 1 and at most 200', () => {
    expect(pageRequest({})).toEqual({ limit: 50, fetchLimit: 51, cursor: null });
    expect(pageRequest({ limit: 0 }).limit).toBe(1);
    expect(pageRequest({ limit: 201 }).limit).toBe(200);
  });

  it('a cursor is an id', () => {
    expect(pageRequest({ cursor: '9223372036854775807' }).cursor).toBe('9223372036854775807');
    for (const cursor of ['', 'x', '-1', '1.5', '9223372036854775808', "1' or true"])
      expect(() => pageRequest({ cursor })).toThrow('is not an id');
  });

  it('the row beyond the limit says that there is more, and is not shown', () => {
    const rows = ['9', '8', '7'].map((id) => ({ id }));
    expect(pageOf(rows, 2)).toEqual({ items: [{ id: '9' }, { id: '8' }], nextCursor: '8' });
    expect(pageOf(rows, 3)).toEqual({ items: rows, nextCursor: null });
    expect(pageOf([], 3)).toEqual({ items: [], nextCursor: null });
  });
});

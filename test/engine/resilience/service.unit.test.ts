import { describe, expect, it } from 'vitest';
import { addressOf } from '../../../src/engine/resilience/service.ts';

describe('services', () => {
  it('an address that is logged has no user, password or query', () => {
    expect(addressOf('amqp://tally:s3cret@host:5672/plant?password=s3cret')).toBe('amqp://host:5672/plant');
    expect(addressOf('redis://:s3cret@host/')).toBe('redis://host');
    expect(addressOf('tally:s3cret@host')).not.toContain('s3cret');
    expect(addressOf('redis://tally:12/s3cret@host')).not.toContain('s3cret');
    expect(addressOf('//tally:s3cret@host')).not.toContain('s3cret');
  });
});

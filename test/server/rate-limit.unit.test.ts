import { expect, test } from 'vitest';
import { callerNetwork } from '../../src/server/access/caller-network.ts';
import { RateLimit } from '../../src/server/access/rate-limit.ts';

test('SEC-5: a limit that no other process shares remembers no demand', () => {
  const [own, shared] = [new RateLimit(1, 1), new RateLimit(1, 1, { isShared: true })];
  for (const limit of [own, shared]) for (let i = 0; i < 100; i += 1) limit.take(`stranger ${i}`);
  expect([own.takeDemand().size, shared.takeDemand().size]).toEqual([0, 100]);
});

test('SEC-5: strangers are counted by IPv4 address, or by the /64 of an IPv6 address', () => {
  for (const [address, network] of [
    ['192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::', '2001:db8:1:2::/64'],
    ['2001:db8:1:2:ffff::1', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:db8:1:3::1', '2001:db8:1:3::/64'],
    ['::1', '0:0:0:0::/64'],
    ['64:ff9b::192.0.2.7', '64:ff9b:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['', ''],
  ] as const)
    expect([address, callerNetwork(address)]).toEqual([address, network]);
});

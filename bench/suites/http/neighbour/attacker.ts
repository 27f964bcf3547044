/** One tenant at its worst, in a process of its own with less priority than the server: it is the server that is measured. */
import { Agent, request } from 'node:http';
import { setPriority } from 'node:os';
import { serve } from '../../../lib/child.ts';
import { ATTACKS, type AttackRequest } from './attacks.ts';

export interface AttackTask {
  readonly url: string;
  readonly attack: string;
  readonly caller: Readonly<Record<string, string>>;
  readonly seconds: number;
}

/** How many answers there were, by status; 0: none. */
export type Answered = Readonly<Record<number, number>>;

serve<AttackTask, Answered>(async ({ url, attack: name, caller, seconds }) => {
  setPriority(10);
  const attack = ATTACKS.find((each) => each.name === name);
  if (!attack) throw new Error(`there is no attack "${name}"`);
  const agent = new Agent({ keepAlive: true, maxSockets: attack.connections });
  const until = performance.now() + seconds * 1000;
  const answered: Record<number, number> = {};
  const send = ({ method, path, body }: AttackRequest): Promise<void> =>
    new Promise((done) => {
      let status = 0;
      const sent = request(`${url}${path}`, {
        method,
        agent,
        headers: {
          ...caller,
          ...(body !== undefined && {
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(body),
          }),
        },
      });
      sent.on('response', (response) => {
        status = response.statusCode ?? 0;
        if (attack.streams) setTimeout(() => sent.destroy(), 500);
        response.resume();
      });
      sent.on('error', () => {});
      // An attacker does not wait for the rest of its answers when it is over.
      const over = setTimeout(() => sent.destroy(), Math.max(0, until - performance.now()));
      sent.on('close', () => {
        clearTimeout(over);
        answered[status] = (answered[status] ?? 0) + 1;
        done();
      });
      sent.end(body);
    });
  await Promise.all(
    Array.from({ length: attack.connections }, async (_, connection) => {
      for (let i = connection; performance.now() < until; i += 1) {
        const next = attack.requests[i % attack.requests.length];
        if (next) await send(next);
      }
    }),
  );
  agent.destroy();
  return answered;
});

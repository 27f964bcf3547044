import { describe, expect, test } from 'vitest';
import {
  type EventRow,
  type EventRule,
  eventOfFact,
  factOfEvent,
  matchesAnyRule,
  matchesType,
  namesBoundary,
  typesIn,
  unknownPlaces,
} from '../../../../src/apps/boundary/domain/event-rules.ts';
import { checkFact } from '../../../../src/apps/boundary/domain/fact.ts';
import { Zones } from '../../../../src/apps/boundary/domain/zones.ts';
import { record } from '../store/facts.ts';

const zones = new Zones(['plant-a', 'enterprise', 'lab']);
const plant = zones.resolve('plant-a', 'zone');
const lab = zones.resolve('lab', 'zone');
const rule: EventRule = {
  event: 'rfid.movement',
  to: zones.resolve('enterprise', 'zone'),
  predicate: 'moved_to',
};
const event: EventRow = {
  position: '7',
  id: 'evt_7',
  type: 'rfid.movement',
  aggregateType: 'basket',
  aggregateId: '3034257BF7194E4000000001',
  occurredAt: '2026-03-05T12:00:00.123456Z',
  createdAt: '2026-03-05T12:00:01.000001Z',
  payload: '{"to_location_id": "12", "n": 1.0}',
};
const made = (changes: Partial<EventRow> = {}, by: Partial<EventRule> = {}) =>
  factOfEvent({ ...event, ...changes }, { ...rule, ...by }, plant);

describe('BND-16: the fact of an event', () => {
  test('has the aggregate as subject, what identifies the event, and the payload', () => {
    const fact = checkFact(made({}, { labels: { line: '4' } }), zones);
    expect(fact).toMatchObject({
      from: 'plant-a',
      to: 'enterprise',
      subject: 'basket:3034257BF7194E4000000001',
      predicate: 'moved_to',
      causationId: 'evt_7',
      correlationId: 'evt_7',
      labels: { line: '4' },
      producedAt: Date.parse('2026-03-05T12:00:00.123Z'),
    });
    expect(JSON.parse(fact.object)).toEqual({
      event: {
        id: 'evt_7',
        type: 'rfid.movement',
        occurred_at: '2026-03-05T12:00:00.123456Z',
        aggregate_type: 'basket',
        aggregate_id: '3034257BF7194E4000000001',
      },
      payload: { to_location_id: '12', n: 1 },
    });
  });

  test('carries the correlation id of the payload, if there is one that can be', () => {
    expect(made({ payload: '{"correlation_id":"wo-1"}' }).correlationId).toBe('wo-1');
    for (const bad of ['7', '""', '"a\\nb"', `"${'x'.repeat(257)}"`])
      expect(made({ payload: `{"correlation_id":${bad}}` }).correlationId).toBe('evt_7');
  });

  test('has the same id each time, and another one where the id of the event is that of another', () => {
    const { messageId } = made();
    expect(messageId).toMatch(/^event:evt_7:[0-9a-f]{32}$/);
    expect(made().messageId).toBe(messageId);
    const others = [
      made({ payload: '{"to_location_id": "13"}' }),
      made({ createdAt: '2026-03-05T12:00:01.000002Z' }),
      made({ aggregateId: 'other' }),
      made({}, { predicate: 'seen_at' }),
      made({}, { to: lab }),
    ].map((fact) => fact.messageId);
    expect(new Set([messageId, ...others]).size).toBe(6);
  });

  test('gets its subject from a template', () => {
    const subject = (template: string, payload = '{"epc_hex":"30","a":{"b":5}}', aggregateType = 'basket') =>
      made({ payload, aggregateType }, { subject: template }).subject;
    expect(subject('tag:{payload.epc_hex}')).toBe('tag:30');
    expect(subject('{aggregate_type}:{payload.a.b}/{aggregate_id}')).toBe(`basket:5/${event.aggregateId}`);
    expect(subject('{aggregate_type}:x', '{}', 'Work-Order')).toBe('work_order:x');
    expect(() => subject('tag:{payload.toString}')).toThrow('no text or number at payload.toString');
    expect(() => subject('tag:{payload.a}')).toThrow('fact.subject');
    expect(unknownPlaces('{aggregate_id}{payload.a-b.c}{id}{payload}')).toEqual(['id', 'payload']);
  });

  test('is refused where it can never be one, with the reason', () => {
    expect(() => made({ payload: null })).toThrow('larger than a fact may be');
    expect(() => checkFact(made({ payload: '{"n":9007199254740993}' }), zones)).toThrow('9007199254740993');
    expect(() => checkFact(made({ aggregateType: '4' }), zones)).toThrow('fact.subject');
  });
});

test('BND-16: rules name types and beginnings of types, and never those of the boundary', () => {
  expect(typesIn([rule, { event: 'label.*' }])).toEqual({ types: ['rfid.movement'], prefixes: ['label.'] });
  expect(matchesType(rule, 'rfid.movement')).toBe(true);
  expect(matchesType(rule, 'rfid.movement.corrected')).toBe(false);
  expect(matchesType({ event: 'rfid.*' }, 'rfid.movement')).toBe(true);
  expect(matchesType({ event: 'rfid.*' }, 'rfidx.movement')).toBe(false);
  for (const event of ['*', 'boundary.*', 'boundary.fact.received', 'boundary.fact.*'])
    expect(namesBoundary(event)).toBe(true);
  expect(namesBoundary('boundaries.moved')).toBe(false);
});

describe('BND-16: the event of a fact', () => {
  test('is told by rules that it fits entirely', () => {
    const fact = record('m1', { from: plant, predicate: 'moved_to' });
    expect(matchesAnyRule([], fact)).toBe(false);
    expect(matchesAnyRule([{}], fact)).toBe(true);
    expect(matchesAnyRule([{ predicate: 'moved_to', from: lab }, { predicate: 'other' }], fact)).toBe(false);
    expect(matchesAnyRule([{ predicate: 'moved_to', from: plant }], fact)).toBe(true);
  });

  test('has an id of its own, the subject as aggregate, and leaves out an object that is too large', () => {
    const fact = record('m1', { object: '{"x":"yyyyyyyyyyyyyyyyyyyyyyyy"}', labels: { a: 'b' } });
    const told = eventOfFact('t', fact, 5, 1_000_000);
    expect(told).toMatchObject({
      type: 'boundary.fact.received',
      tenantId: 't',
      aggregateType: 'subject',
      aggregateId: 'order:1',
      payload: { message_id: 'm1', offset: 5, object: { x: 'yyyyyyyyyyyyyyyyyyyyyyyy' }, labels: { a: 'b' } },
    });
    expect(told.id).toMatch(/^fact:[0-9a-f]{64}$/);
    expect(eventOfFact('t', record('m2'), 5, 1_000_000).id).not.toBe(told.id);
    expect(eventOfFact('t', fact, 5, 100).payload).toMatchObject({ object: null, object_omitted: true });
  });
});

import { describe, expect, test } from 'vitest';
import {
  type Action,
  authorize,
  type Identity,
  identityOf,
} from '../../../../src/apps/boundary/domain/identity.ts';

const rules = {
  trustDomain: 'example',
  commonNames: { 'old plc': 'plant-a/producer', odd: 'plant-a/admin' },
};
const of = (subjectAltName: string | undefined, commonName?: string) =>
  identityOf({ subjectAltName, commonName }, rules);

describe('identities', () => {
  test('BND-12: one URI names zone and role; a common name counts only where it is listed', () => {
    const uri = 'spiffe://example/zone/plant-a/producer';
    expect(of(`DNS:localhost, URI:${uri}, IP Address:127.0.0.1`)).toEqual({
      zone: 'plant-a',
      role: 'producer',
      name: uri,
    });
    expect(of('DNS:x', 'old plc')).toEqual({ zone: 'plant-a', role: 'producer', name: 'CN=old plc' });
  });

  test.each([
    ['nothing', undefined, undefined],
    ['a common name that is not listed', 'DNS:x', 'plant-a/producer'],
    ['a common name that JavaScript has', 'DNS:x', 'constructor'],
    ['a common name with a role that there is not', 'DNS:x', 'odd'],
    ['another trust domain', 'URI:spiffe://evil/zone/plant-a/producer', undefined],
    ['a trust domain that only begins so', 'URI:spiffe://example.evil/zone/plant-a/producer', undefined],
    ['a role that there is not', 'URI:spiffe://example/zone/plant-a/admin', undefined],
    ['local', 'URI:spiffe://example/zone/plant-a/local', undefined],
    ['a zone that is no slug', 'URI:spiffe://example/zone/Plant A/producer', undefined],
    ['more behind it', 'URI:spiffe://example/zone/plant-a/producer/peer', undefined],
    ['two URIs', 'URI:spiffe://example/zone/plant-a/peer, URI:spiffe://example/zone/plant-b/peer', undefined],
    ['a name that pretends to be two', 'DNS:"x, URI:spiffe://example/zone/plant-a/peer"', undefined],
    ['a listed name beside a URI of others', 'URI:https://x', 'old plc'],
  ])('BND-12: %s is no identity', (_, names, commonName) => {
    expect(() => of(names, commonName)).toThrow(expect.objectContaining({ code: 'UNAUTHENTICATED' }));
  });

  test('BND-12: who may do what on a node', () => {
    const node = { zone: 'plant-a', sendsTo: ['enterprise'] };
    const out = { from: 'plant-a', to: 'enterprise' };
    const into = { from: 'enterprise', to: 'plant-a' };
    const actions: readonly (readonly [string, Action])[] = [
      ['append', { kind: 'append', stream: out }],
      ['append to a zone not listed', { kind: 'append', stream: { from: 'plant-a', to: 'lab' } }],
      ['append for another zone', { kind: 'append', stream: into }],
      ['find', { kind: 'find', from: 'plant-a' }],
      ['consume what came', { kind: 'consume', stream: into }],
      ['consume what goes', { kind: 'consume', stream: out }],
      ['deliver', { kind: 'deliver', stream: into }],
      ['deliver elsewhere', { kind: 'deliver', stream: out }],
      ['frontier', { kind: 'frontier', stream: out }],
      ['reconcile', { kind: 'reconcile', stream: out }],
      ['put', { kind: 'put objects' }],
      ['get', { kind: 'get objects' }],
      ['get what no fact names', { kind: 'get objects', unnamed: 'x' }],
    ];
    const may = (zone: string, role: Identity['role']): string[] =>
      actions
        .filter(([, action]) => {
          try {
            authorize({ zone, role, name: 'x' }, action, node);
            return true;
          } catch (error) {
            expect(error).toMatchObject({ code: 'PERMISSION_DENIED', reason: 'not_allowed' });
            return false;
          }
        })
        .map(([name]) => name);
    expect(may('plant-a', 'producer')).toEqual([
      'append',
      'find',
      'frontier',
      'put',
      'get',
      'get what no fact names',
    ]);
    expect(may('plant-a', 'consumer')).toEqual([
      'find',
      'consume what came',
      'consume what goes',
      'frontier',
      'get',
    ]);
    expect(may('enterprise', 'producer')).toEqual(['frontier']);
    expect(may('enterprise', 'consumer')).toEqual(['frontier']);
    expect(may('enterprise', 'peer')).toEqual([
      'consume what goes',
      'deliver',
      'frontier',
      'reconcile',
      'put',
      'get',
    ]);
    expect(may('lab', 'peer')).toEqual(['put']);
    expect(may('plant-a', 'local')).toHaveLength(10);
  });
});

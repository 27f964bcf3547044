import { randomBytes } from 'node:crypto';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { FactRecord } from '../../../../src/apps/boundary/domain/record.ts';
import { defaultLimits } from '../../../../src/apps/boundary/limits/fill.ts';
import { collectOrphans } from '../../../../src/apps/boundary/objects/collect.ts';
import { FileBlobs } from '../../../../src/apps/boundary/objects/files.ts';
import { startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import type { DeliveredFact } from '../../../../src/apps/boundary/sdk/outbox/producer.ts';
import { freePorts } from '../../../support/services/service.ts';
import { until } from '../../../support/until.ts';
import { TestAuthority } from '../rpc/certificates.ts';
import { testNode } from '../rpc/node.ts';
import { allEntries, cuttingProxy, fact, numbers, out, plant, producer, scratch } from './scene.ts';

const nowhere = async (): Promise<string> => `http://127.0.0.1:${(await freePorts(1))[0]}`;

describe('the way to the node', () => {
  test('BND-14: facts arrive in order, and those that gather while a call is under way share the next one', async () => {
    const { port, outbox, ids } = await plant();
    const proxy = await cuttingProxy(port);
    const delivered: DeliveredFact[] = [];
    const to = await producer({ url: proxy.url, outbox, onDelivered: (each) => delivered.push(each) });
    const names = numbers(500).map((n) => `m${n}`);
    const accepted = await Promise.all(names.map((name) => to.append(fact(name))));
    expect(accepted.map(({ messageId, isNew }) => [messageId, isNew])).toEqual(
      names.map((name) => [name, true]),
    );
    await to.flush();
    expect(await ids()).toEqual(names);
    expect(delivered.map(({ messageId, offset, existing }) => [messageId, offset, existing])).toEqual(
      names.map((name, i) => [name, i + 1, false]),
    );
    // All of one turn are one commit, and one call.
    expect(proxy.requests).toBeLessThanOrEqual(2);
    expect(to.state()).toMatchObject({ bytes: 0, parked: 0, lanes: [{ waiting: 0, trouble: undefined }] });
  });

  test('BND-14: append does not wait for the node; a producer that ends loses nothing, and the next one sends it', async () => {
    const folder = await scratch();
    const outbox = join(folder, 'outbox.db');
    const [port = 0] = await freePorts(1);
    const url = `http://127.0.0.1:${port}`;
    const first = await producer({ url, outbox });
    for (const name of ['a', 'b', 'c']) await first.append(fact(name));
    await until('it has tried', () => first.state().lanes[0]?.mode === 'blocked');
    expect(first.state().lanes).toMatchObject([{ toZone: 'enterprise', waiting: 3 }]);
    const gone = new AbortController();
    const flushed = first.flush(gone.signal);
    gone.abort(new Error('waited long enough'));
    await expect(flushed).rejects.toThrow('waited long enough');
    await first.close();
    await expect(first.append(fact('d'))).rejects.toMatchObject({ code: 'CLOSED' });

    const { node, store } = await testNode('plant-a');
    const server = await startBoundaryServer({ node, host: '127.0.0.1', port });
    onTestFinished(() => server.stop());
    const second = await producer({ url, outbox });
    await second.append(fact('d'));
    await second.flush();
    expect((await allEntries(store, out)).map(({ key }) => key)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('BND-14: answers that are lost make no fact twice, nor another order', async () => {
    const { port, outbox, ids } = await plant();
    const proxy = await cuttingProxy(port);
    const to = await producer({ url: proxy.url, outbox });
    proxy.losesAnswers = true;
    for (const n of numbers(20)) await to.append(fact(`m${n}`));
    await until('the node has them, and the producer does not know', async () => (await ids()).length === 20);
    expect(to.state().lanes[0]?.waiting).toBe(20);
    // With the same ids and content, also from a process that knows nothing but the outbox.
    proxy.losesAnswers = false;
    await to.append(fact('m5'));
    await to.append(fact('m21'));
    await to.flush();
    expect(await ids()).toEqual(numbers(21).map((n) => `m${n}`));
  });

  test('BND-14: a line that is silent is given up, and the call is made again', async () => {
    const { port, outbox, ids } = await plant();
    const proxy = await cuttingProxy(port);
    const to = await producer({ url: proxy.url, outbox, timeoutMs: 300 });
    proxy.isFrozen = true;
    await to.append(fact('a'));
    await until('it was given up', () => to.state().lanes[0]?.mode === 'blocked');
    proxy.isFrozen = false;
    await to.flush();
    expect(await ids()).toEqual(['a']);
  });

  test('BND-14: with certificates, over HTTP/2; renewed ones count from the next call on', async () => {
    const authority = await TestAuthority.make();
    const { serve, store } = await testNode('plant-a');
    const { port } = await serve({ load: () => authority.server(), identities: { trustDomain: 'example' } });
    const as = async (path: string) => ({
      ...(await authority.issue({ uris: [`spiffe://example/zone/${path}`] })),
      ca: authority.ca,
    });
    const to = await producer({
      url: `https://localhost:${port}`,
      outbox: join(await scratch(), 'outbox.db'),
      tls: await as('plant-a/consumer'),
    });
    await to.append({ ...fact('a'), attachment: { bucket: 'b', key: 'k', source: Buffer.from('bytes') } });
    await until(
      'it was refused',
      () => to.state().lanes[0]?.trouble?.includes('may not put objects') === true,
    );
    // It is about who asks, and not about the fact: nothing is parked.
    expect(to.state()).toMatchObject({ parked: 0, lanes: [{ waiting: 1 }] });
    to.renewCertificates(await as('plant-a/producer'));
    await to.flush();
    expect((await allEntries(store, out)).map(({ key }) => key)).toEqual(['a']);
  });

  test('BND-14: where certificates are needed they are asked for, and plain HTTP stays on this machine', async () => {
    const outbox = join(await scratch(), 'outbox.db');
    for (const [url, message] of [
      ['https://localhost:1', 'tls is missing'],
      ['http://plant.example:1', 'is not on this machine'],
      ['ftp://localhost', 'must begin with https://'],
      ['localhost:1', 'must begin with https://'],
      ['http://localhost:1/path', 'scheme, host and port only'],
      ['', 'is not a URL'],
    ] as const)
      await expect(producer({ url, outbox })).rejects.toThrow(message);
  });
});

describe('facts that are refused', () => {
  test('BND-14: what is not well-formed is refused at once, with its field', async () => {
    const to = await producer({ url: await nowhere(), outbox: join(await scratch(), 'outbox.db') });
    for (const [change, message] of [
      [{ subject: 'work order' }, 'fact.subject'],
      [{ predicate: 'Has State' }, 'fact.predicate'],
      [{ object: undefined }, 'fact.object_json is missing'],
      [{ object: 1n }, 'fact.object_json cannot be written'],
      [{ object: '\ud800' }, 'lone surrogate'],
      [{ toZone: 'Plant A' }, 'another zone than from_zone'],
      [{ toZone: '…' }, 'envelope.to_zone is no name'],
      [{ messageId: 'x'.repeat(257) }, 'envelope.message_id'],
      [{ producedAt: new Date(Number.NaN) }, 'envelope.produced_at_unix_ms'],
      [{ attachment: { bucket: 'No Bucket', key: 'k', source: Buffer.from('') } }, 'attachment.bucket'],
    ] as const)
      await expect(to.append({ ...fact('a'), ...change } as ReturnType<typeof fact>)).rejects.toThrow(
        message,
      );
    expect(to.state()).toMatchObject({ bytes: 0, lanes: [] });
  });

  test('BND-14: refused facts are parked with their reason, the others go on; they can be sent again or dropped', async () => {
    const { url, outbox, ids, folder, objects } = await plant();
    const other = await producer({ url, outbox: join(folder, 'other.db') });
    await other.append(fact('taken', 'first'));
    await other.flush();
    const parked: string[] = [];
    const to = await producer({
      url,
      outbox,
      onParked: ({ messageId, reason }) => parked.push(`${messageId} ${reason}`),
    });
    const bytes = Buffer.from('not there yet');
    const digest = 'sha256:0c67ce2fb1ba1e5cbb3c6c2bb4fd0fb28b7a5b2a4d3ee1c7cf0e1ba4ad4e58c5';
    const missing = { bucket: 'b', key: 'k', digest };
    await Promise.all(
      [fact('a'), fact('taken', 'second'), { ...fact('ref', 1), objectRef: missing }, fact('b')].map((each) =>
        to.append(each),
      ),
    );
    await to.append({ ...fact('far'), toZone: 'nowhere' });
    await to.flush();
    expect(await ids()).toEqual(['taken', 'a', 'b']);
    expect(parked.sort()).toEqual([
      'far invalid_field',
      'ref object_not_stored',
      'taken conflicting_duplicate',
    ]);
    expect(to.listParked().map(({ messageId, reason }) => [messageId, reason])).toEqual([
      ['taken', 'conflicting_duplicate'],
      ['ref', 'object_not_stored'],
      ['far', 'invalid_field'],
    ]);
    expect(to.listParked({ after: to.listParked()[0]?.seq ?? 0, limit: 1 })).toMatchObject([
      { messageId: 'ref' },
    ]);
    expect(await to.append(fact('taken', 'second'))).toMatchObject({ isNew: false });
    await expect(to.append(fact('taken', 'third'))).rejects.toMatchObject({
      reason: 'conflicting_duplicate',
    });

    async function* source() {
      yield bytes;
    }
    const stored = await objects.put({ tenantId: 'default', bucket: 'b', key: 'k' }, source());
    expect(to.retryParked('ref')).toBe(1);
    await to.flush();
    // Another object has that name: it is parked again, for another reason.
    expect(stored.digest).not.toBe(digest);
    expect(to.listParked().map(({ messageId, reason }) => `${messageId} ${reason}`)).toContain(
      'ref object_differs',
    );
    for (const id of ['taken', 'ref', 'far']) expect(to.dropParked(id)).toBe(true);
    expect(to.dropParked('ref')).toBe(false);
    expect(to.state()).toMatchObject({ parked: 0, bytes: 0 });
    // What was dropped is forgotten: its id is free again here.
    await to.append({ ...fact('ref', 1), objectRef: { ...missing, digest: stored.digest } });
    await to.flush();
    expect(await ids()).toEqual(['taken', 'a', 'b', 'ref']);
  });

  test('BND-14: a zone that takes nothing does not keep facts from the others, and keeps its own in order', async () => {
    const { url, outbox, ids, store } = await plant();
    const to = await producer({ url, outbox });
    await to.append(fact('first'));
    await to.flush();
    // Zone lab is not on the node's list: it refuses who asks, until the list changes.
    for (const n of numbers(3)) await to.append({ ...fact(`lab${n}`), toZone: 'lab' });
    for (const n of numbers(3)) await to.append(fact(`m${n}`));
    await until('the others are there', async () => (await ids()).length === 4);
    await until('it has tried', () => to.state().lanes.some(({ mode }) => mode === 'blocked'));
    expect(to.state().lanes.find(({ toZone }) => toZone === 'lab')).toMatchObject({
      waiting: 3,
      mode: 'blocked',
    });
    expect(to.setAside('lab1', 'nobody there')).toBe(true);
    expect(to.setAside('lab1', 'nobody there')).toBe(false);
    expect(to.listParked()).toMatchObject([
      { messageId: 'lab1', reason: 'set_aside', message: 'nobody there' },
    ]);
    expect(await store.state({ ...out, to: 'lab' })).toBeUndefined();
  });

  test('BND-14: a full outbox says so, and takes facts again when some have left', async () => {
    const [port = 0] = await freePorts(1);
    const outbox = join(await scratch(), 'outbox.db');
    const to = await producer({ url: `http://127.0.0.1:${port}`, outbox, maxBytes: 2000 });
    const taken: string[] = [];
    const full = async () => {
      for (let n = 1; ; n += 1) {
        await to.append(fact(`m${n}`));
        taken.push(`m${n}`);
      }
    };
    await expect(full()).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'outbox_full' });
    expect(taken.length).toBeGreaterThan(2);
    const attachment = { bucket: 'b', key: 'k', source: randomBytes(2000) };
    await expect(to.append({ ...fact('x'), attachment })).rejects.toMatchObject({ reason: 'outbox_full' });
    expect(await readdir(`${outbox}-objects`)).toEqual([]);
    const { node, store } = await testNode('plant-a');
    const server = await startBoundaryServer({ node, host: '127.0.0.1', port });
    onTestFinished(() => server.stop());
    await to.flush();
    await to.append(fact('more'));
    await to.flush();
    expect((await allEntries(store, out)).map(({ key }) => key)).toEqual([...taken, 'more']);
  });
});

describe('attachments', () => {
  test('BND-14: an object is stored before its fact, also when the node is away; its copy goes with the fact', async () => {
    const { url, outbox, entries, objects, folder } = await plant();
    const away = await producer({ url: await nowhere(), outbox });
    const bytes = randomBytes(700_000);
    const file = join(folder, 'order.pdf');
    await writeFile(file, bytes);
    const attachment = {
      bucket: 'files',
      key: 'order.pdf',
      mediaType: 'application/pdf',
      fileName: 'order.pdf',
    };
    const { object: _, ...about } = fact('with file');
    await away.append({ ...about, attachment: { ...attachment, source: { file } } });
    // The producer's own file may change, or go.
    await writeFile(file, 'other');
    async function* parts() {
      yield bytes.subarray(0, 1000);
      yield bytes.subarray(1000);
    }
    // The same bytes under another name are kept once.
    await away.append({
      ...fact('with stream', 1),
      attachment: { ...attachment, key: 'copy', source: parts() },
    });
    expect(await readdir(`${outbox}-objects`)).toHaveLength(1);
    await away.close();

    const to = await producer({ url, outbox });
    await to.flush();
    const [first, second] = await entries();
    expect(first?.record).toMatchObject({
      messageId: 'with file',
      reference: { bucket: 'files', key: 'order.pdf', size: 700_000, mediaType: 'application/pdf' },
    });
    const { object } = (first as { readonly record: FactRecord }).record;
    expect(JSON.parse(object)).toMatchObject({
      bucket: 'files',
      key: 'order.pdf',
      size: 700_000,
      media_type: 'application/pdf',
      file_name: 'order.pdf',
    });
    expect(second?.record).toMatchObject({ object: '1', reference: { key: 'copy' } });
    for (const key of ['order.pdf', 'copy']) {
      const got: Uint8Array[] = [];
      for await (const part of (await objects.get({ tenantId: 'default', bucket: 'files', key })).bytes)
        got.push(part);
      expect(Buffer.concat(got).equals(bytes)).toBe(true);
    }
    expect(await readdir(`${outbox}-objects`)).toEqual([]);
  });

  test('BND-14: an object whose name has other bytes parks its fact, and only that', async () => {
    const { url, outbox, ids } = await plant();
    const to = await producer({ url, outbox });
    const attach = (name: string, text: string) =>
      to.append({ ...fact(name), attachment: { bucket: 'b', key: 'k', source: Buffer.from(text) } });
    await attach('a', 'one');
    await attach('b', 'two');
    await attach('c', 'one');
    await to.flush();
    expect(await ids()).toEqual(['a', 'c']);
    expect(to.listParked()).toMatchObject([{ messageId: 'b', reason: 'conflicting_object' }]);
    // Its bytes are kept with it.
    expect(await readdir(`${outbox}-objects`)).toHaveLength(1);
    to.dropParked('b');
    expect(await readdir(`${outbox}-objects`)).toEqual([]);
  });

  test('BND-14: facts keep their order where the node has collected an object while its stream was full', async () => {
    let free = defaultLimits.reserveBytes;
    let looks = 0;
    const freeBytes = async (): Promise<number> => {
      looks += 1;
      return free;
    };
    const { url, outbox, ids, objects, database, store, nodeFolder } = await plant({
      admission: { freeBytes, refreshMs: 0 },
    });
    const to = await producer({ url, outbox });
    const name = { tenantId: 'default', bucket: 'b', key: 'k' };
    await to.append(fact('a'));
    await to.append({ ...fact('b'), attachment: { bucket: 'b', key: 'k', source: Buffer.from('bytes') } });
    await to.append(fact('c'));
    await until('the object is there', async () => (await objects.find(name)) !== undefined);
    const before = looks;
    // One call has up to three.
    await until('all of them were refused', () => looks > before + 6);
    const grace = { uploadGraceMs: 0, graceMs: 0, holdGraceMs: 0 };
    const blobs = await FileBlobs.open(nodeFolder);
    expect(await collectOrphans({ database, blobs, store, ...grace })).toMatchObject({
      objects: 1,
      blobs: 1,
    });
    free = 2 * defaultLimits.reserveBytes;
    await to.flush();
    expect(await ids()).toEqual(['a', 'b', 'c']);
    expect(await objects.find(name)).toBeDefined();
  });
});

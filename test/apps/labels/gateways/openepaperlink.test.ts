import { describe, expect, it } from 'vitest';
import { startLabelSimulator } from '../../../../src/apps/labels/gateways/simulator/index.ts';
import {
  builtInTemplate,
  palettes,
  readTemplate,
  renderLabel,
  samplePromotion,
  standardSizes,
} from '../../../../src/apps/labels/render/index.ts';
import { PermanentError } from '../../../../src/engine/errors.ts';
import { gatewayConformance } from './conformance.ts';
import { gatewayFor, imageOf, mac, openEPaperLink, whole } from './support.ts';

gatewayConformance('OpenEPaperLink', { settings: openEPaperLink, tellsHashes: false });

describe('OpenEPaperLink', () => {
  it('LBL-7 every size and palette survives the JPEG to the pixel', async () => {
    await using simulator = await startLabelSimulator();
    await using gateway = gatewayFor(openEPaperLink(simulator));
    for (const { width, height } of standardSizes)
      for (const palette of palettes) {
        const panel = { width, height, palette };
        const image = await renderLabel(readTemplate(builtInTemplate(panel)), samplePromotion, panel);
        const label = simulator.simulation.labels.register(mac);
        label.settings = { palette };
        await gateway.push({ mac, page: 1, image }, whole);
        expect(label.images.at(-1)?.hash, `${width}×${height} ${palette}`).toBe(image.hash);
      }
  });

  it('LBL-7 one upload at a time: those in line do not run out of time, and may leave it', async () => {
    await using simulator = await startLabelSimulator({ latency: { minMs: 300, maxMs: 300 } });
    await using gateway = gatewayFor(openEPaperLink(simulator, 5000));
    const image = await imageOf('1');
    const giveUp = new AbortController();
    const first = gateway.push({ mac, page: 1, image }, whole);
    const leaves = gateway.push({ mac, page: 1, image }, giveUp.signal);
    // More than five seconds of uploads against a limit of five for each.
    const rest = Array.from({ length: 16 }, () => gateway.push({ mac, page: 1, image }, whole));
    giveUp.abort(new Error('gone'));
    await expect(leaves).rejects.toThrow('gone');
    await Promise.all([first, ...rest]);
    expect(simulator.simulation.labels.get(mac)?.images).toHaveLength(17);
  });

  it('LBL-7 it has one page', async () => {
    await using simulator = await startLabelSimulator();
    await using gateway = gatewayFor(openEPaperLink(simulator));
    const pushed = gateway.push({ mac, page: 2, image: await imageOf('1') }, whole);
    await expect(pushed).rejects.toBeInstanceOf(PermanentError);
    await expect(pushed).rejects.toThrow('has no pages');
  });
});

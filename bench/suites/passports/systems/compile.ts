import { compile } from '../../../../src/apps/passports/compile/compile.ts';
import { mustCheck } from '../../../../src/apps/passports/compile/rules/check.ts';
import type { CompileInput } from '../../../../src/apps/passports/compile/types.ts';
import { benchMeans, itemsOf, product, rulePackage, snapshotOf } from '../battery.ts';
import type { System } from './system.ts';

const passport = '11111111-1111-4111-8111-111111111111';

export const compileAlone: System = {
  async open({ versions, factor, isFull }) {
    const { limits, build } = benchMeans();
    const rules = mustCheck(rulePackage);
    const snapshot = snapshotOf(factor);
    const base = {
      passport: { id: passport, version: passport },
      snapshot,
      product,
      issuedAt: '2027-02-18T00:00:00Z',
      build,
      signingKey: 'bench-1',
      salt: 'ab'.repeat(32),
    };
    const model = compile({ ...base, item: null, model: null }, rules, limits);
    const link = isFull ? null : { version: passport, receipt_hash: model.receiptHash };
    const inputs = itemsOf(versions).map((item): CompileInput => ({ ...base, item, model: link }));
    const hashes = new Set<string>();
    for (const input of inputs.slice(0, 20)) compile(input, rules, limits);
    return {
      async run() {
        for (const input of inputs) hashes.add(compile(input, rules, limits).receiptHash);
        return 0;
      },
      async verify() {
        if (hashes.size !== versions) throw new Error(`${hashes.size} different receipts of ${versions}`);
      },
      close: async () => {},
    };
  },
};

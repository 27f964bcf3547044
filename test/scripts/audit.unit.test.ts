import { expect, test } from 'vitest';
import { judge } from '../../scripts/audit.ts';

const report = (...severities: string[]) =>
  JSON.stringify({
    metadata: {},
    vulnerabilities: Object.fromEntries(
      severities.map((severity, i) => [`package-${i}`, { severity, range: '<2' }]),
    ),
  });

test.each([
  { severities: [], fails: false },
  { severities: ['low', 'moderate'], fails: false },
  { severities: ['low', 'high'], fails: true },
  { severities: ['critical'], fails: true },
])('vulnerabilities $severities: fails: $fails', ({ severities, fails }) => {
  expect(judge(report(...severities)).fails).toBe(fails);
});

test('those that fail are named', () => {
  expect(judge(report('low', 'high')).says).toContain('high: package-1 <2');
});

test.each([
  { output: '', says: 'not checked: npm gave no report' },
  { output: 'npm error', says: 'not checked: npm gave no report' },
  { output: '{"message": "405 Method Not Allowed"}', says: 'not checked: 405 Method Not Allowed' },
])('no report is not a finding: $output', ({ output, says }) => {
  expect(judge(output)).toEqual({ fails: false, says });
});

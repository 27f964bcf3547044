/**
 * Asks the registry for known vulnerabilities in the dependencies that users install. A high or critical one fails.
 * Where no registry answers, it says so and passes: tests must run offline, too.
 */
import { spawnSync } from 'node:child_process';

export interface Verdict {
  readonly fails: boolean;
  readonly says: string;
}

interface Report {
  readonly vulnerabilities: Readonly<Record<string, { readonly severity: string; readonly range: string }>>;
}

const isReport = (answer: unknown): answer is Report =>
  typeof answer === 'object' && answer !== null && 'vulnerabilities' in answer && 'metadata' in answer;

function parsed(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch {
    return undefined;
  }
}

const reasonIn = (answer: unknown): string =>
  typeof answer === 'object' && answer !== null && 'message' in answer
    ? String(answer.message)
    : 'npm gave no report';

/** What `npm audit --json` printed, judged. Its exit code does not tell a finding from a registry that is away. */
export function judge(output: string): Verdict {
  const answer = parsed(output);
  if (!isReport(answer)) return { fails: false, says: `not checked: ${reasonIn(answer)}` };
  const found = Object.entries(answer.vulnerabilities);
  const serious = found.filter(([, { severity }]) => severity === 'high' || severity === 'critical');
  if (serious.length === 0)
    return { fails: false, says: `no high or critical vulnerability is known (${found.length} below that)` };
  const lines = serious.map(([name, { severity, range }]) => `  ${severity}: ${name} ${range}`);
  return { fails: true, says: ['known vulnerabilities:', ...lines, 'See: npm audit --omit=dev'].join('\n') };
}

if (import.meta.main) {
  // One try: a registry that is away must not hold up the tests for minutes.
  const args = ['audit', '--omit=dev', '--json', '--fetch-retries=0', '--fetch-timeout=20000'];
  const { stdout } = spawnSync('npm', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const { fails, says } = judge(stdout ?? '');
  console.log(`npm audit: ${says}`);
  process.exitCode = fails ? 1 : 0;
}
